"""Streams of `/messages` as Anthropic sends them, written out: blocks with their texts in pieces."""

from __future__ import annotations

import copy
from typing import Any

Event = dict[str, Any]
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds+FjU8Fv4WLJkcs="


def message(*blocks: Event, stop_reason: str | None = "end_turn", **more: Any) -> Event:
    given = {"id": "msg_1", "type": "message", "role": "assistant", "model": "mz", "content": list(blocks)}
    usage = {"input_tokens": 3, "output_tokens": 4}
    return {**given, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage, **more}


def _block(begun: Event, kind: str, key: str, pieces: tuple[str, ...], *after: Event) -> list[Event]:
    deltas = [{"type": kind, key: piece} for piece in pieces]
    return [begun, *deltas, *after]


def text(*pieces: str) -> list[Event]:
    return _block({"type": "text", "text": ""}, "text_delta", "text", pieces)


def thinking(*pieces: str) -> list[Event]:
    begun = {"type": "thinking", "thinking": "", "signature": ""}
    return _block(begun, "thinking_delta", "thinking", pieces, {"type": "signature_delta", "signature": SIGNATURE})


def tool_use(*pieces: str, name: str = "f", kind: str = "tool_use") -> list[Event]:
    begun = {"type": kind, "id": "toolu_1", "name": name, "input": {}}
    return _block(begun, "input_json_delta", "partial_json", pieces)


def events(*blocks: list[Event], interleaved: bool = False, stop_reason: str = "end_turn") -> list[Event]:
    """The whole stream; `interleaved`: the deltas of all blocks in turn."""
    parts = []
    for index, (begun, *deltas) in enumerate(blocks):
        parts.append(
            (
                [{"type": "content_block_start", "index": index, "content_block": begun}],
                [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas],
                [{"type": "content_block_stop", "index": index}],
            )
        )
    between = [event for part in parts for events in part for event in events]
    if interleaved:
        between = [event for begins, _, _ in parts for event in begins]
        queues = [list(deltas) for _, deltas, _ in parts]
        while any(queues):
            between += [queue.pop(0) for queue in queues if queue]
        between += [event for _, _, ends in parts for event in ends]
    start = {"type": "message_start", "message": {**message(stop_reason=None)}}
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    ends = [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}, {"type": "message_stop"}]
    return copy.deepcopy([start, {"type": "ping"}, *between, *ends])
