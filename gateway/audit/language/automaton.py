"""Languages as lazily determinised automata over the bytes of UTF-8.

A state is a number: 0 is dead, and from every other some string of the language can be completed. Automata are built
from others: each state stands for some of their states (its key), and is computed on first use, within bounds. Since
they are deterministic, counting paths counts strings, and removing strings only changes which states accept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from gateway.automata.bytes import ByteAutomaton, Entries
from gateway.automata.liveness import Liveness
from gateway.automata.positions import positions
from gateway.automata.regex import Node, parse, spelled

MAX_STATES = 1_000_000
MAX_ENTRIES = 2_000_000  # what states stand for and where they lead, some 100 bytes each
MAX_POSITIONS = 100_000  # of an expression, which only its states and entries make expensive

Arc = tuple[int, int, int]
"""The first and the last byte of a range, and the state that all of it leads to."""

_NO_ARC: Arc = (256, 256, 0)
_ADVICE = "ask for fewer edits, count less, list fewer alternatives, or narrow the pattern"


class AutomatonTooLarge(ValueError):
    """An automaton needs more states than allowed; the message says what to do."""


class Dfa(Protocol):
    """A deterministic automaton over bytes. States are numbers; 0 is dead."""

    @property
    def start(self) -> int:
        """The state before any byte; 0 if the language is empty."""

    def step(self, state: int, byte: int) -> int:
        """The state after one byte, 0 to 255. Raises AutomatonTooLarge, as may everything that computes a state."""

    def arcs(self, state: int) -> Iterable[Arc]:
        """All steps to live states: ranges of bytes that do not overlap, in order."""

    def accepting(self, state: int) -> bool:
        """Is what was read a string of the language?"""

    def live(self, state: int) -> bool:
        """Can an accepting state be reached, or is this one?"""


def walk(automaton: Dfa, state: int, text: bytes) -> int:
    """The state after some bytes, such as those of a token."""
    for byte in text:
        state = automaton.step(state, byte)
        if not state:
            break
    return state


class _Row(NamedTuple):
    """The arcs of a state. Flat, since there can be millions."""

    lows: bytes
    highs: bytes
    targets: array[int]


K = TypeVar("K", bound=Hashable)


class LazyDfa(ABC, Generic[K]):
    """Base class of automata whose states have keys: equal keys are one state.

    A subclass defines the transitions of a key and which keys accept; `super().__init__` comes last. If its states need
    not be live, it is to be wrapped in `PrunedDfa`.
    """

    def __init__(self, begin: K | None) -> None:
        self._keys: list[K | None] = [None]
        self._numbers: dict[K, int] = {}
        self._rows: list[_Row | None] = [_Row(b"", b"", array("i"))]
        self._entries = 0
        self.start = self._state_of(begin)

    @abstractmethod
    def _transitions(self, key: K) -> Iterable[tuple[int, int, K | None]]:
        """Ranges of bytes that do not overlap, in order, and where they lead; None for nowhere."""

    @abstractmethod
    def _is_accepting(self, key: K) -> bool:
        """Is what was read a string of the language?"""

    def _size(self, key: K) -> int:
        """The size of a key, in entries."""
        return len(key) if isinstance(key, frozenset) else 1

    def key(self, state: int) -> K:
        """The key of a state other than 0."""
        key = self._keys[state]
        assert key is not None
        return key

    def step(self, state: int, byte: int) -> int:
        lows, highs, targets = self._row(state)
        at = bisect_right(lows, byte) - 1
        return targets[at] if at >= 0 and byte <= highs[at] else 0

    def arcs(self, state: int) -> Iterator[Arc]:
        return zip(*self._row(state), strict=True)

    def accepting(self, state: int) -> bool:
        return state != 0 and self._is_accepting(self.key(state))

    def live(self, state: int) -> bool:
        return state != 0

    def _row(self, state: int) -> _Row:
        row = self._rows[state]
        return self._compute_row(state) if row is None else row

    def _compute_row(self, state: int) -> _Row:
        lows, highs, targets = bytearray(), bytearray(), array("i")
        for low, high, key in self._transitions(self.key(state)):
            target = self._state_of(key)
            if not target:
                continue
            if targets and targets[-1] == target and highs[-1] + 1 == low:
                highs[-1] = high
            else:
                lows.append(low)
                highs.append(high)
                targets.append(target)
        row = self._rows[state] = _Row(bytes(lows), bytes(highs), targets)
        self._count_entries(len(targets))
        return row

    def _state_of(self, key: K | None) -> int:
        if key is None:
            return 0
        number = self._numbers.get(key)
        if number is None:
            if len(self._keys) > MAX_STATES:
                raise AutomatonTooLarge(f"the language needs more than {MAX_STATES:,} states: {_ADVICE}")
            self._count_entries(self._size(key))
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._rows.append(None)
        return number

    def _count_entries(self, entries: int) -> None:
        self._entries += entries
        if self._entries > MAX_ENTRIES:
            raise AutomatonTooLarge(
                f"the language's first {len(self._keys):,} states need more than {MAX_ENTRIES:,} entries: {_ADVICE}"
            )


class Regex(LazyDfa[Entries]):
    """The texts that one of the expressions matches in full (syntax: docs/patterns.md). Raises RegexError."""

    def __init__(self, *expressions: str | Node) -> None:
        trees = [parse(each) if isinstance(each, str) else each for each in expressions]
        self._language = ByteAutomaton(
            positions(tree, max_positions=MAX_POSITIONS, may_be_empty=True) for tree in trees
        )
        super().__init__(self._language.start().entries or None)

    def _transitions(self, key: Entries) -> list[tuple[int, int, Entries]]:
        return self._language.arcs(key)

    def _is_accepting(self, key: Entries) -> bool:
        return self._language.state(key).accepting


def literal(text: str) -> Dfa:
    """The language of one text, which may be empty. Raises ValueError if it cannot be written as UTF-8."""
    return Regex(spelled(text))


# -- combinations ------------------------------------------------------------------------------------------------------


def zip_arcs(first: Iterable[Arc], *others: Iterable[Arc]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The arcs of several automata that read the same byte: ranges within which no target changes, with all targets, as
    far as the first automaton stays live."""
    rows = [list(row) for row in others]
    at = [0] * len(rows)
    for low, high, target in first:
        while low <= high:
            end = high
            targets = [target]
            for number, row in enumerate(rows):
                place = at[number]
                while place < len(row) and row[place][1] < low:
                    place += 1
                at[number] = place
                begins, ends, to = row[place] if place < len(row) else _NO_ARC
                if begins <= low:
                    targets.append(to)
                    end = min(end, ends)
                else:
                    targets.append(0)
                    end = min(end, begins - 1)
            yield low, end, tuple(targets)
            low = end + 1


