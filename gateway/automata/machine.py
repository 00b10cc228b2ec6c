"""Lazily determinised automata whose states remember where their matches began.

The automaton is nondeterministic: a set of *positions* is all there is to know about the past, except *where* each way
through them began. Every substring counts as a match, so all beginnings are followed at the same time. They are kept in
two forms:

* Here, for text in which nothing is found: of each position only its earliest beginning. Which positions share a
  beginning, and in which order the beginnings stand, is part of a determinised state; the offsets themselves lie in
  registers that transitions move (after Laurikari's tagged automata, 2000). Most characters move nothing, so that a
  character costs one dictionary lookup for all patterns together. The first register that matters is the start of the
  live suffix.
* `gateway.automata.nfa` follows *all* beginnings, as bit sets, where a match is found or a beginning grows too old.

States are worked out when they are first needed and kept in a bounded cache. Where there would be too many of them the
caller is sent to the other form: it costs time, never correctness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS
from gateway.automata.literals import Folded
from gateway.automata.positions import Region
from gateway.automata.states import forget

MAX_TRANSITIONS = 100_000
MAX_TARGETS = 40_000  # of a kilobyte or so, with the states they lead to
MAX_ENTRIES = 1_000_000  # of states, some 70 bytes each
MAX_CHAR_CLASSES = 8192
MAX_STEPS = 200_000
# Of the targets that are missing, one in so many is worked out once there are many.
KEPT_ONE_IN = 16

_NEW = 1 << 40
_BEFORE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a match belongs to. `tag` is the caller's, and several may share it.

    `holds`: text is held back for it. `guard`: from this many characters on, a beginning of it that ends the text
    counts (0: never). `accepts` has the last word on a match's folded text; a pattern with it should be bounded.
    """

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

    `steps` are those that are known, by KINDS x state + what stands before; `after` works out the others. `key` is what
    the machine knows the class by.
    """

    __slots__ = ("_machine", "key", "kind", "steps")

    def __init__(self, machine: StateMachine, key: Any, kind: int) -> None:
        self._machine = machine
        self.key = key
        self.steps: dict[int, tuple[int, ...]] = {}
        self.kind = kind

    def after(self, position: int, left: int) -> tuple[int, ...]:
        """The states that follow `position` when this letter is next, -1 before any; `left` is what stands before
        it."""
        steps = self.steps.get(KINDS * position + left)
        return self._work_out(position, left) if steps is None else steps

    def _work_out(self, position: int, left: int) -> tuple[int, ...]:
        self._machine.count_kept_step()
        steps = self.steps[KINDS * position + left] = self._machine.successors(position, left, self)
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

    machine: StateMachine
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


class StateMachine:
    """The states of an automaton of sets of positions, worked out when they are needed and kept in a bounded cache.

    A subclass says what the positions are: `char_class` and `successors`, and per position p, where bit k is for a
    character of kind k that has just led to p,

    * `arrives[p]`: a match is certain on arrival; `waits[p]`: the contexts that make a waiting match certain;
    * `goes_on[p]`: a match is possible that needs a further character or the end; `continues[p]`: a longer one is;
    * `owner[p]`: the index in `patterns` of what a match belongs to; `region[p]` and `past[p]` as in `Positions`.
    """

    patterns: Sequence[Searched]
    owner: Sequence[int] | Mapping[int, int]
    region: Sequence[Region] | Mapping[int, Region]
    past: Sequence[int] | Mapping[int, int]
    arrives: Sequence[int] | Mapping[int, int]
    waits: Sequence[int] | Mapping[int, int]
    goes_on: Sequence[int] | Mapping[int, int]
    continues: Sequence[int] | Mapping[int, int]
    furthest = 0  # the greatest of `past`

    def __init__(self, fold: Callable[[str], Folded], max_transitions: int, max_targets: int = MAX_TARGETS) -> None:
        self.fold = lru_cache(MAX_CHAR_CLASSES)(fold)
        kept = (re.escape(char) for char in map(chr, range(128)) if self.fold(char).text == char)
        self._is_kept = re.compile(f"[{''.join(kept)}]*").fullmatch
        self._classes: dict[str, CharClass] = {}
        self._by_key: dict[Hashable, CharClass] = {}
        self._steps = 0
        self._states: dict[tuple[object, ...], PatternState] = {}
        self._transitions = 0
        self._max_transitions = max_transitions
        self._targets = 0
        self._max_targets = max_targets
        self._entries = 0
        self._countdown = KEPT_ONE_IN

    def class_key(self, unit: str) -> tuple[Any, int]:
        """What tells the class of a folded character from the others, and its kind."""
        raise NotImplementedError

    def successors(self, position: int, left: int, char_class: CharClass) -> tuple[int, ...]:
        """The positions that follow `position` (-1: before any) with a character of this class, behind one of the kind
        `left`, and from which a match is possible."""
        raise NotImplementedError

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

    def pattern(self, position: int) -> Searched:
        """Whose state it is."""
        return self.patterns[self.owner[position]]

    def char_class(self, unit: str) -> CharClass:
        """The class of a folded character, and of all others that lead to the same states. Kept for the first
        `MAX_CHAR_CLASSES` characters; classes themselves are few."""
        char_class = self._classes.get(unit)
        if char_class is None:
            key = self.class_key(unit)
            char_class = self._by_key.get(key)
            if char_class is None:
                char_class = self._by_key.setdefault(key, CharClass(self, *key))
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
            if self._targets > self._max_targets // 4 or self._entries > MAX_ENTRIES // 4:
                self._countdown -= 1
                if self._countdown:
                    return UNDECIDED
                self._countdown = KEPT_ONE_IN
                if self._targets > self._max_targets:
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
            for char_class in list(self._by_key.values()):
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

    def _empty_cache(self) -> None:
        forget(self._states)
        self._transitions = self._targets = self._entries = 0


def _start(region: Region, register: int) -> int:
    """Where the way into a state of this region began, coming from a state with `register`."""
    if region is Region.BEFORE:
        return _BEFORE
    return _NEW if register < 0 else register
