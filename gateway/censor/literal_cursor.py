"""The cursor of one word automaton in one text: its state, and how folded positions map back to original offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from copy import copy
from operator import attrgetter
from typing import NamedTuple

from gateway.automata.literals import Arrival, Literal
from gateway.automata.phrases import WordMachine
from gateway.censor.window import Window


class Span(NamedTuple):
    """A match at original offsets [start, end), in code points, of the rule `tag`.

    `seen` is the word as its lens sees it; None for a pattern's match, which is reported with those that overlap it.
    """

    start: int
    end: int
    tag: int
    holds: bool
    seen: str | None


class _OffsetJump(NamedTuple):
    """A character that folded to none or several: folded [before, after) belongs to original `offset - 1`."""

    before: int
    after: int
    offset: int
    atomic: bool


_AFTER = attrgetter("after")
_OFFSET = attrgetter("offset")


class LiteralCursor:
    """The state of the automaton, stepped one character at a time, and the offsets of its matches.

    `jumps` is empty for ordinary text; then folded and original positions differ by a constant and the caller may step
    `state` by itself as long as no arrival is remarkable, adding the characters to `folded`.

    `just_found`: start, end and tag of the matches that end with the last visible character.
    Matches that begin before `window` are none. `left` has the tags for which text was held from a start that left the
    window with the last step, each with the first such start.
    """

    __slots__ = ("_shift", "folded", "jumps", "just_found", "left", "machine", "state", "window")

    def __init__(self, machine: WordMachine, window: Window, offset: int = 0) -> None:
        """`offset`: of the first character that it will read."""
        self.machine = machine
        self.window = window
        self.left: dict[int, int] = {}
        self.state = machine.start()
        self.folded = 0
        self.jumps: list[_OffsetJump] = []
        self._shift = offset
        self.just_found: set[tuple[int, int, int]] = set()

    def fork(self) -> LiteralCursor:
        """An independent copy."""
        other = copy(self)
        other.jumps, other.window = list(self.jumps), self.window.fork()
        return other

    def step(self, char: str, consumed: int) -> list[Span]:
        """Take `char`, the `consumed`-th of the text; the words that are certain with it."""
        state = self.state = self.machine.step(self.state, char)
        arrival = state.arrival
        before = self.window.advance(consumed, arrival is not None and arrival.width == 0)
        spans = [] if arrival is None else self._arrive(arrival, consumed)
        if arrival is None:
            self.folded += 1
        if self.left:
            self.left = {}
        if before < self.window.start:
            spans = self._leave(before, spans)
        elif spans:
            spans = [span for span in spans if span.start >= self.window.start]
        if self.jumps and not (arrival is not None and arrival.width == 0):
            self._drop_passed_jumps()
        return spans

    def _arrive(self, arrival: Arrival, consumed: int) -> list[Span]:
        """The words that are certain, and where the positions jump."""
        before, self.folded = self.folded, self.folded + arrival.width
        if arrival.width != 1:
            if arrival.width == 0 and self.jumps and self.jumps[-1].before == before:
                self.jumps.pop()  # a run of invisible characters is one jump, however long
            self.jumps.append(_OffsetJump(before, self.folded, consumed, arrival.atomic))
            if arrival.width == 0:
                return []
        return self._new_spans(
            (self._span(self.folded - back, len(literal.text), literal) for literal, back in arrival.found), consumed
        )

    def _leave(self, before: int, spans: list[Span]) -> list[Span]:
        """The starts from offset `before` on have left the window. Returns the spans that begin in it."""
        start = self.window.start
        longest = self.folded - self._position(start)
        if not spans and self.machine.length(self.state) <= longest:
            return spans
        wanted = [(span.start, span.tag) for span in spans if before <= span.start < start and span.holds]
        for length, tags in self.machine.wanted(self.state, longest):
            begin = self.folded - length
            if before <= (origin := self._origin(begin)) < start and not self._splits(begin):
                wanted += [(origin, tag) for tag in tags]
        for origin, tag in sorted(wanted, reverse=True):
            self.left[tag] = origin
        return [span for span in spans if span.start >= start]

    def ending(self) -> list[Span]:
        """What the end of the text makes certain: waiting whole words, and beginnings that a rule guards."""
        state = self.state
        candidates = [(literal, len(literal.text), back) for literal, back in state.pending]
        candidates += [(literal, length, 0) for literal, length in self.machine.beginnings(state)]
        if not candidates:
            self.just_found = set()
            return []
        spans = self._new_spans(
            (self._span(self.folded - back, length, literal) for literal, length, back in candidates), -1
        )
        return [span for span in spans if span.start >= self.window.start]

    def live_start(self) -> int | None:
        """The first original offset in the window from which the text may still become a certain match."""
        for length in self.machine.live_lengths(self.state, self.folded - self._position(self.window.start)):
            begin = self.folded - length
            if not self._splits(begin):
                return self._origin(begin)
        return None

    def position(self) -> tuple[object, ...]:
        """Equal for cursors of one machine in one text that no later text can distinguish."""
        state = self.state
        return (
            state.node,
            state.left,
            state.pending,
            state.new_line,
            self._origin(self.folded - self.machine.length(state)) if self.machine.length(state) else None,
            [jump.offset for jump in self.jumps],
        )

    def _new_spans(self, spans: Iterable[Span | None], consumed: int) -> list[Span]:
        """Without repetitions: an expansion (ß) can show a rule's word at one place twice, and a guarded beginning may
        be a word itself; but only while the same visible character is the last."""
        fresh = {(span.start, span.end, span.tag): span for span in spans if span is not None}
        for known in self.just_found & fresh.keys():
            del fresh[known]
        self.just_found = {key for key in fresh if key[1] == consumed}
        return list(fresh.values())

    def _span(self, end: int, length: int, literal: Literal) -> Span | None:
        if self._splits(end - length):
            return None
        return Span(
            self._origin(end - length),
            self._origin(end - 1) + 1,
            literal.kind.tag,
            literal.kind.holds,
            literal.kind.seen or literal.text,
        )

    def _origin(self, position: int) -> int:
        """The original offset of the character that folded position `position` comes from."""
        passed = bisect_right(self.jumps, position, key=_AFTER)
        if passed < len(self.jumps) and self.jumps[passed].before <= position:
            return self.jumps[passed].offset - 1
        if passed:
            return position - self.jumps[passed - 1].after + self.jumps[passed - 1].offset
        return position + self._shift

    def _position(self, offset: int) -> int:
        """The first folded position that comes from original `offset` or later: the inverse of `_origin`."""
        passed = bisect_right(self.jumps, offset, key=_OFFSET)
        if passed:
            position = self.jumps[passed - 1].after + offset - self.jumps[passed - 1].offset
        else:
            position = offset - self._shift
        # Within a run of invisible characters the next visible one is meant.
        return min(position, self.jumps[passed].before) if passed < len(self.jumps) else position

    def _splits(self, position: int) -> bool:
        passed = bisect_right(self.jumps, position, key=_AFTER)
        return passed < len(self.jumps) and self.jumps[passed].atomic and self.jumps[passed].before < position

    def _drop_passed_jumps(self) -> None:
        """Forget the jumps that no live or later match can reach back to."""
        window = self.folded - self.machine.length(self.state)
        while self.jumps and self.jumps[0].after <= window:
            jump = self.jumps.pop(0)
            self._shift = jump.offset - jump.after
