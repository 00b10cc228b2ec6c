"""The texts of one prompt or answer, and their counts: every character is forwarded, replaced or withheld."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap
from typing import Protocol

from msgspec import Struct

from gateway.censor.compile import CompiledPolicy, CompiledRule
from gateway.censor.nested import NestedCensor
from gateway.censor.passing import passes
from gateway.censor.stream import Censor
from gateway.guard.findings import HELD_BOUNDS, HOLD_BOUNDS, Finding, Histogram, OnFinding
from gateway.guard.pseudonyms import Concealer, Pseudonyms, RestoredPiece, Restorer
from gateway.inner_texts import InnerReader, Opened
from gateway.observe.facts import ChannelCount, MatchCount, TextScanned
from gateway.policy.model import Action, Channel, Direction
from gateway.surrogates import join_surrogates
from gateway.wire.jsontext import escaped

# Characters of restored values in one answer. A placeholder is short and its value may be long: a model that repeats
# one must not make the gateway write without end.
MAX_RESTORED = 1 << 20
MAX_TEXTS = 512  # text fields of one answer, all choices together, and likewise tool calls; a kilobyte or two each

_OTHER = Channel.OTHER


class InvalidAnswer(Exception):
    """The upstream's answer cannot be passed on: it breaks a bound or the protocol. The message quotes no text."""


class _Counts(Struct):
    scanned: int = 0
    written: int = 0
    inserted: int = 0
    replaced: int = 0
    withheld: int = 0


