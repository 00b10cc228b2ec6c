"""Many patterns at once, on a stream: where may a match still begin, and when has one become certain?

A pattern arrives as Glushkov's automaton (`gateway.automata.positions`): one state for each character class, no empty
steps, so that a set of states is all there is to know about the past, except *where* each way through them began. Every
substring counts as a match, so all beginnings are followed at the same time. They are kept in two forms:

* Here, for text in which nothing is found: of each state only its earliest beginning. Which states share a beginning,
  and in which order the beginnings stand, is part of a determinised state; the offsets themselves lie in registers that
  transitions move (after Laurikari's tagged automata, 2000). Most characters move nothing, so that a character costs
  one dictionary lookup for all patterns together. The first register that matters is the start of the live suffix.
* `gateway.automata.nfa` follows *all* beginnings, as bit sets, where a match is found or a beginning grows too old.

States are worked out when they are first needed and kept in a bounded cache. Where there would be too many of them the
caller is sent to the other form: it costs time, never correctness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from gateway.automata.charset import CharSet
from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS, kinds_of_characters
from gateway.automata.literals import Folded
from gateway.automata.positions import Positions, Region
from gateway.automata.regex import RegexError
from gateway.automata.states import forget

MAX_TRANSITIONS = 100_000
MAX_TARGETS = 40_000  # of a kilobyte or so, with the states they lead to
MAX_ENTRIES = 1_000_000  # of states, some 70 bytes each
MAX_CHAR_CLASSES = 8192
MAX_STEPS = 200_000
# Some 0.3 microseconds each where nothing else helps; this many make a character cost 150 times one of prose.
MAX_WORK = 250
# Of the targets that are missing, one in so many is worked out once there are many.
KEPT_ONE_IN = 16

_NEW = 1 << 40
_BEFORE = -1


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to match. `tag` is the caller's, and several patterns may share it.

    `holds`: text is held back for it. `guard`: from this many characters on, a beginning of it that ends the text
    counts (0: never). `accepts` has the last word on a match's folded text; a pattern with it should be bounded.
    """

    positions: Positions
    tag: int
    holds: bool = True
    guard: int = 0
    accepts: Callable[[str], bool] | None = None


class FoldedText(NamedTuple):
    """A text through a lens; `at`: where in it what has become of each character begins."""

    text: str
    at: Sequence[int]


class CharClass:
    """Characters that no pattern can tell apart: which states they lead to.

    `steps` are those that are known, by KINDS x state + what stands before; `after` works out the others.
    """

    __slots__ = ("_machine", "_members", "kind", "steps")

    def __init__(self, machine: PatternMachine, members: frozenset[int], kind: int) -> None:
        self._machine = machine
        self._members = members
        self.steps: dict[int, tuple[int, ...]] = {}
        self.kind = kind

    def after(self, position: int, left: int) -> tuple[int, ...]:
        """The states that follow `position` when this letter is next, -1 before any; `left` is what stands before
        it."""
        steps = self.steps.get(KINDS * position + left)
        return self._work_out(position, left) if steps is None else steps

    def _work_out(self, position: int, left: int) -> tuple[int, ...]:
        machine = self._machine
        machine.count_kept_step()
        candidates = machine.first if position < 0 else machine.follow[position]
        context = 1 << (KINDS * left + self.kind)
        steps = tuple(
            state
            for state, contexts in candidates.items()
            if contexts & context and state in self._members and machine.reaches[state] >> self.kind & 1
        )
        self.steps[KINDS * position + left] = steps
        return steps


class PatternState(dict[str, "PatternState"]):
    """A determinised state *is* the table of its transitions, which works out those that it lacks.

    `entries` are Glushkov's states with the register of their earliest beginning; -1 for one in a pattern's context,
    before any beginning. `left` is what the last character was. `moves` is how the registers change on arrival (-1: a
    beginning at this very character), None when they stay; `live` the register of the live suffix, or -1. `targets` is
    the same table by letters, so that a character never seen before costs little where its letter is known. `ends`: the
    end of the text may make something certain here; None where `PatternMachine.may_end` has not worked it out.
    """

    __slots__ = ("ends", "entries", "left", "live", "machine", "moves", "targets")

    machine: PatternMachine
    entries: tuple[tuple[int, int], ...]
    left: int
    moves: tuple[int, ...] | None
    live: int
    targets: dict[CharClass, PatternState]
    ends: bool | None

    def __missing__(self, char: str) -> PatternState:
        return self.machine.work_out(self, char)

    def clear(self) -> None:
        super().clear()
        self.targets = {}

    @property
    def contexts(self) -> tuple[int, ...]:
        """The states that stand before any beginning."""
        return tuple(position for position, register in self.entries if register < 0)


# An arrival that only `gateway.automata.nfa` can decide: a match is certain, or the target is not worked out
# because too many were, or a character becomes none or several.
UNDECIDED = PatternState()
UNDECIDED.moves = ()


