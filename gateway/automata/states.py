"""The states of automata that are determinised lazily: each is the table of its kept transitions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=dict[Any, Any])


def forget(states: dict[K, S]) -> None:
    """Empty a full cache of states. Texts keep the states they stand on, and those fill up again from here: that costs
    time, never correctness."""
    # A list, since another thread may add a state meanwhile; dictionaries themselves allow that.
    for state in list(states.values()):
        state.clear()
    states.clear()
