"""Which guard reads the answers of a dialect."""

from __future__ import annotations

from gateway.censor.compile import CompiledPolicy
from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.channels import ChannelCounts
from gateway.guard.chat import ChatGuard
from gateway.guard.events import EventGuard
from gateway.guard.findings import OnFinding
from gateway.guard.pseudonyms import Pseudonyms
from gateway.policy.model import Direction
from gateway.wire.dialect import Dialect

_OUTPUT = Direction.OUTPUT  # to look up a member of an enumeration takes as long as a call


def open_guard(
    dialect: Dialect,
    compiled: CompiledPolicy,
    expected: int = 1,
    known: tuple[str, ...] = (),
    on_finding: OnFinding | None = None,
    pseudonyms: Pseudonyms | None = None,
    json_content: bool = False,
) -> AnswerGuard:
    """The guard of one answer that comes in `dialect`. `expected` choices were requested. `pseudonyms` are those of the
    prompt: the answer comes with their values. `json_content`: JSON was requested."""
    counts = ChannelCounts(compiled, _OUTPUT, on_finding, pseudonyms=pseudonyms, json_content=json_content)
    if dialect.events is not None:
        return EventGuard(dialect.events, counts, known)
    return ChatGuard(counts, expected, known)
