"""Which guard reads the answers of a dialect."""

from __future__ import annotations

from gateway.censor.compile import CompiledPolicy
from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.chat import ChatGuard
from gateway.guard.events import EventGuard
from gateway.guard.findings import OnFinding
from gateway.guard.pseudonyms import Pseudonyms
from gateway.wire.dialect import Dialect


def open_guard(
    dialect: Dialect,
    compiled: CompiledPolicy,
    expected: int = 1,
    known: tuple[str, ...] = (),
    on_finding: OnFinding | None = None,
    pseudonyms: Pseudonyms | None = None,
    json_content: bool = False,
) -> AnswerGuard:
    """The guard of one answer that comes in `dialect`; the other arguments are those of `ChatGuard`."""
    if dialect.events is not None:
        return EventGuard(dialect.events, compiled, known, on_finding, pseudonyms, json_content)
    return ChatGuard(compiled, expected, known, on_finding, pseudonyms, json_content)