class PatternMachine:
    """The automaton of a set of patterns seen through one lens.

    Per state p of Glushkov's automaton, numbered through all patterns, bit k is set after a character of kind k where

    * `reaches[p]`: a match is possible; `goes_on[p]`: one that needs a further character or the end;
    * `continues[p]`: a longer match is possible; `arrives[p]`: a match is certain on arrival.

    `waits[p]` has the contexts that make a waiting match certain.
    """

    def __init__(
        self, patterns: Iterable[Pattern], fold: Callable[[str], Folded], max_transitions: int = MAX_TRANSITIONS
    ) -> None:
        self.fold = lru_cache(MAX_CHAR_CLASSES)(fold)
        kept = (re.escape(char) for char in map(chr, range(128)) if self.fold(char).text == char)
        self._is_kept = re.compile(f"[{''.join(kept)}]*").fullmatch
        self.patterns: list[Pattern] = []
        self.owner: list[int] = []  # of each state, the index of its pattern
        self.region: list[Region] = []
        self.past: list[int] = []
        self.first: dict[int, int] = {}
        self.follow: list[dict[int, int]] = []
        self._last: list[int] = []
        self._sets: dict[CharSet, list[int]] = {}
        for pattern in patterns:
            self._add(pattern)
        # A line end is a kind of its own only where some pattern needs it.
        self._kinds = kinds_of_characters(any(pattern.positions.sees_lines for pattern in self.patterns))
        self.furthest = max(self.past, default=0)
        self.arrives, self.waits, self.goes_on, self.reaches, self.continues = ([0] * len(self.owner) for _ in range(5))
        self._weigh()
        self._classes: dict[str, CharClass] = {}
        self._by_members: dict[tuple[frozenset[int], int], CharClass] = {}
        self._steps = 0
        self._states: dict[tuple[object, ...], PatternState] = {}
        self._transitions = 0
        self._max_transitions = max_transitions
        self._targets = 0
        self._entries = 0
        self._countdown = KEPT_ONE_IN

    def start(self) -> PatternState:
        """The state before any text."""
        return self.state((), EDGE, None)

    def idle(self, contexts: tuple[int, ...], left: int) -> PatternState:
        """The state in which no match has begun, with these states before any beginning."""
        return self.state(tuple((position, _BEFORE) for position in sorted(contexts)), left, None)

    def folded_text(self, text: str) -> FoldedText:
        """The text through the lens."""
        if self._is_kept(text):
            return FoldedText(text, range(len(text)))
        pieces = [self.fold(char).text for char in text]
        return FoldedText("".join(pieces), list(accumulate(map(len, pieces), initial=0)))

    def pattern(self, position: int) -> Pattern:
        """Whose state it is."""
        return self.patterns[self.owner[position]]

    def char_class(self, unit: str) -> CharClass:
        """The class of a folded character, and of all others that lead to the same states. Kept for the first
        `MAX_CHAR_CLASSES` characters; classes themselves are few."""
        char_class = self._classes.get(unit)
        if char_class is None:
            members = frozenset(
                position for charset, positions in self._sets.items() if unit in charset for position in positions
            )
            key = members, next(kind for kind, every in self._kinds if unit in every)
            char_class = self._by_members.get(key)
            if char_class is None:
                char_class = self._by_members.setdefault(key, CharClass(self, *key))
            if len(self._classes) < MAX_CHAR_CLASSES:
                self._classes[unit] = char_class
        return char_class

    def work_out(self, state: PatternState, char: str) -> PatternState:
        """The transition that is missing."""
        folded = self.fold(char).text
        if len(folded) != 1:
            return UNDECIDED
        char_class = self.char_class(folded)
        target = state.targets.get(char_class)
        if target is None:
            if self._targets > MAX_TARGETS // 4 or self._entries > MAX_ENTRIES // 4:
                self._countdown -= 1
                if self._countdown:
                    return UNDECIDED
                self._countdown = KEPT_ONE_IN
                if self._targets > MAX_TARGETS:
                    self._empty_cache()
            target = state.targets[char_class] = self._follow(state, char_class)
            self._targets += 1
        if self._transitions > self._max_transitions:
            self._empty_cache()
        self._transitions += 1
        state[char] = target
        return target

    def state(self, entries: tuple[tuple[int, int], ...], left: int, moves: tuple[int, ...] | None) -> PatternState:
        """The one state with these `entries`, sorted, `left` and `moves` (see `PatternState`). A full cache is emptied
        first, so states of before may have equals that are other objects."""
        key = entries, left, moves
        state = self._states.get(key)
        if state is None:
            state = PatternState()
            state.machine, state.entries, state.left, state.moves = self, entries, left, moves
            state.targets = {}
            state.ends = None
            holding = [register for position, register in entries if register >= 0 and self.pattern(position).holds]
            state.live = min(holding, default=-1)
            if self._entries + len(entries) >= MAX_ENTRIES:
                self._empty_cache()
            self._entries += 1 + len(entries)
            self._states[key] = state
        return state

    def may_end(self, state: PatternState) -> bool:
        """Could the end of the text make anything certain in this state?"""
        if state.ends is None:
            context = KINDS * state.left + EDGE
            state.ends = any(
                self.waits[position] >> context & 1 or self.pattern(position).guard for position, _ in state.entries
            )
        return state.ends

    def count_kept_step(self) -> None:
        """Count a step about to be kept by a letter; all are dropped when there are too many."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            self._steps = 0
            for char_class in list(self._by_members.values()):
                char_class.steps.clear()

    def _follow(self, state: PatternState, char_class: CharClass) -> PatternState:
        left = state.left
        context = KINDS * left + char_class.kind
        earliest: dict[int, int] = {}
        for position, register in state.entries:
            if self.waits[position] >> context & 1:
                return UNDECIDED
            for target in char_class.after(position, left):
                start = _start(self.region[target], register)
                if start < earliest.get(target, _NEW + 1):
                    earliest[target] = start
        for target in char_class.after(_BEFORE, left):
            earliest.setdefault(target, _start(self.region[target], _BEFORE))
        rights: dict[int, int] = {}
        for target in earliest:
            owner = self.owner[target]
            rights[owner] = rights.get(owner, 0) | self.rights(target, char_class.kind)
        if ALL_RIGHTS in rights.values():
            return UNDECIDED  # certain: one state, or several together, accept any next character
        kept = {target: start for target, start in earliest.items() if self.goes_on[target] >> char_class.kind & 1}
        starts = sorted({start for start in kept.values() if start >= 0})
        register_of = {start: register for register, start in enumerate(starts)} | {_BEFORE: _BEFORE}
        entries = tuple(sorted((target, register_of[start]) for target, start in kept.items()))
        moves = tuple(-1 if start == _NEW else start for start in starts)
        registers = 1 + max((register for _, register in state.entries), default=-1)
        return self.state(entries, char_class.kind, None if moves == tuple(range(registers)) else moves)

    def rights(self, position: int, kind: int) -> int:
        """What may stand behind a character of this kind for a match to end with it: a bit for each."""
        return ALL_RIGHTS if self.arrives[position] >> kind & 1 else self.waits[position] >> KINDS * kind & ALL_RIGHTS

    def _add(self, pattern: Pattern) -> None:
        positions, base = pattern.positions, len(self.owner)
        self.owner += [len(self.patterns)] * len(positions.sets)
        self.patterns.append(pattern)
        self.region += positions.region
        self.past += positions.past
        self.first |= {base + position: contexts for position, contexts in positions.first.items()}
        self.follow += [{base + target: contexts for target, contexts in step.items()} for step in positions.follow]
        self._last += [positions.last.get(position, 0) for position in range(len(positions.sets))]
        for position, charset in enumerate(positions.sets):
            self._sets.setdefault(charset, []).append(base + position)

    def _weigh(self) -> None:
        """Work out, for each state and each kind of its last character, what can still come of it."""
        count = len(self.owner)
        kinds = [0] * count
        for charset, positions in self._sets.items():
            possible = sum(1 << kind for kind, every in self._kinds if charset & every)
            for position in positions:
                kinds[position] = possible
        sources: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for position in range(count):
            for target, contexts in self.follow[position].items():
                sources[target].append((position, contexts))
        waiting: list[tuple[int, int]] = []
        for position in range(count):
            for kind, _ in self._kinds:
                rights = self._last[position] >> KINDS * kind & ALL_RIGHTS if kinds[position] >> kind & 1 else 0
                if rights:
                    self.reaches[position] |= 1 << kind
                    waiting.append((position, kind))
                if rights == ALL_RIGHTS:
                    self.arrives[position] |= 1 << kind
                elif rights:
                    self.waits[position] |= rights << KINDS * kind
                    self.goes_on[position] |= 1 << kind
        while waiting:
            target, right = waiting.pop()
            for position, contexts in sources[target]:
                for kind, _ in self._kinds:
                    taken = kinds[position] >> kind & contexts >> KINDS * kind + right
                    if taken & ~self.continues[position] >> kind & 1:
                        self.continues[position] |= 1 << kind
                        self.goes_on[position] |= 1 << kind
                        if not self.reaches[position] >> kind & 1:
                            self.reaches[position] |= 1 << kind
                            waiting.append((position, kind))

    def _empty_cache(self) -> None:
        forget(self._states)
        self._transitions = self._targets = self._entries = 0


def _start(region: Region, register: int) -> int:
    """Where the way into a state of this region began, coming from a state with `register`."""
    if region is Region.BEFORE:
        return _BEFORE
    return _NEW if register < 0 else register


def work(positions: Positions) -> int:
    """The most steps that a single character can cause, whatever came before it: from the beginning of a way, from one
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
