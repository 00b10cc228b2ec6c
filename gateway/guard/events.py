"""One answer of a dialect of events under a policy: events or a whole answer in, the same with every text censored out.

Such a dialect says in its table (`wire.event_table`) where text lives, and this guard knows no more of it. What a text
holds is sent as a delta of its own before the event that ends it. A block ends the whole answer: what is open is
closed, with the rule's message in the content, and the answer ends as one that the filter has stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.channels import ChannelCounts
from gateway.guard.chat import is_count
from gateway.guard.client_answer import ClientAnswer, EventAssembler, OwnEvents
from gateway.guard.constrained import ConstraintCheck, asks_for_json
from gateway.guard.event_objects import EventObjects
from gateway.guard.event_parts import EventParts
from gateway.guard.event_texts import EventTexts, PlaceText
from gateway.policy.model import Unknown
from gateway.wire import sse
from gateway.wire.dialect import BLOCKED
from gateway.wire.event_table import EventForm, EventTable, Role, content_of
from gateway.wire.json import Json
from gateway.wire.message import Path, SlotKind
from gateway.wire.typed_deltas import TextDelta, TextId, text_id


class EventGuard(AnswerGuard):
    """The answer to one request, in the form of `table`."""

    def __init__(self, table: EventTable, counts: ChannelCounts, known: tuple[str, ...]) -> None:
        super().__init__(counts, (*known, *table.constants, *table.names))
        self._table = table
        self._constraint = ConstraintCheck.of(self.counts, 0)
        self._texts = EventTexts(self.metadata, table, self._constraint)
        self._objects = EventObjects(self.metadata, table, self._texts)
        self._shown = ClientAnswer(table, self._texts, self.metadata.enforces)
        self._parts = EventParts(table, self._texts, self._shown)
        self._own = OwnEvents(table, self._texts, self._shown, self.counts)
        self._reason: Any = None
        self._over = False
        self.tally = self._texts.tally

    @property
    def finished(self) -> bool:
        return self._over and self._texts.rule is not None

    # -- a stream ------------------------------------------------------------------------------------------------------

    def chunk(self, received: Json) -> list[Json]:
        if not self.metadata.enforces:
            self._guard(copy.deepcopy(received))
            return [received]
        number = received.get(self._table.sequence)
        if self.tally.number < 0 and is_count(number):
            self.tally.number = number
        return self._numbered(self._guard(received))

    def repeat(self, delta: TextDelta) -> tuple[bytes, list[Json]] | None:
        """The fast path for an event that adds to a text which has begun: as `EventFastPath.repeat`, without a trace of
        an event that does not fit."""
        of, given, number = text_id(delta), delta.text, self.tally.number
        text = self.streamed_text(of)
        if text is None:
            return None
        shown, sent = self._texts.feed(of.place, text.field, given), b""
        if shown or not given:
            sent = sse.encode(delta.shown(shown, number if number >= 0 else None), of.kind)
            self.tally.number += number >= 0
        return sent, [] if self._texts.rule is None else self._numbered(self._block(self._texts.rule))

    def streamed_text(self, of: TextId) -> PlaceText | None:
        """A text that has begun, if nothing is to be done for the events that add to it but to feed it."""
        idle = self._over or self._parts.waits or not self.metadata.enforces
        text = None if idle else self._texts.streamed_text(of.place)
        is_known = self._shown.is_open(of.place) and of.item_id == self._shown.item_id(of.place)
        return text if is_known else None

    def _numbered(self, events: list[Json]) -> list[Json]:
        if self._table.sequence:
            for event in events:
                event[self._table.sequence] = number = max(self.tally.number, 0)
                self.tally.number = number + 1
        return events

    def _guard(self, event: Json) -> list[Json]:
        """The events to send for one that was received, and for those that waited for it."""
        if self._over:
            return []
        late, events = self._parts.receive(event)
        return self._guard_all(late, events)

    def _guard_all(self, late: list[tuple[Path, str]], events: list[Json]) -> list[Json]:
        sent = [made for at, text in late for made in self._own.delta(at, text)]
        for event in events:
            sent += self._guard_now(event)
        rule = None if self._over else self._blocked()
        return sent if rule is None else sent + self._block(rule)

    def _guard_now(self, event: Json) -> list[Json]:
        if self._over:
            return []
        form = self._table.form(event)
        self._note(event)
        if form is None:
            sent = self._unknown(event)
        elif form.role is Role.DROP:
            sent = []
        else:
            sent = self._known(event, form)
        rule = self._blocked()
        return sent if rule is None else sent + self._block(rule)

    def _blocked(self) -> CompiledRule | None:
        self._texts.rule = self._texts.rule or self.metadata.blocked
        return self._texts.rule

    def _note(self, received: Json) -> None:
        figures, before = self._table.usage_of(received) or (None, None), self.usage or (None, None)
        prompt, completion = (now if is_count(now) else then for now, then in zip(figures, before, strict=True))
        if prompt is not None and completion is not None:
            self.usage = prompt, completion
        reason = self._table.reason_of(received)
        self._reason = reason if isinstance(reason, str) else self._reason

    def _unknown(self, event: Json) -> list[Json]:
        self.metadata.note_unknown("an event of a type that this version does not know")
        if self.metadata.unknown is Unknown.DROP:
            return []
        shown = self.metadata.scrub(event, (str(event.get("type")),))
        # What is left of a redacted name may be that of an event whose texts are read together with others.
        return [shown] if self._table.form(shown) is None else []

    def _known(self, event: Json, form: EventForm) -> list[Json]:
        place = self._shown.place_of(form.place, event)
        holder = event.get(form.within) if form.within else event
        if not isinstance(holder, dict) or (form.within and form.role is Role.STATUS):
            self._shown.require(False, f"has an event without an object of a known type in `{form.within}`")
            return [event]
        within = self._shown.is_open(place)
        is_named = within and self._table.item_id in event
        if is_named:
            event[self._table.item_id] = None  # the one that is shown has been read
        if form.role is not Role.CONCLUDE:
            self._objects.read_event(event, (form.within or form.key,))
        if is_named:
            event[self._table.item_id] = self._shown.item_id(place)
        if form.within and form.role is not Role.CONCLUDE:
            self._objects.read_event(holder, (form.key,))
        value = holder.get(form.key) if form.key else None
        self._shown.require(
            value is None or isinstance(value, dict if form.text is None else str),
            f"has an event with something else than it should be in `{form.key}`",
        )
        match form.role:
            case Role.START:
                return self._start(event, form, value)
            case Role.OPEN if isinstance(value, dict):
                return self._open(event, form, place, value)
            case Role.APPEND | Role.OPEN:
                return self._append(event, form, place, holder)
            case Role.CLOSE:
                return self._close(event, form, place, holder)
            case Role.ADD:
                return self._add(event, place, value)
            case Role.CONCLUDE:
                return self._conclude(event, form, holder)
            case Role.END:
                return self._end(event, form, value)
        return [event]

    # -- the roles of events -------------------------------------------------------------------------------------------

    def _start(self, event: Json, form: EventForm, answer: Any) -> list[Json]:
        if not isinstance(answer, dict):
            self._shown.require(False, "begins without an object")
            return [event]
        for name in form.empties:
            if name in answer:
                answer[name] = []
        self._read_format(answer)
        self._objects.read(answer, (), ends=True)
        if not self._shown.answer:
            self._shown.start(answer)
        else:
            self._shown.require(bool(form.empties), "begins twice")
        return [event]

    def _read_format(self, answer: Json) -> None:
        if self._table.stored:
            self.counts.json_content = asks_for_json(answer, self.counts.compiled.policy)

    def _open(self, event: Json, form: EventForm, place: Path, value: Json) -> list[Json]:
        self._objects.read(value, place, ends=False)
        self._shown.open(place, value, form.done)
        return [event]

    def _append(self, event: Json, form: EventForm, place: Path, holder: Json) -> list[Json]:
        given = holder.get(form.key)
        if form.text is None or not isinstance(given, str):
            return [event]
        self._shown.require(self._shown.reaches(place), "has a delta of an item that is not open")
        if form.text.kind is SlotKind.SIGNATURE:
            return self._sign(event, form, place, holder)
        shown = holder[form.key] = self._texts.feed(place, form.text, given)
        self._texts.places[place].streamed = True
        return [event] if shown or not given else []

    def _sign(self, event: Json, form: EventForm, place: Path, holder: Json) -> list[Json]:
        """A signature holds only for the text as the upstream wrote it: with a changed one it is left out."""
        assert form.text is not None
        signed = (*place[:-1], form.text.signs)
        tails = self._own.tails(signed)
        text = self._texts.places.get(signed)
        if text is not None and not text.exact:
            return tails
        holder[form.key] = self._texts.opaque_piece(place, holder[form.key])
        self._shown.set(place, holder[form.key])
        return [*tails, event]

    def _close(self, event: Json, form: EventForm, place: Path, holder: Json) -> list[Json]:
        tails = self._own.tails(place)
        if self._texts.rule is not None:
            return tails
        value = holder.get(form.key)
        if form.text is not None:
            self._shown.require(self._shown.reaches(place), "has a text of an item that is not open")
            if isinstance(value, str):
                holder[form.key] = self._texts.repeat(place, form.text, value)
        elif isinstance(value, dict):
            self._shown.unname(place, value)
            self._objects.read(value, place, ends=True)
            self._shown.rename(place, value)
            if len(place) == 2 and not self._shown.contains(place):  # it comes at once
                self._shown.open(place, value, str(event["type"]))
            elif self._texts.rule is not None:
                self._shown.replace(place, value)
        if self._texts.rule is not None:
            return tails
        if form.text is None:
            self._shown.close(place, value if isinstance(value, dict) else None)
        return [*tails, event]

    def _add(self, event: Json, place: Path, value: Any) -> list[Json]:
        self._shown.require(self._shown.reaches(place), "has a part of an item that is not open")
        if isinstance(value, dict):
            self._objects.read(value, (*place, 0), ends=True)
            if place[-1] == self._table.annotations and not self._objects.realigned([value], place[:-1]):
                return []  # what it is about is held; the text's end brings it again
            self._shown.add(place, value)
        return [event]

    def _conclude(self, event: Json, form: EventForm, holder: Json) -> list[Json]:
        tails = self._own.tails(())
        self._objects.read_event(event, (form.within,))
        self._objects.read(holder, (form.within,), ends=True)
        for name, value in holder.items():
            holder[name] = self._objects.joined((form.within, name), value)
        self._conclude_constraint()
        if self._texts.rule is not None:
            return tails
        self._shown.update(holder, event.get("usage"))
        return [*tails, event]

    def _end(self, event: Json, form: EventForm, answer: Any) -> list[Json]:
        tails = self._own.tails(())
        if self._texts.rule is not None:
            return tails
        if isinstance(answer, dict):
            self._read_snapshot(answer)
        self._conclude_constraint()
        if self._texts.rule is not None:
            return tails
        self._finish()
        return [*tails, event]

    def _read_snapshot(self, answer: Json) -> None:
        """Censor an answer as a whole; it takes the place of what was shown of it."""
        is_joined = answer.pop(self._table.joined, None) is not None
        for place, value in self._shown.items_of(answer):
            self._shown.unname(place, value)
        self._objects.read(answer, (), ends=True)
        for place, value in self._shown.items_of(answer):
            self._shown.rename(place, value)
        if is_joined:
            answer[self._table.joined] = self._shown.content()
        self._shown.answer = copy.deepcopy(answer)

    def _finish(self) -> None:
        self._over = True
        self.reasons.append(self._table.reasons.get(self._reason, "other"))

    def _conclude_constraint(self) -> None:
        if self._constraint is not None:
            rule = self._constraint.conclude(
                None if self._texts.rule else self._table.reasons.get(self._reason, self._reason)
            )
            self._texts.rule = self._texts.rule or rule

    # -- the end -------------------------------------------------------------------------------------------------------

    def _block(self, rule: CompiledRule) -> list[Json]:
        """End the answer because a rule has blocked: the events that close what is open, and the end."""
        place = self._own.message_place()
        sent = self._own.abandoned()
        self._conclude_constraint()
        sent += self._own.closing(rule.message, place)
        self._reason = None
        self._finish()
        self.reasons[-1] = BLOCKED
        answer = self._shown.complete()
        self._table.stop(answer)
        self._shown.answer = answer
        return sent + self._table.final(answer)

    def end(self) -> list[Json]:
        if self._over:
            return []
        sent = self._guard_all([], self._parts.pop())
        if not self._over:
            sent += self._own.tails(())
            self._conclude_constraint()
            rule = self._blocked()
            if rule is not None:
                sent += self._block(rule)
            self._over = True
        return self._numbered(sent) if self.metadata.enforces else []

    def abandon(self) -> None:
        self._over = True
        self._texts.abandon()
        if self._constraint is not None:
            self._constraint.conclude()

    # -- a whole answer ------------------------------------------------------------------------------------------------

    def completion(self, received: Json) -> Json:
        answer = received if self.metadata.enforces else copy.deepcopy(received)
        self._table.unfinished(answer)
        self._read_format(answer)
        self._note(answer)
        if self._constraint is not None:
            self._constraint.foresee(
                *content_of(answer, self._table), self._table.reasons.get(self._reason, self._reason)
            )
        self._read_snapshot(answer)
        self._conclude_constraint()
        rule = self._blocked()
        if rule is not None:
            self._block(rule)
        else:
            self._finish()
        return self._shown.answer if self.metadata.enforces else received

    def as_stream(self, answer: Json) -> Iterator[list[Json]]:
        if self.metadata.enforces:
            self._table.unfinished(answer)
        for event in self._table.as_events(answer):
            yield self.chunk(event)

    def assembler(self) -> EventAssembler:
        return EventAssembler(self._shown)
