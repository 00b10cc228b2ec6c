"""The objects of an answer that comes as events, under the guard: every text in them is found and replaced in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.guard.annotations import realigned
from gateway.guard.channels import InvalidAnswer
from gateway.guard.event_texts import EventTexts
from gateway.guard.logprobs import followed
from gateway.guard.metadata import Metadata
from gateway.policy.model import Channel
from gateway.wire.event_table import EventTable, TextField
from gateway.wire.json import Json
from gateway.wire.media import ONLY_KNOWN, is_unnamed, may_be_payload, payload_at
from gateway.wire.message import MAX_DEPTH, Path, SlotKind, is_figure, may_spell_text


class EventObjects:
    """Reads the objects of one answer. Labels come before texts: after a block nothing is read that is not known."""

    def __init__(self, metadata: Metadata, table: EventTable, texts: EventTexts) -> None:
        self._metadata = metadata
        self._table = table
        self._texts = texts
        self._echoed: dict[str, tuple[Any, Any]] = {}

    def read(self, holder: Json, place: Path, *, ends: bool, skip: tuple[str, ...] = ()) -> None:
        """Censor an object in place. `ends`: nothing of its texts follows. `skip`: fields that are read elsewhere."""
        if len(place) > MAX_DEPTH:
            raise InvalidAnswer(f"the answer has objects and lists nested more than {MAX_DEPTH} deep")
        self._drop(holder)
        texts: list[tuple[str, TextField]] = []
        nested: list[str] = []
        part = holder.get("type")
        if isinstance(part, str) and part in self._table.tools:
            self._texts.leave()
        for name, value in list(holder.items()):
            if name in skip or value is None or isinstance(value, bool):
                continue
            field = self._table.text_field(part, name)
            if field is None and not ends:
                field = self._table.streamed_at((*place, name))
            if name not in self._table.names and not self._keep_unknown(holder, name):
                continue
            if not place and name in self._table.echoes:
                holder[name] = self._echo(name, value)
            elif field is not None or (*place, name) in self._texts.places:
                texts.append((name, field or self._texts.places[*place, name].field))
            elif name == "usage":
                holder[name] = self._metadata.scrub(value, is_usage=True)
            elif isinstance(value, dict | list):
                nested.append(name)
            elif (
                isinstance(value, str)
                and (declared := payload_at(holder, name)) is not None
                and (declared != ONLY_KNOWN or name not in self._table.names or is_unnamed(holder, name))
            ):
                holder[name] = self._payload(value, declared)
            else:
                holder[name] = self._label(name, value)
        # Names come before the texts that may block, and signatures after what they sign.
        for name, field in sorted(texts, key=lambda each: (each[1].kind is SlotKind.SIGNATURE, bool(each[1].delta))):
            holder[name] = self._text(holder, name, field, (*place, name), ends)
        for name in sorted(nested, key=lambda each: isinstance(holder[each], list)):
            holder[name] = self._nested(holder[name], (*place, name), ends)
        if self._texts.rule is not None and holder.get("status") == "completed":
            holder["status"] = "incomplete"
        annotations = holder.get(self._table.annotations)
        if part == self._table.content.part and isinstance(annotations, list):
            holder[self._table.annotations] = self.realigned(annotations, place)

    def realigned(self, annotations: list[Any], place: Path) -> list[Any]:
        """Annotations of the content that the object at a place has, their places moved with what was replaced."""
        text = self._texts.places.get((*place, self._table.content.name))
        if not self._metadata.enforces:
            return annotations
        return realigned(annotations, None if text is None else followed(text.text))

    def read_event(self, event: Json, skip: tuple[str, ...]) -> None:
        """Censor what an event has beside the text or object that it brings. Clients may append what is in one event
        to what was in the one before."""
        self._drop(event)
        kind = event.get("type")
        for name, value in list(event.items()):
            if name in skip or value is None or isinstance(value, bool):
                continue
            if name not in self._table.names and not self._keep_unknown(event, name):
                continue
            field = self._table.text_field(kind, name)
            if name == "usage":
                event[name] = self._metadata.scrub(value, (str(kind), name), is_usage=True)
            elif field is not None and isinstance(value, str):
                event[name] = self._texts.opaque(value)
            elif name not in self._table.names or isinstance(value, dict | list):
                event[name] = self._metadata.scrub(value, (str(kind), name))
            else:
                event[name] = self.joined((str(kind), name), self._label(name, value))

    def joined(self, place: Path, label: Any) -> Any:
        """A label that clients may append to the one before at its place."""
        if not isinstance(label, str) or label in self._table.constants:
            return label
        return self._metadata.repeated(place, label)

    # -- fields --------------------------------------------------------------------------------------------------------

    def _drop(self, holder: Json) -> None:
        if not self._metadata.enforces:
            return
        self._metadata.leave_out_misspelled([holder], self._table.names)
        for name in self._table.dropped.keys() & holder.keys():
            if name in self._table.emptied:
                holder[name] = [] if holder[name] is not None else None
            else:
                del holder[name]

    def _keep_unknown(self, holder: Json, name: str) -> bool:
        """Censor the name of a field that the protocol does not have, or take the field out."""
        if not self._metadata.keeps(holder, name):
            return False
        shown = self._texts.label(name)
        if shown != name:  # what is left may be the name of another field, read as such
            value = holder.pop(name)
            if shown not in holder and shown not in self._table.names:
                holder[shown] = self._value(value, (shown,), True)
        return shown == name

    def _label(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            if name not in self._table.names and may_be_payload(value):
                return self._payload(value, ONLY_KNOWN)
            return self._texts.label(value) if self._texts.rule is None else self._after_block(value)
        if name in self._table.names and is_figure(value):
            return value
        shown = self._texts.label(repr(value))
        return value if shown == repr(value) else shown

    def _payload(self, value: str, declared: str) -> str:
        return self._texts.payload(value, declared) if self._texts.rule is None else self._after_block(value)

    def _after_block(self, value: str) -> str:
        """A label in an object in which a rule has blocked already."""
        return value if value in self._table.constants or self._metadata.is_clean(value) else ""

    def _text(self, holder: Json, name: str, field: TextField, place: Path, ends: bool) -> Any:
        value, texts = holder[name], self._texts
        channel = Channel(field.channel)
        if texts.rule is not None:
            return {} if isinstance(value, dict) else "" if isinstance(value, str) else None
        if isinstance(value, dict) and field.kind is SlotKind.JSON:
            if (streamed := texts.places.get(place)) is not None and ends:
                texts.finish(streamed)
                return texts.reparsed(streamed.joined())
            return texts.parsed(value, channel) if value else value
        if not isinstance(value, str):
            return self._value(value, place, ends)
        if field.kind is SlotKind.SIGNATURE:
            signed = texts.places.get((*place[:-1], field.signs))
            return texts.opaque(value) if signed is None or signed.exact else ""
        if field.kind is SlotKind.OPAQUE:
            return texts.opaque(value)
        if not field.delta:
            return texts.censor_complete(value, channel, field.kind)
        if ends:
            return texts.repeat(place, field, value)
        return texts.feed(place, field, value) if value else value

    def _nested(self, value: Any, place: Path, ends: bool) -> Any:
        if self._texts.rule is not None:
            return [] if isinstance(value, list) else {}
        return self._value(value, place, ends)

    def _value(self, value: Any, place: Path, ends: bool) -> Any:
        if isinstance(value, dict):
            self.read(value, place, ends=ends)
            return value
        if isinstance(value, list):
            if may_spell_text(value):
                return self._metadata.scrub(value)
            return self._items(value, place, ends)
        return value if value is None or isinstance(value, bool) else self._label("", value)

    def _items(self, items: list[Any], place: Path, ends: bool) -> list[Any]:
        """The items of a list up to a block."""
        if ends and len(items) > 1:
            self._texts.follow(list(self._parts(items, place)))
        shown: list[Any] = []
        for at, item in enumerate(items):
            if self._texts.rule is not None:
                break
            known = self._texts.places.get((*place, at))
            if known is not None and isinstance(item, str):
                shown.append(self._texts.repeat((*place, at), known.field, item))
            else:
                shown.append(item)
                shown[at] = self._value(item, (*place, at), ends)
        return shown

    def _parts(self, items: list[Any], place: Path) -> Iterator[tuple[Path, TextField, str]]:
        """The text parts of a whole list."""
        for at, item in enumerate(items):
            text = item.get("text") if isinstance(item, dict) else None
            field = self._table.text_field(item.get("type"), "text") if isinstance(text, str) else None
            if field is not None and field.delta and isinstance(text, str):
                yield (*place, at, "text"), field, text

    def _echo(self, name: str, value: Any) -> Any:
        """What repeats the request. It comes two or three times, and is nothing that could block the answer."""
        given, shown = self._echoed.get(name, (None, None))
        if given is not None and given == value:
            return shown
        counts = self._metadata.counts
        blocked_by = counts.blocked_by
        shown = self._metadata.scrub(value)
        if self._metadata.blocked is not None:
            self._metadata.blocked, counts.blocked_by, shown = None, blocked_by, None
        self._echoed[name] = value, shown
        return shown
