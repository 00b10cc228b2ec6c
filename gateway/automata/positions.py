"""Glushkov's automaton of a regular expression (Glushkov 1961; McNaughton and Yamada 1960).

It has one state for each place in the expression where a character stands, its *positions*, and no empty steps: being
at a position means that its character has just been read. What stands between two characters without being one (`\\b`,
`^`, `$`) is a mask on the step between them, of the contexts in which it may be taken (`gateway.automata.contexts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from gateway.automata.charset import CharSet
from gateway.automata.contexts import ALL, sees_lines
from gateway.automata.regex import EMPTY, Alternation, Chars, Concat, Edge, Node, RegexError, Repeat

MAX_POSITIONS = 10_000
STEPS_PER_POSITION = 20  # how many the budget allows for; each takes about a hundred bytes

_SMALLER = "use fewer or smaller {m,n} and shorter alternatives, or divide it among several rules"


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
    included; 0 for others. `sees_lines`: a line break is distinguished from other characters.
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
    builder = _Builder(max_positions)
    fragments: list[_Fragment] = []
    region: list[Region] = []
    for part, each in zip(parts, Region, strict=True):
        fragments.append(builder.build(part))
        region += [each] * (len(builder.sets) - len(region))
    if fragments[Region.SPAN].null and not may_be_empty:
        raise RegexError("the pattern matches the empty string: let it need a character, as with + instead of *")
    past = _distances(fragments[Region.AFTER], builder.follow)
    whole = builder.edge(ALL)
    for fragment in fragments:
        whole = builder.concat(whole, fragment)
    return Positions(
        sets=tuple(builder.sets),
        first=whole.first,
        last=whole.last,
        follow=tuple(builder.follow),
        null=whole.null,
        region=tuple(region),
        past=tuple(past),
        sees_lines=sees_lines(
            {mask for steps in (whole.first, whole.last, *builder.follow) for mask in steps.values()}
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
                f"a character of the context after a match may be the {past[position]}. or the {distance}. there: "
                "write alternatives of one length each"
            )
    return past


@dataclass(slots=True)
class _Fragment:
    """A part of the expression: where it begins and ends, and the contexts in which it may be empty."""

    first: dict[int, int]
    last: dict[int, int]
    null: int


class _Builder:
    """`sets` and `follow` grow by one for each position. Operations use their fragments up: a dictionary belongs to one
    of them. What an operation adds is checked before it is made, as there could be too much for that, too."""

    def __init__(self, max_positions: int) -> None:
        self.sets: list[CharSet] = []
        self.follow: list[dict[int, int]] = []
        self._max_positions, self._max_steps = max_positions, STEPS_PER_POSITION * max_positions
        self._steps = 0

    def build(self, node: Node) -> _Fragment:
        match node:
            case Chars(chars):
                self._check_positions(1)
                position = len(self.sets)
                self.sets.append(chars)
                self.follow.append({})
                return _Fragment({position: ALL}, {position: ALL}, 0)
            case Edge(contexts):
                return self.edge(contexts)
            case Alternation(options):
                whole = self.edge(0)
                for option in options:
                    built = self.build(option)
                    whole.first.update(built.first)
                    whole.last.update(built.last)
                    whole.null |= built.null
                return whole
            case Repeat():
                return self._repeat(node)
            case Concat(parts):
                whole = self.edge(ALL)
                for part in parts:
                    whole = self.concat(whole, self.build(part))
                return whole

    def edge(self, contexts: int) -> _Fragment:
        return _Fragment({}, {}, contexts)

    def concat(self, left: _Fragment, right: _Fragment) -> _Fragment:
        self._link(left.last, right.first)
        left.first.update(_within(right.first, left.null))
        right.last.update(_within(left.last, right.null))
        return _Fragment(left.first, right.last, left.null & right.null)

    def _repeat(self, node: Repeat) -> _Fragment:
        """x{2,4} becomes xx(x(x)?)?, in which steps lead from one copy to the next only."""
        count = max(node.low, 1) if node.high is None else node.high
        if not count:
            return self.edge(ALL)
        copies = self._copies(node.node, count)
        if node.high is None:
            self._link(copies[-1].last, copies[-1].first)
        # What may be empty anyway need not be there at all.
        low = 0 if copies[0].null == ALL else node.low
        whole, rest = self.edge(ALL), self.edge(ALL)
        for copy in copies[:low]:
            whole = self.concat(whole, copy)
        for copy in reversed(copies[low:]):
            # That the rest is optional covers the empty string: otherwise, with x empty too, steps
            # would lead from every copy to every later one.
            copy.null = 0
            rest = self.concat(copy, rest)
            rest.null = ALL
        return self.concat(whole, rest)

    def _copies(self, node: Node, count: int) -> list[_Fragment]:
        """`count` of it, which is at least one; a single one if it has no positions."""
        begin = len(self.sets)
        once = self.build(node)
        sets, follow = self.sets[begin:], self.follow[begin:]
        self._check_positions(len(sets) * (count - 1))
        self._count_steps(sum(map(len, follow)) * (count - 1))
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
            self._count_steps(sum(target not in steps for target in begins) if steps else len(begins))
            for target, beginning in begins.items():
                if contexts := ending & beginning:
                    steps[target] = steps.get(target, 0) | contexts

    def _check_positions(self, more: int) -> None:
        _refuse_more(len(self.sets) + more, self._max_positions, "states")

    def _count_steps(self, more: int) -> None:
        self._steps += more
        _refuse_more(self._steps, self._max_steps, "steps between its states")


def _refuse_more(needed: int, allowed: int, what: str) -> None:
    if needed > allowed:
        raise RegexError(f"the pattern needs at least {needed} {what}, and {allowed} are allowed: {_SMALLER}")


def _within(masks: dict[int, int], contexts: int) -> dict[int, int]:
    return {position: mask & contexts for position, mask in masks.items() if mask & contexts}


def _moved(masks: dict[int, int], offset: int) -> dict[int, int]:
    return {position + offset: mask for position, mask in masks.items()}
