"""Static analysis of a pattern: how long its matches can be, whether the end of one can be the beginning of the next.

Done when a pattern is loaded, never while a text is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, product
from typing import NamedTuple

from gateway.automata.charset import NONE, CharSet
from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS, by_kind, kinds_of_characters
from gateway.automata.positions import Positions, Region

MAX_DELIMITER = 8
MAX_WAY = 1000
MAX_TRIES = 10_000
MAX_WITNESSES = 300


class Vertex(NamedTuple):
    """A position of the automaton after a character of one kind."""

    position: int
    kind: int


class Graph:
    """The automaton with a place for each kind of character, so that every step has one context and can be taken.

    Sets are numbered, since to compare or to hash them takes as long as they have ranges.
    """

    def __init__(self, positions: Positions) -> None:
        numbers: dict[CharSet, int] = {}
        self.of: tuple[int, ...] = tuple(numbers.setdefault(charset, len(numbers)) for charset in positions.sets)
        self._sets = list(numbers)
        self.lefts: tuple[int, ...] = (EDGE, *(kind for kind, _ in kinds_of_characters(positions.sees_lines)))
        self._parts = [by_kind(chars, positions.sees_lines) for chars in self._sets]
        self._positions = positions
        self._after: dict[Vertex, list[Vertex]] = {}
        self._shared: dict[tuple[int, int, int, int], CharSet] = {}

    def chars(self, place: Vertex) -> CharSet:
        """The characters of its kind that the position takes."""
        return self._parts[self.of[place.position]].get(place.kind, NONE)

    def shared(self, one: Vertex, other: Vertex, less: Vertex | None = None) -> CharSet:
        """The characters that lead to both, less those that the position of `less` takes."""
        if one.kind != other.kind:
            return NONE
        key = self.of[one.position], self.of[other.position], self.of[less.position] if less else -1, one.kind
        if key not in self._shared:
            both = self.chars(one) & self.chars(other)
            self._shared[key] = both if less is None else both - self._sets[key[2]]
        return self._shared[key]

    def region(self, place: Vertex) -> Region:
        return self._positions.region[place.position]

    def first(self, left: int) -> list[Vertex]:
        """The places after the first character, when `left` precedes it."""
        return self._places(self._positions.first, left)

    def after(self, place: Vertex) -> list[Vertex]:
        if place not in self._after:
            self._after[place] = self._places(self._positions.follow[place.position], place.kind)
        return self._after[place]

    def ends(self, place: Vertex) -> int:
        """What may follow the place for a match to end there, one bit for each kind."""
        return self._positions.last.get(place.position, 0) >> KINDS * place.kind & ALL_RIGHTS

    def _places(self, steps: dict[int, int], left: int) -> list[Vertex]:
        return [
            Vertex(position, kind)
            for position, contexts in steps.items()
            for kind in self._parts[self.of[position]]
            if contexts >> KINDS * left + kind & 1
        ]


def longest(positions: Positions) -> int | None:
    """The greatest length from the start of a match to the character that makes it certain, that one included.

    The end of the text counts as a character where a match waits for one; what must stand before a match does not
    count. None if there is no bound.
    """
    graph = Graph(positions)
    everywhere = _reached({place for left in graph.lefts for place in graph.first(left)}, graph.after)
    steps = {place: graph.after(place) for place in everywhere if graph.region(place) is not Region.BEFORE}
    sources: dict[Vertex, list[Vertex]] = {place: [] for place in steps}
    for place, targets in steps.items():
        for target in targets:
            sources[target].append(place)
    useful = _reached({place for place in steps if graph.ends(place)}, sources.__getitem__)
    return _longest_path(useful, steps, graph.ends)


def _reached(begin: Iterable[Vertex], after: Callable[[Vertex], Iterable[Vertex]]) -> set[Vertex]:
    """All places reachable from `begin`, itself included."""
    found = set(begin)
    waiting = list(found)
    while waiting:
        for target in after(waiting.pop()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def _longest_path(places: set[Vertex], steps: dict[Vertex, list[Vertex]], ends: Callable[[Vertex], int]) -> int | None:
    """Kahn's topological order (1962): what is left over lies on a cycle or behind one."""
    missing = dict.fromkeys(places, 0)
    for place in places:
        for target in steps[place]:
            if target in missing:
                missing[target] += 1
    ready = [place for place, count in missing.items() if not count]
    lengths = dict.fromkeys(places, 1)
    longest = done = 0
    while ready:
        place = ready.pop()
        done += 1
        rights = ends(place)
        if rights:
            longest = max(longest, lengths[place] + (rights != ALL_RIGHTS))
        for target in steps[place]:
            if target in missing:
                lengths[target] = max(lengths[target], lengths[place] + 1)
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
    return longest if done == len(places) else None


