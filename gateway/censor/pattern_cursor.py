"""The cursor of one pattern machine in one text: quick while nothing is found, exact where something is.

The fast path is a determinised state with registers; it holds the text from its first register on, and where it cannot
decide, that text is read again with every beginning there is (`gateway.automata.nfa`). The exact path is left when
nothing is found any more. To go back and forth costs at most twice the exact path, since it is left only after as many
characters as would have to be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from typing import NamedTuple, TypeAlias

from gateway.automata.machine import StateMachine
from gateway.automata.nfa import MAX_REGISTERED, Hit, NfaSimulation
from gateway.automata.pattern_states import PatternState, Searched
from gateway.censor.literal_cursor import Span
from gateway.censor.window import Window

# A run's text is kept for reports of what was found; a run can be as long as its text.
MAX_SEEN = 16_384

_PastExempt = Callable[[int, int], int]


class MatchRun(NamedTuple):
    """Overlapping matches of one rule, as one: original offsets [start, end), and the text, cut at `MAX_SEEN`."""

    start: int
    end: int
    tag: int
    text: str


# A place of the fast path: a state and its registers, each an offset and the state to begin again with before it; and
# the text from the earliest of them on.
Quick: TypeAlias = tuple[PatternState, list[tuple[int, PatternState]], str]


class PatternCursor:
    """A machine's place in a text that begins at offset 0. `past_exempt(start, end)`: where a match begins when what is
    exempt at its beginning is left out, `end` if that is all of it.

    The matches of the last step join the runs when the caller pops those that are over. More than 15 methods, since it
    is one thing to its caller and answers in two ways: `_quick`, or `_exact` where that is not None.
    """

    __slots__ = (
        "_behind",
        "_exact",
        "_fresh",
        "_machine",
        "_max_hold",
        "_paid",
        "_past_exempt",
        "_quick",
        "_runs",
        "_window",
    )

    def __init__(self, machine: StateMachine, max_hold: int, window: Window, past_exempt: _PastExempt) -> None:
        self._machine = machine
        self._max_hold = max_hold
        self._window = window
        self._past_exempt = past_exempt
        self._quick: Quick = machine.start(), [], ""
        self._behind = ""  # of the exact path, the text from the earliest beginning on
        self._exact: NfaSimulation | None = None
        self._paid = 0
        self._fresh: list[Span] = []
        self._runs: list[MatchRun] = []

    def fork(self, past_exempt: _PastExempt) -> PatternCursor:
        """An independent copy."""
        other = copy(self)
        other._past_exempt, other._window = past_exempt, self._window.fork()
        other._exact = None if self._exact is None else self._exact.fork()
        other._runs = list(self._runs)
        return other

    # -- the fast path ------------------------------------------------------------------------------------------------

    def try_quickly(self, text: str, scanned: int) -> Quick | None:
        """Where the fast path leads with `text`, which begins at offset `scanned`; None if it cannot decide."""
        if self._exact is not None:
            return None
        state, registers, behind = self._quick
        if len(text) + (scanned - registers[0][0] if registers else 0) > self._max_hold:
            return None  # a beginning might grow too old on the way
        leap = state.leaps.get(text) or self._machine.leap(state, text)
        if leap is None:
            return None
        moved = [registers[at] if before is None else (scanned + at, before) for at, before in leap.moves]
        if not moved:
            return leap.state, moved, ""
        begin = moved[0][0] - scanned
        return leap.state, moved, text[begin:] if begin >= 0 else (behind + text)[begin - len(text) :]

    def advance(self, reached: Quick, scanned: int) -> int:
        """Take a text, at the end of which the fast path is at offset `scanned`; where the live suffix begins."""
        self._quick = reached
        state, registers, _ = reached
        return registers[state.live][0] if state.live >= 0 else scanned

    # -- the exact path ------------------------------------------------------------------------------------------------

    def step(self, char: str, consumed: int) -> list[Span]:
        """Take `char`, the `consumed`-th of the text; the matches that are certain with it, of those with one end and
        rule the one that begins first."""
        if self._exact is not None and not self._runs and not self._fresh and not self._paid & self._paid - 1:
            self.return_to_quick(consumed - 1)  # asked seldom: whenever twice as much was paid
        if (reached := self.try_quickly(char, consumed - 1)) is not None:
            self.advance(reached, consumed)
            self._fresh = []
            return []
        exact = self._exact or self._start_exact(consumed - 1)
        self._paid += 1
        self._behind += char
        self._window.advance(consumed, not self._machine.fold(char).text)
        hits = exact.step(char, consumed - 1, self._window.start)
        self._fresh = self._spans(hits, consumed) if hits else []
        return self._fresh

    @property
    def left(self) -> dict[int, int]:
        """The tags for which text was held from a start that left the window with the last step, each with the first
        such start."""
        return self._exact.left_window if self._exact else {}

    def return_to_quick(self, consumed: int) -> None:
        """Go back to the fast path, if it is worth it. Call it between two pieces of text."""
        exact = self._exact
        if exact is None:
            return
        oldest = exact.alive()
        kept = 0 if oldest is None else consumed - oldest
        self._behind = self._behind[len(self._behind) - kept :]
        if not self._runs and self._paid >= kept and 2 * kept <= self._max_hold and kept <= MAX_REGISTERED:
            self._quick = *exact.registers(), self._behind
            self._exact = None

    def live_start(self) -> int | None:
        """The first offset from which the text may still become, or wait to be, a match that holds."""
        if self._exact is not None:
            return self._exact.alive(holding=True)
        state, registers, _ = self._quick
        return registers[state.live][0] if state.live >= 0 else None

    def ending(self, scanned: int) -> list[Span]:
        """What the end of the text makes certain: waiting matches, and beginnings that a rule guards."""
        exact = self._exact or self._start_exact(scanned)
        spans = self._spans(exact.at_end(), scanned)
        for tag, guard in {(each.searched.tag, each.searched.guard) for each in exact.active}:
            begin = exact.alive(tag, holding=True) if guard else None
            if begin is None or self._past_exempt(begin, exact.end) == exact.end:
                continue
            if self._visible(begin, exact.end, scanned) >= guard:
                spans.append(Span(begin, exact.end, tag, True, None))
        self._fresh = spans
        return spans

    @property
    def is_open(self) -> bool:
        """Does the end of the text begin a match?"""
        return self._exact is not None or bool(self._quick[1])

    def may_end(self) -> bool:
        """Could the end of the text make anything certain here? If not, `ending` finds nothing."""
        if self._exact is not None:
            return True
        return self._machine.may_end(self._quick[0])

    def repeated(self, scanned: int) -> int:
        """How many characters the exact path would have to read again at offset `scanned`."""
        registers = self._quick[1]
        return scanned - registers[0][0] if self._exact is None and registers else 0

    def switch_to_exact(self, scanned: int) -> None:
        """Continue in the exact path, for a text that comes back to this place again and again."""
        if self._exact is None:
            self._start_exact(scanned)

    def position(self, scanned: int) -> Hashable | None:
        """Equal where the same texts lead to the same matches, as long as the machine's states are kept; None where
        that is not known."""
        if self._exact is not None or self._runs:
            return None
        state, registers, behind = self._quick
        return id(state), tuple([(scanned - offset, id(before)) for offset, before in registers]), behind

    def forget_fresh(self) -> None:
        """The matches of the last step do not count."""
        self._fresh = []

    def pop_runs(self, consumed: int, ended: bool) -> list[MatchRun]:
        """The runs that no later match can join any more; all, if the text has ended."""
        for span in self._fresh:
            self._join(span, consumed)
        self._fresh = []
        exact = self._exact
        if not self._runs or exact is None:
            return []
        over: list[MatchRun] = []
        going_on: list[MatchRun] = []
        for run in self._runs:
            begin = None if ended else exact.alive(run.tag)
            (over if begin is None or begin >= run.end else going_on).append(run)
        self._runs = going_on
        return [run._replace(text=self._machine.folded_text(run.text).text) for run in sorted(over)]

    def run_starts(self) -> list[int]:
        """Where the runs begin that a later match can still join."""
        return [run.start for run in self._runs]

    def _start_exact(self, offset: int) -> NfaSimulation:
        """Read the text again from the earliest beginning on. What is found in it is known already."""
        state, registers, self._behind = self._quick
        begin, state = registers[0] if registers else (offset, state)
        self._exact = exact = NfaSimulation(self._machine, self._max_hold, state, begin)
        for at, char in enumerate(self._behind, start=begin):
            exact.step(char, at, begin)
        self._paid = 0
        return exact

    def _spans(self, hits: list[Hit], consumed: int) -> list[Span]:
        exact = self._exact
        assert exact is not None
        found: dict[tuple[int, int], Span] = {}
        for pattern, starts, end in hits:
            start = self._first(exact, pattern, starts, end, consumed)
            if start is None:
                continue
            known = found.get((pattern.tag, end))
            if known is None or start < known.start:
                found[pattern.tag, end] = Span(start, end, pattern.tag, pattern.holds, None)
        return list(found.values())

    def _first(self, exact: NfaSimulation, pattern: Searched, starts: int, end: int, consumed: int) -> int | None:
        """The earliest of the beginnings that is one of a match."""
        earliest = exact.offset_of(starts)
        # Once for all beginnings: there can be many, and the text behind them can be long.
        seen = None if pattern.accepts is None else self._machine.folded_text(self._slice(earliest, end, consumed))
        while starts:
            start = exact.offset_of(starts)
            starts &= starts - 1
            kept = self._past_exempt(start, end)
            if kept == end:
                continue
            if pattern.accepts is None or seen is None or pattern.accepts(seen.text[seen.at[start - earliest] :]):
                return kept
        return None

    def _slice(self, start: int, end: int, consumed: int) -> str:
        """The original text [start, end), of which all that is alive is kept; `consumed` is where that ends."""
        base = consumed - len(self._behind)
        return self._behind[max(start - base, 0) : end - base]

    def _visible(self, start: int, end: int, consumed: int) -> int:
        """How many characters of [start, end) are not invisible to the lens."""
        fold = self._machine.fold
        return sum(1 for char in self._slice(start, end, consumed) if fold(char).text)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _join(self, span: Span, consumed: int) -> None:
        """Add a match to the run that it overlaps; it may make several into one."""
        if self._runs and self._grow(span, consumed):
            return
        joined = [run for run in self._runs if run.tag == span.tag and run.start < span.end and span.start < run.end]
        start = min([span.start, *(run.start for run in joined)])
        end = max([span.end, *(run.end for run in joined)])
        text, at = "", start
        here = MatchRun(span.start, span.end, span.tag, self._slice(span.start, span.end, consumed))
        for run in sorted([*joined, here]):
            if run.end > at and len(text) == at - start:
                text += run.text[at - run.start :]
                at = run.end
        for run in joined:
            self._runs.remove(run)
        self._runs.append(MatchRun(start, end, span.tag, text[:MAX_SEEN]))

    def _grow(self, span: Span, consumed: int) -> bool:
        """The usual case: the match begins within the run that ends last, and makes it longer, or not even that."""
        last = self._runs[-1]
        if len(self._runs) > 1 or last.tag != span.tag or not last.start <= span.start < last.end:
            return False
        if span.end > last.end:
            more = self._slice(last.end, span.end, consumed) if len(last.text) < MAX_SEEN else ""
            self._runs[-1] = MatchRun(last.start, span.end, last.tag, last.text + more)
        return True
