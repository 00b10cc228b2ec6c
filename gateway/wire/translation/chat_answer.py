"""A guarded chat answer, taken apart: what the encoders of other dialects write, in the order in which it came."""

from __future__ import annotations

import re
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from gateway.wire.dialect import AnswerEncoder, UntranslatableAnswer
from gateway.wire.event_template import Tally
from gateway.wire.json import Json
from gateway.wire.message import is_figure, position_of

# Characters of an answer: encoders keep its text, because the events at its end repeat it.
MAX_TEXT = 4 * 1024 * 1024
_OF_ENTRY = 64  # characters that a call, an annotation or a log probability counts for beside its text

_CHAT_ID = re.compile("(?:chatcmpl-|cmpl-)?([A-Za-z0-9_-]{1,128})")
_REASONING = ("reasoning_content", "reasoning")  # with one text, where an upstream sends both


class Usage(NamedTuple):
    """Tokens, as the upstream counted them; 0 where it has not."""

    prompt: int
    cached: int  # of the prompt
    answer: int
    reasoning: int  # of the answer


class Text(NamedTuple):
    """`logprobs` are chat's entries for this text."""

    channel: Literal["reasoning", "content", "refusal"]
    text: str
    logprobs: list[Json]


class CallStart(NamedTuple):
    """A tool call; `custom`: its input is text, not JSON."""

    number: int
    id: str
    name: str
    custom: bool


class CallText(NamedTuple):
    number: int
    text: str


class Annotation(NamedTuple):
    value: Json


Piece = Text | CallStart | CallText | Annotation


class _Unnamed(NamedTuple):
    """What has come of a call before its name, which is shown complete."""

    id: str | None
    texts: list[str]


class ChatAnswer:
    """Reads the chunks of one answer, or a whole one. `reason` is the `finish_reason`, None before it has come."""

    def __init__(self, model: str, max_text: int = MAX_TEXT) -> None:
        self.id = ""  # of letters, digits, `_` and `-`; there once it has begun
        self.own_id: str | None = None  # instead of the upstream's
        self.model = model
        self.created = 0  # seconds
        self.usage: Usage | None = None
        self.reason: str | None = None
        self.stop: str | None = None  # the stop sequence, from an upstream that says which
        self._limit = max_text
        self.tally = Tally(max_text, number=0)
        self._reasoning: str | None = None  # the field that this answer has it in
        self._named: set[int] = set()
        self._unnamed: dict[int, _Unnamed] = {}
        self._places: dict[str | int, tuple[str, int | None]] = {}  # of each text

    def read(self, chunk: Json, part: Literal["delta", "message"]) -> list[Piece]:
        """What a chunk, whose choices have a `delta`, or a whole answer adds. Raises `UntranslatableAnswer`."""
        self.read_labels(chunk)
        if isinstance(usage := chunk.get("usage"), dict):
            self.usage = _usage(usage)
        pieces: list[Piece] = []
        for choice in chunk.get("choices") or ():
            if self.reason is not None:
                break
            pieces += self._pieces(choice, part)
            if reason := choice.get("finish_reason"):
                pieces += self._end()
                self.reason = str(reason)
                stop = choice.get("stop_reason")
                self.stop = stop if isinstance(stop, str) else None
        return pieces

    def end(self) -> list[Piece]:
        """The answer is over, whether or not it has said why."""
        if self.reason is not None:
            return []
        self.read_labels({})
        self.reason = "stop"
        return self._end()

    def read_labels(self, chunk: Json) -> bool:
        """Read the labels of an answer from its first chunk; is it the first?"""
        if self.id:
            return False
        given = chunk.get("id")
        known = _CHAT_ID.fullmatch(given) if isinstance(given, str) else None
        self.id = self.own_id or (known[1] if known else uuid.uuid4().hex)
        if isinstance(model := chunk.get("model"), str) and model:
            self.model = model
        if isinstance(created := chunk.get("created"), int) and is_figure(created):
            self.created = created
        return True

    def _pieces(self, choice: Json, part: str) -> Iterator[Piece]:
        delta = choice.get(part)
        if not isinstance(delta, dict):
            return
        if self._reasoning is None:
            self._reasoning = next((field for field in _REASONING if delta.get(field)), None)
        if self._reasoning is not None and (text := self._text(self._reasoning, delta, self._reasoning)):
            yield Text("reasoning", text, [])
        if text := self._text("content", delta, "content"):
            yield Text("content", text, self._logprobs(choice))
        if text := self._text("refusal", delta, "refusal"):
            yield Text("refusal", text, [])
        for value in _objects(delta.get("annotations")):
            self.count(_OF_ENTRY + len(str(value)))
            yield Annotation(value)
        for position, call in enumerate(_objects(delta.get("tool_calls"))):
            yield from self._call(call, position_of(call, position))

    def _call(self, call: Json, number: int) -> Iterator[Piece]:
        custom = isinstance(call.get("custom"), dict)
        given = call["custom"] if custom else call.get("function")
        given = given if isinstance(given, dict) else {}
        text = self._text(number, given, "input" if custom else "arguments")
        if number in self._named:
            if text:
                yield CallText(number, text)
            return
        call_id = call["id"] if isinstance(call.get("id"), str) and call["id"] else None
        before = self._unnamed.setdefault(number, _Unnamed(call_id, []))
        if before.id is None:
            before = self._unnamed[number] = before._replace(id=call_id)
        if text:
            self.count(_OF_ENTRY)
            before.texts.append(text)
        if isinstance(name := given.get("name"), str) and name:
            self.count(len(name))
            yield from self._start_call(number, name, custom)

    def _start_call(self, number: int, name: str, custom: bool) -> Iterator[Piece]:
        before = self._unnamed.pop(number)
        self._named.add(number)
        self.count(_OF_ENTRY)
        yield CallStart(number, before.id or f"call_{self.id}_{number}", name, custom)
        if text := "".join(before.texts):
            yield CallText(number, text)

    def _end(self) -> list[Piece]:
        return [piece for number in sorted(self._unnamed) for piece in self._start_call(number, "", False)]

    def _logprobs(self, choice: Json) -> list[Json]:
        given = choice.get("logprobs")
        entries = _objects(given.get("content")) if isinstance(given, dict) else []
        for entry in entries:
            self.count(_OF_ENTRY * (1 + len(_objects(entry.get("top_logprobs")))))
        return entries

    def _text(self, key: str | int, holder: Json, field: str) -> str:
        """The text of a field; of a list of parts, that of the one that has text. The guard has scanned each part as a
        text of its own, so no two of them become one here. Raises `UntranslatableAnswer`."""
        value = holder.get(field)
        texts: list[tuple[int | None, Any]] = [(None, value)]
        if not isinstance(value, str):
            texts = [(position_of(part, at), part.get("text")) for at, part in enumerate(_objects(value))]
        found = ""
        for part, text in texts:
            if isinstance(text, str) and text:
                if found or self._places.setdefault(key, (field, part)) != (field, part):
                    raise UntranslatableAnswer("the answer has a text in several parts")
                found = text
        self.count(len(found))
        return found

    def count(self, characters: int) -> None:
        """Count characters that are kept. Raises `UntranslatableAnswer`."""
        self.tally.left -= characters
        if self.tally.left < 0:
            raise UntranslatableAnswer(f"the answer has more than {self._limit} characters to translate")


