"""Nesting depth of a replacement, which decides how it is escaped and what completes the texts around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.censor.inner_text import InnerText


class _Level(NamedTuple):
    """From `begin` on replacements are escaped `depth` times. `closing` completes the texts, if they end here; each is
    to be escaped as often as said."""

    begin: int
    depth: int
    closing: tuple[tuple[str, int], ...]


_OUTERMOST = _Level(0, 0, ())


class Levels:
    """By offset of the outermost text, in order; asked for offsets that never decrease."""

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
