"""The text parts of one message, which are one text: a word that begins in one of them may end in the next.

Each part is a text of its own. If some of one is held when the next begins, that text continues with it, and the
next is read as a text within it, too: for what begins or ends at its edges. What comes out goes to the part it came
from, and a replacement to the part in which its match begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelCounts, ChannelText, ConcealedText, InvalidAnswer
from gateway.inner_texts import Closed, InnerReader, Opened, Piece, Spelled, Step, Token
from gateway.wire.message import CALLS, Path, SlotKind, TextSlot

MakeReader = Callable[[], InnerReader] | None


class PartReader:
    """Reads the first part as `make` says, and each further one as a text within."""

    __slots__ = ("_begins", "_make", "_own", "_within", "may_continue")

    def __init__(self, make: MakeReader = None) -> None:
        self._make = make
        self._own = None if make is None else make()
        self._within = self._begins = False
        self.may_continue = True  # may another part follow?

    @property
    def idle(self) -> bool:
        return not (self._within or self._begins) and (self._own is None or self._own.idle)

    def passes(self, text: str) -> bool:
        return False

    @property
    def within(self) -> bool:
        """Is this a further part?"""
        return self._within or self._begins

    def begin_part(self) -> None:
        """Another part begins."""
        self._begins = True

    def read(self, text: str, at: int, end: int) -> Piece | None:
        if self._begins:
            self._begins, self._within = False, True
            before = () if self._own is None else tuple(map(_one_back, self._own.finish()))
            self._own = None
            opened = Opened(None if self._make is None else self._make(), exact=False, back=1)
            return Piece(1, (*before, Closed(), opened, Spelled(text[at], 1, 0)))
        if self._within:
            return Piece(end - at, same=True)
        if self._own is not None:
            piece = self._own.read(text, at, end)
            if piece is not None:
                return piece
            self._own = None
        return Piece(end - at)

    def skip(self) -> bool:
        self.may_continue = self._within or self._own is None or self._own.skip() or self._own.idle
        return self.may_continue

    def finish(self) -> tuple[Step, ...]:
        return () if self._within or self._own is None else self._own.finish()


def _one_back(step: Step) -> Step:
    """A step one character later than where it is taken."""
    if isinstance(step, Spelled | Token):
        return step._replace(start=step.start + 1, end=step.end + 1)
    return step._replace(back=step.back + 1) if isinstance(step, Opened) else step


class JoinedParts:
    """The parts of one list. `open_text` opens a text with a reader; `late` is what has come out of parts before the
    last, by their keys: the caller takes it away."""

    __slots__ = ("_last", "_make", "_open", "late")

    def __init__(self, open_text: Callable[[PartReader], ChannelText], make: MakeReader = None) -> None:
        self._open = open_text
        self._make = make
        self._last: PartText | None = None
        self.late: list[tuple[Any, str]] = []

    @property
    def waits(self) -> bool:
        """Does the last part depend on the next one?"""
        return self._last is not None and self._last.joint.may_continue()

    def skip(self) -> None:
        """Pass over a part of which nothing is held."""
        self._last = None

    def part(self, key: Any) -> PartText:
        """Append a part."""
        last = self._last
        joint = last.joint if last is not None and self.waits else _Joint(self._open, PartReader(self._make), self.late)
        self._last = part = PartText(joint, key)
        joint.begin_part(part)
        return part


class PartText:
    """One part, as a text."""

    __slots__ = ("_tail", "is_first", "joint", "key")

    def __init__(self, joint: _Joint, key: Any) -> None:
        self.joint = joint
        self.is_first = not joint.begins  # in its text: places in that are its own
        self.key = key
        self._tail = ""  # what the end has released of it

    def feed(self, text: str) -> str:
        joint = self.joint
        return joint.text.feed(text) if joint.only is self else joint.feed(self, text)

    def finish(self) -> str:
        if self.is_in_joint:
            self.joint.finish()
        tail, self._tail = self._tail, ""
        return tail

    def abandon(self) -> str:
        """Abandon the part; returns what its end has released."""
        if self.is_in_joint:
            self.joint.text.abandon()
        tail, self._tail = self._tail, ""
        return tail

    def add_tail(self, text: str) -> None:
        self._tail += text

    @property
    def rule(self) -> CompiledRule | None:
        return self.joint.text.rule if self.joint.only is self or self.is_in_joint else None

    @property
    def sole_text(self) -> ChannelText | None:
        """The text that it is, as long as it has no other part."""
        return self.joint.text if self.joint.only is self else None

    @property
    def is_in_joint(self) -> bool:
        """May something still come out of this part?"""
        return self in self.joint.parts

    @property
    def is_pending(self) -> bool:
        """Has the text gone on in another part, and may something still come out of this one?"""
        return self.is_in_joint and self.joint.parts[-1] is not self

    @property
    def may_continue(self) -> bool:
        """Could what the next part has be a part of a match with this one?"""
        return self.joint.parts[-1] is self and self.joint.may_continue()


class _Joint:
    """One text, and the parts in it that may still change, by where they begin."""

    __slots__ = ("_ended", "_late", "_reader", "begins", "only", "parts", "text")

    def __init__(self, open_text: Callable[[PartReader], ChannelText], reader: PartReader, late: list[Any]) -> None:
        self._reader = reader
        self.text = open_text(reader)
        self._late = late
        self.begins: list[int] = []
        self.parts: list[PartText] = []
        self._ended = False
        self.only: PartText | None = None  # the part, as long as there is one

    def begin_part(self, part: PartText) -> None:
        if self.parts:
            self._reader.begin_part()
            self.text.censor.look_again()
        self.only = None if self.begins else part
        self.begins.append(self.text.censor.scanned)
        self.parts.append(part)

    def may_continue(self) -> bool:
        """Could what the next part has be a part of a match with this text, and would the text's end be none?"""
        if self._ended or self.text.rule is not None or not self._reader.may_continue:
            return False
        self._share(self.text.end_part(), to_end=False)
        censor = self.text.censor
        return censor.is_open and (self._reader.within or not censor.would_match_at_end())

    def feed(self, part: PartText, text: str) -> str:
        if part is not self.parts[-1] or self._ended:
            raise InvalidAnswer("the answer returns to a part that it had left")
        return self._share(self.text.feed(text), to_end=False)

    def finish(self) -> None:
        if self._ended:
            return
        self._ended, self.only = True, None
        if isinstance(self.text, ConcealedText):
            for part, shown in zip(self.parts, self.text.finish_parts(self.begins), strict=True):
                part.add_tail(shown)
            return
        last = self.parts[-1]
        last.add_tail(self._share(self.text.finish(), to_end=True))

    def _share(self, out: str, to_end: bool) -> str:
        """Assign released text to its parts; returns the share of the last."""
        if isinstance(self.text, ConcealedText):
            return out
        censor = self.text.censor
        while len(self.parts) > 1:
            begin, before = self.begins[1], out
            if censor.released_to >= begin:
                cut = max(len(out) - censor.released_behind(begin), 0)
                before, out = out[:cut], out[cut:]
            else:
                out = ""
            if before and to_end:
                self.parts[0].add_tail(before)
            elif before:
                self._late.append((self.parts[0].key, before))
            if censor.released_to < begin:
                return ""
            del self.parts[0], self.begins[0]
        return out


