"""Languages split at a prefix: strings that begin with one, and changes to the part before or after its end.

The prefix is a language too; a string may begin with several of its strings, and then each counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gateway.audit.language.automaton import (
    MAX_STATES,
    AutomatonTooLarge,
    Dfa,
    DfaView,
    Intersection,
    LazyDfa,
    PrunedDfa,
    reachable_states,
    zip_arcs,
)
from gateway.automata.bytes import disjoint

MAX_REMAINDERS = 1000

Change = Callable[[Dfa], Dfa]

_READ = -1  # in place of a prefix's state: one has been read


class _WithPrefix(LazyDfa[tuple[int, int]]):
    def __init__(self, language: Dfa, prefix: Dfa) -> None:
        self._language, self._prefix = language, prefix
        super().__init__(self._after(language.start, prefix.start))

    def _after(self, state: int, prefix: int) -> tuple[int, int] | None:
        if not state or not prefix:
            return None
        return state, _READ if prefix == _READ or self._prefix.accepting(prefix) else prefix

    def _transitions(self, key: tuple[int, int]) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
        state, prefix = key
        if prefix == _READ:
            yield from ((low, high, (target, _READ)) for low, high, target in self._language.arcs(state))
            return
        for low, high, targets in zip_arcs(self._language.arcs(state), self._prefix.arcs(prefix)):
            yield low, high, self._after(*targets)

    def _is_accepting(self, key: tuple[int, int]) -> bool:
        return key[1] == _READ and self._language.accepting(key[0])


def with_prefix(language: Dfa, prefix: Dfa) -> Dfa:
    """The strings of a language that begin with one of `prefix`."""
    return PrunedDfa(_WithPrefix(language, prefix))


def matching_prefixes(language: Dfa, prefix: Dfa) -> Dfa:
    """The strings of `prefix` with which one of the language begins."""
    return PrunedDfa(_reading(language, prefix)[0])


def _reading(language: Dfa, prefix: Dfa) -> tuple[Dfa, Callable[[int], int]]:
    """The automaton that reads prefixes, whose states need not be live, and the language's state for each of its."""
    pairs = Intersection(language, prefix)
    return DfaView(pairs, accepting=lambda state: state != 0 and prefix.accepting(pairs.key(state)[1])), (
        lambda state: pairs.key(state)[0]
    )


class _Concatenation(LazyDfa[frozenset[tuple[int, int]]]):
    """Concatenated automata: a key is the set of (number of the automaton, state). `behind` says what begins where
    one accepts: a number and a state. Where nothing does, a string ends."""

    def __init__(
        self, parts: list[Dfa], begin: Iterable[int], behind: Callable[[int, int], tuple[int, int] | None]
    ) -> None:
        self._parts, self._behind = parts, behind
        places = ((number, parts[number].start) for number in begin)
        super().__init__(self._reached(place for place in places if place[1]))

    def _reached(self, places: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]] | None:
        found = set(places)
        for number, state in list(found):
            behind = self._behind(number, state) if self._parts[number].accepting(state) else None
            if behind is not None and behind[1]:
                found.add(behind)
        return frozenset(found) or None

    def _transitions(
        self, key: frozenset[tuple[int, int]]
    ) -> Iterator[tuple[int, int, frozenset[tuple[int, int]] | None]]:
        pieces: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, state in key:
            for low, high, target in self._parts[number].arcs(state):
                pieces.setdefault((low, high), []).append((number, target))
        for low, high, found in disjoint(pieces):
            yield low, high, self._reached(place for piece in found for place in piece)

    def _is_accepting(self, key: frozenset[tuple[int, int]]) -> bool:
        return any(
            self._parts[number].accepting(state) and self._behind(number, state) is None for number, state in key
        )


def changed_behind(language: Dfa, prefix: Dfa, change: Change) -> Dfa:
    """The strings p r' where p is of `prefix`, p r of the language, and r' what r is changed to.

    Each different remainder of a prefix is changed on its own. Raises AutomatonTooLarge, also later, for more than
    `MAX_REMAINDERS`.
    """
    reader, state_of = _reading(language, prefix)
    parts: list[Dfa] = [PrunedDfa(reader)]
    numbers: dict[int, int] = {}

    def behind(number: int, state: int) -> tuple[int, int] | None:
        if number:
            return None
        remainder = state_of(state)
        if remainder not in numbers:
            _check_remainders(len(parts))
            numbers[remainder] = len(parts)
            parts.append(change(DfaView(language, start=remainder)))
        return numbers[remainder], parts[numbers[remainder]].start

    return PrunedDfa(_Concatenation(parts, [0], behind))


def _check_remainders(needed: int) -> None:
    if needed > MAX_REMAINDERS:
        raise AutomatonTooLarge(
            f"what follows the prefix differs in more than {MAX_REMAINDERS:,} ways, and each is changed apart: use a "
            "narrower prefix, or change it all with on: both"
        )


def changed_before(language: Dfa, prefix: Dfa, change: Change) -> Dfa:
    """The strings p' r where p is of `prefix`, p r of the language, and p' what p is changed to.

    Prefixes are changed apart by what may follow them. Raises AutomatonTooLarge where that differs in too many ways.
    """
    reader, state_of = _reading(language, prefix)
    ends: dict[int, set[int]] = {}
    for state in reachable_states(PrunedDfa(reader), MAX_STATES):
        if reader.accepting(state):
            ends.setdefault(state_of(state), set()).add(state)
    _check_remainders(len(ends))
    remainders = list(ends)
    parts = [change(PrunedDfa(DfaView(reader, accepting=ends[remainder].__contains__))) for remainder in remainders]
    last = len(parts)

    def behind(number: int, state: int) -> tuple[int, int] | None:
        return (last, remainders[number]) if number < last else None

    return PrunedDfa(_Concatenation([*parts, language], range(last), behind))
