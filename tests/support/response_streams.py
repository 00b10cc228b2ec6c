"""Streams of `/responses` as OpenAI sends them, written out: items with their texts in pieces."""

from __future__ import annotations

import copy
from typing import Any

Event = dict[str, Any]


def response(*output: Event, status: str = "completed", **more: Any) -> Event:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7} if status == "completed" else None
    given = {"id": "resp_1", "object": "response", "created_at": 1.0, "model": "mz", "status": status}
    return {**given, "output": list(output), "tools": [], "tool_choice": "auto", "usage": usage, **more}


class Item:
    """An item of the output: its events by piece, so that several may be interleaved."""

    def __init__(self, begun: Event, done: Event, pieces: list[Event], before: list[Event], after: list[Event]) -> None:
        self.begun, self.done, self.pieces, self.before, self.after = begun, done, pieces, before, after

    def at(self, index: int) -> tuple[list[Event], list[Event], list[Event]]:
        """The events that begin it, its deltas, and those that end it."""
        where = {"item_id": self.begun["id"], "output_index": index}
        added = {"type": "response.output_item.added", "output_index": index, "item": self.begun}
        done = {"type": "response.output_item.done", "output_index": index, "item": self.done}
        begins, deltas, ends = (
            [{**event, **where} for event in part] for part in (self.before, self.pieces, self.after)
        )
        return [added, *begins], deltas, [*ends, done]


def _part_item(kind: str, part: str, stem: str, pieces: list[str], name: str = "text") -> Item:
    text = "".join(pieces)
    more: Event = {"annotations": [], "logprobs": []} if part == "output_text" else {}
    deltas: Event = {"logprobs": [], "obfuscation": "x"} if part == "output_text" else {}
    whole, empty = ({"type": part, name: value, **more} for value in (text, ""))
    begun = {"id": f"{part}_1", "type": kind, "status": "in_progress", "content": []}
    begun |= {"role": "assistant"} if kind == "message" else {"summary": []}
    return Item(
        begun,
        {**begun, "status": "completed", "content": [whole]},
        [{"type": f"response.{stem}.delta", "content_index": 0, "delta": piece, **deltas} for piece in pieces],
        [{"type": "response.content_part.added", "content_index": 0, "part": empty}],
        [
            {"type": f"response.{stem}.done", "content_index": 0, name: text, **deltas},
            {"type": "response.content_part.done", "content_index": 0, "part": whole},
        ],
    )


def message(*pieces: str) -> Item:
    return _part_item("message", "output_text", "output_text", list(pieces))


def refusal(*pieces: str) -> Item:
    return _part_item("message", "refusal", "refusal", list(pieces), "refusal")


def reasoning(*pieces: str) -> Item:
    return _part_item("reasoning", "reasoning_text", "reasoning_text", list(pieces))


def summary(*pieces: str) -> Item:
    text = "".join(pieces)
    begun = {"id": "rs_1", "type": "reasoning", "summary": []}
    whole = {"type": "summary_text", "text": text}
    stem = "response.reasoning_summary"
    return Item(
        begun,
        {**begun, "summary": [whole]},
        [{"type": f"{stem}_text.delta", "summary_index": 0, "delta": piece} for piece in pieces],
        [{"type": f"{stem}_part.added", "summary_index": 0, "part": {"type": "summary_text", "text": ""}}],
        [
            {"type": f"{stem}_text.done", "summary_index": 0, "text": text},
            {"type": f"{stem}_part.done", "summary_index": 0, "part": whole},
        ],
    )


def _call(kind: str, field: str, stem: str, pieces: list[str], **more: Any) -> Item:
    text = "".join(pieces)
    begun = {"id": f"{kind}_1", "type": kind, field: "", "status": "in_progress", **more}
    return Item(
        begun,
        {**begun, field: text, "status": "completed"},
        [{"type": f"response.{stem}.delta", "delta": piece} for piece in pieces],
        [],
        [{"type": f"response.{stem}.done", field: text}],
    )


def function_call(*pieces: str, name: str = "f") -> Item:
    return _call("function_call", "arguments", "function_call_arguments", list(pieces), name=name, call_id="call_1")


def mcp_call(*pieces: str) -> Item:
    return _call("mcp_call", "arguments", "mcp_call_arguments", list(pieces), name="f", server_label="s")


def custom_call(*pieces: str) -> Item:
    return _call("custom_tool_call", "input", "custom_tool_call_input", list(pieces), name="f", call_id="call_2")


def code_call(*pieces: str) -> Item:
    stem = "code_interpreter_call_code"
    return _call("code_interpreter_call", "code", stem, list(pieces), container_id="c", outputs=None)


def events(*items: Item, interleaved: bool = False, **more: Any) -> list[Event]:
    """The whole stream; `interleaved`: the deltas of all items in turn."""
    begun = [
        {"type": f"response.{name}", "response": response(status="in_progress", **more)}
        for name in ("created", "in_progress")
    ]
    parts = [item.at(index) for index, item in enumerate(items)]
    if interleaved:
        between = [event for begins, _, _ in parts for event in begins]
        queues = [list(deltas) for _, deltas, _ in parts]
        while any(queues):
            between += [queue.pop(0) for queue in queues if queue]
        between += [event for _, _, ends in parts for event in ends]
    else:
        between = [event for part in parts for events in part for event in events]
    ended = {"type": "response.completed", "response": response(*(item.done for item in items), **more)}
    numbered = enumerate([*begun, *between, ended])
    return [{**copy.deepcopy(event), "sequence_number": number} for number, event in numbered]