class TranslatingEncoder(AnswerEncoder):
    """Writes one answer to the request `body`, which may be none that can be translated."""

    def __init__(self, body: Json, max_text: int = MAX_TEXT) -> None:
        self._answer = ChatAnswer(str(body.get("model", "")), max_text)
        self._closed = False

    def events(self, chunk: Json) -> bytes:
        out = [*self._first(chunk), *self._pieces(self._answer.read(chunk, "delta"))]
        return b"".join(out if self._answer.reason is None else [*out, *self._close()])

    def end(self) -> bytes:
        out = [*self._first({}), *self._pieces(self._answer.end()), *self._close()]
        return b"".join([*out, *self._last_events()])

    def answer(self, answer: Json) -> Json:
        for piece in [*self._answer.read(answer, "message"), *self._answer.end()]:
            self._piece(piece)
        return self._complete()

    def _first(self, chunk: Json) -> list[bytes]:
        return self._first_events() if self._answer.read_labels(chunk) else []

    def _pieces(self, pieces: Iterable[Piece]) -> list[bytes]:
        return [event for piece in pieces for event in self._piece(piece)]

    def _close(self) -> list[bytes]:
        """The ends of all that is open, once."""
        if self._closed:
            return []
        self._closed = True
        return self._ends()

    @abstractmethod
    def _first_events(self) -> list[bytes]:
        """Those with which the stream begins."""

    @abstractmethod
    def _piece(self, piece: Piece) -> list[bytes]:
        """The events of a piece, which is kept for what repeats it."""

    @abstractmethod
    def _ends(self) -> list[bytes]:
        """Those that end what has begun."""

    @abstractmethod
    def _last_events(self) -> list[bytes]:
        """Those with which the stream ends."""

    @abstractmethod
    def _complete(self) -> Json:
        """The whole answer, for the client."""


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _usage(usage: Json) -> Usage:
    def count(holder: Any, field: str) -> int:
        value = holder.get(field) if isinstance(holder, dict) else None
        return value if type(value) is int and value >= 0 else 0

    return Usage(
        count(usage, "prompt_tokens"),
        count(usage.get("prompt_tokens_details"), "cached_tokens"),
        count(usage, "completion_tokens"),
        count(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )
