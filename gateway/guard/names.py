"""Names of fields that differ from the protocol's only in case.

Some servers take names in any case: Go's compare them by Unicode's simple folding, for which the long s is an s and the
Kelvin sign a k. They would read a field that was not looked at as what it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from gateway.wire.json import Json
from gateway.wire.message import KNOWN_NAMES

# Where in a message there are objects whose fields the protocol names. Below every other field are names of anybody's.
_WITHIN = frozenset({"content", "tool_calls", "function", "custom", "function_call", "audio"})


def misspelled(names: Iterable[str], known: Container[str]) -> str | None:
    """The known name that one of `names` is in other letters."""
    for name in names:
        if name not in known and (folded := name.casefold()) in known:
            return folded
    return None


def misspelled_in(message: Json) -> str | None:
    """The same for a message: its own fields, those of its parts and calls."""
    return next((name for part in parts_of(message) if (name := misspelled(part, KNOWN_NAMES))), None)


def leave_out_misspelled(part: Json, known: Container[str]) -> bool:
    """Take fields with the known names in other letters out of an object of an answer; was there one?"""
    names = [name for name in part if name not in known and name.casefold() in known]
    for name in names:
        del part[name]
    return bool(names)


def parts_of(message: Json) -> Iterator[Json]:
    """The objects in a message whose fields the protocol names; one may lose fields before the next is asked for."""
    waiting: list[Any] = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            yield value
            waiting += [value[field] for field in _WITHIN & value.keys()]
