"""Text parts of one item that follow each other in events: what one holds is decided by what the next begins with, so
that the events which end the one and open the other wait for that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.guard.client_answer import ClientAnswer
from gateway.guard.event_texts import EventTexts
from gateway.wire.event_table import EventForm, EventTable, Role, TextField
from gateway.wire.json import Json
from gateway.wire.message import Path

MAX_WAITING = 64  # events
_PASSING = frozenset({Role.STATUS, Role.ADD, Role.DROP})


class Received(NamedTuple):
    """What an event leads to: pieces of earlier parts that may be shown, by place, and the events to guard now."""

    late: list[tuple[Path, str]]
    events: list[Json]


class EventParts:
    """The events of one answer that wait."""

    __slots__ = ("_fed", "_field", "_items", "_last", "_left", "_shown", "_table", "_texts", "_waiting")

    def __init__(self, table: EventTable, texts: EventTexts, shown: ClientAnswer) -> None:
        self._table = table
        self._texts = texts
        self._shown = shown
        self._waiting: list[Json] = []
        self._items: Path = ()  # the place of the list that the parts are in
        self._left = self._last = 0  # the parts in it whose end, and whose beginning, waits
        self._field: TextField
        self._fed: set[Path] = set()  # texts of which an event that waits brings a piece

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def receive(self, event: Json) -> Received:
        """Add an event. Where a rule blocks the pending ones, none is left to guard."""
        form = self._table.form(event)
        place = () if form is None else self._place_of(event, form)
        if not self._waiting:
            left = self._texts.waits_at(place) if form is not None and form.role is Role.CLOSE and place else None
            if left is None:
                return Received([], [event])
            self._wait_at(left)
        elif len(self._waiting) >= MAX_WAITING or form is None:
            return Received([], [*self.pop(), event])
        elif form.role is Role.APPEND and place == self._text_of(self._last) and self._last > self._left:
            return self._append(event, form, place)
        elif form.role is Role.OPEN and self._follows(event, form, place):
            return self._open(event, form)
        elif form.role not in _PASSING and not (form.role is Role.CLOSE and self._is_within(place)):
            return Received([], [*self.pop(), event])
        self._waiting.append(event)
        return Received([], [])

    def pop(self) -> list[Json]:
        """The events that wait; they wait no more."""
        waiting, self._waiting = self._waiting, []
        self._fed.clear()
        return waiting

    def _wait_at(self, left: Path) -> None:
        assert isinstance(left[-2], int)
        self._items, self._left, self._field = left[:-2], left[-2], self._texts.places[left].field
        self._last = max(self._last, self._left) if self._waiting else self._left

    def _place_of(self, event: Json, form: EventForm) -> Path:
        """The place that an event is about; empty if it is about none."""
        has_numbers = all(self._shown.has_number(step, event) for step in form.place)
        return self._shown.place_of(form.place, event) if has_numbers else ()

    def _text_of(self, part: int) -> Path:
        return (*self._items, part, self._field.name)

    def _is_within(self, place: Path) -> bool:
        """Is this a part whose end or beginning waits, or in one?"""
        size = len(self._items)
        if place[:size] != self._items or len(place) <= size:
            return False
        at = place[size]
        return isinstance(at, int) and self._left <= at <= self._last

    def _follows(self, event: Json, form: EventForm, place: Path) -> bool:
        """Does this open the next part, with a text of the same kind?"""
        value = event.get(form.key)
        return (
            place == (*self._items, self._last + 1)
            and isinstance(value, dict)
            and self._table.text_field(value.get("type"), self._field.name) is self._field
        )

    def _open(self, event: Json, form: EventForm) -> Received:
        """The next part begins; a text that it has already is its first piece."""
        self._last += 1
        self._waiting.append(event)
        self._texts.feed_ahead(self._text_of(self._last), self._field, "")
        text = event[form.key].get(self._field.name)
        if not isinstance(text, str) or not text:
            return Received([], [])
        event[form.key][self._field.name] = ""
        item_id = event.get(self._table.item_id)
        return self.receive(self._table.event(self._field.delta, self._text_of(self._last), text, item_id))

    def _append(self, event: Json, form: EventForm, place: Path) -> Received:
        holder = event.get(form.within) if form.within else event
        given: Any = holder.get(form.key) if isinstance(holder, dict) else None
        if not isinstance(given, str):
            return Received([], [*self.pop(), event])
        late = self._texts.feed_ahead(place, self._field, given)
        if place not in self._fed:
            self._fed.add(place)
            self._waiting.append(event)
        left = self._texts.places[self._text_of(self._left)].text
        if left.rule is not None:
            self._texts.rule = left.rule
            self._texts.drop_ahead()
            self.pop()
            return Received(late, [])
        return Received(late, self._pop_ready())

    def _pop_ready(self) -> list[Json]:
        """The events up to the end of the first part that still waits for what follows it."""
        ready: list[Json] = []
        while self._waiting:
            form = self._table.form(self._waiting[0])
            if form is not None and form.role is Role.CLOSE:
                left = self._texts.pending_at(self._place_of(self._waiting[0], form))
                if left is not None:
                    self._wait_at(left)
                    return ready
            if form is not None and form.role is Role.APPEND:
                self._fed.discard(self._place_of(self._waiting[0], form))
            ready.append(self._waiting.pop(0))
        return ready
