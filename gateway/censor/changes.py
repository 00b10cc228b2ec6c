"""Where a text was changed, so that places in the original can be found in what came out."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

MAX_CHANGES = 1024  # of one text; 24 bytes each


class Changes:
    """The replaced spans of one text, in order, and how far each has moved what follows it. Spans that touch are one.

    Beyond `MAX_CHANGES` nothing is known any more of what follows.
    """

    __slots__ = ("_ends", "_shifts", "_starts", "_touching", "_unknown_from")

    def __init__(self) -> None:
        self._starts = array("Q")
        self._ends = array("Q")
        self._shifts = array("q")
        self._unknown_from: int | None = None
        self._touching: dict[int, int] = {}  # where a replacement begins within such a span, and how far that moved

    def open(self, start: int) -> None:
        """Open another replaced span."""
        if self._ends and self._ends[-1] == start and len(self._touching) < MAX_CHANGES:
            self._touching[start] = self._shifts[-1]

    def add(self, start: int, end: int, shift: int) -> None:
        """[start, end) was replaced; offsets behind it are larger by `shift` in what came out."""
        if self._ends and self._ends[-1] == start and self._unknown_from is None:
            self._ends[-1], self._shifts[-1] = end, shift
        elif len(self._starts) < MAX_CHANGES:
            self._starts.append(start)
            self._ends.append(end)
            self._shifts.append(shift)
        elif self._unknown_from is None:
            self._unknown_from = start

    def overlap(self, start: int, end: int) -> bool:
        """Was a character of [start, end) replaced, or what is around an empty span? True where it is not known."""
        if self._unknown_from is not None and end > self._unknown_from:
            return True
        at = bisect_right(self._ends, start)
        return at < len(self._starts) and self._starts[at] < end

    def cover(self, start: int, end: int) -> bool:
        """Was all of [start, end) replaced?"""
        at = bisect_right(self._ends, start)
        return start < end and at < len(self._ends) and self._starts[at] <= start and end <= self._ends[at]

    def end_at(self, offset: int) -> bool:
        """Was something replaced that ends here?"""
        at = bisect_left(self._ends, offset)
        return at < len(self._ends) and self._ends[at] == offset

    def moved(self, offset: int) -> int | None:
        """Where a character, or the end of the replacement that it is in, is in what came out; None if that is not
        known."""
        if self._unknown_from is not None and offset > self._unknown_from:
            return None
        at = bisect_right(self._ends, offset)
        if at < len(self._starts) and self._starts[at] < offset:
            end = self._ends[at]
            offset = min((begin for begin in self._touching if offset <= begin < end), default=end)
        return offset + self._touching.get(offset, self.shift(offset))

    def shift(self, offset: int) -> int:
        """The shift of a character that was not replaced."""
        at = bisect_right(self._ends, offset)
        return self._shifts[at - 1] if at else 0
