"""Events that the gateway generates: the deltas that show what texts held, and those that end a blocked answer."""

from __future__ import annotations

from gateway.guard.channels import ChannelCounts
from gateway.guard.event_shown import ShownAnswer
from gateway.guard.event_texts import EventTexts
from gateway.wire.event_table import EventTable, TextField
from gateway.wire.json import Json
from gateway.wire.message import Path


class OwnEvents:
    """Those of one answer."""

    __slots__ = ("_counts", "_shown", "_table", "_texts")

    def __init__(self, table: EventTable, texts: EventTexts, shown: ShownAnswer, counts: ChannelCounts) -> None:
        self._table = table
        self._texts = texts
        self._shown = shown
        self._counts = counts

    def tails(self, place: Path) -> list[Json]:
        """End the texts at and below a place: the deltas that show what they held, up to a block."""
        tails: list[Json] = []
        for at, text in list(self._texts.places.items()):
            if self._texts.rule is not None:
                break
            if not text.closed and at[: len(place)] == place:
                tail = self._texts.finish(text)
                tails += self.delta(at, tail)
        return tails

    def delta(self, place: Path, text: str) -> list[Json]:
        """The event that adds to the text at a place."""
        if not text or not self._shown.reaches(place):
            return []
        kind = self._texts.places[place].field.delta
        return [self._table.event(kind, place, text, self._shown.item_id(place))]

    def abandoned(self) -> list[Json]:
        """End every text because a rule has blocked: what may still be shown of them."""
        return [event for at, text in self._texts.abandon() for event in self.delta(at, text)]

    def message_place(self) -> Path | None:
        """The place of a text that goes on, which a rule's message may be added to."""
        return self._shown.open_text(self._message_field)

    def closing(self, message: str | None, place: Path | None) -> list[Json]:
        """The events that close what is open, with the rule's message at `place`, or in a text of its own."""
        field = self._message_field
        sent = self._insert(place, message) if message and place is not None else []
        sent += self._shown.closing()
        if message and place is None and field is not None:
            for kind, at, value in self._shown.open_message(field):
                sent.append(self._table.event(kind, at, value, self._shown.item_id(at) if len(at) > 2 else None))
                place = (*at, field.name)
            assert place is not None
            sent += self._insert(place, message) + self._shown.closing()
        return sent

    @property
    def _message_field(self) -> TextField | None:
        """Where a rule's message goes: behind JSON it would make the content unreadable."""
        return self._table.refusal if self._counts.json_content else self._table.content

    def _insert(self, place: Path, message: str) -> list[Json]:
        assert self._message_field is not None
        known = self._texts.places.get(place)
        before = "" if known is None or known.streamed else known.joined()  # it came at once, with the block in it
        self._texts.insert(place, self._message_field, message)
        return self.delta(place, before + message)
