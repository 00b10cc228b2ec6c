"""Glushkov's automaton of a regular expression (Glushkov 1961; McNaughton and Yamada 1960).

It has one state for each place in the expression where a character stands, its *positions*, and no empty steps: being
at a position means that its character has just been read. What stands between two characters without being one (`\\b`,
`^`, `$`) is a mask on the step between them, of the contexts in which it may be taken (`gateway.automata.contexts`).

The expression is walked twice by the same rules: first to count what it takes, then to build it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from gateway.automata.charset import CharSet
from gateway.automata.contexts import ALL, sees_lines
from gateway.automata.regex import EMPTY, Alternation, Chars, Concat, Edge, Node, RegexError, Repeat

MAX_POSITIONS = 10_000
STEPS_PER_POSITION = 20  # how many the budget allows for; each takes about a hundred bytes


class Region(IntEnum):
    """Which part of a pattern a position belongs to: the match is what the span reads, the rest is its context."""

    BEFORE = 0
    SPAN = 1
    AFTER = 2


@dataclass(frozen=True, slots=True)
class Positions:
    """The automaton. Positions are numbered from 0, and map to the contexts in which a step may be taken.

    `sets[p]`: the characters of position p. `first`: where a text may begin. `follow[p]`: what may come next. `last`:
    where it may end. `null`: the contexts in which the empty string matches; there are none, unless it may be empty.
    `past[p]`: for a position after the span, how many characters beyond the span's end have been read there, this one
    included; 0 for others. `sees_lines`: a line end is distinguished from other characters.
    """

    sets: tuple[CharSet, ...]
    first: dict[int, int]
    last: dict[int, int]
    follow: tuple[dict[int, int], ...]
    null: int
    region: tuple[Region, ...]
    past: tuple[int, ...]
    sees_lines: bool = False


def positions(
    body: Node,
    before: Node | None = None,
    after: Node | None = None,
    max_positions: int = MAX_POSITIONS,
    *,
    may_be_empty: bool = False,
) -> Positions:
    """The automaton of `before`, `body`, `after`, one behind the other; a match is what `body` reads.

    Raises RegexError if the body matches the empty string, in whatever context and unless it may, or if the automaton
    would have more than `max_positions` positions or `STEPS_PER_POSITION` times as many steps; ValueError if a position
    of `after` can be reached at different distances from the span's end.
    """
    parts = before or EMPTY, body, after or EMPTY
    counted = _build(Concat(parts), _Counting(max_positions))
    _refuse_more(counted.steps, STEPS_PER_POSITION * max_positions, "{} steps between its states")
    linking = _Linking()
    fragments: list[_Fragment] = []
    region: list[Region] = []
    for part, each in zip(parts, Region, strict=True):
        fragments.append(_build(part, linking))
        region += [each] * (len(linking.sets) - len(region))
    if fragments[Region.SPAN].null and not may_be_empty:
        raise RegexError("the pattern matches the empty string: let it need a character, as with + instead of *")
    past = _distances(fragments[Region.AFTER], linking.follow)
    whole = linking.edge(ALL)
    for fragment in fragments:
        whole = linking.concat(whole, fragment)
    return Positions(
        sets=tuple(linking.sets),
        first=whole.first,
        last=whole.last,
        follow=tuple(linking.follow),
        null=whole.null,
        region=tuple(region),
        past=tuple(past),
        sees_lines=sees_lines(
            {mask for steps in (whole.first, whole.last, *linking.follow) for mask in steps.values()}
        ),
    )


def _distances(after: _Fragment, follow: list[dict[int, int]]) -> list[int]:
    """`Positions.past`; only the positions of `after` are linked to it yet."""
    past = [0] * len(follow)
    reached = [(position, 1) for position in after.first]
    while reached:
        position, distance = reached.pop()
        if not past[position]:
            past[position] = distance
            reached += ((target, distance + 1) for target in follow[position])
        elif past[position] != distance:
            raise ValueError(
                f"a character of the context behind a match may be the {past[position]}. or the {distance}. there: "
                "write alternatives of one length each"
            )
    return past


class _Nullable(Protocol):
    @property
    def null(self) -> int: ...


T = TypeVar("T", bound=_Nullable)


class _Algebra(Protocol[T]):
    """What an expression is made of. Operations use their operands up."""

    def chars(self, chars: CharSet) -> T: ...
    def edge(self, contexts: int) -> T: ...
    def concat(self, left: T, right: T) -> T: ...
    def either(self, options: list[T]) -> T: ...
    def again(self, part: T) -> T:
        """Once or more."""

    def with_null(self, part: T, null: int) -> T: ...
    def copies(self, node: Node, count: int) -> list[T]:
        """`count` of it, which is at least one; a single one if it has no positions."""


def _build(node: Node, algebra: _Algebra[T]) -> T:
    match node:
        case Chars(chars):
            return algebra.chars(chars)
        case Edge(contexts):
            return algebra.edge(contexts)
        case Alternation(options):
            built: list[T] = []
            for option in options:  # not a comprehension, which takes a frame of its own at each level of groups
                built.append(_build(option, algebra))
            return algebra.either(built)
        case Repeat():
            return _build_repeat(node, algebra)
        case Concat(parts):
            whole = algebra.edge(ALL)
            for part in parts:
                whole = algebra.concat(whole, _build(part, algebra))
            return whole


def _build_repeat(node: Repeat, algebra: _Algebra[T]) -> T:
    """x{2,4} becomes xx(x(x)?)?, in which steps lead from one copy to the next only."""
    count = max(node.low, 1) if node.high is None else node.high
    if not count:
        return algebra.edge(ALL)
    copies = algebra.copies(node.node, count)
    if node.high is None:
        copies[-1] = algebra.again(copies[-1])
    # What may be empty anyway need not be there at all.
    low = 0 if copies[0].null == ALL else node.low
    whole, rest = algebra.edge(ALL), algebra.edge(ALL)
    for copy in copies[:low]:
        whole = algebra.concat(whole, copy)
    for copy in reversed(copies[low:]):
        # That the rest is optional covers the empty string: otherwise, with x empty too, steps
        # would lead from every copy to every later one.
        rest = algebra.with_null(algebra.concat(algebra.with_null(copy, 0), rest), ALL)
    return algebra.concat(whole, rest)


class _Count(NamedTuple):
    """How many positions and steps an expression takes, at most, and how many it begins and ends with."""

    positions: int
    steps: int
    first: int
    last: int
    null: int


class _Counting:
    def __init__(self, max_positions: int) -> None:
        self._max_positions = max_positions
        self._positions = 0

    def chars(self, chars: CharSet) -> _Count:
        self._add(1)
        return _Count(1, 0, 1, 1, 0)

    def edge(self, contexts: int) -> _Count:
        return _Count(0, 0, 0, 0, contexts)

    def concat(self, left: _Count, right: _Count) -> _Count:
        return _Count(
            left.positions + right.positions,
            left.steps + right.steps + left.last * right.first,
            left.first + (right.first if left.null else 0),
            right.last + (left.last if right.null else 0),
            left.null & right.null,
        )

    def either(self, options: list[_Count]) -> _Count:
        null = 0
        for option in options:
            null |= option.null
        positions, steps, first, last, _ = map(sum, zip(*options, strict=True))
        return _Count(positions, steps, first, last, null)

    def again(self, part: _Count) -> _Count:
        # Loops within loops lead back by the same steps.
        return part._replace(steps=min(part.steps + part.last * part.first, part.positions**2))

    def with_null(self, part: _Count, null: int) -> _Count:
        return part._replace(null=null)

    def copies(self, node: Node, count: int) -> list[_Count]:
        once = _build(node, self)
        self._add(once.positions * (count - 1))
        return [once] * (count if once.positions else 1)

    def _add(self, positions: int) -> None:
        """Checked before copies are made one by one: there could be too many for that, too."""
        self._positions += positions
        _refuse_more(self._positions, self._max_positions, "at least {} states")


_SMALLER = "use fewer or smaller {m,n} and shorter alternatives, or divide it among several rules"


def _refuse_more(needed: int, allowed: int, what: str) -> None:
    if needed > allowed:
        raise RegexError(f"the pattern needs {what.format(needed)}, and {allowed} are allowed: {_SMALLER}")


@dataclass(slots=True)
class _Fragment:
    first: dict[int, int]
    last: dict[int, int]
    null: int


class _Linking:
    """`sets` and `follow` grow by one for each position; the other dictionaries belong to one fragment each."""

    def __init__(self) -> None:
        self.sets: list[CharSet] = []
        self.follow: list[dict[int, int]] = []

    def chars(self, chars: CharSet) -> _Fragment:
        position = len(self.sets)
        self.sets.append(chars)
        self.follow.append({})
        return _Fragment({position: ALL}, {position: ALL}, 0)

    def edge(self, contexts: int) -> _Fragment:
        return _Fragment({}, {}, contexts)

    def concat(self, left: _Fragment, right: _Fragment) -> _Fragment:
        self._link(left.last, right.first)
        left.first.update(_within(right.first, left.null))
        right.last.update(_within(left.last, right.null))
        return _Fragment(left.first, right.last, left.null & right.null)

    def either(self, options: list[_Fragment]) -> _Fragment:
        whole = self.edge(0)
        for option in options:
            whole.first.update(option.first)
            whole.last.update(option.last)
            whole.null |= option.null
        return whole

    def again(self, part: _Fragment) -> _Fragment:
        self._link(part.last, part.first)
        return part

    def with_null(self, part: _Fragment, null: int) -> _Fragment:
        part.null = null
        return part

    def copies(self, node: Node, count: int) -> list[_Fragment]:
        begin = len(self.sets)
        once = _build(node, self)
        sets, follow = self.sets[begin:], self.follow[begin:]
        made = [once]
        for copy in range(1, count if sets else 1):
            offset = copy * len(sets)
            self.sets += sets
            self.follow += (_moved(steps, offset) for steps in follow)
            made.append(_Fragment(_moved(once.first, offset), _moved(once.last, offset), once.null))
        return made

    def _link(self, ends: dict[int, int], begins: dict[int, int]) -> None:
        for position, ending in ends.items():
            steps = self.follow[position]
            for target, beginning in begins.items():
                if contexts := ending & beginning:
                    steps[target] = steps.get(target, 0) | contexts


def _within(masks: dict[int, int], contexts: int) -> dict[int, int]:
    return {position: mask & contexts for position, mask in masks.items() if mask & contexts}


def _moved(masks: dict[int, int], offset: int) -> dict[int, int]:
    return {position + offset: mask for position, mask in masks.items()}
