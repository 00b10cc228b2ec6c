"""Chat completions on the wire: where text lives in a chunk and in a whole answer, as data.

A *slot* is one place in a parsed message that holds text: the container, the key in it, the channel the text belongs
to and the path that tells it from the other texts of its choice. The guard replaces the text in place.

Channel names are those of the contract; they are spelled out here because the wire knows no configuration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, NamedTuple

Json = dict[str, Any]
Path = tuple[str | int, ...]


MAX_DEPTH = 64  # of what stands within each other in a field
_MAX_FIGURE = 10**11  # in seconds a time of this age, and so many tokens are no answer's
_LAST_CHARACTER, _BYTE, _ASCII = 0x10FFFF, 0xFF, 0x7F


class SlotKind(Enum):
    """How a slot's text is to be read."""

    TEXT = auto()
    JSON = auto()  # JSON text: its strings and numbers are the texts
    NAME = auto()  # shown whole or not at all
    LABEL = auto()  # complete where it stands, a number too
    KEY = auto()  # the name of an unknown field: complete where it stands


class TextSlot(NamedTuple):
    holder: Any  # a dict or a list
    key: Any
    path: Path
    channel: str
    kind: SlotKind


# The text fields of a message or delta. Both spellings of reasoning are in use, sometimes side by side with one text.
TEXT_FIELDS = {
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
    "refusal": "refusal",
    "content": "content",
}
# What a delta or message may hold besides text; checked as labels, not streamed.
LABEL_FIELDS = frozenset({"role", "name", "id", "type", "index", "tool_call_id"})
# Fields whose texts are sent once and whole: the next chunk's are others, not their continuation.
COMPLETE_FIELDS = frozenset({"annotations"})
KNOWN_FIELDS = TEXT_FIELDS.keys() | LABEL_FIELDS | COMPLETE_FIELDS | {"tool_calls", "function_call"}
KNOWN_NAMES = KNOWN_FIELDS | {"audio", "arguments", "input", "text", "transcript", "function", "custom"}

# Fields through which text could pass unread, or which would describe text that was replaced. While a policy enforces
# they are taken out of answers. docs/semantics.md prints this table.
DROPPED_IN_ANSWERS = {
    "obfuscation": "padding of varying length, meaningless once chunks are written anew",
    "logprobs": "spells the text token by token",
    "prompt_logprobs": "spells the prompt token by token",
    "token_ids": "the text as numbers",
    "prompt_token_ids": "the prompt as numbers",
    "kv_transfer_params": "an engine's internals",
}
# An audio object keeps its transcript, which is text; its sound cannot be read.
DROPPED_IN_AUDIO = frozenset({"data"})

# Where a choice holds what it says. Under a name after the first that it has, it says the same again, or what it has
# said so far, or says it as another dialect would; while a policy enforces, that is taken out.
PARTS_OF_CHUNKS = ("delta", "message", "text")
PARTS_OF_ANSWERS = ("message", "delta", "text")

DROPPED_IN_REQUESTS = {
    "return_token_ids": "the answer as numbers",
    "return_tokens_as_token_ids": "the answer's logprobs as numbers",
    "prompt_logprobs": "spells the prompt token by token",
    "kv_transfer_params": "an engine's internals",
}
REFUSED_IN_REQUESTS = {
    "vllm_xargs": "it reaches engine extensions past the policy",
    "chat_template": "it replaces the template that the operator serves",
}

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
ROLES = frozenset({"assistant", "user", "system", "developer", "tool", "function"})
TYPES = frozenset({"chat.completion.chunk", "chat.completion", "function", "custom", "text", "refusal"})
CONSTANT_LABELS = FINISH_REASONS | ROLES | TYPES

# What every chunk of a stream repeats.
HEAD_FIELDS = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


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
        yield from _function_slots(function, ("function_call",))
    elif function is not None:
        yield from leaves(message, "function_call", ("function_call",), "other")
    audio = message.get("audio")
    if isinstance(audio, dict):
        yield from _audio_slots(audio)
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
    """Is there any string, or name of a field, or list of numbers that may spell one, in a value of unknown shape?"""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            return True
        if isinstance(value, dict) and value:
            return True
        if isinstance(value, list):
            if spells(value):
                return True
            pending += value
    return False


