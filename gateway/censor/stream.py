"""One text through its rules: feed characters, get back what may be released; the rest is held (docs/semantics.md).

`Censor.feed` has two ways through. Almost all text takes the quick one: step every machine's state over the chunk, and
if no character was remarkable, release up to the live suffix. Otherwise the chunk is scanned again character by
character, because a block, an overflow and the choice of a cluster's winner depend on *which* character made a match
certain. Both paths give the same output, however the text was cut. What the fast path saves
is in docs/hot-path.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gateway.censor.alternatives import UnchangedText
from gateway.censor.changes import Changes
from gateway.censor.compile import CompiledRule, Program
from gateway.censor.literal_cursor import Span
from gateway.censor.passing import passes
from gateway.censor.pattern_cursor import MatchRun
from gateway.censor.releaser import Cluster, Releaser
from gateway.censor.scanner import Scanner
from gateway.policy.model import DEFAULT_REPLACEMENT, Action, Overflow
from gateway.surrogates import join_next

MAX_REPORTED = 10_000
REPLACING = frozenset({Action.REDACT, Action.PSEUDONYMIZE})
# Where something is rolled back (`compile_stops`), that ends a text too: what takes its place is another text.
STOPPING = frozenset({Action.BLOCK, Action.ROLLBACK})


class Match(NamedTuple):
    """A reported match: original offsets in code points, within the text it was found in."""

    rule: str
    start: int
    end: int
    action: Action


def finds(program: Program | None, text: str) -> bool:
    """Does any rule find something in this whole text?"""
    if passes(program, text):
        return False
    censor = Censor(program)
    return censor.feed(text) + censor.finish() != text or bool(censor.matches)


class Censor:
    """The state of one text. `program` None means that no rule looks at this text: everything passes.

    A scanner finds the matches, a releaser holds and replaces; what is between them, which match does what, is here.
    More than 15 methods, since six are views of these two.

    Counters are in original characters, `inserted` in characters of replacements; once the text has ended,
    `scanned == forwarded + replaced + withheld`, where what was forwarded is counted where it is written out.
    `blocked` is the rule that ended the text, if one did.

    With `gathers` nothing takes the place of what a `pseudonymize` rule takes out, because a cluster can still grow
    while it is removed, and `clusters` lists it. Without, such a rule replaces.
    """

    __slots__ = (
        "_high",
        "_last_reported",
        "_places",
        "_program",
        "_scanner",
        "blocked",
        "ended",
        "matches",
        "overflows",
        "releaser",
        "seen",
        "truncated",
        "withheld",
    )

    def __init__(self, program: Program | None, *, gathers: bool = False, releaser: Releaser | None = None) -> None:
        self._program = program
        self._scanner = Scanner(program, carries=True)
        self.releaser = releaser or Releaser(gathers)
        self._high = ""  # a surrogate that waits for its other half
        self.withheld = 0
        self.overflows = 0
        self.matches: list[Match] = []
        self.seen: list[str] = []  # of each match, the word as its lens sees it; empty for an overflow
        self._last_reported: dict[str, tuple[int, int]] = {}  # by rule, the last place that is reported
        self._places: set[tuple[str, int, int]] | None = None  # that are reported; None while none can come twice
        self.truncated = False
        self.blocked: CompiledRule | None = None
        self.ended = False

    @property
    def held(self) -> int:
        """The number of characters that are held."""
        return len(self.releaser.held)

    @property
    def scanned(self) -> int:
        return self._scanner.scanned

    @property
    def replaced(self) -> int:
        return self.releaser.replaced

    @property
    def inserted(self) -> int:
        return self.releaser.inserted

    @property
    def clusters(self) -> list[Cluster]:
        return self.releaser.clusters

    @property
    def changes(self) -> Changes | None:
        return self.releaser.changes

    @property
    def released_to(self) -> int:
        """What comes before this offset of the original has come out, or was replaced."""
        return self.releaser.base

    def released_behind(self, offset: int) -> int:
        """How many characters have come out of the text behind an offset; none where it is not known."""
        moved = offset if self.changes is None else self.changes.moved(offset)
        return 0 if moved is None else max(self.released_to - self.replaced + self.inserted - moved, 0)

    @property
    def is_open(self) -> bool:
        """Could what follows make the end of the text so far a part of a match, if only of one that is reported?"""
        return not self.ended and self._scanner.is_open

    def look_again(self) -> None:
        """The next character may begin an inner text, whatever it is."""

    def would_match_at_end(self) -> bool:
        """Would a match, and not only the beginning of one, be certain if the text ended here?"""
        return self._scanner.would_match_at_end()

    @property
    def offset(self) -> int | None:
        """Of the next character; None while half a surrogate pair waits."""
        return None if self._high else self._scanner.scanned

    def closes(self, text: str) -> bool:
        """Would `text`, if it came next, be released at once, with all that is held?"""
        return self._program is None or UnchangedText(self._program, self._scanner).closes(text)

    @property
    def changed(self) -> bool:
        """Does the output differ from the input, or will it?"""
        return bool(self.withheld or self.releaser.replaced or self.releaser.inserted)

    def feed(self, text: str) -> str:
        """Take the next piece of the text; returns what is now safe, possibly nothing."""
        if self.ended:
            return ""
        program = self._program
        if program is not None and len(text) > program.piece:
            # It cannot be seen outside how a text is cut; see `Program.piece`.
            size = program.piece
            return "".join([self.feed(text[at : at + size]) for at in range(0, len(text), size)])
        if self._high or not text.isascii():
            text, self._high = join_next(self._high, text)
        scanner, releaser = self._scanner, self.releaser
        if program is None:
            scanner.scanned += len(text)
            releaser.base = scanner.scanned
            return text
        live = scanner.scan_quickly(text) if program.quick else None
        if live is None:
            return self._feed_exactly(text, program)
        if releaser.queue or releaser.marks_to:
            releaser.held += text
            return releaser.release(max(scanner.scanned - live, 0))
        # What almost every chunk comes to, without a call: release all but the live suffix.
        held = releaser.held + text if releaser.held else text
        cut = len(held) - live
        if cut <= 0:
            releaser.held = held
            return ""
        releaser.held = held[cut:]
        releaser.base += cut
        return held[:cut]

    def quick_scanner(self) -> tuple[Scanner, int] | None:
        """The scanner for the next text, and how long that may be, if `feed` would do no more with it than release all
        but the live suffix, as long as nothing in it is remarkable; else None."""
        program, releaser = self._program, self.releaser
        if program is None or not program.quick or self.ended or self._high or releaser.queue or releaser.marks_to:
            return None
        return self._scanner, program.piece

    def feed_exempt(self, text: str) -> str:
        """Take a piece of the text that stays as it is: no match counts within it, and one that begins in it counts
        from its end on. One that begins before it counts as a whole."""
        if self.ended:
            return ""
        out = self._end_surrogate()
        if self._program is not None:
            self._scanner.exempt(len(text), self._program.max_hold + self._program.max_unseen)
        return out + self.feed(text)

    def finish(self) -> str:
        """The end of the text: an edge for whole words. Returns all that was held and is no match."""
        out = self._end_surrogate()
        if self.ended:
            return out
        if self._program is not None:
            spans = self._scanner.at_end()
            if spans and (blocked := self._act_on(spans, self.scanned + 1, self._program)) is not None:
                return out + blocked
        out += self.releaser.release(self.scanned)
        self._report_runs(ended=True)
        self.ended = True
        return out

    def abandon(self) -> None:
        """The text ends here and nothing held is released: another channel's block, or a failure."""
        if not self.ended:
            self.ended = True
            self._report_runs(ended=True)
            self.withheld += self.scanned - self.releaser.base
            self.releaser.held = ""

    def _feed_exactly(self, text: str, program: Program) -> str:
        scanner = self._scanner
        self.releaser.held += text
        for char in text:
            spans, left = scanner.step(char)
            if left and (overflow := self._overflow(left, program)) is not None:
                return overflow
            if spans and (blocked := self._act_on(spans, scanner.scanned, program)) is not None:
                return blocked
            if scanner.patterns:
                self._report_runs()
        scanner.return_to_quick()
        return self.releaser.release(scanner.live_start())

    def _overflow(self, left: list[tuple[int, int]], program: Program) -> str | None:
        """Starts have left the live suffix with this character (semantics rule 8); `left` has them with their tags.

        Returns what comes out when that blocks the text, else None.
        """
        self.overflows += 1
        if self._places is None:
            self._places = {match[:3] for match in self.matches}
        if program.on_overflow is Overflow.RELEASE:
            left = [(start, tag) for start, tag in left if program.rules[tag].secret]
            if not left:
                return None
        (start, tag), end = min(left), self._scanner.left_at
        rule = program.rules[tag]
        if program.on_overflow is Overflow.BLOCK:
            self._scanner.forget_fresh()
            self._report_block(rule.id, start, end)
            return self._block(start, rule)
        if rule.action is not Action.REDACT:
            rule = replace(rule, action=Action.REDACT, replacement=DEFAULT_REPLACEMENT, mask=None)
        self._report(rule.id, start, end, Action.REDACT)
        self._replace(start, end, self.scanned, rule)
        return None

    def _act_on(self, spans: list[Span], certain: int, program: Program) -> str | None:
        """Perform the actions of the rules on the matches that became certain with the `certain`-th character.

        Returns what comes out when one of them blocks, else None.
        """
        stops: list[tuple[bool, int, int]] = []
        for start, end, tag, _, seen in spans:
            rule = program.rules[tag]
            if seen is not None:
                self._last_reported[rule.id] = start, end
                self._report(rule.id, start, end, rule.action, seen)
            if rule.action in STOPPING:
                stops.append((rule.action is Action.ROLLBACK, start, rule.order))
        _, first_block, order = min(stops, default=(False, None, 0))
        for start, end, tag, _, _ in spans:
            rule = program.rules[tag]
            if rule.action in REPLACING and (first_block is None or start < first_block):
                self._replace(start, end, certain, rule)
        return None if first_block is None else self._block(first_block, program.rules[order])

    def _report(self, rule: str, start: int, end: int, action: Action, seen: str = "") -> None:
        if self._places is not None and (rule, start, end) in self._places:
            return
        if len(self.matches) < MAX_REPORTED:
            if self._places is not None:
                self._places.add((rule, start, end))
            self.matches.append(Match(rule, start, end, action))
            self.seen.append(seen)
        else:
            self.truncated = True

    def _report_block(self, rule: str, start: int, end: int) -> None:
        """What the bound blocks; it takes the place of a match that was reported there."""
        places = [match[:3] for match in self.matches]
        if (rule, start, end) in places:
            self.matches[places.index((rule, start, end))] = Match(rule, start, end, Action.BLOCK)
        else:
            self._report(rule, start, end, Action.BLOCK)

    def _report_runs(self, ended: bool = False) -> None:
        """A pattern's overlapping matches are reported as one, once no later match can join them."""
        for run in self._scanner.pop_runs(ended):
            self._report_run(run)

    def _report_run(self, run: MatchRun) -> None:
        assert self._program is not None
        rule = self._program.rules[run.tag]
        start, end = self._last_reported.get(rule.id, (0, 0))
        if start <= run.start and run.end <= end:
            return  # seen in a disguise, or by an edit, what was found as it is
        self._last_reported[rule.id] = run.start, run.end
        self._report(rule.id, run.start, run.end, rule.action, run.text)

    def _replace(self, start: int, end: int, certain: int, rule: CompiledRule) -> None:
        self.releaser.replace(start, end, certain, rule)

    def _block(self, start: int, rule: CompiledRule) -> str:
        """The text ends before `start`; a cluster that began at or before it stands as its replacement."""
        out = self.releaser.release(start)
        self.blocked = rule
        self.abandon()
        return out

    def _end_surrogate(self) -> str:
        """Feed half a surrogate pair that stays alone."""
        if not self._high or self.ended:
            return ""
        self._high = ""
        return self.feed("\ufffd")
