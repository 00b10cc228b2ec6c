"""The places of text in a dialect of typed events, as data; the guard of such dialects is `guard.events`.

Every text of an answer has a *place*: its path in the answer as a whole, such as `output, 0, content, 1, text`. An
event carries one text or one object of the answer, and the table says which place it stands at and what its role is. In
an object the texts are found by the `type` of the object that they are fields of, so that the same few lines serve the
event that opens it, the one that closes it, the snapshot of all, and an answer that is no stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from gateway.wire.json import Json
from gateway.wire.media import is_opaque
from gateway.wire.message import KNOWN_NAMES, MAX_DEPTH, Path, SlotKind, TextSlot, TooDeep, leaves
from gateway.wire.typed_deltas import TextDelta

# Fields of requests whose values say how something is read: complete where they stand.
_LABELS = frozenset({"type", "role", "id", "status", "phase", "media_type", "call_id", "tool_use_id", "detail", "ttl"})


class Role(Enum):
    """The effect of an event on the answer."""

    START = auto()  # brings the answer as it begins
    OPEN = auto()  # brings an object, or a text, that continues
    APPEND = auto()  # adds a piece to a text
    CLOSE = auto()  # nothing of its place follows; what it brings repeats what has been sent
    ADD = auto()  # brings a complete object, one more at its place
    CONCLUDE = auto()  # every text has ended; brings fields of the answer
    END = auto()  # the same; it may repeat the answer, and is the last event
    STATUS = auto()  # has no text of the answer
    DROP = auto()  # what it brings cannot be scanned: left out while a policy enforces


class Index(NamedTuple):
    """A step of a place: the number that an event has in this field."""

    field: str


Place = tuple[str | Index, ...]
_ANY_INDEX = Index("")


@dataclass(frozen=True, slots=True)
class TextField:
    """The field `name` of objects of type `part`. `delta` is the event that adds to its text and `done` the one that
    repeats it; without a `delta` it is always sent whole. `is_object`: the whole JSON stands there parsed."""

    part: str
    name: str
    channel: str
    kind: SlotKind = SlotKind.TEXT
    delta: str = ""
    done: str = ""
    is_object: bool = False
    signs: str = ""


@dataclass(frozen=True, slots=True)
class EventForm:
    """Events of one type: the text or object under `key`, which is in the event itself or in its object `within`,
    stands at `place`. `done` closes what the event opens, `text` is the field that it adds to, `empties` are fields of
    the object that other events bring."""

    role: Role
    place: Place = ()
    key: str = ""
    within: str = ""
    done: str = ""
    text: TextField | None = None
    empties: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EventTable:
    """A dialect of events."""

    events: Mapping[str, EventForm]  # by type; by `type/type` where the object `within` has a type too
    fields: tuple[TextField, ...]  # the texts in objects
    names: frozenset[str]  # fields that the protocol knows, by any object: those that no text stands in are labels
    constants: frozenset[str]  # values that the protocol defines
    dropped: Mapping[str, str]  # fields that could hold text unread, each with the reason
    echoes: frozenset[str]  # fields of the answer that repeat the request
    content: TextField  # the field of the content
    # The events that open a place for a rule's message, with the objects they bring, by the part it is in.
    message: Mapping[str, tuple[tuple[str, Json], ...]]
    reasons: Mapping[str, str]  # why an answer ended, in chat's words, by its own
    reason_of: Callable[[Json], Any]  # why an answer or the event that concludes it says that it ended
    usage_of: Callable[[Json], tuple[Any, Any] | None]  # tokens of the prompt and of the answer in an event or answer
    stop: Callable[[Json], None]  # writes into an answer that a rule has blocked it
    final: Callable[[Json], list[Json]]  # the events that end the stream of such an answer
    as_events: Callable[[Json], Iterator[Json]]  # a whole answer as the events of a stream
    error: Callable[[Json], Json]  # the event that says an error in OpenAI's shape
    refusal: TextField | None = None  # where a rule's message goes instead of JSON content, if anywhere
    emptied: frozenset[str] = frozenset()  # the dropped fields that become an empty list
    tools: frozenset[str] = frozenset()  # types of objects that call a tool
    # Reads the most frequent events, if their form is one of `typed_deltas`.
    read_delta: Callable[[bytes], TextDelta | None]
    # Takes out of a whole answer what could still continue, if it is not finished.
    unfinished: Callable[[Json], None] = lambda answer: None
    stored: bool = False  # are the answers fetched later? Whether JSON was requested is then known from them alone
    after: int = -1  # the number of the last event that the client of a stored answer has
    sequence: str = ""  # the field with an event's number, if events have one
    item_id: str = ""  # the field of an event with the id of the object that its place is in
    annotations: str = ""  # a field of objects with content that names places in it
    joined: str = ""  # a field of the answer that repeats all its content
    _by_name: dict[tuple[str, str], TextField] = field(init=False, repr=False, default_factory=dict)
    _by_place: dict[Place, TextField] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update({(each.part, each.name): each for each in self.fields})
        for form in self.events.values():
            if form.role is Role.APPEND and form.text is not None:
                self._by_place.setdefault(_pattern(form.place), form.text)

    def form(self, event: Json) -> EventForm | None:
        """The form of an event; None for one of a type that the table does not have."""
        kind = event.get("type")
        known = self.events.get(kind) if isinstance(kind, str) else None
        if known is None or not known.within or known.role is Role.CONCLUDE:
            return known
        holder = event.get(known.within)
        part = holder.get("type") if isinstance(holder, dict) else None
        return self.events.get(f"{kind}/{part}") if isinstance(part, str) and part else known

    def text_field(self, part: Any, name: str) -> TextField | None:
        """The field `name` of an object with the `type` that is `part`."""
        return self._by_name.get((part, name)) if isinstance(part, str) else None

    def streamed_at(self, place: Path) -> TextField | None:
        """The field of the first events that add to a text at such a place, whatever the object there is."""
        return self._by_place.get(_pattern(place))

    def event(self, kind: str, place: Path, value: Any, item_id: Any = None) -> Json:
        """An event of our own making that brings `value` at a place."""
        form = self.events[kind]
        name, _, part = kind.partition("/")
        made: Json = {"type": name}
        if item_id is not None:
            made[self.item_id] = item_id
        for step, at in zip(form.place, place, strict=False):
            if isinstance(step, Index):
                made[step.field] = at
        brought = {form.key: value, **form.more} if form.key else {}
        if form.within:
            made[form.within] = {"type": part, **brought}
        else:
            made |= brought
        return made


def _pattern(place: Place | Path) -> Place:
    return tuple([step if isinstance(step, str) else _ANY_INDEX for step in place])


def content_of(answer: Json, table: EventTable) -> tuple[list[str], bool]:
    """The content of a whole answer, and whether it calls tools."""
    texts: list[str] = []
    calls_tools = False
    waiting: list[Any] = [answer]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            part, text = value.get("type"), value.get(table.content.name)
            calls_tools = calls_tools or (isinstance(part, str) and part in table.tools)
            if part == table.content.part and isinstance(text, str):
                texts.append(text)
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
    return texts, calls_tools


def request_slots(holder: Any, key: Any, table: EventTable, names: frozenset[str]) -> Iterator[TextSlot]:
    """Every text below one field of a request, which repeats answers in their own form; `names` are fields that only
    requests have. Payloads that are no text are left out. Raises `TooDeep`."""
    last: list[TextSlot] = []
    waiting: list[tuple[Any, Any, int]] = [(holder, key, 0)]
    while waiting:
        holder, key, depth = waiting.pop()
        value = holder[key]
        if depth > MAX_DEPTH:
            raise TooDeep(f"objects and lists are nested more than {MAX_DEPTH} deep")
        if isinstance(key, str) and not (key in table.names or key in names or key in KNOWN_NAMES):
            last.append(TextSlot(holder, key, (key,), "other", SlotKind.KEY))
        part = holder.get("type") if isinstance(holder, dict) else None
        known = table.text_field(part, key) if isinstance(key, str) else None
        if isinstance(value, str):
            if known is not None and known.kind in (SlotKind.OPAQUE, SlotKind.SIGNATURE) and is_opaque(value):
                continue
            if known is not None:
                kind = SlotKind.JSON if known.kind is SlotKind.JSON else SlotKind.TEXT
                yield TextSlot(holder, key, (key,), known.channel, kind)
            elif key in _LABELS and value not in table.constants:
                yield TextSlot(holder, key, (key,), "other", SlotKind.LABEL)
            elif key not in _LABELS:
                yield TextSlot(holder, key, (key,), "content", SlotKind.TEXT)
        elif known is not None and known.kind is SlotKind.JSON and value is not None:
            yield from leaves(holder, key, (key,), known.channel)
        elif isinstance(value, dict):
            waiting += [(value, name, depth + 1) for name in reversed(value)]
        elif isinstance(value, list):
            waiting += [(value, at, depth + 1) for at in reversed(range(len(value)))]
    yield from reversed(last)
