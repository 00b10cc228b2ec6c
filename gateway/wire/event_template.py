"""The most frequent event of a stream, as bytes: one that equals one seen before but for its text, its padding and
figures. Each dialect says which value its events are read as, and what is written for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

# What stands in a place: a text or a padding without their quotes, or a figure.
CONTENT, PADDING, FIGURE = b"cpf"
PLACES = {
    CONTENT: re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*'),
    PADDING: re.compile(rb"[0-9A-Za-z]*"),
    FIGURE: re.compile(rb"0|[1-9][0-9]{0,10}"),
}
# The fields that have them. Other figures are labels, which are scanned.
_CONTENTS = ("content", "delta", "text", "thinking")
_PADDINGS = ("obfuscation",)
_FIGURES = ("created", "prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens", "sequence_number")
_NUMBER = "sequence_number"
_KINDS = dict.fromkeys(_CONTENTS, CONTENT) | dict.fromkeys(_PADDINGS, PADDING) | dict.fromkeys(_FIGURES, FIGURE)
_PLACE = re.compile(
    rb'"(%b)":[ \t\r\n]*"(%b)(?=")|"(%b)":[ \t\r\n]*(%b)(?![0-9.eE])'
    % (
        "|".join(_CONTENTS + _PADDINGS).encode(),
        PLACES[CONTENT].pattern,
        "|".join(_FIGURES).encode(),
        PLACES[FIGURE].pattern,
    )
)
PROBE = "7654321"  # may stand in every place


class Tally:
    """What is counted of an answer of typed events: the characters that may still be kept of it, and the number of its
    next event, -1 while it is not known."""

    __slots__ = ("left", "number")

    def __init__(self, left: int = 0, number: int = -1) -> None:
        self.left, self.number = left, number


class ContentForm(NamedTuple):
    """What an encoder writes for a content and does with it: an `event` with any text in it, which each further one
    equals but for text and number; `keep` gets the text."""

    event: bytes
    tally: Tally
    keep: Callable[[str], object]


class EventTemplate:
    """JSON knows no context: what stands in the place of one string can only be another value, so the rest need not be
    parsed again, and the same holds for numbers. `of` makes sure that these are the places meant.

    The data of an event has `around[0]`, a place of kind `kinds[0]`, `around[1]` and so on; in front of it there may be
    the `line`. What is sent for it has `shown[0]`, what stands in the place `order[0]`, and so on, where the place
    behind the last is the number of the event that is sent. `bare` and `bare_order` are the same for an event whose
    content is held; empty where nothing is sent for it. `empties`: an empty content is sent. `counted`: the places of
    the prompt's and the answer's tokens.
    """

    __slots__ = ("_names", "around", "bare", "bare_order", "counted", "empties", "kinds", "line", "order", "shown")

    def __init__(self, around: list[bytes], names: list[str], shown: bytes, bare: bytes, line: bytes) -> None:
        self.around, self.kinds, self.line = tuple(around), bytes(map(_KINDS.__getitem__, names)), line
        self._names = names
        self.shown, self.order = self._ordered(shown)
        self.bare, self.bare_order = self._ordered(bare) if bare else ((), b"")
        counts = "prompt_tokens" in names
        self.counted = (names.index("prompt_tokens"), names.index("completion_tokens")) if counts else None
        self.empties = True

    @classmethod
    def of(
        cls,
        data: bytes,
        read: Callable[[bytes], Any],
        probed: object,
        *,
        shown: bytes,
        bare: bytes = b"",
        line: bytes = b"",
    ) -> EventTemplate | None:
        """The template of an event's data; None if it makes none. `probed`: the value read from it, with the probe in
        all places. `shown` and `bare` are sent for such an event, with any text."""
        around, names = _places(data)
        contents = sum(name in _CONTENTS for name in names)
        if contents != 1 or len(names) > len(set(names)) or PROBE.encode() in data:
            return None
        if read(PROBE.encode().join(around)) != probed:
            return None
        return cls(around, names, shown, bare, line)

    def translated(self, event: bytes) -> EventTemplate:
        """The same events, for which others are sent, such as this one."""
        made = EventTemplate(list(self.around), self._names, event, b"", self.line)
        made.empties = False
        return made

    def read(self, data: bytes, at: int = 0) -> tuple[list[bytes], int] | None:
        """What stands in the places of an event's data that begins at `at`, and where it ends; None if it differs in
        anything else. The content may not be JSON's spelling of a string."""
        values = []
        for around, kind in zip(self.around, self.kinds, strict=False):
            found = PLACES[kind].match(data, at + len(around)) if data.startswith(around, at) else None
            if found is None:
                return None
            values.append(found[0])
            at = found.end()
        return (values, at + len(self.around[-1])) if data.startswith(self.around[-1], at) else None

    @property
    def size(self) -> int:
        """Bytes of an event that are always there."""
        return sum(map(len, self.around))

    @property
    def numbered(self) -> bool:
        """Has an event that is sent a number of its own?"""
        return len(self.kinds) in self.order

    def _ordered(self, event: bytes) -> tuple[tuple[bytes, ...], bytes]:
        """The bytes around the places of what is sent, and which of the event's each is."""
        around, names = _places(event)
        return tuple(around), bytes(map(self._place_of, names))

    def _place_of(self, name: str) -> int:
        if name in _CONTENTS:
            return self.kinds.index(CONTENT)
        return len(self.kinds) if name == _NUMBER else self._names.index(name)


def _places(data: bytes) -> tuple[list[bytes], list[str]]:
    """The bytes around what may change in an event, and the names of that, in order."""
    around, names, at = [], [], 0
    for found in _PLACE.finditer(data):
        assert found.lastindex is not None
        around.append(data[at : found.start(found.lastindex)])
        names.append(found[found.lastindex - 1].decode())
        at = found.end(found.lastindex)
    return [*around, data[at:]], names
