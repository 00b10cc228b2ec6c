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

States are computed when they are first needed and kept in a bounded cache. Where there would be too many of them the
caller is sent to the other form: it costs time, never correctness.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, count
from typing import Any, ClassVar, NamedTuple

from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS
from gateway.automata.literals import Folded
from gateway.automata.pattern_states import UNDECIDED, CharClass, Leap, PatternState, Position, Searched
from gateway.automata.positions import Region
from gateway.automata.states import forget

MAX_TRANSITIONS = 100_000
MAX_TARGETS = 40_000  # of a kilobyte or so, with the states they lead to
MAX_ENTRIES = 1_000_000  # of states, some 70 bytes each
MAX_NFA_ENTRIES = 100_000  # of steps of `gateway.automata.nfa`, some 150 bytes each
MAX_CHAR_CLASSES = 8192
MAX_STEPS = 200_000
GROWTH = 4096  # states and steps that are kept between two calls of `StateMachine.on_growth`
# Of the targets that are missing, one in so many is computed once there are many.
KEPT_ONE_IN = 16
MAX_LEAP = 16  # characters of a text that is looked up as a whole: a model's tokens come again, longer texts seldom do

_NEW = 1 << 40
_BEFORE = -1


class FoldedText(NamedTuple):
    """A text through a lens; `at`: where in it what has become of each character begins."""

    text: str
    at: Sequence[int]


