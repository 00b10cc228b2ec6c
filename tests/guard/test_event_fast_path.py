"""A stream of typed events the fast path and the slow path: the same events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guard.fast_path import EventFastPath
from gateway.policy.model import Action, Mode, Policy, Rule
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support.event_client import Received, answer_for, script

RULES = (
    Rule(id="r", words=("12MONKEYS",), replacement="[CENSORED]"),
    Rule(id="b", words=("FORBIDDEN",), action=Action.BLOCK, message="No."),
)
PIECES = ("", "It is ", "12MON", "KEYS", "1", 'a "quote"\n', "\u2028\x85é", "FORBID", "DEN", "😀")
Event = dict[str, Any]
BOTH = pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=lambda dialect: dialect.path)


def deltas(dialect: Dialect, pieces: list[str], odd: dict[int, Event]) -> list[Event]:
    """A stream of one text; the deltas at some places have further fields."""
    if dialect is MESSAGES:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "mz", "content": []}
        events: list[Event] = [
            {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        ]
        for piece in pieces:
            delta = {"type": "text_delta", "text": piece}
            events.append({"type": "content_block_delta", "index": 0, "delta": delta})
        ends = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
    else:
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "mz", "output": []}
        events = [
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.content_part.added", **where, "part": part},
            *({"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []} for piece in pieces),
        ]
        ends = [{"type": "response.output_text.done", **where, "text": "".join(pieces)}]
    first = len(events) - len(pieces)
    for at, more in odd.items():
        if at < len(pieces):
            events[first + at] |= more
    events += ends
    return (
        [{**event, "sequence_number": number} for number, event in enumerate(events)]
        if dialect is RESPONSES
        else events
    )


def received(dialect: Dialect, events: list[Event], mode: Mode, fast: bool) -> tuple[list[Event], int]:
    """What a client gets, and how many events went the fast path."""
    answer = answer_for(Policy(name="p", rules=RULES, mode=mode), dialect)
    quick, count = answer._fast, 0
    assert isinstance(quick, EventFastPath)

    class Counted:
        def repeat(self, data: bytes, *most: int) -> Any:
            nonlocal count
            sent = quick.repeat(data, *most)
            count += sent is not None
            return sent

        def learn(self, data: bytes) -> None:
            pass

        def bytes_path(self, limit: int) -> None:
            pass

    answer._fast = Counted() if fast else None  # type: ignore[assignment]
    got = Received()
    for event in events:
        got.take(answer.feed(script([event]), 0.0))
    got.take(answer.close(0.0))
    return got.events, count


@BOTH
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    odd=st.dictionaries(
        st.integers(0, 11),
        st.sampled_from(
            [{"x": "12MONKEYS"}, {"index": 1}, {"item_id": "other"}, {"output_index": -1}, {"obfuscation": "a"}]
        ),
        max_size=1,
    ),
    mode=st.sampled_from(Mode),
)
def test_both_ways_send_the_same(dialect: Dialect, pieces: list[str], odd: dict[int, Event], mode: Mode) -> None:
    events = deltas(dialect, pieces, odd)
    assert received(dialect, events, mode, fast=True)[0] == received(dialect, events, mode, fast=False)[0]


@BOTH
def test_most_of_a_stream_goes_the_fast_way(dialect: Dialect) -> None:
    events = deltas(dialect, [f"word {number} " for number in range(50)], {})
    assert received(dialect, events, Mode.ENFORCE, fast=True)[1] == 49
    assert "word 49" in json.dumps(received(dialect, events, Mode.ENFORCE, fast=True)[0])