class ChannelCounts:
    """Opens the texts of one prompt or answer and sums up their counts. `now` is the caller's clock, seconds.

    `on_finding` gets every reported match when its text has ended. With a `concealer` the texts of a prompt come out
    with placeholders in them, with `pseudonyms` those of an answer with the values back. `json_content`: the content of
    the request wants it as JSON.
    """

    now = 0.0
    overflows = 0
    values_in_json = 0  # of the JSON texts of a prompt
    unknown_events = 0
    blocked_by: str | None = None
    failed = False  # the guard has: what did not go out by then was withheld, wherever in it the text was
    _restored_chars = 0

    def __init__(
        self,
        compiled: CompiledPolicy,
        direction: Direction,
        on_finding: OnFinding | None = None,
        *,
        concealer: Concealer | None = None,
        pseudonyms: Pseudonyms | None = None,
        json_content: bool = False,
    ) -> None:
        self._on_finding = on_finding
        self._concealer = concealer
        self.pseudonyms = pseudonyms
        self.json_content = json_content
        self.compiled = compiled
        self.direction = direction
        self.held = Histogram(HELD_BOUNDS)
        self.hold = Histogram(HOLD_BOUNDS)
        self._counts: dict[Channel, _Counts] = {}
        self._matches: defaultdict[tuple[str, Action, Channel], int] = defaultdict(int)
        self._restored: defaultdict[str, int] = defaultdict(int)
        self._kept: defaultdict[str, int] = defaultdict(int)
        self._constraints: defaultdict[str, int] = defaultdict(int)

    def looks_at(self, channel: Channel) -> bool:
        """Could anything in a text of this channel be changed or reported?"""
        return self.pseudonyms is not None or self.scans(channel)

    def open(
        self,
        channel: Channel,
        choice: int | None = None,
        reader: InnerReader | None = None,
        opened: Opened | None = None,
    ) -> ChannelText:
        """A new text. Each must end: by `finish`, a block, or `abandon`. `reader` finds the texts within it that are
        scanned, too; one that is `opened` is there from the beginning."""
        program, gathers = self.compiled.program(self.direction, channel), self._concealer is not None
        if program is None or reader is None:
            censor = Censor(program, gathers=gathers)
        else:
            censor = NestedCensor(program, reader, escaped, opened=opened, gathers=gathers)
        if self.pseudonyms is not None:
            return RestoredText(self, channel, choice, censor, Restorer(self.pseudonyms))
        if self._concealer is not None:
            return ConcealedText(self, channel, choice, censor, self._concealer)
        return ChannelText(self, channel, choice, censor)

    @property
    def message_field(self) -> str:
        """Where a rule's message goes: behind JSON it would make the content unreadable."""
        return "refusal" if self.json_content else "content"

    def scans(self, channel: Channel) -> bool:
        """Does any rule look at a text of this channel?"""
        return self.compiled.program(self.direction, channel) is not None

    def reserve(self, kind: str) -> None:
        """Count one more thing of a kind that is kept until its choice ends. Raises `InvalidAnswer`."""
        self._kept[kind] += 1
        if self._kept[kind] > MAX_TEXTS:
            raise InvalidAnswer(f"the answer has more than {MAX_TEXTS} {kind}")

    def passes(self, channel: Channel, text: str, *, closed: bool = False) -> bool:
        """Is this a whole text of a prompt that stays as it is, with nothing to report? Then it has been counted, and
        need not be opened. `closed`: whatever follows it."""
        if self._concealer is not None and "<" in text:
            return False  # it may be a placeholder's
        if not passes(self.compiled.programs.get((self.direction, channel)), text, closed=closed):
            return False
        self._add_passed(channel, len(text))
        return True

    def passing_labels(self, texts: Sequence[str]) -> int:
        """How many of these labels of an answer, from the first on, `passes` is true of. Most come with every answer,
        so those that pass are remembered."""
        program = self.compiled.labels
        passed = () if program is None else program.passed
        count = size = 0
        for text in texts:
            if text not in passed and not passes(program, text, remembers=True):
                break
            count += 1
            size += len(text)
        if count:
            self._add_passed(_OTHER, size, count)
        return count

    def _add_passed(self, channel: Channel, size: int, texts: int = 1) -> None:
        counts = self._counts.get(channel) or self._counts_of(channel)
        counts.scanned += size
        counts.written += size
        self.held.counts[0] += texts

    def _counts_of(self, channel: Channel) -> _Counts:
        counts = self._counts.get(channel)
        if counts is None:
            counts = self._counts[channel] = _Counts()
        return counts

    def note_restored(self, channel: Channel, values: list[str]) -> None:
        """Values are about to come back. Raises `InvalidAnswer` where they are too long altogether."""
        self._restored_chars += sum(map(len, values))
        if self._restored_chars > MAX_RESTORED:
            raise InvalidAnswer(f"the answer repeats more than {MAX_RESTORED} characters of the request's own values")
        self._restored[channel] += len(values)

    def note_constraint(self, outcome: str, finding: Finding | None = None) -> None:
        """Record how a choice ended under the policy's constraint, and where it left its language, if it did."""
        self._constraints[outcome] += 1
        if finding is not None and self._on_finding is not None:
            self._on_finding(finding)

    def add_text(self, channel: Channel, choice: int | None, censor: Censor, written: int) -> None:
        """Enter a text that has ended. `written` was counted where its characters went out, replacements included."""
        self.overflows += censor.overflows
        counts = self._counts_of(channel)
        counts.scanned += censor.scanned
        counts.written += written
        counts.inserted += censor.inserted
        counts.replaced += censor.replaced
        counts.withheld += censor.withheld
        for match in censor.matches:
            self._matches[match.rule, match.action, channel] += 1
        if self._on_finding is not None:
            for (rule, start, end, action), seen in zip(censor.matches, censor.seen, strict=True):
                self._on_finding(Finding(rule, action, self.direction, channel, choice, start, end - start, seen))
        if censor.blocked is not None and self.blocked_by is None:
            self.blocked_by = censor.blocked.id

    def _channel_count(self, channel: Channel, counts: _Counts) -> ChannelCount:
        forwarded, replaced = counts.written - counts.inserted, counts.replaced
        withheld = max(0, counts.scanned - forwarded - replaced) if self.failed else counts.withheld
        return ChannelCount(channel, counts.scanned, forwarded, replaced, withheld)

    def fact(self) -> TextScanned:
        matches = self._matches
        return TextScanned(
            policy=self.compiled.policy.name,
            direction=self.direction,
            channels=tuple(starmap(self._channel_count, self._counts.items())),
            matches=tuple([MatchCount(*match, count) for match, count in matches.items()]) if matches else (),
            restored=dict(self._restored),
            constraints=dict(self._constraints),
            overflows=self.overflows,
            unknown_events=self.unknown_events,
            blocked_by=self.blocked_by,
            held=self.held.distribution(),
            hold=self.hold.distribution() if any(self.hold.counts) else None,
        )


class GuardedText(Protocol):
    """The text of one channel, however it is spelled on the wire."""

    def feed(self, text: str) -> str: ...
    def finish(self) -> str: ...
    def abandon(self) -> str:
        """Drop what is held; returns what the wire still needs to be well-formed."""

    @property
    def rule(self) -> CompiledRule | None:
        """The rule that blocked, if one did."""