class Intersection(LazyDfa[tuple[int, int]]):
    """Product automaton: the strings that both accept. Its states need not be live."""

    def __init__(self, one: Dfa, other: Dfa) -> None:
        self._one, self._other = one, other
        super().__init__((one.start, other.start) if one.start and other.start else None)

    def _transitions(self, key: tuple[int, int]) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
        for low, high, (one, other) in zip_arcs(self._one.arcs(key[0]), self._other.arcs(key[1])):
            yield low, high, (one, other) if other else None

    def _is_accepting(self, key: tuple[int, int]) -> bool:
        return self._one.accepting(key[0]) and self._other.accepting(key[1])


class DfaView:
    """An automaton with another start, or other accepting states. Its states need not be live then."""

    def __init__(
        self, automaton: Dfa, start: int | None = None, accepting: Callable[[int], bool] | None = None
    ) -> None:
        self.start = automaton.start if start is None else start
        self.step = automaton.step
        self.arcs = automaton.arcs
        self.live = automaton.live
        self.accepting = automaton.accepting if accepting is None else accepting


class PrunedDfa:
    """An automaton without the states from which nothing can be completed."""

    def __init__(self, automaton: Dfa) -> None:
        self._automaton = automaton
        self.accepting = automaton.accepting
        self.live = Liveness(0, lambda state: (target for *_, target in automaton.arcs(state)), automaton.accepting)
        self.start = automaton.start if self.live(automaton.start) else 0

    def step(self, state: int, byte: int) -> int:
        target = self._automaton.step(state, byte)
        return target if self.live(target) else 0

    def arcs(self, state: int) -> Iterator[Arc]:
        return (arc for arc in self._automaton.arcs(state) if self.live(arc[2]))


def intersection(one: Dfa, other: Dfa) -> Dfa:
    """The strings of both languages."""
    return PrunedDfa(Intersection(one, other))


class Numbered(LazyDfa[int]):
    """An automaton whose states are numbers already, by its functions."""

    def __init__(
        self,
        start: int | None,
        transitions: Callable[[int], Iterable[tuple[int, int, int | None]]],
        accepting: Callable[[int], object],
    ) -> None:
        self._arcs_of, self._accepts = transitions, accepting
        super().__init__(start)

    def _transitions(self, key: int) -> Iterable[tuple[int, int, int | None]]:
        return self._arcs_of(key)

    def _is_accepting(self, key: int) -> bool:
        return bool(self._accepts(key))


def materialized(automaton: Dfa, max_states: int) -> Dfa:
    """The automaton with all its states computed. Raises AutomatonTooLarge if there are more than `max_states`."""
    arcs = {state: list(automaton.arcs(state)) for state in reachable_states(automaton, max_states)}
    ends = frozenset(state for state in arcs if automaton.accepting(state))
    return Numbered(automaton.start or None, arcs.__getitem__, ends.__contains__)


def reachable_states(automaton: Dfa, max_states: int) -> list[int]:
    """All live states. Raises AutomatonTooLarge if there are more than `max_states`."""
    found = dict.fromkeys([automaton.start] if automaton.start else [])
    waiting = list(found)
    while waiting:
        for *_, target in automaton.arcs(waiting.pop()):
            if target not in found:
                if len(found) >= max_states:
                    raise AutomatonTooLarge(f"the language needs more than {max_states:,} states: {_ADVICE}")
                found[target] = None
                waiting.append(target)
    return list(found)
