"""Annotations of a choice: places in its content, which move where something before them was replaced.

Their texts are labels and censored as such. A place is known once the text up to its end has been released; till then
the annotations wait, and those that come after them, for official clients take only one list of them.
"""

from __future__ import annotations

from typing import Any

from gateway.censor.stream import Censor
from gateway.wire import json
from gateway.wire.json import Json
from gateway.wire.message import is_figure

MAX_WAITING = 64  # annotations of one choice
MAX_SIZE = 2048  # bytes of each as JSON


class Annotations:
    """The annotations of one choice. `waiting`: for text that is held."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def collect(self, message: Json, content: Censor | None) -> None:
        """Put those of a message in their places, or keep them back, in place. Without the `content`'s censor no place
        is known."""
        items = message.get("annotations")
        if not isinstance(items, list):
            return
        waits = content is not None and not content.ended and any(end > content.released_to for end in _ends(items))
        if waits or self.waiting:
            fitting = [item for item in items if len(json.encode(item)) <= MAX_SIZE]
            self.waiting = [*self.waiting, *fitting][:MAX_WAITING]
            del message["annotations"]
        else:
            message["annotations"] = realigned(items, content)

    def release(self, content: Censor | None) -> list[Any]:
        """Those that waited; the content has ended."""
        items, self.waiting = self.waiting, []
        return realigned(items, content)


def realigned(items: list[Any], content: Censor | None) -> list[Any]:
    """Annotations with their places moved, in place; those without one in what has come out of the text are left
    out."""
    return [item for item in items if _realign(item, content)]


def _holders(item: Any) -> list[Json]:
    """The objects of an annotation that name a place in the text."""
    within = [item, *item.values()] if isinstance(item, dict) else []
    return [each for each in within if isinstance(each, dict) and {"start_index", "end_index"} & each.keys()]


def _ends(items: list[Any]) -> list[int]:
    ends = [holder.get("end_index") for item in items for holder in _holders(item)]
    return [end for end in ends if type(end) is int]


def _realign(item: Any, content: Censor | None) -> bool:
    """Move the places of an annotation, in place; False where it has one that is not in the text that came out."""
    for holder in _holders(item):
        start, end = holder.get("start_index"), holder.get("end_index")
        if content is None or type(start) is not int or type(end) is not int or not is_figure(end):
            return False
        if not 0 <= start <= end <= content.released_to:
            return False
        changes = content.changes
        if changes is None:
            continue
        if changes.overlap(start, start) or changes.overlap(end, end) or changes.cover(start, end):
            return False
        holder["start_index"], holder["end_index"] = start + changes.shift(start), end + changes.shift(end)
    return True
