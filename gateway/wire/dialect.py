"""Dialects: all that the gateway needs of one endpoint's protocol, most of it as data.

A dialect is one file (`wire.chat`, `wire.completions`) that fills in a `Dialect`; nothing outside `wire` and `guard`
depends on which one a request came in. An upstream gets the request in the client's dialect if it speaks that one, else
in chat's, if the dialect has a `Translation`. The guard reads answers in chat's form, that of `wire.message` and
`wire.chunks`, and an encoder writes what the guard lets through:

    upstream --chunk_to_chat, answer_to_chat--> guard --AnswerEncoder--> client

A block reaches the encoder as a chunk whose choice has the `finish_reason` `BLOCKED`, after the rule's message, if any.
`DELTA_PLACES` and `MESSAGE_PLACES` list the places of a choice that repeat text which another one has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gateway.wire import json, sse
from gateway.wire.chunk_template import TypedChunk
from gateway.wire.event_table import EventTable
from gateway.wire.event_template import ContentForm, Tally
from gateway.wire.json import Json
from gateway.wire.message import TextSlot

BLOCKED = "content_filter"  # the finish reason of a choice that a rule has ended


class BadRequest(ValueError):
    """A request that cannot be forwarded. `param` names the field; the message says what is wrong with it."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def require_messages(body: Json) -> None:
    """Raises `BadRequest` unless a request's `messages` are objects, one at least."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("`messages` must be a non-empty list.", "messages")
    for position, message in enumerate(messages):
        an_object(message, f"messages[{position}]")


def an_object(value: Any, place: str) -> Json:
    """Raises `BadRequest` for anything else."""
    if not isinstance(value, dict):
        raise BadRequest(f"`{place}` must be an object.", place)
    return value


class UntranslatableAnswer(ValueError):
    """A chat answer that a client's dialect cannot express. The message never quotes it."""


class RequestTexts(NamedTuple):
    """Texts of one part of a request. `field` is the request's field, for errors; `message` the object that they are
    in, if media may stand there and the names of its fields are the protocol's."""

    field: str
    slots: Iterable[TextSlot]
    message: Json | None = None


@dataclass(frozen=True, slots=True)
class ContentPlace:
    """Where a choice of a stream's event has its content: under `key`, in the choice or in its object `holder`."""

    key: str
    holder: str | None = None

    def text(self, choice: Json) -> Any:
        """The content; None if there is no place for it."""
        holder = choice if self.holder is None else choice.get(self.holder)
        return holder.get(self.key) if isinstance(holder, dict) else None

    def put(self, choice: Json, text: str) -> None:
        """Replace the content."""
        if self.holder is None:
            choice[self.key] = text
        elif isinstance(holder := choice.get(self.holder), dict):
            holder[self.key] = text
        else:
            choice[self.holder] = {self.key: text}

    def others(self, choice: Json) -> bool:
        """Does the holder have text of other channels?"""
        holder = None if self.holder is None else choice.get(self.holder)
        return isinstance(holder, dict) and any(
            value for name, value in holder.items() if name not in (self.key, "role")
        )

    def empty(self, choice: Json) -> bool:
        """May the choice be left out, its content being empty?"""
        holder = {} if self.holder is None else choice.get(self.holder)
        return isinstance(holder, dict) and holder.keys() <= {self.key}

    def choice(self, text: str) -> Json:
        """A choice of our own making."""
        content = {self.key: text} if self.holder is None else {self.holder: {self.key: text}}
        return {"index": 0, **content, "logprobs": None, "finish_reason": None}


class AnswerEncoder(Protocol):
    """Writes one answer for a client, from the chunks, or the whole answer, that the guard has let through.

    An answer is given either to `answer` or to the other methods; `events` and `answer` raise `UntranslatableAnswer`.
    """

    def events(self, chunk: Json) -> bytes:
        """The events that a chunk becomes, possibly none."""

    def content(self, text: str) -> bytes | None:
        """The fast path of `events`, for a chunk with nothing but this content; None where `events` is needed."""
        return None

    def content_form(self) -> ContentForm | None:
        """What `content` writes for every text that is not empty, until another method is called; None if it writes
        nothing, or no events of one form."""
        return None

    def end(self) -> bytes:
        """The bytes that end a stream."""

    def error(self, error: Json) -> bytes:
        """The event with an error in OpenAI's shape, which ends a stream."""

    def answer(self, answer: Json) -> Json:
        """A whole answer."""


