"""An answer of typed events as the client has received it: the open objects, and the answer so far.

A rule that blocks ends the answer in the middle. What is open is then closed, and the complete answer is written as the
client has received it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway.guard.channels import ChannelCounts, InvalidAnswer
from gateway.guard.event_texts import EventTexts
from gateway.policy.model import Channel
from gateway.wire import json
from gateway.wire.event_table import EventTable, Index, Place, TextField
from gateway.wire.json import Json
from gateway.wire.message import Path, position_of

MAX_ID = 256  # characters of the id of an item: every event about it repeats it
MAX_OPEN = 512  # objects that are open at one time
_OF_VALUE = 32  # characters that a value counts for beside its text: in memory it takes some hundred bytes
_BEGIN_VALUES = (b",", b"[", b"{")


class _OpenObject(NamedTuple):
    done: str  # the type of the event that closes it
    item_id: Any


class ClientAnswer:
    """`answer` is the answer so far, without the texts that come in pieces."""

    def __init__(self, table: EventTable, texts: EventTexts, enforces: bool) -> None:
        self.answer: Json = {}
        self._table = table
        self._texts = texts
        self._enforces = enforces
        self._open: dict[Path, _OpenObject] = {}
        self._ids: dict[Path, Any] = {}
        self._names: set[str] = set()  # the ids that items have

    # -- places --------------------------------------------------------------------------------------------------------

    def place_of(self, place: Place, event: Json) -> Path:
        """The place that an event is about. Raises `InvalidAnswer`."""
        steps: list[str | int] = []
        for step in place:
            if isinstance(step, Index):
                number = position_of({"index": event.get(step.field)}, -1)
                self.require(number >= 0, f"has an event without a number in `{step.field}`")
                steps.append(max(number, 0))
            else:
                steps.append(step)
        return tuple(steps)

    @staticmethod
    def has_number(step: str | Index, event: Json) -> bool:
        """Has an event the number that a step of its place needs?"""
        return not isinstance(step, Index) or position_of({"index": event.get(step.field)}, -1) >= 0

    def require(self, holds: bool, otherwise: str) -> None:
        """Raises `InvalidAnswer` where the answer breaks its protocol and is not only observed."""
        if self._enforces and not holds:
            raise InvalidAnswer(f"the answer {otherwise}")

    def is_open(self, place: Path) -> bool:
        """Is the item that a place is in open?"""
        return place[:2] in self._open

    def contains(self, place: Path) -> bool:
        """Is there, or was there, an item at a place?"""
        return place in self._ids

    def reaches(self, place: Path) -> bool:
        """May an event add to the text at a place? It is in an open item or in none."""
        return self.is_open(place) or not isinstance(place[1], int)

    def item_id(self, place: Path) -> Any:
        return self._ids.get(place[:2])

    # -- objects -------------------------------------------------------------------------------------------------------

    def start(self, answer: Json) -> None:
        self.require(not self._ids, "begins twice")
        self.answer = copy.deepcopy(answer)
        self._keep(answer)

    def open(self, place: Path, value: Json, done: str) -> None:
        """Open an object, the next one of its list. Raises `InvalidAnswer`."""
        holder = self._list_at(place[:-1])
        self.require(place[-1] == len(holder), "has an object out of order")
        self.require(len(place) <= 2 or self.is_open(place), "has a part of an item that is not open")
        if len(self._open) >= MAX_OPEN:
            raise InvalidAnswer(f"the answer has more than {MAX_OPEN} objects that are open")
        self._keep(value)
        if len(place) == 2:
            self._name(place, value)
        holder.append(copy.deepcopy(value))
        self._open[place] = _OpenObject(done, self.item_id(place))

    def close(self, place: Path, value: Json | None) -> None:
        """Close an object; `value` is its final state."""
        for inner in [each for each in self._open if each[: len(place)] == place]:
            del self._open[inner]
        if value is not None:
            self.replace(place, value)
            self._keep(value)

    def _name(self, place: Path, value: Json) -> None:
        """Give an item the id that all events about it have: clients find an item's text by it."""
        known = value.get("id")
        if isinstance(known, str):
            self.require(len(known) <= MAX_ID, f"has an id of more than {MAX_ID} characters")
        if self._table.item_id and (not isinstance(known, str) or not known or known in self._names):
            known = f"item_{place[-1]}"
            while known in self._names:
                known += "_"
            value["id"] = known
        self._ids[place] = known
        if isinstance(known, str):
            self._names.add(known)

    def unname(self, place: Path, value: Json) -> None:
        """Take from what repeats an item the id, before it is read: the item's own has been."""
        if isinstance(self._ids.get(place), str) and self._enforces:
            value["id"] = None

    def rename(self, place: Path, value: Json) -> None:
        """Give it the id that the item has been shown with."""
        known = self._ids.get(place)
        if isinstance(known, str) and self._enforces:
            value["id"] = known

    def items_of(self, answer: Json) -> Iterator[tuple[Path, Json]]:
        """The items of a whole answer that have been shown."""
        for place in self._ids:
            value = _at(answer, place)
            if isinstance(value, dict):
                yield place, value

    def replace(self, place: Path, value: Json) -> None:
        """Replace the state of an open object, as far as it may be shown."""
        holder = self._list_at(place[:-1])
        if isinstance(step := place[-1], int) and step < len(holder):
            holder[step] = copy.deepcopy(value)

    def add(self, place: Path, value: Json) -> None:
        """One more complete object in the list at a place."""
        self._keep(value)
        self._list_at(place).append(copy.deepcopy(value))

    def set(self, place: Path, value: Any) -> None:
        """A complete field of an object."""
        holder = _at(self.answer, place[:-1])
        if isinstance(holder, dict):
            self._texts.keep(len(value))
            holder[place[-1]] = value

    def update(self, fields: Json, usage: Any) -> None:
        """Fields of the answer that come at its end."""
        self._keep(fields)
        self.answer |= {name: value for name, value in fields.items() if value is not None}
        if not isinstance(self.answer.get("usage"), dict):
            self.answer["usage"] = {}
        if isinstance(usage, dict):
            self._keep(usage)
            self.answer["usage"] |= usage

    def _keep(self, value: Json) -> None:
        encoded = json.encode(value)
        self._texts.keep(len(encoded) + _OF_VALUE * sum(map(encoded.count, _BEGIN_VALUES)))

    def _list_at(self, path: Path) -> list[Any]:
        holder: Any = self.answer
        for step in path:
            if isinstance(step, int):
                holder = holder[step] if isinstance(holder, list) and step < len(holder) else {}
            else:
                if not isinstance(holder.get(step), list | dict):
                    holder[step] = []
                holder = holder[step]
        return holder if isinstance(holder, list) else []

    # -- the end -------------------------------------------------------------------------------------------------------

    def complete(self) -> Json:
        """The answer as it has been shown, its texts in it."""
        for place, text in self._texts.places.items():
            self._put(place, text.joined())
        if self._table.joined in self.answer:
            self.answer[self._table.joined] = self.content()
        return copy.deepcopy(self.answer)

    def content(self) -> str:
        """All content. Texts that were scanned apart are scanned once more as the one that they are here."""
        texts = [text.joined() for text in self._texts.places.values() if text.field is self._table.content]
        joined = "".join(texts)
        return joined if len(texts) < 2 else self._texts.censor_complete(joined, Channel.CONTENT)

    def _put(self, place: Path, shown: str) -> None:
        holder: Any = self.answer
        for step in place[:-1]:
            if isinstance(step, int):
                if not isinstance(holder, list) or step > len(holder):
                    return
                if step == len(holder):  # a part that no event has opened
                    holder.append({"type": self._texts.places[place].field.part})
                holder = holder[step]
            elif isinstance(holder, dict):
                holder = holder.setdefault(step, [])
            else:
                return
        if isinstance(holder, dict):
            field = self._texts.places[place].field
            holder[place[-1]] = self._texts.reparsed(shown) if field.is_object else shown

    def closing(self) -> list[Json]:
        """The events that close all that is open, from the inside out."""
        whole = self.complete()
        events: list[Json] = []
        for place, opened in sorted(self._open.items(), key=lambda each: (each[0][:2], -len(each[0]), each[0])):
            value = _at(whole, place)
            if isinstance(value, dict):
                for name in list(value):
                    text = self._texts.places.get((*place, name))
                    if text is not None and text.field.done:
                        events.append(self._table.event(text.field.done, (*place, name), value[name], opened.item_id))
                if value.get("status") == "in_progress":
                    value["status"] = "incomplete"
            events.append(self._table.event(opened.done, place, value, opened.item_id if len(place) > 2 else None))
            self.close(place, None)
        self.answer = whole
        return copy.deepcopy(events)

    def open_text(self, field: TextField | None) -> Path | None:
        """The place of the last text of a field that continues."""
        places = [place for place, text in self._texts.places.items() if text.field is field and not text.closed]
        for place in self._open:
            value = _at(self.answer, place)
            if field is not None and isinstance(value, dict) and value.get("type") == field.part:
                text_place = (*place, field.name)
                if text_place not in self._texts.places:
                    places.append(text_place)
        return places[-1] if places else None

    def open_message(self, field: TextField) -> Iterator[tuple[str, Path, Json]]:
        """Open a place for a text of our own making: the types of the events that do so, places and objects."""
        place: Path = ()
        for kind, template in self._table.message[field.part]:
            form = self._table.events[kind]
            for step in form.place[len(place) :]:
                place = (*place, len(self._list_at(place)) if isinstance(step, Index) else step)
            value = copy.deepcopy(template)
            self.open(place, value, form.done)
            yield kind, place, value


class OwnEvents:
    """Events of the gateway's own making, of one answer: the deltas that show what texts held, and those that end a
    blocked answer."""

    __slots__ = ("_counts", "_shown", "_table", "_texts")

    def __init__(self, table: EventTable, texts: EventTexts, shown: ClientAnswer, counts: ChannelCounts) -> None:
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
        """The place of a text that continues, which a rule's message may be added to."""
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


class EventAssembler:
    """The answer that a stream has been: the guard keeps it anyway."""

    def __init__(self, shown: ClientAnswer) -> None:
        self._shown = shown

    def add(self, event: Json) -> None:
        """An event that was sent."""

    def answer(self) -> Json:
        return self._shown.complete()


def _at(value: Any, place: Path) -> Any:
    for step in place:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value
