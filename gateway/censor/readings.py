"""Terminal control sequences (ECMA-48: `ESC [ … m`, `ESC ] … BEL`, `ESC ( B`) in a text: what a terminal does not show.

Whoever reads the text elsewhere sees all but the first character of one. So there are two readings, and a word counts
that is found in either: the text as it is, and from an introducer on the text without its sequences. A reading is a
copy of the words' cursors that continues by itself until it says the same as they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from gateway.censor.literal_cursor import LiteralCursor, Span

ESCAPE, BELL = "\x1b", "\x07"
# At a time, of one text; past that, the sequences that begin are only read as they are.
MAX_READINGS = 8
_MAX_FOUND = 1024  # matches that are remembered, so that two readings do not report one twice


class EscapeMode(Enum):
    """Where a reading is in a sequence."""

    TEXT = auto()
    ESCAPED = auto()
    INTERMEDIATE = auto()
    PARAMETERS = auto()
    STRING = auto()
    STRING_ESCAPED = auto()


_INTRODUCERS = {
    ESCAPE: EscapeMode.ESCAPED,
    "\x9b": EscapeMode.PARAMETERS,
    **dict.fromkeys("\x90\x98\x9d\x9e\x9f", EscapeMode.STRING),
}
INTRODUCERS = frozenset(_INTRODUCERS)
_ESCAPED = {"[": EscapeMode.PARAMETERS, **dict.fromkeys("]PX^_", EscapeMode.STRING)}


def follow(mode: EscapeMode, char: str) -> tuple[EscapeMode, bool]:
    """Where the reading is behind one more character, and whether that belongs to a sequence."""
    if mode is EscapeMode.STRING:
        if char == ESCAPE:
            return EscapeMode.STRING_ESCAPED, True
        return (EscapeMode.TEXT if char in (BELL, "\x9c") else EscapeMode.STRING), True
    if mode is EscapeMode.STRING_ESCAPED and char == "\\":
        return EscapeMode.TEXT, True
    if mode in (EscapeMode.ESCAPED, EscapeMode.STRING_ESCAPED, EscapeMode.INTERMEDIATE) and " " <= char <= "~":
        if char < "0":
            return EscapeMode.INTERMEDIATE, True
        return EscapeMode.TEXT if mode is EscapeMode.INTERMEDIATE else _ESCAPED.get(char, EscapeMode.TEXT), True
    if mode is EscapeMode.PARAMETERS and " " <= char <= "~":
        return (EscapeMode.PARAMETERS if char <= "?" else EscapeMode.TEXT), True
    after = _INTRODUCERS.get(char)
    return (EscapeMode.TEXT, False) if after is None else (after, True)


class _Reading:
    """Copies of some cursors, by their number, and the mode that they are in."""

    __slots__ = ("cursors", "mode")

    def __init__(self, cursors: dict[int, LiteralCursor], mode: EscapeMode) -> None:
        self.cursors = cursors
        self.mode = mode

    def fork(self) -> _Reading:
        return _Reading({number: cursor.fork() for number, cursor in self.cursors.items()}, self.mode)

    def step(self, char: str, consumed: int) -> list[Span]:
        self.mode, vanishes = follow(self.mode, char)
        # An introducer is nothing to the lens of these cursors, so it stands for what is to be nothing.
        seen = ESCAPE if vanishes else char
        return [span for cursor in self.cursors.values() for span in cursor.step(seen, consumed)]

    def key(self) -> tuple[object, ...]:
        """Equal for readings that no later text can distinguish."""
        return self.mode, *(cursor.position() for cursor in self.cursors.values())


class Readings:
    """All readings of one text but the first, which are the cursors themselves."""

    __slots__ = ("_found", "_open")

    def __init__(self) -> None:
        self._open: list[_Reading] = []
        self._found: dict[tuple[int, int, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def fork(self) -> Readings:
        """An independent copy."""
        other = Readings()
        other._open, other._found = [reading.fork() for reading in self._open], dict(self._found)
        return other

    def step(
        self, char: str, consumed: int, cursors: Sequence[LiteralCursor], spans: list[Span]
    ) -> tuple[list[Span], list[tuple[int, int]]]:
        """Take a character that the cursors have taken already, with which they found `spans`. Returns what no reading
        had found before, and the starts that left the live suffix of another reading."""
        left: list[tuple[int, int]] = []
        for reading in self._open:
            spans = spans + reading.step(char, consumed)
            left += ((start, tag) for each in reading.cursors.values() for tag, start in each.left.items())
        fresh = self._fresh(spans)
        if char in INTRODUCERS and len(self._open) < MAX_READINGS:
            hiding = {at: each.fork() for at, each in enumerate(cursors) if each.machine.hides(ESCAPE)}
            if hiding:
                self._open.append(_Reading(hiding, _INTRODUCERS[char]))
        self._drop_equal(cursors)
        return fresh, left

    def live_starts(self) -> list[int | None]:
        return [cursor.live_start() for reading in self._open for cursor in reading.cursors.values()]

    def ending(self, spans: list[Span]) -> list[Span]:
        """What the end of the text makes certain, with `spans`, which it does in the first reading."""
        more = [span for reading in self._open for cursor in reading.cursors.values() for span in cursor.ending()]
        return [span for span in dict.fromkeys(spans + more) if span[:3] not in self._found] if more else spans

    def _fresh(self, spans: list[Span]) -> list[Span]:
        fresh = {span[:3]: span for span in spans if span[:3] not in self._found}
        if self._open:
            self._found |= dict.fromkeys(fresh)
            for known in list(self._found)[:-_MAX_FOUND]:
                del self._found[known]
        return list(fresh.values())

    def _drop_equal(self, cursors: Sequence[LiteralCursor]) -> None:
        kept: list[_Reading] = []
        known: list[tuple[object, ...]] = []
        for reading in self._open:
            key = reading.key()
            first = (EscapeMode.TEXT, *(cursors[at].position() for at in reading.cursors))
            if key != first and key not in known:
                kept.append(reading)
                known.append(key)
        self._open = kept
        if not kept:
            self._found.clear()
