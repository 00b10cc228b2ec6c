"""NFA simulation of a set of patterns, with every possible beginning of each match.

The beginnings of each state are a bit set over the last `window` characters, one Python integer. A character costs a
few operations on such integers for each state that is alive, whatever the text is: where a machine that tries again
from every beginning needs time that grows with the text's square, or worse, this one only ever goes forward.
"""

from __future__ import annotations

from copy import copy
from functools import reduce
from itertools import islice
from operator import and_
from typing import NamedTuple

from gateway.automata.contexts import ALL_RIGHTS, EDGE, KINDS
from gateway.automata.machine import StateMachine
from gateway.automata.pattern_states import CharClass, PatternState, Position, Searched
from gateway.automata.positions import Region

# How far back is remembered what was known before a beginning.
MAX_REGISTERED = 2048


class Hit(NamedTuple):
    """A pattern's matches that became certain together: all end before offset `end`, `starts` are their beginnings."""

    pattern: Searched
    starts: int
    end: int


class StartContext(NamedTuple):
    """What was known before a character at which a match may have begun: enough to begin again there."""

    contexts: tuple[Position, ...]
    left: int


class Step(NamedTuple):
    """What a folded character does to a tuple of positions, whatever their beginnings are.

    Those with the indices `certain` have matched. Of each of the positions `reached`, the beginnings are those of two
    `sources`, and of `further` ones as (index of the position reached, source): a source is an index, or behind the
    last the character itself, and behind that nothing. `begins`: does a match begin? `arrives`: may one end?
    """

    certain: tuple[int, ...]
    reached: tuple[Position, ...]
    sources: tuple[tuple[int, int], ...]
    further: tuple[tuple[int, int], ...]
    contexts: tuple[Position, ...]
    begins: bool
    arrives: bool


