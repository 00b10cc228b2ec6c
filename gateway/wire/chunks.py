"""Chunks of an answer: made, merged as clients merge them, taken apart and assembled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gateway.wire.json import Json
from gateway.wire.message import LABEL_FIELDS, MESSAGE_PLACES, Path, position_of

# What every chunk of a stream repeats.
HEAD_FIELDS = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


def pop_first(choice: Json, names: tuple[str, ...]) -> Any:
    """Remove and return what stands under the first of these names that is not null; None if there is none."""
    name = next((name for name in names if choice.get(name) is not None), None)
    return None if name is None else choice.pop(name)


def head_of(chunk: Json) -> Json:
    """The part of a chunk that the next one of the same stream repeats; nothing is repeated that may be of any size."""
    return {field: chunk[field] for field in HEAD_FIELDS if isinstance(chunk.get(field, chunk), str | int | None)}


def chunk(head: Json, choices: list[Json]) -> Json:
    """A chunk of our own making."""
    return {**head, "object": "chat.completion.chunk", "choices": choices}


def part(index: int, delta: Json, finish_reason: str | None = None) -> Json:
    """An element of `choices` in a chunk of our own making."""
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
    if len({index for index, _ in numbered}) < len(numbered):  # each is whole: none continues with another
        numbered = [(at, each) for at, (_, each) in enumerate(numbered)]
    begun: list[Json] = []
    for index, choice in numbered:
        message = pop_first(choice, MESSAGE_PLACES)
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


class ChunkAssembler:
    """Chunks of a stream, added up to the answer of a plain request."""

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
            elif field == "logprobs" and isinstance(value, dict) and isinstance(whole.get(field), dict):
                merge(whole[field], value)
            elif field != "message" and value is not None:  # in a stream the deltas count
                whole[field] = value

    def answer(self) -> Json:
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
    """Add a delta as the official clients do: texts are appended, objects merged, lists merged by `index`."""
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
