"""The answers of `/messages`: where text lives in a message and in the events that stream it.

Shapes are those of Anthropic's API. A block's text comes in deltas and is never repeated, so that what a client has is
the deltas' sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gateway.wire import json
from gateway.wire.event_table import EventForm, EventTable, Index, Place, Role, TextField
from gateway.wire.json import Json
from gateway.wire.message import SlotKind
from gateway.wire.names import named, reasons
from gateway.wire.typed_deltas import read_block_delta

_BLOCK: Place = ("content", Index("index"))
_DELTA = "content_block_delta"

_TEXT = TextField("text", "text", "content", delta=f"{_DELTA}/text_delta")
_THINKING = TextField("thinking", "thinking", "reasoning", delta=f"{_DELTA}/thinking_delta")
_SIGNATURE = TextField("thinking", "signature", "other", SlotKind.SIGNATURE, signs="thinking")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_INPUTS = {
    call: TextField(call, "input", "tool_arguments", SlotKind.JSON, f"{_DELTA}/input_json_delta", is_object=True)
    for call in _CALLS
}
_FIELDS = (
    *(_TEXT, _THINKING, _SIGNATURE, *_INPUTS.values()),
    *(TextField(call, "name", "tool_names") for call in _CALLS),
    TextField("redacted_thinking", "data", "other", SlotKind.OPAQUE),
    TextField("web_search_result", "encrypted_content", "other", SlotKind.OPAQUE),
    TextField("web_search_result_location", "encrypted_index", "other", SlotKind.OPAQUE),
)


def _delta(key: str, field: TextField) -> EventForm:
    return EventForm(Role.APPEND, (*_BLOCK, field.name), key, within="delta", text=field)


_EVENTS = {
    "message_start": EventForm(Role.START, (), "message"),
    "content_block_start": EventForm(Role.OPEN, _BLOCK, "content_block", done="content_block_stop"),
    _DELTA: EventForm(Role.STATUS, within="delta"),
    f"{_DELTA}/text_delta": _delta("text", _TEXT),
    f"{_DELTA}/thinking_delta": _delta("thinking", _THINKING),
    f"{_DELTA}/signature_delta": _delta("signature", _SIGNATURE),
    f"{_DELTA}/input_json_delta": _delta("partial_json", _INPUTS["tool_use"]),
    f"{_DELTA}/citations_delta": EventForm(Role.ADD, (*_BLOCK, "citations"), "citation", within="delta"),
    "content_block_stop": EventForm(Role.CLOSE, _BLOCK),
    "message_delta": EventForm(Role.CONCLUDE, (), within="delta"),
    "message_stop": EventForm(Role.END),
    "ping": EventForm(Role.STATUS),
}
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_CONSTANTS = named("messages", "constants").union(
    (each for kind in _EVENTS for each in kind.split("/")), (field.part for field in _FIELDS), _REASONS
)
_NAMES = named("messages", "names")
# Dropped while a policy enforces. docs/messages.md prints this table.
DROPPED_IN_MESSAGES = reasons("messages", "dropped_in_answers")


def _reason_of(received: Json) -> Any:
    delta = received.get("delta", received)
    return delta.get("stop_reason") if isinstance(delta, dict) else None


def _usage_of(received: Json) -> tuple[Any, Any] | None:
    message = received.get("message", received)
    usage = message.get("usage") if isinstance(message, dict) else None
    if not isinstance(usage, dict):
        return None
    kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    read = [count for kind in kinds if type(count := usage.get(kind)) is int]
    return sum(read) if read else None, usage.get("output_tokens")


def _final(message: Json) -> list[Json]:
    usage = message.get("usage")
    tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
    delta = {"stop_reason": "refusal", "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens or 0}},
        {"type": "message_stop"},
    ]


def as_events(message: Json) -> Iterator[Json]:
    """A whole message as the events of a stream; it is used up."""
    blocks = message.get("content")
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None}}
    for index, block in enumerate(blocks if isinstance(blocks, list) else []):
        if isinstance(block, dict):
            yield from _block_events(block, index)
    delta = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    yield {"type": "message_delta", "delta": delta, "usage": message.get("usage") or {}}
    yield {"type": "message_stop"}


_PIECES = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "signature": ("signature_delta", "signature"),
    "input": ("input_json_delta", "partial_json"),
}


def _block_events(block: Json, index: int) -> Iterator[Json]:
    begun, deltas = dict(block), []
    streamed = {field.name for field in _FIELDS if field.part == block.get("type") and field.name in _PIECES}
    for name, (kind, key) in _PIECES.items():
        value = block.get(name) if name in streamed else None
        if name == "input" and isinstance(value, dict) and value:
            begun[name] = {}
            deltas.append({"type": kind, key: json.encode(value).decode()})
        elif isinstance(value, str) and value:
            begun[name] = ""
            deltas.append({"type": kind, key: value})
    citations = begun.pop("citations", None)
    for citation in citations if isinstance(citations, list) else ():
        deltas.append({"type": "citations_delta", "citation": citation})
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": _DELTA, "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(error: Json, status: int) -> Json:
    """An error in OpenAI's shape as Anthropic's clients read it: they look for its code among the details."""
    given = error["error"]
    kind = given.get("type")
    if kind not in _ERROR_TYPES.values():
        kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    shown = {"type": kind, "message": given.get("message") or "The request failed."}
    if details := given.get("details") or ({"error_code": given["code"]} if given.get("code") else None):
        shown["details"] = details
    return {"type": "error", "error": shown}


MESSAGE_EVENTS = EventTable(
    events=_EVENTS,
    read_delta=read_block_delta,
    fields=_FIELDS,
    names=_NAMES,
    constants=_CONSTANTS,
    dropped=DROPPED_IN_MESSAGES,
    echoes=frozenset(),
    content=_TEXT,
    message={"text": (("content_block_start", {"type": "text", "text": ""}),)},
    tools=frozenset(_CALLS),
    reasons=_REASONS,
    reason_of=_reason_of,
    usage_of=_usage_of,
    stop=lambda message: message.update(stop_reason="refusal", stop_sequence=None),
    final=_final,
    as_events=as_events,
    error=partial(error_body, status=500),
)
