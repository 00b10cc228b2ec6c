"""The texts of an answer that comes as events, each under its place in the answer (`wire.event_table`).

A text is censored once, as its pieces come; what repeats it gets what was shown of it. Texts that are always sent whole
are remembered by what they are, so that they too are scanned and counted once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelText, GuardedText, InvalidAnswer
from gateway.guard.constrained import ConstrainedText, ConstraintCheck
from gateway.guard.guardedjson import GuardedJson, ObservedText, content_text, string_text
from gateway.guard.media import shown_payload
from gateway.guard.metadata import Metadata
from gateway.guard.parts import JoinedParts, PartText
from gateway.policy.model import Channel
from gateway.wire import json
from gateway.wire.event_table import EventTable, TextField
from gateway.wire.event_template import Tally
from gateway.wire.fences import ContentReader
from gateway.wire.media import OPAQUE, is_opaque
from gateway.wire.message import CONSTANT_LABELS, Path, SlotKind

# Characters of one answer that are kept because they may be repeated: what was shown, and the objects around it.
MAX_KEPT = 1 << 23


class PlaceText:
    """The text at one place. `shown` is what came out of it; `exact`: nothing of it was changed; `ahead`: what was
    given and has not come out, while that is so; `streamed`: it was shown in deltas."""

    __slots__ = ("ahead", "closed", "exact", "field", "shown", "streamed", "text")

    def __init__(self, text: GuardedText, field: TextField) -> None:
        self.text = text
        self.field = field
        self.shown: list[str] = []
        self.closed = False
        self.streamed = False
        self.exact = True
        self.ahead = ""

    def add(self, given: str, out: str) -> None:
        if self.exact:
            ahead = self.ahead + given
            self.exact = ahead.startswith(out)
            self.ahead = ahead[len(out) :] if self.exact else ""
        if out:
            self.shown.append(out)

    def joined(self) -> str:
        text = "".join(self.shown)
        self.shown[:] = [text]
        return text

    @property
    def steady(self) -> ChannelText | None:
        """The text, if all that its pieces pass through is its censor, which holds what is ahead; else None."""
        text = self.text.sole_text if isinstance(self.text, PartText) else self.text
        if type(text) is not ChannelText or (self.exact and self.ahead != text.censor.releaser.held):
            return None
        return text


class EventTexts:
    """`rule` is the one that has blocked the answer."""

    def __init__(self, metadata: Metadata, table: EventTable, constraint: ConstraintCheck | None) -> None:
        self.places: dict[Path, PlaceText] = {}
        self.rule: CompiledRule | None = None
        self._metadata = metadata
        self._counts = metadata.counts
        self._table = table
        self._constraint = constraint
        self._whole: dict[tuple[Channel, SlotKind, str], str] = {}
        self._joined: dict[Path, JoinedParts] = {}  # the text parts of each list
        self._ahead: dict[Path, tuple[int, str]] = {}  # what was fed before its turn: characters, and what came out
        self._following: dict[Path, tuple[Path, TextField, str]] = {}  # behind each part of a whole answer
        self.tally = Tally(MAX_KEPT)

    def keep(self, size: int) -> None:
        """Count characters that are kept until the answer ends. Raises `InvalidAnswer`."""
        self.tally.left -= size
        if self.tally.left < 0:
            raise InvalidAnswer(f"the answer has more than {MAX_KEPT} characters that may be repeated")

    # -- texts in pieces -----------------------------------------------------------------------------------------------

    def feed(self, place: Path, field: TextField, given: str) -> str:
        """The output for a piece of the text at a place."""
        text = self._at(place, field)
        if text.closed:
            if self._metadata.enforces:
                raise InvalidAnswer("the answer continues a text that has ended")
            return given
        fed, ahead = self._ahead.pop(place, (-1, ""))
        given = given[max(fed, 0) :]
        out = text.text.feed(given) if given or fed < 0 else ""
        text.add(given, out)
        self.keep(len(out))
        self.rule = self.rule or text.text.rule
        return ahead + out

    def streamed_text(self, place: Path) -> PlaceText | None:
        """The text at a place, if it has been shown in deltas and continues."""
        text = self.places.get(place)
        return None if text is None or text.closed or not text.streamed or place in self._ahead else text

    def finish(self, text: PlaceText) -> str:
        """End a text; returns what it held."""
        if text.closed:
            return ""
        text.closed = True
        out = text.text.finish()
        text.add("", out)
        self.rule = self.rule or text.text.rule
        return out

    def repeat(self, place: Path, field: TextField, given: str) -> str:
        """The whole text at a place, as it was shown; of one that comes only now, what may be shown."""
        text = self.places.get(place)
        if text is not None and text.closed:
            self._ahead.pop(place, None)
        elif text is None or place in self._ahead:
            self.feed(place, field, given)
            text = self.places[place]
            self._look_ahead(place)
        if self.rule is None:
            self.finish(text)
        return text.joined()

    # -- parts that are one text ---------------------------------------------------------------------------------------

    def waits_at(self, place: Path) -> Path | None:
        """The place, if there is one, of a text at or in `place` whose end depends on what the next part begins
        with."""
        name = self._table.content.name
        return next((each for each in (place, (*place, name)) if self._continues(each)), None)

    def _continues(self, place: Path) -> bool:
        known = self.places.get(place)
        return known is not None and not known.closed and isinstance(known.text, PartText) and known.text.may_continue

    def pending_at(self, place: Path) -> Path | None:
        """The place, if there is one, of a text at or in `place` that went on in another part, so that it is open what
        becomes of it."""
        return next((each for each in (place, (*place, self._table.content.name)) if self._is_pending(each)), None)

    def _is_pending(self, place: Path) -> bool:
        text = self.places[place].text if place in self.places else None
        return isinstance(text, PartText) and text.is_pending

    def feed_ahead(self, place: Path, field: TextField, given: str) -> list[tuple[Path, str]]:
        """Feed a piece of a text of which nothing may be shown yet; what it shows of parts before it, by place."""
        text = self._at(place, field)
        fed, ahead = self._ahead.get(place, (0, ""))
        out = text.text.feed(given)
        text.add(given, out)
        self.keep(len(out))
        self._ahead[place] = fed + len(given), ahead + out
        return self._pop_late(place)

    def drop_ahead(self) -> None:
        """Drop the text that was fed ahead."""
        for place in self._ahead:
            del self.places[place]
        self._ahead.clear()

    def follow(self, parts: list[tuple[Path, TextField, str]]) -> None:
        """These parts of a whole answer follow each other."""
        self._following.update({before[0]: after for before, after in pairwise(parts)})

    def _look_ahead(self, place: Path) -> None:
        """Read of the parts of a whole answer behind this one what decides its end."""
        at = place
        while self._is_undecided(place) and at in self._following and (self._is_pending(at) or self._continues(at)):
            at, field, given = self._following[at]
            fed = self._ahead[at][0] if at in self._ahead else -1
            for char in given[max(fed, 0) :] or ("",) * (fed < 0):
                self.feed_ahead(at, field, char)
                if not self._is_undecided(place):
                    break
        self.rule = self.rule or self.places[place].text.rule
        if self.rule is not None:
            self.drop_ahead()

    def _is_undecided(self, place: Path) -> bool:
        text = self.places[place].text
        return text.rule is None and isinstance(text, PartText) and text.is_in_joint

    def _pop_late(self, place: Path) -> list[tuple[Path, str]]:
        joined = self._joined_at(place, self.places[place].field)
        late: list[tuple[Path, str]] = []
        for at, out in joined.late:
            self.places[at].add("", out)
            self.keep(len(out))
            if at in self._ahead:
                fed, ahead = self._ahead[at]
                self._ahead[at] = fed, ahead + out
            else:
                late.append((at, out))
        joined.late.clear()
        return late

    def _joined_at(self, place: Path, field: TextField) -> JoinedParts:
        at = (*place[:-2], field.channel)
        joined = self._joined.get(at)
        if joined is None:
            channel = Channel(field.channel)
            make = ContentReader if field is self._table.content else None
            joined = self._joined[at] = JoinedParts(lambda reader: self._counts.open(channel, 0, reader), make)
        return joined

    def _is_part(self, place: Path, field: TextField) -> bool:
        """May the text at a place be a part of the one that its list has?"""
        reads_content = self._counts.json_content or self._constraint is not None
        is_listed = len(place) > 1 and isinstance(place[-2], int) and field.kind is SlotKind.TEXT
        return is_listed and place[-1] == "text" and not (field is self._table.content and reads_content)

    def insert(self, place: Path, field: TextField, message: str) -> None:
        """Insert generated text after the one at a place, which has ended."""
        text = self._at(place, field)
        if not text.closed:
            text.text.finish()
            text.closed = True
        text.shown.append(message)

    def leave(self) -> None:
        """The answer calls a tool, which is no text of any constraint's language."""
        if self._constraint is not None:
            self.rule = self.rule or self._constraint.leave()

    def abandon(self) -> list[tuple[Path, str]]:
        """Drop what is held. What texts of JSON still need to be well-formed, by place."""
        needed: list[tuple[Path, str]] = []
        for place, text in self.places.items():
            if not text.closed:
                text.closed = True
                out = text.text.abandon()
                text.add("", out)
                if out:
                    needed.append((place, out))
        return needed

    def _at(self, place: Path, field: TextField) -> PlaceText:
        known = self.places.get(place)
        if known is None:
            self._counts.reserve("text fields")
            known = self.places[place] = PlaceText(self._open(place, field), field)
        return known

    def _open(self, place: Path, field: TextField) -> GuardedText:
        counts, channel = self._counts, Channel(field.channel)
        text: GuardedText
        if self._is_part(place, field):
            return self._joined_at(place, field).part(place)
        is_json = field.kind is SlotKind.JSON or (counts.json_content and field is self._table.content)
        if is_json and counts.looks_at(channel):
            text = GuardedJson(counts, channel, 0)
            text = text if self._metadata.enforces else ObservedText(text)
        elif field is self._table.content:
            text = content_text(counts, channel, 0)
        elif channel is Channel.TOOL_ARGUMENTS:
            text = string_text(counts, channel, 0)
        else:
            text = counts.open(channel, 0)
        if self._constraint is not None and field is self._table.content:
            text = ConstrainedText(text, self._constraint)
        return text

    # -- texts that come whole -----------------------------------------------------------------------------------------

    def label(self, given: str) -> str:
        """A text that stands around others, censored."""
        return self.censor_complete(given, Channel.OTHER)

    def censor_complete(self, given: str, channel: Channel, kind: SlotKind = SlotKind.TEXT) -> str:
        """A text that never comes in pieces, censored."""
        if given in CONSTANT_LABELS or given in self._table.constants:
            return given
        known = self._whole.get((channel, kind, given))
        if known is not None:
            return known
        if kind is SlotKind.TEXT or not self._counts.looks_at(channel):
            value, rule = self._metadata.show_value(given, channel)
            shown = str(value)
        else:
            text = GuardedJson(self._counts, channel, 0)
            shown = text.feed(given)
            shown += text.finish() if text.rule is None else text.abandon()
            rule = text.rule
        self.rule = self.rule or rule
        self.keep(len(given) + len(shown))
        self._whole[channel, kind, given] = shown
        return shown

    def parsed(self, value: Any, channel: Channel) -> Any:
        """JSON that stands parsed where its text would, censored in the same way."""
        return self.reparsed(self.censor_complete(json.encode(value).decode(), channel, SlotKind.JSON))

    @staticmethod
    def reparsed(text: str) -> Any:
        """The JSON that a censored text spells; an empty object where it was broken off before its first value."""
        try:
            return json.decode(text) if text else {}
        except json.JSONError:
            return {}

    def opaque_piece(self, place: Path, given: str) -> str:
        """A payload that clients may append to the one before at its place."""
        return given if is_opaque(given) else self._metadata.joined(place, self.label(given))

    def opaque(self, given: str) -> str:
        """A payload that has no meaning for clients: as it is where it cannot be read as text, else like a label."""
        return self.payload(given, OPAQUE)

    def payload(self, given: str, declared: str) -> str:
        """What stands where media may: as it is if it is media, censored in its envelope if it is a text in one, else
        like a label. `declared` is the media type that stands beside it."""
        return shown_payload(given, declared, self.label, lambda: self.rule is not None)
