"""Answers to `/responses` over upstreams that store none, kept in memory for the requests that refer to them.

Kept is what the upstream was sent and the client was shown: the input as its rules left it, and the guarded answer.
Only the key for which an answer was made finds it. What a request refers to is written out in it before it is scanned,
like what the client sends itself; an upstream sees no difference.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gateway.wire import json
from gateway.wire.dialect import BadRequest
from gateway.wire.json import Json

RETENTION = 3600.0  # seconds
ITEM_COST = 1024  # bytes that an item counts for beside its text
REFERENCE = "item_reference"
_PREVIOUS = "previous_response_id"


class _Kept(NamedTuple):
    """An answer's conversation, its own items at the end; items of earlier turns have bytes of their own."""

    until: float
    items: tuple[bytes, ...]
    ids: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.items)) + ITEM_COST * (len(self.items) + 1)


class StoredAnswers:
    """The answers of one process, of `capacity` bytes at most; the oldest go first. Threads may share it."""

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._lock = threading.Lock()
        self._size = 0
        self._answers: OrderedDict[tuple[str, str], _Kept] = OrderedDict()  # by owner and id
        self._items: dict[tuple[str, str], bytes] = {}

    def keep(self, owner: str, given: Iterable[bytes], response: Json) -> None:
        """Keep an answer to the items `given`; ids must be new ones."""
        output = {str(item["id"]): json.encode(item) for item in response["output"]}
        kept = _Kept(self._clock() + RETENTION, (*given, *output.values()), tuple(output))
        with self._lock:
            self._size += kept.size
            self._answers[owner, response["id"]] = kept
            self._items |= {(owner, name): item for name, item in output.items()}
            self._forget()

    def written_out(self, owner: str, body: Json, limit: int) -> Json:
        """The request with what it refers to in its place, of at most `limit` bytes; the same one if it refers to
        nothing that is kept. Raises `BadRequest`."""
        items, previous = input_items(body), body.get(_PREVIOUS)
        with self._lock:
            self._forget()
            before = self._answers.get((owner, previous)) if isinstance(previous, str) else None
            found = [self._items.get((owner, _referred(item))) for item in items]
        if before is None and previous:
            message = "No answer with this id is kept for this key. Send the items of the conversation as `input`."
            raise BadRequest(message, _PREVIOUS, "previous_response_not_found")
        begin = () if before is None else before.items
        if not begin and not any(found):
            return body
        if sum(map(len, begin)) + sum(len(item) for item in found if item is not None) > limit:
            raise BadRequest(f"What the request refers to is larger than {limit} bytes.", "input")
        written = [json.decode(item) for item in begin]
        written += [given if item is None else json.decode(item) for given, item in zip(items, found, strict=True)]
        return {**{name: value for name, value in body.items() if name != _PREVIOUS}, "input": written}

    def _forget(self) -> None:
        """Drop answers that are too old or too many."""
        now = self._clock()
        while self._answers:
            key, oldest = next(iter(self._answers.items()))
            if oldest.until > now and self._size <= self._capacity:
                return
            del self._answers[key]
            self._size -= oldest.size
            for name in oldest.ids:
                self._items.pop((key[0], name), None)


def input_items(body: Json) -> list[Any]:
    """The items of a request, whose `input` may be a string; none of what is neither."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else []


def _referred(item: Any) -> str:
    name = item.get("id") if isinstance(item, dict) and item.get("type") == REFERENCE else None
    return name if isinstance(name, str) else ""
