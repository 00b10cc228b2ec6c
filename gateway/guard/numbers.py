"""The elements of a choice's lists, numbered in the order in which they appear.

Clients merge the elements of lists by `index`. Official ones insert a new one at that place of their list, so that
indices that come out of order end up with the text of others; what was scanned as two texts would be read as one.
"""

from __future__ import annotations

from typing import Any

from gateway.guard.channels import InvalidAnswer
from gateway.guard.metadata import Metadata
from gateway.wire import chunks
from gateway.wire.json import Json
from gateway.wire.message import MAX_DEPTH, Path, position_of

MAX_ENTRIES = 2048  # objects in the lists of one choice that come in pieces
_CALLS: Path = ("tool_calls",)
_HOLDERS = (dict, list)


class ListNumbering:
    """The numbering of one choice's lists."""

    __slots__ = ("_entries", "_known", "_metadata", "_sizes")

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._known: dict[Path, dict[int, int]] = {}
        self._sizes: dict[Path, int] = {}
        self._entries = 0

    def renumber(self, message: Json, whole: bool = False) -> None:
        """Number the elements of all lists in a delta, in place; one element for each number. Those of a `whole`
        message do not continue with each other. To be done before anything else. Raises `InvalidAnswer`."""
        if not self._metadata.enforces:
            return
        pending: list[tuple[Any, Path]] = [(message, ())]
        while pending:
            holder, path = pending.pop()
            if isinstance(holder, list):
                holder[:] = self._renumbered(holder, path, whole)
                children = [(item, (*path, position_of(item, at))) for at, item in enumerate(holder)]
            else:
                children = [(value, (*path, name)) for name, value in holder.items()]
            if len(path) <= MAX_DEPTH:  # what is deeper is refused
                pending += [child for child in children if isinstance(child[0], _HOLDERS)]

    def _renumbered(self, items: list[Any], path: Path, whole: bool) -> list[Any]:
        renumbered: list[Any] = []
        by_number: dict[int, Json] = {}
        for position, item in enumerate(items):
            if not isinstance(item, dict):
                if path == _CALLS:
                    self._metadata.note_unknown("an element of `tool_calls` that is no object")
                else:
                    self._sizes[path] = self._sizes.get(path, 0) + 1
                    renumbered.append(item)
                continue
            given = position_of(item, position)
            number = len(renumbered) if whole else self._number(path, given)
            if number in by_number:
                _merge(by_number[number], item)
                continue
            # An index of another type is a label like others, and is looked at as one where it can stay.
            if number != len(renumbered) or isinstance(item.get("index"), int | float):
                item["index"] = number
            by_number[number] = item
            renumbered.append(item)
        return renumbered

    def _number(self, path: Path, given: int) -> int:
        known = self._known.setdefault(path, {})
        number = known.get(given)
        if number is None:
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise InvalidAnswer(f"the answer has more than {MAX_ENTRIES} objects in the lists of a choice")
            number = known[given] = self._sizes.get(path, 0)
            self._sizes[path] = number + 1
        return number


def _merge(entry: Json, more: Json) -> None:
    """A second element with the number of one in the same delta, as clients add it up."""
    for part in ("function", "custom"):
        first, second = entry.get(part), more.get(part)
        if isinstance(first, dict) and isinstance(second, dict):
            names = first.get("name"), second.get("name")
            if isinstance(names[0], str) and isinstance(names[1], str):
                second["name"] = names[0] + names[1]
    more.pop("index", None)
    chunks.merge(entry, more)
