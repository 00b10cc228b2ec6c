"""The usual whole answer: one choice, a message of nothing but content, labels in which no rule finds anything.

The fast path beside `ChatGuard.completion`, which says what is right: it gives up before it has changed anything. All
that it may have counted by then are clean labels, which are not counted again.
"""

from __future__ import annotations

from typing import Any

from gateway.guard.channels import ChannelCounts
from gateway.guard.metadata import FIXED_NAMES, MAX_FIRST, Metadata
from gateway.policy.model import Channel
from gateway.wire.fences import may_hold_json
from gateway.wire.json import Json
from gateway.wire.message import FINISH_REASONS, ROLES, is_figure

_ANSWER = frozenset({"id", "object", "created", "model", "service_tier", "system_fingerprint", "usage", "choices"})
_CHOICE = frozenset({"index", "message", "logprobs", "finish_reason"})
_MESSAGE = frozenset({"role", "content", "refusal", "annotations"})
_CONTENT = Channel.CONTENT  # to look up a member of an enumeration takes as long as a call


def usual_completion(received: Json, metadata: Metadata) -> Json | None:
    """The answer as it is shown, its texts counted; None for an answer of any other kind."""
    choices, counts = received.get("choices"), metadata.counts
    if type(choices) is not list or len(choices) != 1 or not _ANSWER.issuperset(received) or not metadata.enforces:
        return None
    (choice,) = choices
    if type(choice) is not dict or not _CHOICE.issuperset(choice) or choice.get("logprobs") is not None:
        return None
    index, message, reason = choice.get("index"), choice.get("message"), choice.get("finish_reason")
    if type(reason) is not str or reason not in FINISH_REASONS or counts.compiled.policy.constrain is not None:
        return None
    if type(index) is not int or index != 0 or type(message) is not dict:
        return None
    labels = []
    for field, value in received.items():
        if type(value) is str:
            if field == "created" or len(value) > MAX_FIRST:
                return None
            labels.append(value)
        elif not (value is None or value is choices or (field == "created" and is_figure(value))) and not (
            field == "usage" and _is_usage(value)
        ):
            return None
    if not metadata.pass_unopened(labels) or not passes_plain(message, counts):
        return None
    # As the slow path leaves them: what was taken out to be read is put back behind the rest.
    choice["message"] = choice.pop("message")
    received["choices"] = received.pop("choices")
    return received


def passes_plain(message: Json, counts: ChannelCounts) -> bool:
    """Is this a whole message of nothing but content in which there is nothing to do? It has been counted then."""
    content, role = message.get("content"), message.get("role")
    if not (type(content) is type(role) is str and role in ROLES and _MESSAGE.issuperset(message)):
        return False
    if message.get("refusal") is not None or message.get("annotations") or counts.json_content:
        return False
    return counts.pseudonyms is None and not may_hold_json(content) and counts.passes(_CONTENT, content)


def _is_usage(usage: Any) -> bool:
    """Is it an object of figures under names of the protocol's?"""
    if type(usage) is not dict or not FIXED_NAMES.issuperset(usage):
        return False
    for value in usage.values():  # noqa: SIM110 - a generator takes longer than most of this
        if not (value is None or is_figure(value) or _is_usage(value)):
            return False
    return True
