"""A message as the guard reads it, whatever the dialect: where text lives in it, as data.

The form is that of chat completions, the richest of those in use; each dialect puts its own into it (`wire.dialect`).
A *slot* is one place in a parsed message or delta that holds text: the container, the key in it, the channel the text
belongs to and the path that identifies it among the texts of its choice. The guard replaces the text in place.

Channel names are those of the configuration; they are spelled out here because the wire imports no policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from gateway.wire.json import Json
from gateway.wire.names import named, reasons

Path = tuple[str | int, ...]

MAX_DEPTH = 64  # of objects and lists within each other in a field
_NUMBERS = (int, float)  # as a union it would be made at each look
_MAX_FIGURE = 10**11  # in seconds a time of this age, and so many tokens are no answer's
_LAST_CHARACTER, _BYTE, _ASCII = 0x10FFFF, 0xFF, 0x7F


class SlotKind(Enum):
    """How a slot's text is read. The last two are of fields in tables of events (`wire.event_table`) alone."""

    TEXT = auto()
    JSON = auto()  # JSON text: its strings and numbers are the texts
    NAME = auto()  # shown complete or not at all
    LABEL = auto()  # complete where it stands, a number too
    KEY = auto()  # the name of an unknown field: complete where it stands
    OPAQUE = auto()  # a payload that says nothing to a client; what can be read as text is text
    SIGNATURE = auto()  # the same, and it holds only for the text of the field that it signs


class TextSlot(NamedTuple):
    holder: Any  # a dict or a list
    key: Any
    path: Path
    channel: str
    kind: SlotKind


class TooDeep(ValueError):
    """A message nested too deeply: to name the places in it would take too much memory."""


# The text fields of a message or delta. Both spellings of reasoning are in use, sometimes side by side with one text.
TEXT_FIELDS = {
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
    "refusal": "refusal",
    "content": "content",
}


class _Field(NamedTuple):
    """A field of an object in a message: the channel of its text, and how a string in it is read, if not as text."""

    channel: str
    kind: SlotKind | None = None


_UNKNOWN_FIELD = _Field("other")
FUNCTION_FIELDS = {
    "name": _Field("tool_names", SlotKind.NAME),
    "arguments": _Field("tool_arguments", SlotKind.JSON),
    "input": _Field("tool_arguments"),
}
AUDIO_FIELDS = {"transcript": _Field("transcript")}

# What a delta or message may hold besides text; checked as labels, not streamed.
LABEL_FIELDS = frozenset({"role", "name", "id", "type", "index", "tool_call_id"})
# Fields whose texts are sent once and whole: the next chunk's are others, not their continuation.
COMPLETE_FIELDS = frozenset({"annotations"})
CALLS = frozenset({"tool_calls", "function_call"})
KNOWN_FIELDS = TEXT_FIELDS.keys() | LABEL_FIELDS | COMPLETE_FIELDS | CALLS
KNOWN_NAMES = KNOWN_FIELDS | FUNCTION_FIELDS.keys() | AUDIO_FIELDS.keys() | {"audio", "text", "function", "custom"}

# Fields through which text could pass unread, or which would describe text that was replaced. While a policy enforces
# they are removed from answers. docs/semantics.md prints this table.
DROPPED_IN_ANSWERS = reasons("chat", "dropped_in_answers")
# What servers add around the texts: known fields, kept, their texts scanned. docs/semantics.md prints this table.
KEPT_AROUND = reasons("chat", "kept_around")
# The names in them that clients read.
FILTER_NAMES = named("chat", "filter_names")
# An audio object keeps its transcript, which is text; its sound cannot be read.
DROPPED_IN_AUDIO = frozenset({"data"})

# Where a choice of a chunk, and of a whole answer, holds its text: under the first of these names that it has. Under
# the others it repeats that text, or the text so far, in this or another dialect; enforcing policies remove them.
DELTA_PLACES = ("delta", "message", "text")
MESSAGE_PLACES = ("message", "delta", "text")

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
ROLES = frozenset({"assistant", "user", "system", "developer", "tool", "function"})
TYPES = frozenset({"chat.completion.chunk", "chat.completion", "function", "custom", "text", "refusal"})
CONSTANT_LABELS = FINISH_REASONS | ROLES | TYPES


def slots(message: Json) -> Iterator[TextSlot]:
    """Every text of a delta or message: labels, then reasoning before the answer it leads to, unknown fields last.

    The message may be changed while this runs, but only at the slot just yielded.
    """
    for field in message:
        if field in LABEL_FIELDS:
            yield from leaves(message, field, (field,), "other")
    for field, channel in TEXT_FIELDS.items():
        value = message.get(field)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            # A number too: loosely typed clients append its digits to the text they have.
            yield TextSlot(message, field, (field,), channel, SlotKind.TEXT)
        elif value is not None:
            yield from leaves(message, field, (field,), channel)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for position, call in enumerate(calls):
            if isinstance(call, dict):
                yield from _call_slots(call, ("tool_calls", position_of(call, position)))
            elif call is not None:
                yield from leaves(calls, position, ("tool_calls", position), "other")
    elif calls is not None:
        yield from leaves(message, "tool_calls", ("tool_calls",), "other")
    function = message.get("function_call")
    if isinstance(function, dict):
        yield from _object_slots(function, ("function_call",), FUNCTION_FIELDS)
    elif function is not None:
        yield from leaves(message, "function_call", ("function_call",), "other")
    audio = message.get("audio")
    if isinstance(audio, dict):
        yield from _object_slots(audio, ("audio",), AUDIO_FIELDS)
    for field in COMPLETE_FIELDS:
        if field in message:
            yield from leaves(message, field, (field,), "other")
    for field in unknown_fields(message):
        yield from leaves(message, field, (field,), "other")