def reopens(positions: Positions) -> bool:
    """Can what closes one match open the next, as the quotes of `"[^"]*"` do?

    That is: there are texts u, w, v for which uw and wv are matches and uwv is none, and v begins with a character that
    may be repeated, out of a set that w does not end with. For positions without context. Looked for with u and v of at
    most `MAX_WAY` characters, w of at most `MAX_DELIMITER`, and no further than the other bounds allow.
    """
    graph = Graph(positions)
    inside = _repeated(graph, positions)
    if not inside:
        return False
    witnesses = (
        (text, left, right)
        for left in graph.lefts
        for overlap in _overlaps(graph, _shortest_paths(graph, graph.first(left)))
        for text, right in _reopenings(graph, overlap, inside)
    )
    return any(not _matches(graph, *witness) for witness in islice(witnesses, MAX_WITNESSES))


def _repeated(graph: Graph, positions: Positions) -> set[int]:
    """The positions that stand for a class which may come more or less often: `x*`, and `x{2,9}`, where the copies of x
    come one after the other and can all be left the same way."""
    alike = [
        [target for target in steps if graph.of[target] == graph.of[position]]
        for position, steps in enumerate(positions.follow)
    ]
    exits = [set(steps).difference(alike[position]) for position, steps in enumerate(positions.follow)]
    found = {
        position
        for position, copies in enumerate(alike)
        if position in copies or any(exits[copy] and exits[copy] == exits[position] for copy in copies)
    }
    for position in reversed(range(len(alike))):
        if not found.isdisjoint(alike[position]):
            found.add(position)
    return found


class _Overlap(NamedTuple):
    """A text whose last `shared` characters end one match at `closing` and begin another, now at `opening`."""

    text: str
    shared: int
    closing: Vertex
    opening: Vertex


def _overlaps(graph: Graph, ways: dict[Vertex, str]) -> Iterator[_Overlap]:
    """Each pair of places once, with the fewest shared characters; `ways` lead to the place before the overlap."""
    found: list[_Overlap] = []
    seen: set[tuple[Vertex, Vertex]] = set()
    tries = 0
    for text, shared, closings, openings in chain(
        ((text, 1, graph.after(place), graph.first(place.kind)) for place, text in ways.items()),
        ((at.text, at.shared + 1, graph.after(at.closing), graph.after(at.opening)) for at in found),
    ):
        for closing, opening in product(closings, openings):
            tries += 1
            if tries > MAX_TRIES:
                return
            both = graph.shared(closing, opening)
            if both and (closing, opening) not in seen:
                seen.add((closing, opening))
                overlap = _Overlap(text + _any_of(both), shared, closing, opening)
                if shared < MAX_DELIMITER:
                    found.append(overlap)
                yield overlap


def _reopenings(graph: Graph, overlap: _Overlap, inside: set[int]) -> Iterator[tuple[str, int]]:
    """Texts uwv, and what must stand behind them."""
    closed = graph.ends(overlap.closing)
    for begin in graph.after(overlap.opening) if closed else ():
        if begin.position not in inside or not closed >> begin.kind & 1:
            continue
        delimiter = graph.shared(overlap.closing, overlap.opening, begin)
        if delimiter:
            for place, text in _shortest_paths(graph, [begin]).items():
                rights = graph.ends(place)
                if rights:
                    yield overlap.text[:-1] + _any_of(delimiter) + text, rights.bit_length() - 1
                    break


def _shortest_paths(graph: Graph, begin: Iterable[Vertex]) -> dict[Vertex, str]:
    """For each place that can be reached, the nearest first, a text that leads there, its own character included."""
    ways = {place: _any_of(graph.chars(place)) for place in begin}
    waiting = list(ways)
    for place in waiting:
        for target in graph.after(place):
            if target not in ways and len(ways[place]) < MAX_WAY:
                ways[target] = ways[place] + _any_of(graph.chars(target))
                waiting.append(target)
    return ways


def _any_of(chars: CharSet) -> str:
    return chr(chars.ranges[0][0])


def _matches(graph: Graph, text: str, left: int, right: int) -> bool:
    """Is the whole text a match, with `left` before it and `right` behind it?"""
    places = {place for place in graph.first(left) if text[0] in graph.chars(place)}
    for char in text[1:]:
        places = {target for place in places for target in graph.after(place) if char in graph.chars(target)}
    return any(graph.ends(place) >> right & 1 for place in places)
