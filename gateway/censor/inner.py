"""The scanners of a text and of the texts nested in it, stepped together; offsets are of the outermost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.censor.compile import Program
from gateway.censor.inner_text import InnerText, Levels, OuterText, joined_runs
from gateway.censor.literal_cursor import Span
from gateway.censor.passing import passes
from gateway.censor.pattern_cursor import MatchRun
from gateway.censor.scanner import Scanner
from gateway.inner_texts import Closed, InnerReader, Opened, Piece, Spelled, Step, Token
from gateway.policy.model import Action

MAX_RUNS = 40_000  # of all texts, before they are joined: 10,000 are reported, and one run is in four texts at most
_KEPT = 1024  # escapes and levels, before it is looked at which are still needed

_Left = list[tuple[int, int]]


class _Escape(NamedTuple):
    """The outermost characters [start, end) that spell one of an inner text; `exact`: they are removed together."""

    start: int
    end: int
    exact: bool


class QuotedToken(NamedTuple):
    """A number, at outermost offsets, that becomes a string where a match takes something out of it."""

    start: int
    end: int
    depth: int


class NestedScanner(Scanner):
    """What a `Scanner` finds, in the outermost text and in those within it.

    Before each piece of text `read` or `skip` says what it is. `spelled`: matches of the last step in which an escape
    has a part; `token`: the number that ended with it.
    """

    __slots__ = (
        *("_ahead", "_chain", "_deferred", "_escapes", "_found", "_left", "_holds"),
        *("_left_outermost", "_most_kept", "_outer", "_outermost", "_over", "_program"),
        *("_reading", "_steps", "levels", "spelled", "token"),
    )

    def __init__(self, program: Program, reader: InnerReader, opened: Opened | None) -> None:
        super().__init__(None)
        self._program = program
        self._holds = any(rule.action is not Action.FLAG for rule in program.rules)
        self._outermost: Scanner
        self._outer = OuterText(reader)
        self._chain: list[InnerText] = []  # that continue with the piece as it is
        self._reading = self._outer  # whose reader has read the piece
        self._steps: tuple[Step, ...] = ()
        self._found: list[Span] = []  # matches in inner texts by the steps that have been taken,
        self._left: _Left = []  # and the starts that have left their live suffixes
        self._ahead = False  # as `InnerText.ahead`
        self._left_outermost = False  # have starts left the outermost text's live suffix with the last step?
        self._deferred: list[Span] = []  # matches that end in something of which it is not known what it spells
        self._over: list[tuple[int, MatchRun]] = []  # runs, with the depth of their text
        self.levels = Levels()
        self._escapes: list[_Escape] = []
        self._most_kept = _KEPT
        self.spelled: set[tuple[int, int]] = set()
        self.token: QuotedToken | None = None
        if opened is not None:
            self._open(self._outer, opened, 0)

    def follow(self, outermost: Scanner) -> None:
        """Continue with the cursors of the outermost text's own scanner."""
        self._outermost = outermost
        self.literals, self.patterns = outermost.literals, outermost.patterns

    @property
    def passing(self) -> bool:
        """Is the outermost the only open text?"""
        outer = self._outer
        return (outer.reader is None or outer.reader.idle) and outer.inner is None and not self._deferred

    # -- pieces --------------------------------------------------------------------------------------------------------

    def read(self, text: str, at: int, end: int) -> int:
        """How many characters of `text` from `at` on are the next piece."""
        self._chain.clear()
        if len(self.levels) + len(self._escapes) > self._most_kept:
            self._forget()
        outer = self._outer
        while True:
            piece = None if outer.reader is None else outer.reader.read(text, at, end)
            if piece is None:
                outer.reader = None
                piece = Piece(end - at)
            if not piece.same or outer.inner is None:
                break
            end = at + piece.length
            outer.held_from = None
            outer = self._join(outer.inner)
        outer.held_from = self._scanned(outer) + piece.length - piece.waits if piece.waits else None
        self._reading, self._steps = outer, piece.steps
        self._ahead = False
        self.spelled.clear()
        self.token = None
        return piece.length

    def skip(self, length: int, within: int) -> None:
        """So many characters follow in which no match counts. They end what they are no part of."""
        self._outermost.scanned = self.scanned
        self._outermost.exempt(length, within)
        self._exempt = self._outermost._exempt
        self._chain.clear()
        outer = self._outer
        while outer.reader is not None and outer.inner is not None:
            if not outer.reader.skip():
                outer.inner = outer.reader = None
                self.levels.note(self.scanned)
                break
            outer.inner.scanner.exempt(length, within)
            outer.held_from = None
            outer = self._join(outer.inner)
        if outer.reader is not None and not outer.reader.skip():
            outer.reader = None
        outer.held_from = None

    def skip_piece(self) -> None:
        """The next piece of what is skipped."""
        self._ahead, self._steps = False, ()
        for inner in self._chain:
            inner.ahead = False

    def end_piece(self) -> None:
        self._chain.clear()
        self._steps = ()

    def _join(self, inner: InnerText) -> InnerText:
        inner.ahead = False
        self._chain.append(inner)
        return inner

    def _scanned(self, outer: OuterText) -> int:
        return outer.scanner.scanned if isinstance(outer, InnerText) else self.scanned

    # -- as a scanner --------------------------------------------------------------------------------------------------

    def scan_quickly(self, text: str) -> int | None:
        if self._deferred:
            return None
        scanned = self.scanned
        everywhere = self._ahead = super().scan_quickly(text) is not None
        for inner in self._chain:
            inner.ahead = inner.scanner.scan_quickly(text) is not None
            everywhere = everywhere and inner.ahead
        if everywhere:
            self._apply_steps()
            if not self._found and not self._left:
                return self.scanned - self.live_start()
        self.scanned = scanned
        return None

    def step(self, char: str) -> tuple[list[Span], _Left]:
        spans: list[Span] = []
        left: _Left = []
        if self._ahead:
            self.scanned += 1
        else:
            spans, left = super().step(char)
        self._left_outermost = bool(left)
        for inner in self._chain:
            if not inner.ahead:
                self._step(inner, char, spans, left)
        self._apply_steps()
        spans, self._found = spans + self._found, []
        left, self._left = left + self._left, []
        if self._waits():
            self._deferred += spans
            return [], self._before_now(left)
        if self._deferred:
            spans, self._deferred = self._deferred + spans, []
        return [self._with_whole_escapes(span) for span in spans], self._before_now(left)

    def live_start(self) -> int:
        if not self._holds:
            return self.scanned
        live = min([super().live_start(), *(span.start for span in self._deferred)])
        for outer in self._open_texts():
            if outer.held_from is not None:
                live = min(live, outer.origin(outer.held_from))
            if isinstance(outer, InnerText):
                live = min(live, outer.origin(outer.scanner.live_start()))
        escape = self._escape_around(live)
        return live if escape is None or not escape.exact else escape.start

    def at_end(self) -> list[Span]:
        self.spelled.clear()
        self.token = None
        spans = [*self._deferred, *super().at_end()]
        self._deferred = []
        for outer in [*self._open_texts()]:
            if outer.reader is not None:
                for step in outer.reader.finish():
                    self._apply(outer, step, spans, [])
        self._close(self._outer, spans)
        return [self._with_whole_escapes(span) for span in spans]

    def forget_fresh(self) -> None:
        super().forget_fresh()
        for outer in self._open_texts():
            if isinstance(outer, InnerText):
                outer.scanner.forget_fresh()

    def return_to_quick(self) -> None:
        super().return_to_quick()
        for outer in self._open_texts():
            if isinstance(outer, InnerText):
                outer.scanner.return_to_quick()

    @property
    def left_at(self) -> int:
        """Of starts in an inner text, where the escape begins; of others too, if nothing but the whole is removed."""
        at = self.scanned - 1
        escape = self._escape_around(at)
        if escape is not None and (escape.exact or not self._left_outermost):
            at = escape.start
        if self._waits():
            at = min(outer.origin(outer.held_from) for outer in self._open_texts() if outer.held_from is not None)
        return at

    def pop_all_runs(self, scanned: int, ended: bool) -> list[MatchRun]:
        """The runs of all texts; where there are inner ones, not before the end, since a run of one text may be a part
        of another's."""
        self.scanned = scanned
        outermost = self.pop_runs(ended)
        if not self._over and self._outer.inner is None:
            return outermost
        for run in outermost:
            self._keep_run(0, run)
        if not ended:
            return []
        for outer in self._open_texts():
            if isinstance(outer, InnerText):
                self._keep_runs(outer, ended=True)
        over, self._over = self._over, []
        return joined_runs(over)

    def _before_now(self, left: _Left) -> _Left:
        return [each for each in left if each[0] < self.left_at] if left else left

    def _waits(self) -> bool:
        """Is something open that can only be replaced as a whole?"""
        return any(
            outer.held_from is not None and (outer.inner is None or outer.inner.exact) for outer in self._open_texts()
        )

    def _with_whole_escapes(self, span: Span) -> Span:
        start, end = self._escape_around(span.start), self._escape_around(span.end)
        if start is not None and start.exact:
            span = span._replace(start=start.start)
        return span if end is None or not end.exact else span._replace(end=end.end)

    def _escape_around(self, offset: int) -> _Escape | None:
        """The escape that an offset is inside, if it is."""
        place = bisect_left(self._escapes, (offset,)) - 1
        return self._escapes[place] if place >= 0 and self._escapes[place].end > offset else None

    def _note_escape(self, escape: _Escape) -> None:
        """One that spells a character of an inner text holds those that spell it in the texts between."""
        while self._escapes and self._escapes[-1].start >= escape.start:
            self._escapes.pop()
        self._escapes.append(escape)

    def characters(self, start: int, end: int) -> int:
        """How many characters [start, end) are, an escape as one."""
        first, last = bisect_left(self._escapes, (start,)), bisect_left(self._escapes, (end,))
        return end - start - sum(escape.end - escape.start - 1 for escape in self._escapes[first:last])

    def _apply_steps(self) -> None:
        for step in self._steps:
            self._apply(self._reading, step, self._found, self._left)
        self._steps = ()

    # -- the texts within ----------------------------------------------------------------------------------------------

    def _open_texts(self) -> Iterator[OuterText]:
        outer: OuterText | None = self._outer
        while outer is not None:
            yield outer
            outer = outer.inner

    def _apply(self, outer: OuterText, step: Step, spans: list[Span], left: _Left) -> None:
        """A step of a text's reader, behind what the text has scanned."""
        end = self._scanned(outer)
        if isinstance(step, Opened):
            self._open(outer, step, outer.origin(end - step.back))
        elif isinstance(step, Closed):
            self._close(outer, spans)
        elif isinstance(step, Token):
            self._scan_token(outer, step, spans)
        elif outer.inner is not None:
            self._add(outer.inner, step, outer.origin(end - step.start), outer.origin(end - step.end), spans, left)

    def _open(self, outer: OuterText, opened: Opened, begin: int) -> None:
        outer.inner = InnerText(self._program, opened, outer, begin)
        self._note_level(begin)

    def _close(self, outer: OuterText, spans: list[Span]) -> None:
        inner = outer.inner
        if inner is None:
            return
        self._close(inner, spans)
        spans += self._at_origin(inner, inner.scanner.at_end())
        self._keep_runs(inner, ended=True)
        outer.inner = None
        self._note_level(inner.origin(inner.scanner.scanned))

    def _add(self, inner: InnerText, decoded: Spelled, start: int, end: int, spans: list[Span], left: _Left) -> None:
        """The next character of an inner text, and what it is for those within it."""
        if end != start + 1:
            inner.spell(start, end)
            self._note_escape(_Escape(start, end, inner.exact))
        piece = None if inner.reader is None else inner.reader.read(decoded.char, 0, 1)
        if piece is None:
            inner.reader = None
            piece = Piece(1)
        self._step(inner, decoded.char, spans, left)
        inner.held_from = inner.scanner.scanned - piece.waits if piece.waits else None
        if piece.same and inner.inner is not None:
            self._add(inner.inner, decoded, start, end, spans, left)
        for step in piece.steps:
            self._apply(inner, step, spans, left)

    def _step(self, inner: InnerText, char: str, spans: list[Span], left: _Left) -> None:
        found, gone = inner.scanner.step(char)
        if found:
            spans += self._at_origin(inner, found)
        self._keep_runs(inner, ended=False)
        left += ((inner.origin(start), tag) for start, tag in gone)

    def _at_origin(self, inner: InnerText, spans: Iterable[Span]) -> list[Span]:
        found = [span._replace(start=inner.origin(span.start), end=inner.origin(span.end)) for span in spans]
        for span, there in zip(spans, found, strict=True):
            if there.end - there.start != span.end - span.start:
                self.spelled.add((there.start, there.end))
        return found

    def _keep_runs(self, inner: InnerText, ended: bool) -> None:
        for run in inner.scanner.pop_runs(ended):
            there = run._replace(start=inner.origin(run.start), end=inner.origin(run.end))
            self._keep_run(inner.depth, there)

    def _keep_run(self, depth: int, run: MatchRun) -> None:
        if len(self._over) < MAX_RUNS:
            self._over.append((depth, run))

    # -- numbers -------------------------------------------------------------------------------------------------------

    def _scan_token(self, outer: OuterText, token: Token, spans: list[Span]) -> None:
        """A number, as a text of its own, and as what it is worth: a match in that is all of it."""
        scanned = self._scanned(outer)
        start, end = outer.origin(scanned - token.start), outer.origin(scanned - token.end)
        for text, whole in ((token.text, False), (token.value or "", True)):
            if passes(self._program, text):
                continue
            scanner = Scanner(self._program)
            found: list[Span] = []
            runs: list[MatchRun] = []
            for char in text:
                found += scanner.step(char)[0]
                runs += scanner.pop_runs(ended=False)
            found += scanner.at_end()
            runs += scanner.pop_runs(ended=True)
            for span in found:
                at = (start, end) if whole else (start + span.start, start + span.end)
                spans.append(span._replace(start=at[0], end=at[1]))
            for run in runs:
                at = (start, end) if whole else (start + run.start, start + run.end)
                self._keep_run(outer.depth, run._replace(start=at[0], end=at[1]))
        if token.quoted:
            self.token = QuotedToken(start, end, outer.depth)
            self._note_level(start, "null" + token.closing)
            self._note_level(start + 1, token.closing)
            self._note_level(end)

    # -- how things are written ----------------------------------------------------------------------------------------

    def _note_level(self, begin: int, token: str | None = None) -> None:
        self.levels.note(begin, (outer for outer in self._open_texts() if isinstance(outer, InnerText)), token)

    def _forget(self) -> None:
        """Keep what is needed for text that is held."""
        held_from = self.live_start()
        self.levels.forget(held_from)
        del self._escapes[: bisect_left(self._escapes, (held_from,))]
        self._most_kept = 2 * (len(self.levels) + len(self._escapes)) + _KEPT
