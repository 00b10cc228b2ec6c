"""Log probabilities of the tokens of a text: which of them say no more than the text that came out.

An entry waits for its text. It is shown where its bytes are those of characters that were released unchanged, and where

    its token   matches no rule by itself, nor together with the tokens of the entries shown before it
    its list    has the alternatives that are closed (`Standing.CLOSED`) by themselves, behind the text before them, and
                behind the entries shown before it. What follows one, in the text or in any list, can then never make it
                a part of a match: the alternatives shown spell nothing, whichever are picked and joined.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from gateway.censor.alternatives import Standing, UnchangedText, standing
from gateway.censor.compile import CompiledRule
from gateway.censor.passing import passes
from gateway.censor.stream import Censor
from gateway.guard.channels import ChannelCounts, ChannelText, GuardedText
from gateway.guard.constrained import ConstrainedText
from gateway.guard.parts import PartText
from gateway.policy.model import Channel, Direction
from gateway.wire.logprobs import Entry

MAX_WAITING = 4096  # entries and alternatives of one answer that wait for their text from one event to the next
MAX_KNOWN = 2048  # tokens of which it is known what they are by themselves
SLIP = 8  # bytes of text without an entry that may stand between two entries


class TokenTexts:
    """The texts of single tokens, and the number of held entries, of one answer."""

    __slots__ = ("_known", "counts", "waiting")

    def __init__(self, counts: ChannelCounts) -> None:
        self.counts = counts
        self.waiting = 0
        self._known: dict[tuple[Channel, str], Standing] = {}

    def standing(self, channel: Channel, token: str) -> Standing:
        known = self._known.get((channel, token))
        if known is None:
            program = self.counts.compiled.program(Direction.OUTPUT, channel)
            known = Standing.CLOSED if program is None else standing(program, token)
            if len(self._known) < MAX_KNOWN:
                self._known[channel, token] = known
        return known

    def passes(self, channel: Channel, number: float | None) -> bool:
        """Does a rule want nothing of the digits of a number?"""
        program = self.counts.compiled.program(Direction.OUTPUT, channel)
        if number is None or program is None:
            return True
        digits = repr(number)
        return passes(program, digits) or standing(program, digits) is not Standing.MATCHES


class _Waiting(NamedTuple):
    """Entries that together spell whole characters, the original [start, end)."""

    start: int
    end: int
    text: str
    entries: tuple[Entry, ...]

    @property
    def weight(self) -> int:
        return sum(1 + len(entry.alternatives or ()) for entry in self.entries)


class DescribedText:
    """A text and the log probabilities of its tokens, once the first of them has come.

    Where offsets of the original can be found in what comes out, entries are shown of everything that was not changed.
    Where not (JSON whose strings are texts of their own, values of pseudonyms), they are shown up to the first change
    or gap, without alternatives, and only if the first piece of the text had entries.
    """

    __slots__ = (
        *("_channel", "_entries", "_escapes", "_expected", "_gap", "_held", "_out", "_shown_to", "_text", "_tokens"),
        *("_waiting", "_weight", "followed", "shown"),
    )

    def __init__(self, text: GuardedText, channel: Channel, tokens: TokenTexts, *, is_new: bool) -> None:
        self._text = text
        self._channel = channel
        self._tokens = tokens
        self.followed = followed(text)
        self._expected: list[Entry | None] = []
        self._waiting: deque[_Waiting] = deque()
        self._weight = 0  # of those that wait since an earlier event
        self._entries: UnchangedText | None = None  # the tokens of the entries shown
        program = tokens.counts.compiled.program(Direction.OUTPUT, channel)
        if program is not None:
            self._entries = UnchangedText(program)
        self._shown_to = 0
        self._gap = False  # before or between the entries shown
        self._escapes = False  # in the entries shown
        self._out = 0  # where no offsets can be followed: characters that came out as they were
        self._held: str | None = "" if is_new else None  # and those that have not; None when it is not known
        self.shown: list[Entry] = []

    def expect(self, entries: list[Entry | None]) -> None:
        """Set the entries of the text that is fed next."""
        self._expected += entries

    # -- as a text -----------------------------------------------------------------------------------------------------

    @property
    def rule(self) -> CompiledRule | None:
        return self._text.rule

    def feed(self, text: str) -> str:
        groups = _aligned(text, self._expected) if self._expected else []
        self._expected = []
        out: list[str] = []
        at = 0
        for start, end, entries in groups:
            if start > at:
                out.append(self._feed(text[at:start]))
            self._add(text[start:end], entries)
            out.append(self._feed(text[start:end]))
            at = end
        if at < len(text):
            out.append(self._feed(text[at:]))
        self._bound_waiting()
        return "".join(out)

    def finish(self) -> str:
        shown = self._text.finish()
        self._follow("", shown)
        self._drop_waiting()
        return shown

    def abandon(self) -> str:
        self._drop_waiting()
        return self._text.abandon()

    # -- entries -------------------------------------------------------------------------------------------------------

    def _feed(self, piece: str) -> str:
        shown = self._text.feed(piece)
        self._follow(piece, shown)
        return shown

    def _follow(self, piece: str, shown: str) -> None:
        """Release the entries of the text `shown`, which came out after `piece` went in."""
        if self.followed is None and self._held is not None:
            self._held += piece
            if self._held.startswith(shown):
                self._held = self._held[len(shown) :]
                self._out += len(shown)
            else:
                self._held = None
                self._drop_waiting()
        released = self._out if self.followed is None else self.followed.released_to
        while self._waiting and self._waiting[0].end <= released:
            self._show(self._waiting.popleft())

    def _add(self, text: str, entries: list[Entry]) -> None:
        """Add entries of the text that is fed next."""
        censor = self.followed
        if censor is None:
            start = None if self._held is None else self._out + len(self._held)
        else:
            start = censor.offset
        if start is None or self._text.rule is not None:
            return
        kept = []
        for entry in entries:
            passing = self._tokens.standing(self._channel, entry.token) is not Standing.MATCHES
            if not passing or not self._tokens.passes(self._channel, entry.logprob):
                return
            if entry.alternatives is not None:
                alone = len(entries) == 1 and censor is not None
                alternatives = filter(self._may_stand_here, entry.alternatives) if alone else ()
                entry = entry._replace(alternatives=tuple(alternatives))
            kept.append(entry)
        self._waiting.append(_Waiting(start, start + len(text), text, tuple(kept)))

    def _may_stand_here(self, alternative: Entry) -> bool:
        assert self.followed is not None
        return (
            "\\" not in alternative.token  # nothing has read what it decodes to
            and self._tokens.standing(self._channel, alternative.token) is Standing.CLOSED
            and self._tokens.passes(self._channel, alternative.logprob)
            and (not self.followed.held or self.followed.closes(alternative.token))
        )

    def _show(self, waiting: _Waiting) -> None:
        start, end, text, entries = waiting
        moved, beside_change = 0, False
        if self.followed is not None and (changes := self.followed.changes) is not None:
            if changes.overlap(start, end):
                return
            moved, beside_change = changes.shift(start), changes.end_at(start)
        gap, escapes = self._gap or self._shown_to != start, self._escapes or "\\" in text
        if gap and (escapes or self.followed is None):
            return  # escapes would decode otherwise than in the text
        if self._entries is not None:
            before = self._entries
            if gap or beside_change:
                entries = tuple(
                    entry._replace(
                        alternatives=tuple(
                            each for each in entry.alternatives if not beside_change and before.closes(each.token)
                        )
                    )
                    if entry.alternatives
                    else entry
                    for entry in entries
                )
            if not before.read(text):
                return
        self._gap, self._escapes, self._shown_to = gap, escapes, end
        self.shown += [entry._replace(offset=start + moved) for entry in entries]

    def _bound_waiting(self) -> None:
        """Count the entries that are held beyond this event, for the bound of the whole answer."""
        weight = sum(waiting.weight for waiting in self._waiting)
        self._tokens.waiting += weight - self._weight
        while self._waiting and self._tokens.waiting > MAX_WAITING:
            dropped = self._waiting.pop().weight
            self._tokens.waiting -= dropped
            weight -= dropped
        self._weight = weight

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._bound_waiting()


def followed(text: GuardedText | None) -> Censor | None:
    """The censor that reads the text as it came; None where it reads another."""
    if isinstance(text, DescribedText):
        return text.followed
    if isinstance(text, ConstrainedText):
        text = text.censored
    if isinstance(text, PartText) and text.is_first:
        text = text.joint.text
    return text.censor if type(text) is ChannelText else None


def _aligned(text: str, entries: list[Entry | None]) -> list[tuple[int, int, list[Entry]]]:
    """The entries that spell whole characters of `text`, by the span [start, end) of them, in order."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return []
    found: list[tuple[int, int, list[Entry]]] = []
    begin = at = chars = 0  # bytes and characters passed; `begin`: where the entries of `group` begin
    group: list[Entry] = []
    for entry in entries:
        spelled = b"\xff" if entry is None else entry.spelled
        if not data.startswith(spelled, at):
            group, at = [], begin
            place = data.find(spelled, begin, begin + len(spelled) + SLIP)
            if place < 0 or not _is_edge(data, place):
                continue
            chars += _chars(data[begin:place])
            begin = at = place
        assert entry is not None
        group.append(entry)
        at += len(spelled)
        if _is_edge(data, at):
            end = chars + _chars(data[begin:at])
            found.append((chars, end, group))
            begin, chars, group = at, end, []
    return found


def _is_edge(data: bytes, at: int) -> bool:
    """Is this between two characters?"""
    return at == len(data) or data[at] & 0xC0 != 0x80


def _chars(data: bytes) -> int:
    return len(data) if data.isascii() else len(data.decode())