class Run:
    """Parts of a whole message that are one text, by path: what is `shown` of them, and which of them a rule has
    `blocked`, if one has."""

    def __init__(self, slots: list[TextSlot]) -> None:
        self._slots = slots
        self.shown: dict[Path, str] = {}
        self.blocked: Path | None = None
        self.rule: CompiledRule | None = None

    def read(self, joined: JoinedParts, counts: ChannelCounts) -> None:
        parts: list[PartText] = []
        self.shown = dict.fromkeys((slot.path for slot in self._slots), "")
        for slot in self._slots:
            counts.reserve("text fields")
            parts.append(joined.part(slot.path))
            self.shown[slot.path] = parts[-1].feed(slot.holder[slot.key])
            if self._note_block(parts[-1]):
                break
        for path, text in joined.late:
            self.shown[path] += text
        for part in parts if self.rule is None else ():
            self.shown[part.key] += part.finish()
            if self._note_block(part):
                break

    def _note_block(self, part: PartText) -> bool:
        if part.rule is not None:
            self.rule, self.blocked = part.rule, part.key
        return part.rule is not None


def is_part(slot: TextSlot) -> bool:
    """Is this the text of an object in a list?"""
    path = slot.path
    return (
        len(path) > 2
        and path[-1] == "text"
        and isinstance(path[-2], int)
        and slot.kind is SlotKind.TEXT
        and path[0] not in CALLS
        and isinstance(slot.holder[slot.key], str)
    )


def runs_in(slots: list[TextSlot]) -> dict[Path, Run]:
    """The texts that follow each other in lists, each with the run that it is in."""
    lists: dict[Path, list[TextSlot]] = {}
    for slot in filter(is_part, slots):
        lists.setdefault((*slot.path[:-2], slot.channel), []).append(slot)
    runs = [(parts, Run(parts)) for parts in lists.values() if len(parts) > 1]
    return {slot.path: run for parts, run in runs for slot in parts}
