"""Reports of a guarded text: its matches, and how much it holds for how long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from gateway.observe.facts import HistogramCounts
from gateway.policy.model import Action, Channel, Direction

HELD_BOUNDS: tuple[float, ...] = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
HOLD_BOUNDS: tuple[float, ...] = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Histogram:
    """A histogram in the making, cheap enough for every chunk."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def distribution(self) -> HistogramCounts:
        return HistogramCounts(self.bounds, tuple(self.counts), self.total)


class Finding(NamedTuple):
    """One match in one text. `seen` is the word as its lens sees it: for the journal, which writes only its HMAC."""

    rule: str
    action: Action
    direction: Direction
    channel: Channel
    choice: int | None
    offset: int
    length: int
    seen: str

    def __repr__(self) -> str:
        return f"Finding(rule={self.rule!r}, offset={self.offset}, length={self.length})"


OnFinding = Callable[[Finding], None]
