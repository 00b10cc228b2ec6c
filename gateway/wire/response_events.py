"""The answers of `/responses`: where text lives in a response and in the events that stream it.

A stream sends every text up to four times: in deltas, in the `done` event of the text, of its part and of its item, and
in the response that ends it. Shapes are those of OpenAI's API; `response.reasoning_part.*` is vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.wire.event_table import EventForm, EventTable, Index, Place, Role, TextField
from gateway.wire.json import Json
from gateway.wire.message import SlotKind
from gateway.wire.names import named, reasons
from gateway.wire.typed_deltas import read_response_delta

_ITEM: Place = ("output", Index("output_index"))
_PART: Place = (*_ITEM, "content", Index("content_index"))
_SUMMARY: Place = (*_ITEM, "summary", Index("summary_index"))
_COMMAND: Place = (*_ITEM, "action", "commands", Index("command_index"))


def _streamed(part: str, name: str, channel: str, stem: str, kind: SlotKind = SlotKind.TEXT) -> TextField:
    return TextField(part, name, channel, kind, f"response.{stem}.delta", f"response.{stem}.done")


_TEXT = _streamed("output_text", "text", "content", "output_text")
_REFUSAL = _streamed("refusal", "refusal", "refusal", "refusal")
_REASONING = _streamed("reasoning_text", "text", "reasoning", "reasoning_text")
_SUMMARY_TEXT = _streamed("summary_text", "text", "reasoning", "reasoning_summary_text")
_ARGUMENTS = _streamed("function_call", "arguments", "tool_arguments", "function_call_arguments", SlotKind.JSON)
_MCP_ARGUMENTS = _streamed("mcp_call", "arguments", "tool_arguments", "mcp_call_arguments", SlotKind.JSON)
_INPUT = _streamed("custom_tool_call", "input", "tool_arguments", "custom_tool_call_input")
_CODE = _streamed("code_interpreter_call", "code", "tool_arguments", "code_interpreter_call_code")
_SHELL = _streamed("shell_call", "command", "tool_arguments", "shell_call_command")
_TRANSCRIPT = _streamed("audio", "transcript", "transcript", "audio.transcript")

_FIELDS = (
    *(_TEXT, _REFUSAL, _REASONING, _SUMMARY_TEXT, _ARGUMENTS, _MCP_ARGUMENTS, _INPUT, _CODE, _SHELL, _TRANSCRIPT),
    TextField("function_call", "name", "tool_names"),
    TextField("custom_tool_call", "name", "tool_names"),
    TextField("mcp_call", "name", "tool_names"),
    TextField("mcp_approval_request", "name", "tool_names"),
    TextField("mcp_approval_request", "arguments", "tool_arguments", SlotKind.JSON),
    TextField("tool_search_call", "arguments", "tool_arguments", SlotKind.JSON, is_object=True),
    TextField("image_generation_call", "result", "other", SlotKind.OPAQUE),
    TextField("response.image_generation_call.partial_image", "partial_image_b64", "other", SlotKind.OPAQUE),
    TextField("reasoning", "encrypted_content", "other", SlotKind.OPAQUE),
    TextField("compaction", "encrypted_content", "other", SlotKind.OPAQUE),
)


def _deltas(field: TextField, place: Place) -> dict[str, EventForm]:
    """The events that add to a text, and the one that repeats it under the field's own name."""
    more: Json = {"logprobs": []} if field is _TEXT else {}
    return {
        field.delta: EventForm(Role.APPEND, place, "delta", text=field, more=more),
        field.done: EventForm(Role.CLOSE, place, field.name, text=field, more=more),
    }


def _objects(stem: str, place: Place, key: str) -> dict[str, EventForm]:
    done = f"response.{stem}.done"
    return {
        f"response.{stem}.added": EventForm(Role.OPEN, place, key, done=done),
        done: EventForm(Role.CLOSE, place, key),
    }


