"""The automaton of patterns over the bytes of UTF-8, for whole strings: generated text token by token, and audits.

The stream's machine (`gateway.automata.patterns`) looks for matches within a text; this one reads a text from its first
byte and knows, after each, whether the text may end here and whether it can still be completed. Tokens may cut a
character anywhere, so a state is a set of positions of Glushkov's automaton of which some character may have been read
in part. What is left of a character is a node in a graph of byte ranges in which equal nodes are one.

States are computed when they are first needed and kept in a bounded cache (`gateway.automata.states`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gateway.automata.charset import CharSet
from gateway.automata.contexts import ALL, EDGE, KINDS, OTHER, kinds_of_characters
from gateway.automata.positions import Positions
from gateway.automata.states import forget

MAX_CACHE = 300_000  # transitions and entries of states, some 150 bytes each

# The first and last code point that take so many bytes, and what their first byte has besides its share of the number.
# Surrogates are no characters of UTF-8.
_LENGTHS = (
    (1, 0x0, 0x7F, 0x00),
    (2, 0x80, 0x7FF, 0xC0),
    (3, 0x800, 0xD7FF, 0xE0),
    (3, 0xE000, 0xFFFF, 0xE0),
    (4, 0x10000, 0x10FFFF, 0xF0),
)
_CONTINUATION = 0x80

Ranges = tuple[tuple[int, int], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The rest of a character: ranges of the next byte, inclusive and in order, each with the rest after it.
    Equal tails of one automaton are the same object."""

    arcs: tuple[tuple[int, int, Tail], ...]

    def after(self, byte: int) -> Tail | None:
        """The tail after `byte`, None if it is not allowed here."""
        for low, high, tail in self.arcs:
            if low <= byte <= high:
                return tail
        return None


Entries = frozenset[tuple[int, Tail]]
"""Places with what is left to read of their character."""

DONE = Tail(())  # the character is complete
NOTHING = Tail(())  # no character has these bytes


