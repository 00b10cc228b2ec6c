"""A streaming multi-pattern matcher: where may a match still begin, and when has one become certain?

A pattern arrives as Glushkov's automaton (`gateway.automata.positions`): one state for each character class, no empty
steps. `gateway.automata.machine` steps through the sets of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from gateway.automata.charset import CharSet
from gateway.automata.contexts import ALL_RIGHTS, KINDS, by_kind, kinds_of_characters
from gateway.automata.literals import Folded
from gateway.automata.machine import MAX_TRANSITIONS, StateMachine
from gateway.automata.pattern_states import CharClass, Position, Searched
from gateway.automata.positions import Positions, Region
from gateway.automata.regex import RegexError

# Some 0.3 microseconds each where nothing else helps; this many make a character cost 150 times one of prose.
MAX_WORK = 250


@dataclass(frozen=True, slots=True)
class Pattern(Searched):
    """One way to match."""

    positions: Positions


class PatternMachine(StateMachine):
    """The automaton of a set of patterns seen through one lens. Its positions are those of Glushkov's automata,
    numbered through all patterns; `reaches[p]` has bit k where a match is possible behind a character of kind k.
    """

    patterns: list[Pattern]

    def __init__(
        self, patterns: Iterable[Pattern], fold: Callable[[str], Folded], max_transitions: int = MAX_TRANSITIONS
    ) -> None:
        super().__init__(fold, max_transitions)
        self.patterns = []
        self._owner: list[int] = []
        self._region: list[Region] = []
        self._past: list[int] = []
        self._first: dict[int, int] = {}
        self._follow_of: list[dict[int, int]] = []
        self._last: list[int] = []
        self._sets: dict[CharSet, list[int]] = {}
        for pattern in patterns:
            self._add(pattern)
        # A line break is a kind of its own only where some pattern needs it.
        self._sees_lines = any(pattern.positions.sees_lines for pattern in self.patterns)
        self._kinds = kinds_of_characters(self._sees_lines)
        self.furthest = max(self._past, default=0)
        self._reaches = [0] * len(self._owner)
        self._positions = self._weigh()
        self._number = {position: number for number, position in enumerate(self._positions)}

    def positions(self) -> list[Position]:
        return self._positions

    def class_key(self, unit: str) -> tuple[frozenset[int], int]:
        members = frozenset(
            position for charset, positions in self._sets.items() if unit in charset for position in positions
        )
        return members, next(kind for kind, every in self._kinds if unit in every)

    def successors(self, position: Position, left: int, char_class: CharClass) -> tuple[Position, ...]:
        candidates = self._first if position is self.start_position else self._follow_of[self._number[position]]
        context = 1 << (KINDS * left + char_class.kind)
        return tuple(
            self._positions[target]
            for target, contexts in candidates.items()
            if contexts & context and target in char_class.key and self._reaches[target] >> char_class.kind & 1
        )

    def _add(self, pattern: Pattern) -> None:
        positions, base = pattern.positions, len(self._owner)
        self._owner += [len(self.patterns)] * len(positions.sets)
        self.patterns.append(pattern)
        self._region += positions.region
        self._past += positions.past
        self._first |= {base + position: contexts for position, contexts in positions.first.items()}
        self._follow_of += [{base + target: contexts for target, contexts in step.items()} for step in positions.follow]
        self._last += [positions.last.get(position, 0) for position in range(len(positions.sets))]
        for position, charset in enumerate(positions.sets):
            self._sets.setdefault(charset, []).append(base + position)

    def _weigh(self) -> list[Position]:
        """Compute, for each position and each kind of its last character, what it can still lead to."""
        count = len(self._owner)
        arrives, waits, continues, kinds = ([0] * count for _ in range(4))
        for charset, positions in self._sets.items():
            possible = sum(1 << kind for kind in by_kind(charset, self._sees_lines))
            for position in positions:
                kinds[position] = possible
        sources: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for position in range(count):
            for target, contexts in self._follow_of[position].items():
                sources[target].append((position, contexts))
        waiting: list[tuple[int, int]] = []
        for position in range(count):
            for kind, _ in self._kinds:
                rights = self._last[position] >> KINDS * kind & ALL_RIGHTS if kinds[position] >> kind & 1 else 0
                if rights:
                    self._reaches[position] |= 1 << kind
                    waiting.append((position, kind))
                if rights == ALL_RIGHTS:
                    arrives[position] |= 1 << kind
                elif rights:
                    waits[position] |= rights << KINDS * kind
        while waiting:
            target, right = waiting.pop()
            for position, contexts in sources[target]:
                for kind, _ in self._kinds:
                    taken = kinds[position] >> kind & contexts >> KINDS * kind + right
                    if taken & ~continues[position] >> kind & 1:
                        continues[position] |= 1 << kind
                        if not self._reaches[position] >> kind & 1:
                            self._reaches[position] |= 1 << kind
                            waiting.append((position, kind))
        return [
            Position(
                owner,
                self.patterns[owner],
                arrives=arrives[at],
                waits=waits[at],
                continues=continues[at],
                kinds=kinds[at],
                region=self._region[at],
                past=self._past[at],
            )
            for at, owner in enumerate(self._owner)
        ]


def work(positions: Positions) -> int:
    """The greatest number of steps that a single character can cause: from the beginning of a way, from one
    state to another, and to the end of a match."""
    steps_to = [0] * len(positions.sets)
    for steps in (positions.first, *positions.follow, positions.last):
        for target in steps:
            steps_to[target] += 1
    by_set: dict[CharSet, int] = {}
    for charset, count in zip(positions.sets, steps_to, strict=True):
        by_set[charset] = by_set.get(charset, 0) + count
    # How many more steps, or fewer, a character can cause than the one before it.
    changes: dict[int, int] = {}
    for charset, count in by_set.items():
        for low, high in charset.ranges:
            changes[low] = changes.get(low, 0) + count
            changes[high + 1] = changes.get(high + 1, 0) - count
    return max(accumulate(changes[code] for code in sorted(changes)), default=0)


def refuse_costly(positions: Positions) -> Positions:
    """Raises RegexError for a pattern on which hostile text could spend too much time a character."""
    steps = work(positions)
    if steps > MAX_WORK:
        raise RegexError(
            f"the pattern can need {steps} steps for one character of a hostile text, and {MAX_WORK} are allowed: "
            "count less, or use + with a limit by max_hold"
        )
    return positions
