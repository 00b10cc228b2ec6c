"""The states of automata that are determinised lazily: each is the table of its kept transitions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=dict[Any, Any])
T = TypeVar("T")

MAX_KEPT = 200_000  # positions of which it is known what can come of them


def forget(states: dict[K, S]) -> None:
    """Empty a full cache of states. Cursors keep the states they are in, and those fill up again from here: that costs
    time, never correctness."""
    # A list, since another thread may add a state meanwhile; dictionaries themselves allow that.
    for state in list(states.values()):
        state.clear()
    states.clear()


class Lookup(dict[int, int]):
    """A bounded cache of what is computed from a position on first use; emptied when full."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, position: int) -> int:
        if len(self) >= MAX_KEPT:
            self.clear()
        value = self[position] = self._compute(position)
        return value


class Always(dict[int, T]):
    """A cache with one value for every position."""

    def __init__(self, value: T) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, position: int) -> T:
        return self._value