def unknown_fields(message: Json) -> list[str]:
    """Fields of a delta or message that this dialect does not know."""
    return [
        field
        for field, value in message.items()
        if field not in KNOWN_FIELDS and not (field == "audio" and isinstance(value, dict))
    ]


def has_text(value: Any) -> bool:
    """Does a value of unknown shape hold a string, a field's name, or a list of numbers that may spell one?"""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            return True
        if isinstance(value, dict) and value:
            return True
        if isinstance(value, list):
            if may_spell_text(value):
                return True
            pending += value
    return False


def may_spell_text(items: list[Any]) -> bool:
    """May the numbers in a list be characters, bytes or tokens?"""
    return any(map(is_character, items))


def decoded_numbers(items: list[Any]) -> dict[str, str]:
    """The text of a list of numbers as characters, and as bytes in UTF-8 if that differs."""
    codes = [int(item) for item in items if is_character(item) and item <= _LAST_CHARACTER]
    texts = {"characters": "".join(map(chr, codes))}
    if codes and _ASCII < max(codes) <= _BYTE:
        texts["bytes"] = bytes(codes).decode("utf-8", "replace")
    return texts


def is_character(item: Any) -> bool:
    """May a number be that of a character, byte or token?"""
    return (type(item) is int or (type(item) is float and item.is_integer())) and item >= 0


def is_figure(value: Any) -> bool:
    """Can this be a count, a place or a time? Larger numbers, such as a card's, are text like any other."""
    return isinstance(value, _NUMBERS) and -_MAX_FIGURE < value < _MAX_FIGURE


def position_of(item: Any, position: int) -> int:
    """The number that a client files `item` under; `position` where it has none, or one that no list has."""
    index = item.get("index") if isinstance(item, dict) else None
    return index if type(index) is int and 0 <= index < _MAX_FIGURE else position


def text_runs(value: Any) -> Iterator[list[tuple[Any, Any]]]:
    """The texts that follow each other in a list, for each list below a value that has several: where its strings are,
    as (holder, key), and the `text` of its objects."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            texts = [text_place(value, at) for at in range(len(value))]
            run = [place for place in texts if place is not None]
            if len(run) > 1:
                yield run
        items = value.values() if isinstance(value, dict) else value
        pending += [item for item in items if isinstance(item, dict | list)]


def text_place(items: list[Any], at: int) -> tuple[Any, Any] | None:
    """Where the text of an item in a list is, if it is one."""
    item = items[at]
    if isinstance(item, str):
        return items, at
    return (item, "text") if isinstance(item, dict) and isinstance(item.get("text"), str) else None


def _call_slots(call: Json, path: Path) -> Iterator[TextSlot]:
    for field, value in list(call.items()):
        if field in ("function", "custom") and isinstance(value, dict):
            yield from _object_slots(value, (*path, field), FUNCTION_FIELDS)
        else:
            yield from leaves(call, field, (*path, field), "other")


def _object_slots(holder: Json, path: Path, fields: Mapping[str, _Field]) -> Iterator[TextSlot]:
    for field, value in list(holder.items()):
        known = fields.get(field, _UNKNOWN_FIELD)
        if known.kind is not None and isinstance(value, str):
            yield TextSlot(holder, field, (*path, field), known.channel, known.kind)
        else:
            yield from leaves(holder, field, (*path, field), "other" if known.kind is SlotKind.NAME else known.channel)


def text_slots(body: Json, field: str) -> list[TextSlot]:
    """The texts of a request's field that is a text, or a list of texts; token ids are none."""
    value = body.get(field)
    if isinstance(value, str):
        return [TextSlot(body, field, (field,), "content", SlotKind.TEXT)]
    items = enumerate(value if isinstance(value, list) else ())
    return [TextSlot(value, at, (field, at), "content", SlotKind.TEXT) for at, item in items if isinstance(item, str)]


def leaves(holder: Any, key: Any, path: Path, channel: str) -> Iterator[TextSlot]:
    """The texts below one field of unknown shape.

    Strings stream on from chunk to chunk. Names of fields are texts too; they come last, because a changed name would
    lose the way to what is below it. Raises `TooDeep`.
    """
    # The way to a thing is put together when its turn comes: those that wait share the way to what holds them.
    pending: list[tuple[Any, Any, Path, Any]] = [(holder, key, path[:-1], path[-1])]
    names: list[tuple[Any, Any, Path, Any]] = []
    complete = path[0] in COMPLETE_FIELDS
    while pending:
        holder, key, way, step = pending.pop()
        path = (*way, step)
        value = holder[key]
        if isinstance(key, str) and key not in KNOWN_NAMES:
            names.append((holder, key, way, step))
        if isinstance(value, str):
            # The `type` of a content part is a label; as a stream its end could be held back.
            yield TextSlot(
                holder, key, path, channel, SlotKind.LABEL if complete or key in LABEL_FIELDS else SlotKind.TEXT
            )
        elif isinstance(value, dict):
            pending += [(value, name, path, name) for name in reversed(value)]
        elif isinstance(value, list):
            # Strings are one text: that of a client that appends what it gets.
            numbered = [
                (value, position, path, 0 if isinstance(item, str) else position_of(item, position))
                for position, item in enumerate(value)
            ]
            pending += reversed(numbered)
        elif (
            isinstance(value, int | float) and not isinstance(value, bool) and not (key == "index" and is_figure(value))
        ):
            yield TextSlot(holder, key, path, channel, SlotKind.LABEL)
        if isinstance(value, dict | list) and len(path) > MAX_DEPTH:
            raise TooDeep(f"objects and lists are nested more than {MAX_DEPTH} deep")
    for holder, key, way, step in reversed(names):
        yield TextSlot(holder, key, (*way, step), "other", SlotKind.KEY)
