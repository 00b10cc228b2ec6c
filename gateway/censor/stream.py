"""One text through its rules: feed characters, get back what is safe to show; nothing else is ever held (CONTRACT §4).

`Censor.feed` has two ways through. Almost all text takes the quick one: step every machine's state over the chunk, and
if no character was remarkable, release up to the live suffix. Otherwise the chunk is taken again character by
character, because a block, an overflow and the choice of a cluster's winner depend on *which* character made a match
certain. Both ways give the same output; how the text was cut cannot be seen in it.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Hashable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from gateway.censor.compile import CompiledRule, Program
from gateway.censor.lens import is_mark
from gateway.censor.literal_cursor import LiteralCursor, Span
from gateway.censor.pattern_cursor import PatternCursor
from gateway.censor.window import Window
from gateway.policy.model import DEFAULT_REPLACEMENT, Action, Overflow

MAX_REPORTED = 10_000
REPLACING = frozenset({Action.REDACT, Action.PSEUDONYMIZE})
# Where something is rolled back (`compile_stops`), that ends a text too: what takes its place is another text.
STOPPING = frozenset({Action.BLOCK, Action.ROLLBACK})

_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class Match(NamedTuple):
    """A reported match: original offsets in code points, within the text it was found in."""

    rule: str
    start: int
    end: int
    action: Action


@dataclass(slots=True)
class Cluster:
    """Text [start, end) that a `pseudonymize` rule took out; what stands for it goes to offset `at` of the output."""

    rule: CompiledRule
    at: int
    start: int
    end: int


class _Certain(NamedTuple):
    """A match of a redact rule. Field order is the order of precedence within a cluster (§4.2)."""

    start: int
    certain: int
    end: int
    order: int
    rule: CompiledRule


_PRECEDENCE = itemgetter(0, 1, 2, 3)


class Censor:
    """The state of one text. `program` None means that no rule looks at this text: everything passes.

    Counters are in original characters, `inserted` in characters of replacements; once the text has ended,
    `scanned == forwarded + replaced + withheld`, where what was forwarded is counted by whoever writes it out.
    `blocked` is the rule that ended the text, if one did.

    One that `gathers` puts nothing in the place of what a `pseudonymize` rule takes out, because a cluster can still
    grow while it is taken out, and lists it in `clusters`. For any other such a rule replaces.
    """

    __slots__ = (
        "_base",
        "_cover",
        "_exempt",
        "_gathers",
        "_held",
        "_high",
        "_marks_to",
        "_mask",
        "_patterns",
        "_program",
        "_pseudonym",
        "_queue",
        "_tracks",
        "blocked",
        "clusters",
        "ended",
        "inserted",
        "matches",
        "overflows",
        "replaced",
        "scanned",
        "seen",
        "truncated",
        "withheld",
    )

    def __init__(self, program: Program | None, *, gathers: bool = False) -> None:
        self._program = program
        self._gathers = gathers
        self._tracks: list[LiteralCursor] = []
        self._patterns: list[PatternCursor] = []
        if program is not None:
            self._tracks = [
                LiteralCursor(machine, Window(program.max_hold, program.max_unseen)) for machine in program.machines
            ]
            self._patterns = [
                PatternCursor(
                    machine, program.max_hold, Window(program.max_hold, program.max_unseen), self._past_exempt
                )
                for machine in program.patterns
            ]
        self._exempt: list[tuple[int, int]] = []  # original offsets of what stays as it is
        self._held = ""
        self._base = 0  # original offset of the first held character
        self._queue: list[_Certain] = []  # certain, but a match that begins earlier is still possible
        self._cover = 0  # end of the cluster replaced last; never beyond _base
        self._mask: str | None = None  # of that cluster
        self._pseudonym: Cluster | None = None  # that cluster, if a pseudonym is to stand for it
        self._marks_to = 0  # marks before this offset go with the match they decorate; 0: none
        self._high = ""  # a surrogate that waits for its other half
        self.scanned = 0
        self.replaced = 0
        self.inserted = 0
        self.withheld = 0
        self.overflows = 0
        self.matches: list[Match] = []
        self.seen: list[str] = []  # of each match, the word as its lens sees it; empty for an overflow
        self.truncated = False
        self.clusters: list[Cluster] = []
        self.blocked: CompiledRule | None = None
        self.ended = False

    @property
    def held(self) -> int:
        """How many characters are waiting."""
        return len(self._held)

    @property
    def changed(self) -> bool:
        """Is what came out, or will come out, not what went in?"""
        return bool(self.replaced or self.withheld or self.inserted)

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
            text = self._join_surrogates(text)
        if program is None:
            self.scanned += len(text)
            self._base = self.scanned
            return text
        if not (program.quick and self._step_quickly(text)):
            return self._step_exactly(text, program)
        self.scanned += len(text)
        live = 0
        for track in self._tracks:
            state = track.state
            of_this = state.live if state.live >= 0 else track.machine.live(state)
            if of_this > live:
                live = of_this
        for following in self._patterns:
            start = following.live_start()
            if start is not None and self.scanned - start > live:
                live = self.scanned - start
        if self._queue or self._marks_to:
            self._held += text
            return self._settle(self.scanned - live)
        # What almost every chunk comes to: release all but the live suffix.
        held = self._held + text if self._held else text
        cut = len(held) - live
        if cut <= 0:
            self._held = held
            return ""
        self._held = held[cut:]
        self._base += cut
        return held[:cut]

    def feed_exempt(self, text: str) -> str:
        """Take a piece of the text that stays as it is: no match counts within it, and one that begins in it counts
        from its end on. One that begins before it counts as a whole."""
        if self.ended:
            return ""
        out = ""
        if self._high:
            self._high = ""
            out = self.feed("\ufffd")
        if self._program is not None:
            earliest = self.scanned - self._program.max_hold - self._program.max_unseen
            self._exempt = [place for place in self._exempt if place[1] > earliest]
            self._exempt.append((self.scanned, self.scanned + len(text)))
        return out + self.feed(text)

    def finish(self) -> str:
        """The end of the text: an edge for whole words. Returns all that was held and is no match."""
        if self.ended:
            return ""
        out = ""
        if self._high:
            self._high = ""
            out = self.feed("\ufffd")
            if self.ended:
                return out
        if self._program is not None:
            spans = [span for track in self._tracks for span in track.ending()]
            spans += [span for following in self._patterns for span in following.ending(self.scanned)]
            if spans and (blocked := self._judge(spans, self.scanned + 1, self._program)) is not None:
                return out + blocked
        out += self._settle(self.scanned)
        self._report_runs(ended=True)
        self.ended = True
        return out

    def abandon(self) -> None:
        """The text ends here and nothing held is released: another channel's block, or a failure."""
        if not self.ended:
            self.ended = True
            self._report_runs(ended=True)
            self.withheld += self.scanned - self._base
            self._held = ""

    # -- texts that several others go on from --------------------------------------------------------------------------

    def fork(self) -> Censor:
        """One that goes on by itself from here; its reports begin here."""
        other = Censor.__new__(Censor)
        for name in Censor.__slots__:
            setattr(other, name, getattr(self, name))
        other._tracks = [track.fork() for track in self._tracks]
        other._patterns = [following.fork(other._past_exempt) for following in self._patterns]
        # What ended before the text that is held is in no match that could still count.
        other._exempt = [place for place in self._exempt if place[1] > self._base]
        other._queue, other.clusters, other.matches, other.seen = list(self._queue), list(self.clusters), [], []
        return other

    def ends_in_match(self, cheaply: int) -> bool:
        """If the text ended here, would anything be replaced or blocked, in a text in which nothing was so far?

        Nothing changes, but that a pattern's text of more than `cheaply` characters is not taken again next time.
        """
        if self._queue:
            return True
        spans = [span for track in self._tracks for span in track.ending()]
        for following in self._patterns:
            if following.may_end():
                again = following.repeated(self.scanned) <= cheaply
                at_end = following.fork(self._past_exempt) if again else following
                spans += at_end.ending(self.scanned)
                at_end.forget_fresh()
        return any(
            span.holds and (span.seen is None or self._past_exempt(span.start, span.end) < span.end) for span in spans
        )

    def switch_to_exact(self, cheaply: int) -> None:
        """As `ends_in_match` does for patterns' texts of more than `cheaply` characters."""
        for following in self._patterns:
            if following.repeated(self.scanned) > cheaply:
                following.switch_to_exact(self.scanned)

    def position(self) -> Hashable | None:
        """Equal for texts without matches that no later text can tell apart; None where that is not known. Holds as
        long as the censor is kept."""
        if self._high or self._queue or any(track.jumps for track in self._tracks):
            return None
        patterns = tuple([following.position(self.scanned) for following in self._patterns])
        exempt = tuple([(self.scanned - start, self.scanned - end) for start, end in self._exempt if end > self._base])
        states = tuple([id(track.state) for track in self._tracks])
        return None if None in patterns else (states, patterns, len(self._held), exempt)

    # -- stepping ------------------------------------------------------------------------------------------------------

    def _step_quickly(self, text: str) -> bool:
        """Step all machines, unless a character is remarkable: then False, and nothing has happened."""
        reached = []
        for track in self._tracks:
            if track.jumps:
                return False
            state = track.state
            try:
                for char in text:
                    state = state[char]
                    if state.arrival is not None:
                        return False
            except KeyError:
                walked = track.machine.walk(track.state, text)
                if walked is None:
                    return False
                state = walked
            reached.append(state)
        ways = []
        for following in self._patterns:
            way = following.try_quickly(text, self.scanned)
            if way is None:
                return False
            ways.append(way)
        for following, way in zip(self._patterns, ways, strict=True):
            following.go(way, text, self.scanned + len(text))
        for track, state in zip(self._tracks, reached, strict=True):
            track.state = state
            track.folded += len(text)
        return True

    def _step_exactly(self, text: str, program: Program) -> str:
        self._held += text
        for char in text:
            self.scanned += 1
            spans: list[Span] = []
            left: list[tuple[int, int]] = []
            for track in self._tracks:
                spans += track.step(char, self.scanned)
                if track.left:
                    left += ((start, tag) for tag, start in track.left.items())
            for following in self._patterns:
                spans += following.step(char, self.scanned)
                if following.left:
                    left += ((start, tag) for tag, start in following.left.items())
            if left and (overflow := self._overflow(left, program)) is not None:
                return overflow
            if spans and (blocked := self._judge(spans, self.scanned, program)) is not None:
                return blocked
            self._report_runs()
        for following in self._patterns:
            following.return_to_quick(self.scanned)
        return self._settle(self._live_start())

    def _live_start(self) -> int:
        """Where the longest live suffix within its window starts."""
        starts = [track.live_start() for track in self._tracks]
        starts += [following.live_start() for following in self._patterns]
        return min((start for start in starts if start is not None), default=self.scanned)

    def _overflow(self, left: list[tuple[int, int]], program: Program) -> str | None:
        """§4.8: starts have left the live suffix with this character; `left` has them with the tags that wanted them.

        Returns what comes out when that blocks the text, else None.
        """
        self.overflows += 1
        if program.on_overflow is Overflow.RELEASE:
            left = [(start, tag) for start, tag in left if program.rules[tag].secret]
            if not left:
                return None
        (start, tag), end = min(left), self.scanned - 1
        rule = program.rules[tag]
        if program.on_overflow is Overflow.BLOCK:
            for following in self._patterns:
                following.forget_fresh()
            self._report(rule.id, start, end, Action.BLOCK)
            return self._block(start, rule)
        if rule.action is not Action.REDACT:
            rule = replace(rule, action=Action.REDACT, replacement=DEFAULT_REPLACEMENT, mask=None)
        self._report(rule.id, start, end, Action.REDACT)
        self._redact(start, end, self.scanned, rule)
        return None

    # -- what certain matches do ---------------------------------------------------------------------------------------

    def _judge(self, spans: list[Span], certain: int, program: Program) -> str | None:
        """Take the matches that became certain with the `certain`-th character.

        Returns what comes out when one of them blocks, else None.
        """
        if self._exempt:
            # A pattern's match begins past what is exempt already: what follows that may be exempt, too, and counts.
            spans = [
                span if span.seen is None else span._replace(start=start)
                for span in spans
                if span.seen is None or (start := self._past_exempt(span.start, span.end)) < span.end
            ]
        stops: list[tuple[bool, int, int]] = []
        for start, end, tag, _, seen in spans:
            rule = program.rules[tag]
            if seen is not None:
                self._report(rule.id, start, end, rule.action, seen)
            if rule.action in STOPPING:
                stops.append((rule.action is Action.ROLLBACK, start, rule.order))
        _, first_block, order = min(stops, default=(False, None, 0))
        for start, end, tag, _, _ in spans:
            rule = program.rules[tag]
            if rule.action in REPLACING and (first_block is None or start < first_block):
                self._redact(start, end, certain, rule)
        return None if first_block is None else self._block(first_block, program.rules[order])

    def _report(self, rule: str, start: int, end: int, action: Action, seen: str = "") -> None:
        if len(self.matches) < MAX_REPORTED:
            self.matches.append(Match(rule, start, end, action))
            self.seen.append(seen)
        else:
            self.truncated = True

    def _report_runs(self, ended: bool = False) -> None:
        """A pattern's overlapping matches are reported as one, once no later match can join them."""
        for following in self._patterns:
            for start, end, tag, text in following.pop_runs(self.scanned, ended):
                assert self._program is not None
                rule = self._program.rules[tag]
                self._report(rule.id, start, end, rule.action, text)

    def _past_exempt(self, start: int, end: int) -> int:
        """Where a match begins when what is exempt at its beginning stays as it is; `end` if that is all of it."""
        return min(next((over for begin, over in self._exempt if begin <= start < over), start), end)

    def _redact(self, start: int, end: int, certain: int, rule: CompiledRule) -> None:
        insort(self._queue, _Certain(start, certain, end, rule.order, rule), key=_PRECEDENCE)

    def _block(self, start: int, rule: CompiledRule) -> str:
        """The text ends before `start`; a cluster that began at or before it stands as its replacement."""
        out = self._settle(start)
        self.blocked = rule
        self.abandon()
        return out

    # -- releasing -----------------------------------------------------------------------------------------------------

    def _settle(self, live: int) -> str:
        """Release everything up to `live`, with clusters that begin at or before it as their replacements."""
        self._extend_marks()
        out: list[str] = []
        queue = self._queue
        while queue and (queue[0].start < self._cover or queue[0].start <= live):
            start, _, end, _, rule = queue.pop(0)
            if start >= self._cover:
                # A new cluster, and the queue's order makes this its winner.
                out.append(self._take(start))
                self._cover = start
                self._mask = rule.mask
                self._pseudonym = None
                if rule.action is Action.PSEUDONYMIZE and self._gathers:
                    self._mask = None
                    self._pseudonym = Cluster(rule, start - self.replaced + self.inserted, start, start)
                    self.clusters.append(self._pseudonym)
                elif rule.mask is None:
                    out.append(self._inserted(rule.replacement))
                    self.inserted += len(rule.replacement)
            if end > self._cover:
                self._swallow(end, out)
            if rule.drops_marks and end == self._base:
                self._marks_to = end
                self._extend_marks()
        out.append(self._take(live))
        return "".join(out)

    def _swallow(self, end: int, out: list[str]) -> None:
        """The cluster reaches to `end` now."""
        if self._mask is not None:
            out.append(self._inserted(self._mask * (end - self._cover)))
            self.inserted += end - self._cover
        if self._pseudonym is not None:
            self._pseudonym.end = end
        self.replaced += end - self._cover
        self._held = self._held[end - self._base :]
        self._base = self._cover = end

    def _inserted(self, text: str) -> str:
        """How a replacement is written."""
        return text

    def _take(self, to: int) -> str:
        """Remove the held text before `to` and return it, less the marks that belong to a replaced match."""
        if to <= self._base:
            return ""
        marks = max(min(self._marks_to, to) - self._base, 0)
        self.replaced += marks
        taken = self._held[marks : to - self._base]
        self._held = self._held[to - self._base :]
        self._base = to
        return taken

    def _extend_marks(self) -> None:
        """Marks directly after a replaced match go with it (§4.11), also those that arrive later."""
        at = self._marks_to - self._base
        if not self._marks_to or at < 0:
            self._marks_to = 0
            return
        while at < len(self._held) and is_mark(self._held[at]):
            at += 1
        run_is_over = at == 0 and self._held
        self._marks_to = 0 if run_is_over else self._base + at

    def _join_surrogates(self, text: str) -> str:
        """JSON may cut a character outside the basic plane into two escapes, and a stream may cut between them."""
        text = self._high + text
        self._high = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        if _SURROGATE.search(text) is None:
            return text
        joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        return _SURROGATE.sub("\ufffd", joined)
