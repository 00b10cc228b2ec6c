"""Names of fields in other letters than the protocol's.

Some servers take names in any case: Go's compare them by Unicode's simple folding, for which the long s is an s and the
Kelvin sign a k. They would read a field that was not looked at as what it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from gateway.wire import chat
from gateway.wire.chat import Json

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
    waiting: list[Any] = [message]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if (name := misspelled(value, chat.KNOWN_NAMES)) is not None:
                return name
            waiting += [value[field] for field in _WITHIN & value.keys()]
    return None