class ChannelText:
    """One text under the censor, counted when it ends."""

    __slots__ = ("_censor", "_channel", "_choice", "_closed", "counts", "held_since", "written")

    def __init__(self, counts: ChannelCounts, channel: Channel, choice: int | None, censor: Censor) -> None:
        self.counts = counts
        self._choice = choice
        self._channel = channel
        self._censor = censor
        self.written = 0
        self.held_since: float | None = None
        self._closed = False

    def feed(self, text: str) -> str:
        censor = self._censor
        out = censor.feed(text)
        self.written += len(out)
        held = censor.releaser.held
        if not held and self.held_since is None:
            self.counts.held.counts[0] += 1  # observe(0), for the many pieces of which nothing is held
            if censor.ended:
                self._close()
            return out
        self.note_held(out, len(held))
        return out

    def _feed_pieces(self, pieces: list[RestoredPiece]) -> str:
        censor = self._censor
        return "".join([(censor.feed_exempt if piece.restored else censor.feed)(piece.text) for piece in pieces])

    def note_held(self, out: str, held: int) -> None:
        counts = self.counts
        counts.held.observe(held)
        if self.held_since is not None and (out or not held):
            counts.hold.observe(counts.now - self.held_since)
            self.held_since = counts.now if held else None
        elif held and self.held_since is None:
            self.held_since = counts.now
        if self._censor.ended:
            self._close()

    def end_part(self) -> str:
        """A part of the text is over; what comes out before the next one."""
        return ""

    def finish(self) -> str:
        out = self._censor.finish()
        self.written += len(out)
        self._close()
        return out

    def abandon(self) -> str:
        self._censor.abandon()
        self._close()
        return ""

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self.held_since is not None:
            self.counts.hold.observe(self.counts.now - self.held_since)
        self.counts.add_text(self._channel, self._choice, self._censor, self.written)

    def count_again(self) -> None:
        """Count and report the text again: an equal one has come."""
        self.counts.add_text(self._channel, self._choice, self._censor, self.written)

    @property
    def censor(self) -> Censor:
        """For what describes the text and has to agree with it."""
        return self._censor

    @property
    def changed(self) -> bool:
        return self._censor.changed

    @property
    def blocked(self) -> bool:
        return self._censor.blocked is not None

    @property
    def rule(self) -> CompiledRule | None:
        return self._censor.blocked


class RestoredText(ChannelText):
    """A text of an answer in which placeholders stand for values: the values come first, then the censor, for which
    no match counts that lies within one of them."""

    __slots__ = ("_restorer",)

    def __init__(
        self, counts: ChannelCounts, channel: Channel, choice: int | None, censor: Censor, restorer: Restorer
    ) -> None:
        super().__init__(counts, channel, choice, censor)
        self._restorer = restorer

    def feed(self, text: str) -> str:
        if self._restorer.passes(text):
            return super().feed(text)
        pieces = self._restorer.feed(text)
        if values := [piece.text for piece in pieces if piece.restored]:
            self.counts.note_restored(self._channel, values)
        out = self._feed_pieces(pieces)
        self.written += len(out)
        self.note_held(out, self._censor.held + self._restorer.held)
        return out

    def end_part(self) -> str:
        rest = self._restorer.finish()
        return super().feed(rest) if rest else ""

    def finish(self) -> str:
        return self.end_part() + super().finish()


class ConcealedText(ChannelText):
    """A text of a prompt, given out whole at its end: until then a value could still grow."""

    __slots__ = ("_changed", "_concealer", "_given", "_shown")

    def __init__(
        self, counts: ChannelCounts, channel: Channel, choice: int | None, censor: Censor, concealer: Concealer
    ) -> None:
        super().__init__(counts, channel, choice, censor)
        self._concealer = concealer
        self._given: list[str] = []
        self._shown: list[str] = []
        self._changed = False

    def feed(self, text: str) -> str:
        self._given.append(text)
        self._shown.append(super().feed(text))
        return ""

    def finish(self) -> str:
        return self.finish_parts([0])[0]

    def finish_parts(self, begins: list[int]) -> list[str]:
        """What becomes of the parts that begin at these offsets: values are replaced where they begin."""
        given = join_surrogates("".join(self._given))  # as the censor counts characters
        shown = "".join([*self._shown, super().finish()])
        cuts = [len(shown) - self._censor.released_behind(begin) for begin in begins]
        parts = [
            self._concealer.conceal(
                given,
                shown[cut:end],
                [replace(each, at=each.at - cut) for each in self._censor.clusters if begin <= each.start < over],
            )
            for begin, over, cut, end in zip(
                begins, [*begins[1:], len(given) + 1], cuts, [*cuts[1:], len(shown)], strict=True
            )
        ]
        self._changed = "".join(parts) != given
        return parts

    @property
    def changed(self) -> bool:
        return self._changed