@dataclass(frozen=True, slots=True)
class Translation:
    """How an upstream that speaks only chat serves a dialect.

    `to_chat` makes chat's request of the client's, and raises `BadRequest` for what chat cannot express. `encoder`
    writes the answer to such a request.
    """

    to_chat: Callable[[Json], Json]
    encoder: Callable[[Json], AnswerEncoder]


def _unchanged(value: Json) -> Json:
    return value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dialect:
    """One endpoint's protocol. Functions that get a chunk or answer use it up."""

    # Requests
    path: str  # the endpoint below an upstream's base URL
    prompt_fields: frozenset[str]  # fields that `prompt_texts` covers, or that hold no text; all others are read alike
    prompt_texts: Callable[[Json], Iterator[RequestTexts]]  # the texts in them
    # How many prompts a request has, each with answers of its own; raises `BadRequest`.
    count_prompts: Callable[[Json], int]
    refused: Mapping[str, str]  # fields that lead past the censor, each with the reason; a request with one is refused
    dropped: Mapping[str, str]  # the same; they are removed
    text_only: tuple[str, ...] = ()  # fields that may hold token ids, which cannot be scanned
    # Does a model write the answer? Without, nothing is steered, and only rules for input need texts.
    generates: bool = True
    served_with: str = ""  # the endpoint whose upstreams have this one too; empty: it has a name of its own
    expansion: int = 1  # how many times `limits.max_body` a whole answer may have
    method: str = ""  # of a request without a body; empty: it is a POST with one
    # Answers
    chunk_to_chat: Callable[[Json], Json] = _unchanged  # an event of a stream as the guard reads it
    answer_to_chat: Callable[[Json], Json] = _unchanged  # a whole answer as the guard reads it
    to_wire: Callable[[Json], Json] = _unchanged  # either of them as this endpoint's clients read it
    # Does an upstream's event end the stream?
    is_end: Callable[[sse.Event], bool] = lambda event: event.data.strip() == b"[DONE]"
    end: bytes = sse.DONE  # the bytes that do so for clients
    # The error, in OpenAI's shape, that an event or answer is; None if it is none.
    error_of: Callable[[Json], Json | None] = lambda received: received if received.get("error") is not None else None
    # An error in OpenAI's shape, and its status, as the body that this endpoint's clients read.
    error_body: Callable[[Json, int], Json] = lambda error, status: error
    # Reads the most frequent event, if its form is that of `chunk_template` (None: no fast path).
    read_typed: Callable[[bytes], TypedChunk | None] | None = None
    translation: Translation | None = None  # for upstreams that do not speak this dialect
    # Where text lives in answers that are typed events, guarded in that form (`guard.events`).
    events: EventTable | None = None
    content: ContentPlace  # where steering finds and puts the text of an event that is not translated yet

    @property
    def endpoint(self) -> str:
        """Its name in `endpoints` of an upstream's configuration."""
        return self.served_with or self.path.removeprefix("/")

    def encoder(self) -> AnswerEncoder:
        """The encoder of an answer that came in this dialect."""
        return DialectEncoder(self) if self.events is None else EventEncoder(self.events)


class DialectEncoder(AnswerEncoder):
    """Writes an answer in the dialect that it came in."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def events(self, chunk: Json) -> bytes:
        return sse.encode(json.encode(self._dialect.to_wire(chunk)))

    def end(self) -> bytes:
        return self._dialect.end

    def error(self, error: Json) -> bytes:
        return sse.encode(json.encode(error))

    def answer(self, answer: Json) -> Json:
        return self._dialect.to_wire(answer)


class EventEncoder(AnswerEncoder):
    """Writes an answer of typed events in the dialect that it came in. Its last event ends the stream. Events that the
    client has are left out."""

    def __init__(self, table: EventTable) -> None:
        self._table = table
        self.tally = Tally()  # the guard's, if that numbers the events

    def events(self, chunk: Json) -> bytes:
        number = chunk.get(self._table.sequence)
        if isinstance(number, int):
            self.tally.number = number + 1
            if number <= self._table.after:
                return b""
        return self._written(chunk)

    @staticmethod
    def _written(event: Json) -> bytes:
        kind = event.get("type")
        return sse.encode(json.encode(event), kind if isinstance(kind, str) and kind.isprintable() else "")

    def end(self) -> bytes:
        return b""

    def error(self, error: Json) -> bytes:
        event = self._table.error(error)
        if self._table.sequence:
            event[self._table.sequence] = max(self.tally.number, 0)
        return self._written(event)

    def answer(self, answer: Json) -> Json:
        return answer
