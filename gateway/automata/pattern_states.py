"""What a determinised automaton consists of: classes of characters, positions, and states that are tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gateway.automata.contexts import ALL_RIGHTS, KINDS
from gateway.automata.positions import Region


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


class CharClass:
    """Characters that no pattern can tell apart. `key` is what the machine knows the class by; `number` + the kind of
    what stands before, what a position's steps are kept by. With no bit of `reads` in common with a
    position's `onward`, they lead nowhere from there."""

    __slots__ = ("key", "kind", "number", "reads")

    def __init__(self, key: Any, kind: int, number: int, reads: int = -1) -> None:
        self.key = key
        self.kind = kind
        self.number = number
        self.reads = reads


class Position:
    """A position of an automaton. Where bit k is for a character of kind k that has just led to it,

    * `arrives`: a match is certain on arrival; `waits`: the contexts that make a waiting match certain;
    * `may_match`: a match is possible that needs a further character or the end; `continues`: a longer one is;
    * `owner`: the index in `StateMachine.patterns` of what a match belongs to; `region` and `past` as in `Positions`.

    `kinds` are those that can lead to it. `passes`: nothing ends here and something continues, whichever. `steps`
    are the positions behind it that are known, by the class of the next character and what stands before that.
    `onward`: what leads on (`CharClass.reads`), where that is little: of all else nothing needs to be known.
    """

    __slots__ = (
        "arrives",
        "continues",
        "may_match",
        "onward",
        "owner",
        "passes",
        "past",
        "region",
        "searched",
        "steps",
        "waits",
    )

    def __init__(
        self,
        owner: int,
        searched: Searched,
        *,
        arrives: int,
        waits: int,
        continues: int,
        kinds: int = ALL_RIGHTS,
        region: Region = Region.SPAN,
        past: int = 0,
    ) -> None:
        self.owner, self.searched = owner, searched
        self.region, self.past = region, past
        self.arrives, self.waits, self.continues = arrives, waits, continues
        self.may_match = continues
        if waits:
            self.may_match |= sum(1 << kind for kind in range(KINDS) if waits >> KINDS * kind & ALL_RIGHTS)
        self.passes = not arrives and not waits and continues & kinds == kinds
        self.onward = -1
        self.steps: dict[int, tuple[Position, ...]] = {}

    def rights(self, kind: int) -> int:
        """What may stand behind a character of this kind for a match to end with it: a bit for each."""
        return ALL_RIGHTS if self.arrives >> kind & 1 else self.waits >> KINDS * kind & ALL_RIGHTS


class _Machine(Protocol):
    def compute(self, state: PatternState, char: str) -> PatternState: ...


class PatternState(dict[str, "PatternState"]):
    """A determinised state *is* the table of its transitions, which computes those that it lacks.

    `positions` have each in `registers` that of its earliest beginning, the earliest first; -1, and last, one in a
    pattern's context, before any beginning. `left` is what the last character was. `moves` is how the registers change
    on arrival (-1: a beginning at this very character), None when they stay; `count` of them, and `live` that of the
    live suffix, or -1. `waits`: the contexts that make a match certain. `targets` is the same table by letters, so that
    a character never seen before costs little where its letter is known; None where the state itself is not kept.
    `leaps` are the same by short texts, and `ways` what a machine knows of the positions besides.
    """

    __slots__ = (
        "count",
        "leaps",
        "left",
        "live",
        "machine",
        "moves",
        "positions",
        "registers",
        "targets",
        "waits",
        "ways",
    )

    machine: _Machine
    positions: tuple[Position, ...]
    registers: tuple[int, ...]
    left: int
    moves: tuple[int, ...] | None
    count: int
    live: int
    waits: int
    targets: dict[CharClass, PatternState] | None
    leaps: dict[str, Leap]
    ways: Any

    def __missing__(self, char: str) -> PatternState:
        return self.machine.compute(self, char)

    def clear(self) -> None:
        super().clear()
        self.leaps = {}
        if self.targets is not None:
            self.targets = {}

    @property
    def entries(self) -> list[tuple[Position, int]]:
        return list(zip(self.positions, self.registers, strict=True))

    @property
    def contexts(self) -> tuple[Position, ...]:
        """The positions before any match has begun."""
        return tuple(position for position, register in self.entries if register < 0)


class OpenState(PatternState):
    """A state whose positions are computed from its `ways` where they are asked for, which is seldom."""

    __slots__ = ()

    @property
    def positions(self) -> tuple[Position, ...]:  # type: ignore[override]
        return tuple([position for position, _ in self.entries])

    @property
    def registers(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple([register for _, register in self.entries])

    @property
    def entries(self) -> list[tuple[Position, int]]:
        machine: Any = self.machine
        found: list[tuple[Position, int]] = machine.places(self.ways)
        return found


class Leap(NamedTuple):
    """Where a text leads from a state, in one step. Of each register there, `moves` has the index of the one before, or
    the offset in the text at which it was taken and the state that it was taken in."""

    state: PatternState
    moves: tuple[tuple[int, PatternState | None], ...]


# An arrival that only `gateway.automata.nfa` can decide: a match is certain, or a character becomes none or several.
UNDECIDED = PatternState()
UNDECIDED.moves = ()