def spells(items: list[Any]) -> bool:
    """May the numbers in a list be characters, bytes or tokens?"""
    return any(map(_is_code, items))


def spelled_by(items: list[Any]) -> dict[str, str]:
    """What the numbers in a list spell as characters, and as bytes in UTF-8 if that is something else."""
    codes = [int(item) for item in items if _is_code(item) and item <= _LAST_CHARACTER]
    texts = {"characters": "".join(map(chr, codes))}
    if codes and _ASCII < max(codes) <= _BYTE:
        texts["bytes"] = bytes(codes).decode("utf-8", "replace")
    return texts


def _is_code(item: Any) -> bool:
    return (type(item) is int or (type(item) is float and item.is_integer())) and item >= 0


def is_figure(value: Any) -> bool:
    """Can this be a count, a place or a time? Larger numbers, such as a card's, are text like any other."""
    return isinstance(value, int | float) and -_MAX_FIGURE < value < _MAX_FIGURE


def position_of(item: Any, position: int) -> int:
    """The number that a client files `item` under; `position` where it has none, or one that no list has."""
    index = item.get("index") if isinstance(item, dict) else None
    return index if type(index) is int and 0 <= index < _MAX_FIGURE else position


def _call_slots(call: Json, path: Path) -> Iterator[TextSlot]:
    for field, value in list(call.items()):
        if field in ("function", "custom") and isinstance(value, dict):
            yield from _function_slots(value, (*path, field))
        else:
            yield from leaves(call, field, (*path, field), "other")


def _function_slots(function: Json, path: Path) -> Iterator[TextSlot]:
    for field, value in list(function.items()):
        here = (*path, field)
        if field == "name" and isinstance(value, str):
            yield TextSlot(function, field, here, "tool_names", SlotKind.NAME)
        elif field == "arguments" and isinstance(value, str):
            yield TextSlot(function, field, here, "tool_arguments", SlotKind.JSON)
        elif field in ("arguments", "input"):
            yield from leaves(function, field, here, "tool_arguments")
        else:
            yield from leaves(function, field, here, "other")


def _audio_slots(audio: Json) -> Iterator[TextSlot]:
    for field in list(audio):
        if field == "transcript":
            yield from leaves(audio, field, ("audio", field), "transcript")
        else:
            yield from leaves(audio, field, ("audio", field), "other")


class TooDeep(ValueError):
    """A message with more in each other than anybody needs; to name the places in it would take too much memory."""


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
            raise TooDeep(f"objects and lists more than {MAX_DEPTH} deep within each other are not taken")
    for holder, key, way, step in reversed(names):
        yield TextSlot(holder, key, (*way, step), "other", SlotKind.KEY)


def take_part(choice: Json, *names: str) -> Any:
    """Take out what a choice says: what stands under the first of these names that it has; None if it has none."""
    name = next((name for name in names if choice.get(name) is not None), None)
    return None if name is None else choice.pop(name)


def head_of(chunk: Json) -> Json:
    """The part of a chunk that the next one of the same stream repeats; nothing is repeated that may be of any size."""
    return {field: chunk[field] for field in HEAD_FIELDS if isinstance(chunk.get(field, chunk), str | int | None)}


def chunk(head: Json, choices: list[Json]) -> Json:
    """A chunk of our own making."""
    return {**head, "object": "chat.completion.chunk", "choices": choices}


def part(index: int, delta: Json, finish_reason: str | None = None) -> Json:
    """What a chunk of our own making holds for one choice."""
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def combined(deltas: list[Json]) -> list[Json]:
    """Deltas of one choice in as few as clients make the same of."""
    few: list[Json] = []
    for delta in deltas:
        fitting = next((known for known in few if _fits(known, delta)), None)
        if fitting is None:
            few.append(delta)
        else:
            merge(fitting, delta)
    return few


def _fits(whole: Any, more: Any) -> bool:
    """Does `merge` lose nothing of a second value at the place of the first?"""
    if isinstance(whole, dict) and isinstance(more, dict):
        return all(
            whole[name] == value if name in LABEL_FIELDS else _fits(whole[name], value)
            for name, value in more.items()
            if whole.get(name) is not None
        )
    if isinstance(whole, list) and isinstance(more, list):
        if all(isinstance(item, str) for item in (*whole, *more)):
            return True
        if not all(isinstance(item, dict) and type(item.get("index")) is int for item in (*whole, *more)):
            return False
        known = {item["index"]: item for item in whole}
        return all(item["index"] not in known or _fits(known[item["index"]], item) for item in more)
    return isinstance(whole, str) and isinstance(more, str)


