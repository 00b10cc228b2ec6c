"""Scanning: the machines of a program, stepped together over one text.

What a match does to the text is decided elsewhere (`gateway.censor.stream`), and so is what comes out
(`gateway.censor.releaser`). There are two ways to step, and both find the same: `scan_quickly`, for text in which no
character is remarkable, and `step`, one character at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from gateway.automata.literals import LiteralMachine, LiteralState
from gateway.automata.pattern_states import UNDECIDED, PatternState
from gateway.automata.phrases import WordMachine
from gateway.censor.carry import CarriedCursor
from gateway.censor.compile import Program
from gateway.censor.literal_cursor import LiteralCursor, Span
from gateway.censor.pattern_cursor import MAX_SEEN, MatchRun, PatternCursor
from gateway.censor.readings import INTRODUCERS, Readings
from gateway.censor.window import Window
from gateway.native import load_native


def over_words(machine: WordMachine, state: LiteralState, text: str) -> LiteralState | None:
    """The state behind a text; None where a character of it is remarkable, as in `Scanner.scan_quickly`."""
    behind = state
    for char in text:
        target = behind.get(char)  # `behind[char]` of a class that inherits from dict takes longer
        if target is None:
            return machine.walk(state, text)
        behind = target
        if behind.arrival is not None:
            return None
    return behind


def over_patterns(state: PatternState, text: str) -> PatternState | None:
    """The state behind a text; None where a character leads to `UNDECIDED`."""
    for char in text:
        state = state[char]
        if state is UNDECIDED:
            return None
    return state


class Scanner:
    """The cursors of one text. `scanned`: characters that they have read. `carries`: words that the text before it
    began count. `_unusual`: there are readings or carried words, which almost no text has."""

    __slots__ = ("_carries", "_exempt", "_unusual", "literals", "patterns", "readings", "scanned")

    def __init__(self, program: Program | None, *, carries: bool = False) -> None:
        self.scanned = 0
        self._carries = self._unusual = carries and program is not None and bool(program.carried)
        self._exempt: list[tuple[int, int]] = []  # original offsets of what stays as it is
        self.literals: list[LiteralCursor] = []
        self.readings: Readings | None = None  # where a control sequence has begun
        self.patterns: list[PatternCursor] = []
        if program is not None:
            hold, unseen = program.max_hold, program.max_unseen
            self.literals = [LiteralCursor(machine, Window(hold, unseen)) for machine in program.machines]
            if self._carries:
                self.literals += [cursor.fork() for cursor in program.carried]
            self.patterns = [
                PatternCursor(machine, hold, Window(hold, unseen), self.past_exempt) for machine in program.patterns
            ]

    @property
    def sole_cursor(self) -> LiteralCursor | None:
        """The cursor that `scan_quickly` steps over ordinary text, if that is all it does."""
        alone = len(self.literals) == 1 and not (self.patterns or self.readings or self._carries)
        return self.literals[0] if alone and not self.literals[0].jumps else None

    def scan_quickly(self, text: str) -> int | None:
        """Step all cursors over `text`; the length of the live suffix behind it. None if a character is remarkable (a
        match is certain, or a character folds to none or several): then nothing has happened."""
        if self._unusual and self.readings is not None:
            return None
        reached = []
        for cursor in self.literals:
            if cursor.jumps:
                return None
            state = over_words(cursor.machine, cursor.state, text)
            if state is None:
                return None
            reached.append(state)
        before = self.scanned
        scanned = before + len(text)
        live = 0
        if self.patterns:
            ways = []
            for following in self.patterns:
                way = following.try_quickly(text, before)
                if way is None:
                    return None
                ways.append(way)
            for following, way in zip(self.patterns, ways, strict=True):
                of_this = scanned - following.advance(way, scanned)
                if of_this > live:
                    live = of_this
        for cursor, state in zip(self.literals, reached, strict=True):
            cursor.state = state
            cursor.folded += len(text)
            of_this = state.live if state.live >= 0 else cursor.machine.live(state)
            if of_this > live:
                live = of_this
        self.scanned = scanned
        if self._unusual:
            self._drop_carried()
        return live

    def step(self, char: str) -> tuple[list[Span], list[tuple[int, int]]]:
        """Take one character. Returns the matches that are certain with it, and the starts that have left the live
        suffix by growing too old, each with the tag of the rule that text was held for."""
        self.scanned = scanned = self.scanned + 1
        spans: list[Span] = []
        left: list[tuple[int, int]] = []
        for cursor in self.literals:
            spans += cursor.step(char, scanned)
            if cursor.left:
                left += ((max(start, 0), tag) for tag, start in cursor.left.items())
        if len(spans) > 1:
            spans = _distinct(spans)
        if self.readings is not None or char in INTRODUCERS:
            readings = self.readings or Readings()
            spans, more = readings.step(char, scanned, self.literals, spans)
            self.readings = readings if readings else None
            self._unusual = self._carries or self.readings is not None
            left += more
        if self._carries:
            self._drop_carried()
        for following in self.patterns:
            spans += following.step(char, scanned)
            if following.left:
                left += ((start, tag) for tag, start in following.left.items())
        return self._without_exempt(spans) if spans and self._exempt else spans, left

    def _drop_carried(self) -> None:
        if self.readings is not None:
            return  # they count the cursors
        kept = [cursor for cursor in self.literals if not (isinstance(cursor, CarriedCursor) and cursor.over)]
        self.literals[:] = kept  # others may have the same list
        self._carries = any(isinstance(cursor, CarriedCursor) for cursor in kept)
        self._unusual = self._carries or self.readings is not None

    def continue_from(self, other: Scanner) -> None:
        """Continue where another scanner, of the same cursors, has come to."""
        self.scanned, self.readings = other.scanned, other.readings
        self._unusual = self._carries or self.readings is not None

    def live_start(self) -> int:
        """Where the longest live suffix within its window starts."""
        starts = [cursor.live_start() for cursor in self.literals]
        starts += self.readings.live_starts() if self.readings else []
        starts += [cursor.live_start() for cursor in self.patterns]
        # What the text before began counts from this one's beginning on.
        return max(min((start for start in starts if start is not None), default=self.scanned), 0)

    def at_end(self) -> list[Span]:
        """The matches that the end of the text makes certain."""
        known: set[tuple[int, int, int]] = set()
        spans: list[Span] = []
        for cursor in self.literals:
            known |= cursor.just_found
            spans += cursor.ending()
        if not (spans or self.readings or self.patterns):
            return spans
        spans = self.readings.ending(spans) if self.readings else spans
        spans = [span for span in _distinct(spans) if span[:3] not in known]
        spans += [span for cursor in self.patterns if cursor.may_end() for span in cursor.ending(self.scanned)]
        return self._without_exempt(spans)

    def pop_runs(self, ended: bool) -> list[MatchRun]:
        """The runs of patterns' matches that no later match can join any more; all, if the text has ended."""
        runs: list[MatchRun] = []
        for cursor in self.patterns:
            runs += cursor.pop_runs(self.scanned, ended)
        return runs if len(runs) < 2 else _joined(runs)

    def run_starts(self) -> list[int]:
        """The starts of the runs that are not over."""
        return [start for cursor in self.patterns for start in cursor.run_starts()]

    def forget_fresh(self) -> None:
        """The matches of the last step do not count."""
        for cursor in self.patterns:
            cursor.forget_fresh()

    def return_to_quick(self) -> None:
        """Return cursors to the fast path after a piece of text."""
        for cursor in self.patterns:
            cursor.return_to_quick(self.scanned)

    @property
    def left_at(self) -> int:
        """The offset of the character with which starts have left the live suffix."""
        return self.scanned - 1

    def would_hold_at_end(self, cheaply: int) -> bool:
        """Would the end of the text make a match certain that changes something?

        Nothing changes, but that a pattern's text of more than `cheaply` characters is not taken again next time.
        """
        spans = [span for cursor in self.literals for span in cursor.ending()]
        spans = self.readings.ending(spans) if self.readings else spans
        for following in self.patterns:
            if following.may_end():
                again = following.repeated(self.scanned) <= cheaply
                at_end = following.fork(self.past_exempt) if again else following
                spans += at_end.ending(self.scanned)
                at_end.forget_fresh()
        return any(span.holds for span in self._without_exempt(spans))

    @property
    def is_open(self) -> bool:
        """Does the end of the text begin a match?"""
        return any(cursor.machine.length(cursor.state) for cursor in self.literals) or any(
            cursor.is_open for cursor in self.patterns
        )

    def would_match_at_end(self) -> bool:
        """Would the end of the text make a match certain? Beginnings of words that a rule guards are none."""
        return any(cursor.state.pending for cursor in self.literals) or any(
            cursor.fork(self.past_exempt).ending(self.scanned) for cursor in self.patterns if cursor.may_end()
        )

    # -- text that stays as it is --------------------------------------------------------------------------------------

    def exempt(self, length: int, within: int) -> None:
        """The next `length` characters stay as they are. `within`: no match is longer than so many characters."""
        self._exempt = [place for place in self._exempt if place[1] > self.scanned - within]
        self._exempt.append((self.scanned, self.scanned + length))

    def past_exempt(self, start: int, end: int) -> int:
        """Where a match begins when what is exempt at its beginning stays as it is; `end` if that is all of it."""
        return min(next((over for begin, over in self._exempt if begin <= start < over), start), end)

    def exempt_after(self, offset: int) -> list[tuple[int, int]]:
        """What is exempt and ends behind `offset`, as distances back from the end of the text."""
        return [(self.scanned - start, self.scanned - end) for start, end in self._exempt if end > offset]

    def _without_exempt(self, spans: Iterable[Span]) -> list[Span]:
        """A pattern's match begins past what is exempt already: what follows that may be exempt, too, and counts."""
        return [
            span if span.seen is None else span._replace(start=start)
            for span in spans
            if span.seen is None or (start := self.past_exempt(span.start, span.end)) < span.end
        ]

    def fork(self, held_from: int) -> Scanner:
        """An independent copy. What ended before `held_from` is in no match that could still
        count."""
        other = copy(self)
        other.literals = [cursor.fork() for cursor in self.literals]
        other.readings = self.readings and self.readings.fork()
        other.patterns = [cursor.fork(other.past_exempt) for cursor in self.patterns]
        other._exempt = [place for place in self._exempt if place[1] > held_from]
        return other