class NfaSimulation:
    """The live positions of the patterns. Bit i of a set of beginnings stands for offset `origin` + i.

    Each step is given the offset before which beginnings are too old. After it, `left_window` has the tags of the
    patterns for which text was held from a beginning that has just become too old, each with the earliest. The sets are
    shortened when they reach back `window` characters further than need be.
    """

    __slots__ = (
        "_ends",
        "_machine",
        "_oldest",
        "_window",
        "active",
        "contexts",
        "history",
        "left",
        "left_window",
        "origin",
    )

    def __init__(self, machine: StateMachine, window: int, state: PatternState, origin: int) -> None:
        self._machine = machine
        self._window = window
        self._oldest = origin
        self._ends: list[int] = []
        self.origin = origin
        self.contexts = state.contexts
        self.left = state.left
        self.active: dict[Position, int] = {}
        self.history: dict[int, StartContext] = {}
        self.left_window: dict[int, int] = {}

    def fork(self) -> NfaSimulation:
        """An independent copy."""
        other = copy(self)
        other.active, other.history, other._ends = dict(self.active), dict(self.history), list(self._ends)
        return other

    def step(self, char: str, offset: int, earliest: int) -> list[Hit]:
        """Take the character at `offset`; the matches that are certain with it and begin at offset `earliest` or later,
        look-ahead included."""
        machine = self._machine
        folded, atomic, _ = machine.fold(char)
        if self.left_window:
            self.left_window = {}
        if not self.active:
            self.origin = self._oldest = offset
            self.history.clear()
        elif self._oldest - self.origin > self._window:
            self._rebase()
        hits: dict[tuple[int, int], int] = {}
        context = StartContext(self.contexts, self.left)
        fresh, begins = 1 << (offset - self.origin), False
        for index, unit in enumerate(folded):
            # Inside an atomic expansion no match may end, nor begin.
            inside = atomic and index > 0
            step = self._step(machine.char_class(unit), 0 if inside else fresh, hits)
            begins |= step.begins
            ends_here = not atomic or index == len(folded) - 1
            self._ends.append(offset + 1 if ends_here else -1)
            del self._ends[: -machine.furthest - 1]
            if step.arrives:
                self._arrive(hits)
        if begins:
            self.history[offset] = context
            if len(self.history) > 2 * MAX_REGISTERED:
                self.history = dict(islice(self.history.items(), MAX_REGISTERED, None))
        if self._oldest < earliest:
            hits = self._leave_window(hits, earliest, offset)
        return self._named(hits) if hits else []

    @property
    def end(self) -> int:
        """The offset behind the last visible character; there must have been one."""
        return self._ends[-1]

    def at_end(self) -> list[Hit]:
        """The matches that the end of the text makes certain."""
        context = KINDS * self.left + EDGE
        hits: dict[tuple[int, int], int] = {}
        for position, starts in self.active.items():
            if position.waits >> context & 1:
                self._hit(position, starts, hits)
        return self._named(hits)

    def alive(self, tag: int | None = None, holding: bool = False) -> int | None:
        """The earliest live beginning: of all patterns, of those that hold, or of a tag."""
        starts = 0
        for position, of_this in self.active.items():
            searched = position.searched
            if (tag is None or searched.tag == tag) and (searched.holds or not holding):
                starts |= of_this
        return self.offset_of(starts) if starts else None

    def offset_of(self, starts: int) -> int:
        """The earliest of a set of beginnings."""
        return self.origin + (starts & -starts).bit_length() - 1

    def registers(self) -> tuple[PatternState, list[tuple[int, PatternState]]]:
        """The same without its later beginnings: a determinised state and its registers, each an offset and the state
        to begin again with. Only for beginnings within the last `MAX_REGISTERED` characters."""
        earliest = {position: self.offset_of(starts) for position, starts in self.active.items()}
        offsets = sorted(set(earliest.values()))
        register_of = {offset: register for register, offset in enumerate(offsets)}
        ordered = sorted(earliest, key=earliest.__getitem__)
        state = self._machine.state(
            (*ordered, *self.contexts),
            (*(register_of[earliest[position]] for position in ordered), *[-1] * len(self.contexts)),
            self.left,
            None,
        )
        return state, [(offset, self._machine.idle(*self.history[offset])) for offset in offsets]

    def _step(self, char_class: CharClass, fresh: int, hits: dict[tuple[int, int], int]) -> Step:
        """Take one folded character, but for what of it is certain only once `_ends` has it."""
        machine = self._machine
        key = tuple(self.active), self.contexts, self.left, char_class, bool(fresh)
        step: Step | None = machine.nfa_steps.get(key)
        if step is None:
            step = machine.older_nfa_steps.pop(key, None) or self._compute_step(*key)
            machine.keep_nfa_step(key, step)
        before = [*self.active.values(), fresh, 0]
        for index in step.certain:
            self._hit(key[0][index], before[index], hits)
        starts = [before[first] | before[second] for first, second in step.sources]
        for index, source in step.further:
            starts[index] |= before[source]
        self.active = dict(zip(step.reached, starts, strict=True))
        self.contexts, self.left = step.contexts, char_class.kind
        return step

    def _compute_step(
        self,
        active: tuple[Position, ...],
        contexts: tuple[Position, ...],
        left: int,
        char_class: CharClass,
        fresh: bool,
    ) -> Step:
        machine, context = self._machine, KINDS * left + char_class.kind
        reads, number = char_class.reads, char_class.number + (left if machine.looks_behind else 0)
        reached: dict[Position, list[int]] = {}
        for index, position in enumerate(active):
            if position.onward & reads:
                targets = position.steps.get(number)
                for target in machine.after(position, left, char_class) if targets is None else targets:
                    reached.setdefault(target, []).append(index)
        contexts_after: dict[Position, None] = {}
        begins = False
        for position in (machine.start_position, *contexts):
            if position.onward & reads:
                targets = position.steps.get(number) if position is not machine.start_position else None
                for target in machine.after(position, left, char_class) if targets is None else targets:
                    if target.region is Region.BEFORE:
                        contexts_after[target] = None
                    elif fresh:
                        begins = True
                        sources = reached.setdefault(target, [])
                        if len(active) not in sources:
                            sources.append(len(active))
        nothing = len(active) + 1
        several = [(at, sources) for at, sources in enumerate(reached.values()) if len(sources) > 2]
        return Step(
            certain=tuple([index for index, position in enumerate(active) if position.waits >> context & 1]),
            reached=tuple(reached),
            sources=tuple([(from_[0], from_[1] if len(from_) > 1 else nothing) for from_ in reached.values()]),
            further=tuple([(at, source) for at, sources in several for source in sources[2:]]),
            contexts=tuple(contexts_after),
            begins=begins,
            arrives=any(not position.passes for position in reached),
        )

    def _arrive(self, hits: dict[tuple[int, int], int]) -> None:
        """Report what is certain now, and keep only what may continue."""
        kind = self.left
        waiting = False
        for position in [position for position in self.active if not position.passes]:
            if position.arrives >> kind & 1:
                self._hit(position, self.active[position], hits)
            elif position.waits >> KINDS * kind & ALL_RIGHTS:
                waiting = True
            if not position.may_match >> kind & 1:
                del self.active[position]
        if waiting:
            self._stop_waiting(hits)

    def _stop_waiting(self, hits: dict[tuple[int, int], int]) -> None:
        """Nothing waits for what comes next where it does not matter: one state has no need of it, or several together
        want everything that can come."""
        kind = self.left
        wanted: dict[tuple[int, int], list[int]] = {}
        waiting: list[tuple[Position, tuple[int, int]]] = []
        for position, starts in self.active.items():
            rights = position.waits >> KINDS * kind & ALL_RIGHTS
            key = position.owner, self._ends[-1 - position.past]
            if not rights or key[1] < 0:
                continue
            waiting.append((position, key))
            by_right = wanted.setdefault(key, [hits.get(key, 0)] * KINDS)
            for right in range(KINDS):
                if rights >> right & 1:
                    by_right[right] |= starts
        certain = {key: reduce(and_, by_right) for key, by_right in wanted.items()}
        for key, starts in certain.items():
            if starts:
                hits[key] = hits.get(key, 0) | starts
        for position, key in waiting:
            if certain[key] and not position.continues >> kind & 1:
                self.active[position] &= ~certain[key]
                if not self.active[position]:
                    del self.active[position]

    def _hit(self, position: Position, starts: int, hits: dict[tuple[int, int], int]) -> None:
        """A match that ends where `position`'s span ends, which is some folded characters ago for a context behind."""
        end = self._ends[-1 - position.past]
        if end >= 0:
            key = position.owner, end
            hits[key] = hits.get(key, 0) | starts

    def _named(self, hits: dict[tuple[int, int], int]) -> list[Hit]:
        return [Hit(self._machine.patterns[owner], starts, end) for (owner, end), starts in hits.items()]

    def _leave_window(self, hits: dict[tuple[int, int], int], earliest: int, offset: int) -> dict[tuple[int, int], int]:
        """Forget the beginnings before `earliest`."""
        patterns, old = self._machine.patterns, (1 << (earliest - self.origin)) - 1
        leaving: dict[int, int] = {}
        left: list[Position] = []
        rest = 0
        for position, starts in self.active.items():
            if gone := starts & old:
                if (pattern := position.searched).holds:
                    leaving[pattern.tag] = leaving.get(pattern.tag, 0) | gone
                starts ^= gone
                self.active[position] = starts
                if not starts:
                    left.append(position)
            rest |= starts
        for position in left:
            del self.active[position]
        for key, starts in hits.items():
            if (gone := starts & old) and (pattern := patterns[key[0]]).holds:
                leaving[pattern.tag] = leaving.get(pattern.tag, 0) | gone
        self.left_window = {tag: self.offset_of(gone) for tag, gone in leaving.items()}
        self._oldest = self.offset_of(rest) if rest else offset + 1
        return {key: kept for key, starts in hits.items() if (kept := starts & ~old)}

    def _rebase(self) -> None:
        """Move the origin of the sets forward, which keeps them short."""
        shift = self._oldest - self.origin
        self.active = {position: starts >> shift for position, starts in self.active.items()}
        self.origin += shift
        self.history = {at: context for at, context in self.history.items() if at >= self.origin}
