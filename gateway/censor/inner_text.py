"""A text within a text: its own scanner and reader, where its characters are in the outermost text, and how deep it
is."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.censor.compile import Program
from gateway.censor.pattern_cursor import MatchRun
from gateway.censor.scanner import Scanner
from gateway.inner_texts import InnerReader, Opened

_KEPT = 1024  # places where the spelling changes, before it is looked at which are still needed


class OuterText:
    """A text that a reader reads. `inner` is the open text in it; from the offset `held_from` of its own on it is not
    known yet what it spells."""

    __slots__ = ("held_from", "inner", "reader")

    closing = ""
    depth = 0

    def __init__(self, reader: InnerReader | None) -> None:
        self.reader = reader
        self.inner: InnerText | None = None
        self.held_from: int | None = None

    def origin(self, offset: int) -> int:
        """The outermost offset of one of this text's."""
        return offset


class InnerText(OuterText):
    """A text within `outer`. `ahead`: it has scanned the piece that others are still in."""

    __slots__ = ("_at", "_limit", "_origin", "_window", "ahead", "closing", "depth", "exact", "scanner")

    def __init__(self, program: Program, opened: Opened, outer: OuterText, begin: int) -> None:
        super().__init__(opened.reader)
        self.scanner = Scanner(program)
        self.exact = opened.exact
        self.depth = outer.depth + opened.exact
        self.closing = opened.closing
        self.ahead = False
        # Where the difference between offsets changes: those of this text, and of the outermost.
        self._at = array("Q", (0,))
        self._origin = array("Q", (begin,))
        self._limit = _KEPT
        self._window = program.max_hold + program.max_unseen + 2

    def origin(self, offset: int) -> int:
        place = bisect_right(self._at, offset) - 1
        return self._origin[place] + offset - self._at[place]

    def spell(self, start: int, end: int) -> None:
        """The next character is spelled by the outermost characters [start, end), which are several."""
        at = self.scanner.scanned
        self._mark(at, start)
        self._mark(at + 1, end)

    def _mark(self, at: int, origin: int) -> None:
        if self._at[-1] == at and self._origin[-1] == origin:
            return
        self._at.append(at)
        self._origin.append(origin)
        if len(self._at) > self._limit:
            self._forget()

    def _forget(self) -> None:
        """Keep the places that the beginning of a match or run can reach back to."""
        first = max(bisect_right(self._at, self.scanner.scanned - self._window) - 1, 0)
        runs = {bisect_right(self._at, start) - 1 for start in self.scanner.run_starts()}
        kept = [*sorted(place for place in runs if place < first), *range(first, len(self._at))]
        self._at = array("Q", [self._at[place] for place in kept])
        self._origin = array("Q", [self._origin[place] for place in kept])
        self._limit = _KEPT + 2 * len(kept)


def joined_runs(over: list[tuple[int, MatchRun]]) -> list[MatchRun]:
    """Runs of one rule that overlap are one; it shows the text of the innermost."""
    joined: list[tuple[int, MatchRun]] = []
    for depth, run in sorted(over, key=lambda each: (each[1].tag, each[1].start)):
        if joined and joined[-1][1].tag == run.tag and run.start < joined[-1][1].end:
            before, last = joined[-1]
            text = run.text if depth > before else last.text
            joined[-1] = max(depth, before), last._replace(end=max(last.end, run.end), text=text)
        else:
            joined.append((depth, run))
    return [run for _, run in sorted(joined, key=lambda each: each[1])]


class _Level(NamedTuple):
    """From `begin` on replacements are escaped `depth` times. `closing` completes the texts, if they end here; each is
    to be escaped as often as said."""

    begin: int
    depth: int
    closing: tuple[tuple[str, int], ...]


_OUTERMOST = _Level(0, 0, ())


class Levels:
    """Nesting depth of a replacement, which decides how it is escaped and what completes the texts around it: by offset
    of the outermost text, in order; asked for offsets that never decrease."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels = [_OUTERMOST]  # few, so that no deque is worth its 0.7 kB

    def __len__(self) -> int:
        return len(self._levels)

    def note(self, begin: int, inner: Iterable[InnerText] = (), token: str | None = None) -> None:
        """What is written from here on stands in these texts, the innermost last, and in a number that such a `token`
        completes: that one is written with its quotes."""
        texts = list(inner)
        depth = texts[-1].depth if texts else 0
        closing = [(text.closing, text.depth - 1) for text in reversed(texts) if text.closing]
        if token is not None:
            closing.insert(0, (token, depth))
        self._levels.append(_Level(begin, 0 if token is not None else depth, tuple(closing)))

    def forget(self, before: int) -> None:
        """Drop what is before this offset."""
        self._level(before)

    def depth_at(self, offset: int) -> int:
        """How often a replacement that begins there is escaped."""
        return self._level(offset).depth

    def closing_at(self, offset: int, write: Callable[[str], str]) -> str:
        """What completes the texts, if the outermost ends there."""
        parts = []
        for text, times in self._level(offset).closing:
            for _ in range(times):
                text = write(text)
            parts.append(text)
        return "".join(parts)

    def _level(self, offset: int) -> _Level:
        levels, past = self._levels, 0
        while past + 1 < len(levels) and levels[past + 1].begin <= offset:
            past += 1
        del levels[:past]
        return levels[0]