class StateMachine(ABC):
    """The states of an automaton of sets of positions, computed when they are needed and kept in a bounded cache.

    A subclass says what the positions are: `class_key` and `successors`. `start_position` is the one before any.
    """

    patterns: Sequence[Searched]
    furthest = 0  # the greatest of `Position.past`
    looks_behind = True  # does what follows a position depend on what stands before the next character?
    cost = 0  # of a character of hostile text, in 2 microseconds, where that is much
    # A server puts `gc.freeze` here: with a hundred thousand states, a full collection stops every stream for a while.
    on_growth: ClassVar[Callable[[], object]] = int

    def __init__(self, fold: Callable[[str], Folded], max_transitions: int, max_targets: int = MAX_TARGETS) -> None:
        self.fold = lru_cache(MAX_CHAR_CLASSES)(fold)
        kept = (re.escape(char) for char in map(chr, range(128)) if self.fold(char).text == char)
        self._is_kept = re.compile(f"[{''.join(kept)}]*").fullmatch
        self._classes: dict[str, CharClass] = {}
        self._by_key: dict[Hashable, CharClass] = {}
        self._numbers = count(step=KINDS)
        self._steps = 0
        self._states: dict[tuple[object, ...], PatternState] = {}
        self._transitions = 0
        self._max_transitions = max_transitions
        self._targets = 0
        self._max_targets = max_targets
        self._entries = 0
        self._countdown = KEPT_ONE_IN
        self.nfa_steps: dict[tuple[Any, ...], Any] = {}
        self.older_nfa_steps: dict[tuple[Any, ...], Any] = {}
        self._nfa_entries = 0
        self._kept = 0
        self.start_position = Position(-1, Searched(tag=-1), arrives=0, waits=0, continues=ALL_RIGHTS)

    @abstractmethod
    def class_key(self, unit: str) -> tuple[Any, int]:
        """What tells the class of a folded character from the others, and its kind."""

    def reads(self, key: Any) -> int:
        """`CharClass.reads` of the class with this key."""
        return -1

    @abstractmethod
    def successors(self, position: Position, left: int, char_class: CharClass) -> tuple[Position, ...]:
        """The positions that follow `position` with a character of this class, behind one of the kind `left`, and from
        which a match is possible."""

    @abstractmethod
    def positions(self) -> Iterable[Position]:
        """Those whose steps are kept, besides `start_position`."""

    def start(self) -> PatternState:
        """The state before any text."""
        return self.state((), (), EDGE, None)

    def idle(self, contexts: tuple[Position, ...], left: int) -> PatternState:
        """The state in which no match has begun, with these positions before any beginning."""
        return self.state(contexts, (_BEFORE,) * len(contexts), left, None)

    def folded_text(self, text: str) -> FoldedText:
        """The text seen through the lens."""
        if self._is_kept(text):
            return FoldedText(text, range(len(text)))
        pieces = [self.fold(char).text for char in text]
        return FoldedText("".join(pieces), list(accumulate(map(len, pieces), initial=0)))

    def char_class(self, unit: str) -> CharClass:
        """The class of a folded character, and of all others that lead to the same states. Kept for the first
        `MAX_CHAR_CLASSES` characters; classes themselves are few."""
        char_class = self._classes.get(unit)
        if char_class is None:
            key = self.class_key(unit)
            char_class = self._by_key.get(key)
            if char_class is None:
                char_class = self._by_key.setdefault(key, CharClass(*key, next(self._numbers), self.reads(key[0])))
            if len(self._classes) < MAX_CHAR_CLASSES:
                self._classes[unit] = char_class
        return char_class

    def after(self, position: Position, left: int, char_class: CharClass) -> tuple[Position, ...]:
        """`successors`, cached."""
        if not position.onward & char_class.reads:
            return ()
        number = char_class.number + (left if self.looks_behind or position is self.start_position else 0)
        steps = position.steps.get(number)
        if steps is None:
            self._steps += 1
            if self._steps > MAX_STEPS:
                self._steps = 0
                self.forget_steps()
            self._grow()
            steps = position.steps[number] = self.successors(position, left, char_class)
        return steps

    def forget_steps(self) -> None:
        """Empty the cache of steps, which has become too large."""
        for position in (self.start_position, *self.positions()):
            position.steps.clear()

    def keep_nfa_step(self, key: tuple[Any, ...], step: Any) -> Any:
        """Keep what `gateway.automata.nfa` has computed of `key`, whose first are positions, or has found among the
        older ones: what is used again is never among those that are forgotten. Returns `step`."""
        entries = 1 + len(key[0]) + len(step.reached)
        if self._nfa_entries + entries > MAX_NFA_ENTRIES // 2:
            self.older_nfa_steps, self.nfa_steps, self._nfa_entries = self.nfa_steps, {}, 0
        self._nfa_entries += entries
        self.nfa_steps[key] = step
        self._grow()
        return step

    def compute(self, state: PatternState, char: str) -> PatternState:
        """Compute a missing transition. Where there are many, only some are kept and the others computed again."""
        folded = self.fold(char).text
        if len(folded) != 1:
            return UNDECIDED
        char_class = self.char_class(folded)
        target = state.targets.get(char_class) if state.targets else None
        if target is None:
            keep = self._has_room()
            target = self._follow(state, char_class, keep=keep)
            if not keep or state.targets is None:
                return target
            state.targets[char_class] = target
            self._targets += 1
        if self._transitions > self._max_transitions:
            self._empty_cache()
        self._transitions += 1
        state[char] = target
        return target

    def leap(self, state: PatternState, text: str) -> Leap | None:
        """Where a text leads that `state.leaps` does not have; kept where there is room. None if that is undecided."""
        target = state
        moves: list[tuple[int, PatternState | None]] = [(register, None) for register in range(state.count)]
        for at, char in enumerate(text):
            before, target = target, target[char]
            if target.moves is not None:
                if target is UNDECIDED:
                    return None
                moves = [moves[register] if register >= 0 else (at, before) for register in target.moves]
        leap = Leap(target, tuple(moves))
        kept = len(text) <= MAX_LEAP and state.targets is not None and target.targets is not None
        if kept and self._has_room():
            self._targets += 1
            self._entries += len(moves)
            state.leaps[text] = leap
            self._grow()
        return leap

    def _has_room(self) -> bool:
        """Is the next target kept?"""
        if self._targets > self._max_targets // 4 or self._entries > MAX_ENTRIES // 4:
            self._countdown -= 1
            if self._countdown > 0:
                return False
            self._countdown = KEPT_ONE_IN
            if self._targets > self._max_targets or self._entries > MAX_ENTRIES:
                self._empty_cache()
        return True

    def state(
        self,
        positions: tuple[Position, ...],
        registers: tuple[int, ...],
        left: int,
        moves: tuple[int, ...] | None,
        *,
        keep: bool = True,
    ) -> PatternState:
        """The one state that is so (see `PatternState`); if there is none yet, one that is kept, or not. A full cache
        is emptied first, so states of before may have equals that are other objects."""
        key = positions, registers, left, moves
        state = self._states.get(key)
        if state is None:
            state = PatternState()
            state.machine, state.left, state.moves = self, left, moves
            state.positions, state.registers = positions, registers
            state.targets = {} if keep else None
            state.leaps, state.ways = {}, None
            state.count = max(registers, default=-1) + 1
            waits, live = 0, -1
            for position, register in zip(positions, registers, strict=True):
                if position.waits:
                    waits |= position.waits
                if live < 0 and position.searched.holds:
                    live = register
            state.waits, state.live = waits, live
            if keep:
                self._keep(key, state, len(positions))
        return state

    def _keep(self, key: tuple[object, ...], state: PatternState, positions: int) -> None:
        if self._entries + positions >= MAX_ENTRIES:
            self._empty_cache()
        self._entries += 1 + positions
        self._states[key] = state
        self._grow()

    def _grow(self) -> None:
        self._kept += 1
        if not self._kept % GROWTH:
            type(self).on_growth()

    def may_end(self, state: PatternState) -> bool:
        """Could the end of the text make anything certain in this state?"""
        if state.waits >> KINDS * state.left + EDGE & 1:
            return True
        return self._guards and any(position.searched.guard for position in state.positions)

    @cached_property
    def _guards(self) -> bool:
        return any(searched.guard for searched in self.patterns)

    def _follow(self, state: PatternState, char_class: CharClass, *, keep: bool) -> PatternState:
        left, kind = state.left, char_class.kind
        if state.waits >> KINDS * left + kind & 1:
            return UNDECIDED
        number = char_class.number + (left if self.looks_behind else 0)
        reads = char_class.reads
        earliest: dict[Position, int] = {}
        for position, register in zip(state.positions, state.registers, strict=True):
            if not position.onward & reads:
                continue
            targets = position.steps.get(number)
            for target in self.after(position, left, char_class) if targets is None else targets:
                # Registers come in their order, and before what begins only now.
                if target not in earliest:
                    earliest[target] = register if register >= 0 else _start(target.region)
        for target in self.after(self.start_position, left, char_class):
            if target not in earliest:
                earliest[target] = _start(target.region)
        remarkable = [target for target in earliest if not target.passes]
        if remarkable:
            rights: dict[int, int] = {}
            for target in remarkable:
                rights[target.owner] = rights.get(target.owner, 0) | target.rights(kind)
            if ALL_RIGHTS in rights.values():
                return UNDECIDED  # certain: one state, or several together, accept any next character
            for target in remarkable:
                if not target.may_match >> kind & 1:
                    del earliest[target]
        starts = dict.fromkeys(earliest.values())
        if _BEFORE in starts:
            del starts[_BEFORE]
            for target in [target for target, start in earliest.items() if start == _BEFORE]:
                earliest[target] = earliest.pop(target)  # behind the others
        register_of = {start: register for register, start in enumerate(starts)}
        moves = tuple([-1 if start == _NEW else start for start in starts])
        register_of[_BEFORE] = -1
        return self.state(
            tuple(earliest),
            tuple([register_of[start] for start in earliest.values()]),
            kind,
            None if moves == tuple(range(state.count)) else moves,
            keep=keep,
        )

    def _empty_cache(self) -> None:
        forget(self._states)
        self._transitions = self._targets = self._entries = 0


def _start(region: Region) -> int:
    """Where the way into a state of this region begins, if it did not before."""
    return _BEFORE if region is Region.BEFORE else _NEW
