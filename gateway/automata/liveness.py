"""Can an end be reached from a state of a graph that is computed on the way?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class SearchTooLong(Exception):
    """The search would visit more states than allowed."""


class Liveness(Generic[S]):
    """Which states can reach an end? Answers are cached. `dead`: a state that cannot. `most`: so many states are looked
    at for one answer, and about as many answers are kept; None for any number.

    Depth first, with the strongly connected components of what is looked at (Tarjan 1972): one that is complete without
    an end is dead; where an end is found, it is one of all that is not complete yet.
    """

    def __init__(
        self,
        dead: S,
        targets: Callable[[S], Iterable[S]],
        is_end: Callable[[S], bool],
        most: int | None = None,
    ) -> None:
        self._dead, self._targets, self._is_end, self._most = dead, targets, is_end, most
        self._known: dict[S, bool] = {dead: False}

    def __call__(self, state: S) -> bool:
        """Raises SearchTooLong."""
        known = self._known.get(state)
        return self._search(state) if known is None else known

    def _search(self, begin: S) -> bool:
        if self._most is not None and len(self._known) > self._most:
            self._known = {self._dead: False}
        if self._is_end(begin):
            self._known[begin] = True
            return True
        met, least = {begin: 0}, {begin: 0}
        open_states = [begin]
        path = [(begin, iter(self._targets(begin)))]
        while path:
            state, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                self._close(state, met, least, open_states)
                if path:
                    above = path[-1][0]
                    least[above] = min(least[above], least[state])
                continue
            known = self._known.get(target)
            if known or (known is None and target not in met and self._is_end(target)):
                self._known.update(dict.fromkeys([*open_states, target], True))
                return True
            if known is None and target in met:
                least[state] = min(least[state], met[target])
            elif known is None:
                if len(met) == self._most:
                    raise SearchTooLong
                met[target] = least[target] = len(met)
                open_states.append(target)
                path.append((target, iter(self._targets(target))))
        return False

    def _close(self, state: S, met: dict[S, int], least: dict[S, int], open_states: list[S]) -> None:
        """All that could follow the state has been looked at. If it leads to none before it, its component is dead."""
        if least[state] == met[state]:
            closed = None
            while closed != state:
                closed = open_states.pop()
                self._known[closed] = False