def _joined(runs: list[MatchRun]) -> list[MatchRun]:
    """Join the runs that several machines have found."""
    joined: list[MatchRun] = []
    for run in sorted(runs, key=lambda run: (run.tag, run.start, -run.end)):
        last = joined[-1] if joined else None
        if last is not None and last.tag == run.tag and run.start < last.end:
            if run.end > last.end:
                joined[-1] = last._replace(end=run.end, text=(last.text + run.text[last.end - run.start :])[:MAX_SEEN])
        else:
            joined.append(run)
    return sorted(joined)


def _distinct(spans: Iterable[Span]) -> list[Span]:
    """The spans without duplicates: two machines may find one span for one rule."""
    return list({span[:3]: span for span in spans}.values())


# What says what is right, and what `_scanner.c` takes the place of.
IN_PYTHON = over_words, over_patterns, Scanner.scan_quickly
_NATIVE = load_native("gateway.censor._scanner")
if _NATIVE is not None:
    over_words, over_patterns = _NATIVE.over_words, _NATIVE.over_patterns
    _WALK = getattr(load_native("gateway.automata._walk"), "entry", None)
    Scanner.scan_quickly = _NATIVE.method_of(  # type: ignore[method-assign]
        Scanner, UNDECIDED, LiteralMachine, _WALK
    )