_STATUS = {
    "web_search_call": ("in_progress", "searching", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "image_generation_call": ("in_progress", "generating", "completed"),
    "mcp_call": ("in_progress", "completed", "failed"),
    "mcp_list_tools": ("in_progress", "completed", "failed"),
    "compaction": ("compacting",),
    "shell_call_output_content": ("delta", "done"),
}
_EVENTS = {
    **{
        f"response.{name}": EventForm(Role.START, (), "response", empties=("output",))
        for name in ("created", "queued", "in_progress")
    },
    **{f"response.{name}": EventForm(Role.END, (), "response") for name in ("completed", "incomplete", "failed")},
    **_objects("output_item", _ITEM, "item"),
    **_objects("content_part", _PART, "part"),
    **_objects("reasoning_part", _PART, "part"),
    **_objects("reasoning_summary_part", _SUMMARY, "part"),
    **_deltas(_TEXT, (*_PART, "text")),
    **_deltas(_REFUSAL, (*_PART, "refusal")),
    **_deltas(_REASONING, (*_PART, "text")),
    **_deltas(_SUMMARY_TEXT, (*_SUMMARY, "text")),
    **_deltas(_ARGUMENTS, (*_ITEM, "arguments")),
    **_deltas(_MCP_ARGUMENTS, (*_ITEM, "arguments")),
    **_deltas(_INPUT, (*_ITEM, "input")),
    **_deltas(_CODE, (*_ITEM, "code")),
    **_deltas(_SHELL, _COMMAND),
    "response.shell_call_command.added": EventForm(Role.OPEN, _COMMAND, "command", text=_SHELL),
    **_deltas(_TRANSCRIPT, ("audio", "transcript")),
    "response.audio.delta": EventForm(Role.DROP),
    "response.audio.done": EventForm(Role.STATUS),
    "response.output_text.annotation.added": EventForm(Role.ADD, (*_PART, "annotations"), "annotation"),
    "response.image_generation_call.partial_image": EventForm(Role.STATUS, _ITEM),
    **{
        f"response.{item}.{status}": EventForm(Role.STATUS, _ITEM)
        for item, statuses in _STATUS.items()
        for status in statuses
    },
}

_STATUSES = ("in_progress", "completed", "incomplete", "failed", "queued", "cancelled", "searching", "interpreting")
_CONSTANTS = named("responses", "constants").union(_EVENTS, (field.part for field in _FIELDS), _STATUSES)
_NAMES = named("responses", "names")
# Dropped while a policy enforces. docs/responses.md prints this table.
DROPPED_IN_RESPONSES = reasons("responses", "dropped_in_answers")
# What a response repeats of its request. What a rule would block of it is left out; all else is censored.
_ECHOES = frozenset(
    {
        *("instructions", "tools", "metadata", "prompt", "text", "tool_choice", "user", "safety_identifier"),
        *("prompt_cache_key", "conversation", "previous_response_id"),
    }
)
_MESSAGE = (
    "response.output_item.added",
    {"type": "message", "role": "assistant", "status": "in_progress", "content": []},
)
_PART_ADDED = "response.content_part.added"
_REASONS = {"completed": "stop", "max_output_tokens": "length", "content_filter": "content_filter"}


def _reason_of(received: Json) -> Any:
    response = received.get("response", received)
    if not isinstance(response, dict):
        return None
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason if isinstance(reason, str) else response.get("status")


def _usage_of(received: Json) -> tuple[Any, Any] | None:
    response = received.get("response", received)
    usage = response.get("usage") if isinstance(response, dict) else None
    return (usage.get("input_tokens"), usage.get("output_tokens")) if isinstance(usage, dict) else None


def _unfinished(response: Json) -> None:
    """The end of a text that continues is none: a rule may still want it."""
    if response.get("status") in ("queued", "in_progress"):
        response["output"] = []
        response.pop("output_text", None)


def as_events(response: Json) -> Iterator[Json]:
    """A whole response as the events of a stream; it is used up."""
    output = response.get("output")
    items = output if isinstance(output, list) else []
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    for at, item in enumerate(items):
        if isinstance(item, dict):
            yield from _item_events(item, at)
    ends = {"incomplete": "response.incomplete", "failed": "response.failed"}
    status = response.get("status")
    kind = ends.get(status, "response.completed") if isinstance(status, str) else "response.completed"
    yield {"type": kind, "response": response}


def _item_events(item: Json, at: int) -> Iterator[Json]:
    where = {"item_id": item.get("id"), "output_index": at}
    begun = dict(item)
    pieces: list[Json] = []
    if "status" in item:
        begun["status"] = "in_progress"
    for name, stem, index in (
        ("content", "content_part", "content_index"),
        ("summary", _SUMMARY_STEM, "summary_index"),
    ):
        parts = item.get(name)
        if isinstance(parts, list):
            begun[name] = []
            for position, part in enumerate(parts):
                if isinstance(part, dict):
                    pieces += _part_events(part, stem, {**where, index: position})
    pieces += _text_events(begun, where)
    yield {"type": "response.output_item.added", "output_index": at, "item": begun}
    yield from pieces
    yield {"type": "response.output_item.done", "output_index": at, "item": item}


_SUMMARY_STEM = "reasoning_summary_part"


def _part_events(part: Json, stem: str, where: Json) -> Iterator[Json]:
    begun = {**part, "annotations": []} if "annotations" in part else dict(part)
    pieces = list(_text_events(begun, where))
    yield {"type": f"response.{stem}.added", **where, "part": begun}
    yield from pieces
    yield {"type": f"response.{stem}.done", **where, "part": part}


def _text_events(holder: Json, where: Json) -> Iterator[Json]:
    """The events of a streamed text in an object, whose own is emptied."""
    for field in _FIELDS:
        text = holder.get(field.name)
        if field.delta and field.part == holder.get("type") and isinstance(text, str):
            holder[field.name] = ""
            more = _EVENTS[field.delta].more
            yield {"type": field.delta, **where, "delta": text, **more}
            yield {"type": field.done, **where, field.name: text, **more}


def _error(error: Json) -> Json:
    """With the fields that the schema has, and the object for which the official clients raise an exception."""
    given = error["error"]
    return {"type": "error", **{name: given.get(name) for name in ("code", "message", "param")}, "error": given}


RESPONSE_EVENTS = EventTable(
    events=_EVENTS,
    read_delta=read_response_delta,
    fields=_FIELDS,
    names=_NAMES,
    constants=_CONSTANTS,
    dropped=DROPPED_IN_RESPONSES,
    emptied=frozenset({"logprobs"}),
    echoes=_ECHOES,
    content=_TEXT,
    refusal=_REFUSAL,
    message={
        "output_text": (_MESSAGE, (_PART_ADDED, {"type": "output_text", "text": "", "annotations": []})),
        "refusal": (_MESSAGE, (_PART_ADDED, {"type": "refusal", "refusal": ""})),
    },
    tools=frozenset({"function_call", "custom_tool_call", "mcp_call"}),
    sequence="sequence_number",
    item_id="item_id",
    annotations="annotations",
    joined="output_text",
    reasons=_REASONS,
    reason_of=_reason_of,
    usage_of=_usage_of,
    stop=lambda response: response.update(status="incomplete", incomplete_details={"reason": "content_filter"}),
    final=lambda response: [{"type": "response.incomplete", "response": response}],
    as_events=as_events,
    unfinished=_unfinished,
    error=_error,
)