def place(delta: Json, path: Path, text: str) -> None:
    """Put the text of `path` into a delta of our own making, in the shape that clients add to what they have."""
    holder: Any = delta
    for step, following in itertools.pairwise(path):
        if isinstance(holder, list):
            holder = _numbered(holder, step)
        else:
            if not isinstance(holder.get(step), list | dict):  # the number of an item may be no number
                holder[step] = [] if isinstance(following, int) else {}
            holder = holder[step]
    last = path[-1]
    if isinstance(holder, list):
        holder.append(text)
    else:
        holder[last] = text


def _numbered(items: list[Any], index: str | int) -> Json:
    for item in items:
        if isinstance(item, dict) and item.get("index") == index:
            return item
    items.append({"index": index})
    added: Json = items[-1]
    return added


def as_chunks(completion: Json) -> Iterator[Json]:
    """A whole answer as the chunks of a stream: all messages, then their ends; usage last."""
    head = head_of(completion)
    around = {field: value for field, value in completion.items() if field not in ("choices", "usage")}
    choices = completion.get("choices")
    if choices is not None and not isinstance(choices, list):
        yield {**around, "choices": choices}
        return
    numbered = [(position_of(each, at), each) for at, each in enumerate(choices or ()) if isinstance(each, dict)]
    if len({index for index, _ in numbered}) < len(numbered):  # each is whole: none goes on with another
        numbered = [(at, each) for at, (_, each) in enumerate(numbered)]
    begun: list[Json] = []
    for index, choice in numbered:
        message = take_part(choice, *PARTS_OF_ANSWERS)
        delta = dict(message) if isinstance(message, dict) else {"content": message}
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            delta["tool_calls"] = [
                {**call, "index": at} if isinstance(call, dict) else call for at, call in enumerate(calls)
            ]
        rest = {name: value for name, value in choice.items() if name not in ("delta", "finish_reason", "index")}
        begun.append({**part(index, delta), **rest})
    yield chunk(around, begun)
    if begun:
        yield chunk(head, [part(index, {}, choice.get("finish_reason") or "stop") for index, choice in numbered])
    if completion.get("usage") is not None:
        yield {**chunk(head, []), "usage": completion["usage"]}


class Assembler:
    """Chunks of a stream, added up to the whole answer that a plain request asked for."""

    def __init__(self) -> None:
        self._whole: Json = {}
        self._choices: dict[int, Json] = {}

    def add(self, chunk: Json) -> None:
        for field, value in chunk.items():
            if field != "choices" and value is not None:
                self._whole[field] = value
        for choice in chunk.get("choices") or ():
            self._add_choice(choice)

    def _add_choice(self, choice: Json) -> None:
        index = choice.get("index", 0)
        whole = self._choices.setdefault(
            index, {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
        )
        for field, value in choice.items():
            if field == "delta" and isinstance(value, dict):
                merge(whole["message"], value)
            elif field != "message" and value is not None:  # what the deltas say counts, in a stream
                whole[field] = value

    def whole(self) -> Json:
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            calls = choice["message"].get("tool_calls")
            if isinstance(calls, list):
                calls.sort(key=lambda call: position_of(call, len(calls)))
                for call in calls:
                    if isinstance(call, dict):
                        call.pop("index", None)
        return {**self._whole, "object": "chat.completion", "choices": choices}


def merge(whole: Json, delta: Json) -> None:
    """What the official clients do with a delta: texts are appended, objects merged, lists merged by `index`."""
    for field, value in delta.items():
        known = whole.get(field)
        if known is None or field in LABEL_FIELDS:
            if isinstance(value, list):
                known = whole[field] = []
                _add_items(known, value)
            elif value is not None:
                whole[field] = value
        elif isinstance(known, str) and isinstance(value, str):
            whole[field] = known + value
        elif isinstance(known, dict) and isinstance(value, dict):
            merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            _add_items(known, value)
        elif value is not None:
            whole[field] = value


def _add_items(whole: list[Any], items: list[Any]) -> None:
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("index"), int):
            merge(_numbered(whole, item["index"]), item)
        else:
            whole.append(item)