class Utf8:
    """The encodings of sets of characters as tails, shared among the sets."""

    def __init__(self) -> None:
        self._tails: dict[tuple[tuple[int, int, Tail], ...], Tail] = {}
        self._within: dict[tuple[Ranges, int], Tail] = {}

    def encoded(self, chars: CharSet) -> Tail:
        """The encodings of the characters; `NOTHING` if there are none, as of surrogates alone."""
        arcs: list[tuple[int, int, Tail]] = []
        for length, first, last, mark in _LENGTHS:
            ranges = (chars & CharSet(((first, last),))).ranges
            if ranges:
                arcs += self._split(ranges, length - 1, mark)
        return self._tail(_joined(arcs))

    def _tail(self, arcs: tuple[tuple[int, int, Tail], ...]) -> Tail:
        return self._tails.setdefault(arcs, Tail(arcs)) if arcs else NOTHING

    def _split(self, ranges: Ranges, width: int, mark: int) -> list[tuple[int, int, Tail]]:
        """Arcs by the byte before the last `width`; `mark` is added to that byte's share of the number."""
        size = 64**width
        shares: dict[int, list[tuple[int, int]]] = {}
        for low, high in ranges:
            for share in range(low // size, high // size + 1):
                base = share * size
                shares.setdefault(share, []).append((max(low - base, 0), min(high - base, size - 1)))
        return [(mark + share, mark + share, self._rest(tuple(rest), width)) for share, rest in shares.items()]

    def _rest(self, ranges: Ranges, width: int) -> Tail:
        """The last `width` bytes of numbers in `ranges`, which is below 64**width."""
        if not width:
            return DONE
        tail = self._within.get((ranges, width))
        if tail is None:
            tail = self._tail(_joined(self._split(ranges, width - 1, _CONTINUATION)))
            self._within[ranges, width] = tail
        return tail


def _joined(arcs: list[tuple[int, int, Tail]]) -> tuple[tuple[int, int, Tail], ...]:
    """Neighbours with the same tail are one arc."""
    joined: list[tuple[int, int, Tail]] = []
    for low, high, tail in arcs:
        if joined and joined[-1][1] + 1 == low and joined[-1][2] is tail:
            joined[-1] = joined[-1][0], high, tail
        else:
            joined.append((low, high, tail))
    return tuple(joined)


class ByteState(dict[int, "ByteState"]):
    """A state *is* the table of its kept transitions.

    `accepting`: whether the text may end here.
    """

    __slots__ = ("accepting", "entries")

    entries: Entries
    accepting: bool


_START = -1  # the place before any text


class ByteAutomaton:
    """The union of patterns, each with its contexts: which whole texts, as UTF-8, are one of their strings?

    A place here is a position whose character is known to be a word character or known to be none, wherever that
    makes a difference: so every step has one context, and can be taken or cannot. Places from which no text can be
    completed are left out, and with them every state that is not live.
    """

    def __init__(self, automata: Iterable[Positions], max_cache: int = MAX_CACHE) -> None:
        self._tails: list[Tail] = []
        self._follow: dict[int, tuple[int, ...]] = {_START: ()}
        self._last: set[int] = set()
        utf8 = Utf8()
        for positions in automata:
            self._add(positions, utf8)
        self._trim()
        self._max_cache = max_cache
        self._kept = 0
        self._states: dict[Entries, ByteState] = {}

    def start(self) -> ByteState:
        """The state before any text."""
        # With nothing to follow, not even the empty beginning is one of a match, unless it is one itself.
        begins = self._follow[_START] or _START in self._last
        return self.state(frozenset({(_START, DONE)} if begins else ()))

    def step(self, state: ByteState, byte: int) -> ByteState:
        """The state after one byte, 0 to 255."""
        target = state.get(byte)
        if target is None:
            target = self.state(self._entries_after(state, byte))
            self._kept += 1
            if self._kept > self._max_cache:
                forget(self._states)
                self._kept = 0
            state[byte] = target
        return target

    def walk(self, state: ByteState, text: bytes) -> ByteState:
        """The state after some bytes, such as those of a token."""
        for byte in text:
            state = self.step(state, byte)
            if not state.entries:
                break
        return state

    def arcs(self, entries: Entries) -> list[tuple[int, int, Entries]]:
        """All steps to live states: ranges of bytes, inclusive and in order, with the state after any byte of them.
        States are given by their entries."""
        pieces: dict[tuple[int, int], set[tuple[int, Tail]]] = {}
        for place, rest in entries:
            begun = (
                [(target, self._tails[target]) for target in self._follow[place]] if rest is DONE else [(place, rest)]
            )
            for target, tail in begun:
                for low, high, left in tail.arcs:
                    pieces.setdefault((low, high), set()).add((target, left))
        return [(low, high, frozenset().union(*found)) for low, high, found in disjoint(pieces)]

    def accepting(self, state: ByteState) -> bool:
        """Is what has been read a whole string of the patterns?"""
        return state.accepting

    def live(self, state: ByteState) -> bool:
        """Can what has been read be completed, or is it already? All others are one state, which is never left."""
        return bool(state.entries)

    def _entries_after(self, state: ByteState, byte: int) -> Entries:
        entries: set[tuple[int, Tail]] = set()
        for place, tail in state.entries:
            if tail is DONE:
                begun = ((target, self._tails[target].after(byte)) for target in self._follow[place])
                entries.update((target, rest) for target, rest in begun if rest is not None)
            elif (rest := tail.after(byte)) is not None:
                entries.add((place, rest))
        return frozenset(entries)

    def state(self, entries: Entries) -> ByteState:
        """The state with these entries."""
        state = self._states.get(entries)
        if state is None:
            state = ByteState()
            state.entries = entries
            state.accepting = any(tail is DONE and place in self._last for place, tail in entries)
            self._states[entries] = state
            self._kept += len(entries)
        return state

    def _add(self, positions: Positions, utf8: Utf8) -> None:
        places: list[list[tuple[int, int]]] = []  # of each position: the place, and the kind of its characters
        depends = _depending(positions)
        for position, chars in enumerate(positions.sets):
            places.append([])
            for kind, some in _kinds(chars, position in depends, positions.sees_lines):
                places[-1].append((len(self._tails), kind))
                self._tails.append(utf8.encoded(some))
        self._follow[_START] += _open(positions.first, EDGE, places)
        if positions.null >> (KINDS * EDGE + EDGE) & 1:
            self._last.add(_START)
        for position, steps in enumerate(positions.follow):
            last = positions.last.get(position, 0)
            for place, kind in places[position]:
                self._follow[place] = _open(steps, kind, places)
                if last >> (KINDS * kind + EDGE) & 1:
                    self._last.add(place)

    def _trim(self) -> None:
        """Remove the steps to places from which no end is reachable."""
        sources: dict[int, list[int]] = {}
        for place, targets in self._follow.items():
            for target in targets:
                sources.setdefault(target, []).append(place)
        useful: set[int] = set()
        waiting = list(self._last)
        while waiting:
            place = waiting.pop()
            if place not in useful and (place == _START or self._tails[place] is not NOTHING):
                useful.add(place)
                waiting += sources.get(place, ())
        self._follow = {
            place: tuple(target for target in targets if target in useful) for place, targets in self._follow.items()
        }


def disjoint(pieces: Mapping[tuple[int, int], T]) -> Iterator[tuple[int, int, list[T]]]:
    """Ranges that may overlap, inclusive → ranges that do not, in order, each with what covers it."""
    if len(pieces) == 1:
        for (low, high), piece in pieces.items():
            yield low, high, [piece]
        return
    cuts = sorted({cut for low, high in pieces for cut in (low, high + 1)})
    places = {cut: place for place, cut in enumerate(cuts)}
    covering: list[list[T]] = [[] for _ in cuts]
    for (low, high), piece in pieces.items():
        for place in range(places[low], places[high + 1]):
            covering[place].append(piece)
    for place, found in enumerate(covering):
        if found:
            yield cuts[place], cuts[place + 1] - 1, found


def _depending(positions: Positions) -> set[int]:
    """The positions of which some step depends on the neighbouring character."""
    depends = {position for ends in (positions.first, positions.last) for position, mask in ends.items() if mask != ALL}
    for position, steps in enumerate(positions.follow):
        for target, mask in steps.items():
            if mask != ALL:
                depends |= {position, target}
    return depends


def _kinds(chars: CharSet, apart: bool, lines: bool) -> list[tuple[int, CharSet]]:
    """The characters by kind. Where the kind makes no difference they stay together, as of any kind."""
    if not apart:
        return [(OTHER, chars)]
    return [(kind, some) for kind, every in kinds_of_characters(lines) if (some := chars & every)]


def _open(steps: dict[int, int], left: int, places: list[list[tuple[int, int]]]) -> tuple[int, ...]:
    """The places that can be stepped to from one with `left` as its kind."""
    return tuple(
        place for target, mask in steps.items() for place, kind in places[target] if mask >> (KINDS * left + kind) & 1
    )
