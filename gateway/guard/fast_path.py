"""The fast path for an event of a stream that differs from one seen before only in its content: most of a stream.

It must write what the slow path (`ChatGuard.chunk`) writes; tests/wire/test_chunk_template.py and tests/guard hold
them equal. An event that does not fit leaves no trace and takes the slow path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from msgspec import UNSET

from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.bytes_path import BytesPath, Record, open_bytes_path
from gateway.guard.chat import MAX_HEAD, ChatGuard
from gateway.guard.choice import Choice
from gateway.guard.events import EventGuard
from gateway.wire import chunks, json, sse
from gateway.wire.chunk_template import NOTHING, TypedChunk, encode
from gateway.wire.dialect import AnswerEncoder, Dialect, EventEncoder
from gateway.wire.event_template import EventTemplate
from gateway.wire.json import Json
from gateway.wire.message import FINISH_REASONS, ROLES, Path
from gateway.wire.typed_deltas import TextDelta, TextId, template_of, text_id

_CONTENT: Path = ("content",)


class EventFastPath:
    """The fast path of one answer of typed events. `read` is that of their table; `encoder` writes the others."""

    __slots__ = ("_guard", "_learnt", "_read", "_template")

    def __init__(self, guard: EventGuard, read: Callable[[bytes], TextDelta | None], encoder: EventEncoder) -> None:
        self._guard = guard
        self._read = read
        encoder.tally = guard.tally
        self._learnt: TextId | None = None  # of the last event that a template was made of
        self._template: EventTemplate | None = None

    def repeat(self, data: bytes, most: int = sys.maxsize) -> tuple[bytes, list[Json]] | None:
        """What to send, possibly nothing, and the events to send after it; None where only the slow path will do, or
        the text has more than so many characters."""
        delta = self._read(data)
        if delta is None or len(delta.text) > most or not delta.has_figures:
            return None
        of, sent = text_id(delta), self._guard.repeat(delta)
        if sent is not None and of != self._learnt:
            self._learnt, self._template = of, template_of(data, self._read)
        return sent

    @property
    def framing(self) -> int:
        """The bytes of an event of `bytes_path` that are not its text's."""
        return 0 if self._template is None else self._template.size

    def learn(self, data: bytes) -> None:
        """Nothing: the guard knows which texts have begun."""

    def bytes_path(self, limit: int) -> BytesPath | None:
        """As that of `FastPath`."""
        if self._template is None or self._learnt is None:
            return None
        place = self._guard.streamed_text(self._learnt)
        text = None if place is None else place.steady
        if place is None or text is None:
            return None
        record = Record(self._guard.tally, place.shown.append, place if place.exact else None)
        return open_bytes_path(self._template, self._guard, text, limit, record)


class FastPath:
    """The fast path of one answer. `read` is that of its dialect, `encoder` writes it for a client of another."""

    __slots__ = (
        *("_begun", "_choices", "_encoder", "_enforces", "_guard", "_index", "_known", "_learnt", "_read", "_template"),
    )

    def __init__(
        self, guard: ChatGuard, read: Callable[[bytes], TypedChunk | None], encoder: AnswerEncoder | None = None
    ) -> None:
        self._guard = guard
        self._encoder = encoder
        self._choices = guard.choices
        self._enforces = guard.metadata.enforces
        self._read = read
        # A chunk with clean labels: others with the same labels are not scanned for them again, and those that equal
        # its template are for `bytes_path`.
        self._known: TypedChunk | None = None
        self._template: EventTemplate | None = None
        self._index = 0  # of its choice
        self._begun = self._learnt = False

    def repeat(self, data: bytes, most: int = sys.maxsize) -> tuple[bytes, list[Json]] | None:
        """What to send, possibly nothing, and the chunks to send after it; None where only the slow path will do, or
        the content has more than so many characters."""
        begun, self._begun = self._begun, True
        if (begun and self._known is None) or (chunk := self._read(data)) is None or not chunk.has_figures:
            return None
        if not (self._passes(chunk) if self._known is None else chunk.has_labels_of(self._known)):
            return None
        (part,) = chunk.choices
        given = part.delta.content
        if given is not UNSET and len(given) > most:
            return None
        if self._enforces:
            chunk.drop()
            return self._shown(data, chunk)
        if part.token_ids is not UNSET:
            return None
        taken = self._shown(data, chunk)
        if taken is not None and chunk.obfuscation is not UNSET:
            self._guard.metadata.scrub_envelope({"obfuscation": chunk.obfuscation})
        return taken

    def _shown(self, data: bytes, chunk: TypedChunk) -> tuple[bytes, list[Json]] | None:
        """`repeat` for a chunk whose labels are clean and shown."""
        (part,) = chunk.choices
        if chunk.has_content_only:
            given = part.delta.content
            taken = self._censor(part.index, given or "", chunk.show)
            if taken is not None and not self._learnt:
                self._learn(data, self._read(data))
            return taken
        if self._encoder is not None:
            return None
        return self._end(chunk, part.finish_reason) if part.finish_reason else self._open_choice(chunk)

    def _passes(self, chunk: TypedChunk) -> bool:
        """Are the labels of an answer's first chunk clean? What is counted and kept for that is not so again."""
        metadata, labels = self._guard.metadata, chunk.labels()
        if self._encoder is not None or sum(map(len, labels.values())) > MAX_HEAD:
            return False
        for label in labels.values():
            if not metadata.passes_unopened(label):
                return False
        for name, label in labels.items():
            if metadata.repeated((name,), label) != label:
                return False
        self._known = chunk
        return True

    def _open_choice(self, chunk: TypedChunk) -> tuple[bytes, list[Json]] | None:
        """A chunk that begins a choice, with a role."""
        (part,) = chunk.choices
        given, role = part.delta.content, part.delta.role
        if given is UNSET or not (role is UNSET or role in ROLES):
            return None
        choice = self._guard.open_choice(part.index, chunk.head())
        if choice is None:
            return None
        return self._first(choice, given, chunk.show, shows_more=role is not UNSET)

    def _first(
        self, choice: Choice, given: str, show: Callable[[str], bytes], *, shows_more: bool
    ) -> tuple[bytes, list[Json]]:
        """A content that may be the first of its choice's text; is there something beside it?"""
        shown = choice.open_content(given)
        sent = sse.encode(show(shown)) if shown or shows_more or not given else b""
        return sent, [] if choice.rule is None else self._guard.block(choice)

    def _end(self, chunk: TypedChunk, reason: str) -> tuple[bytes, list[Json]] | None:
        """A chunk that ends a choice, and has nothing else."""
        (part,) = chunk.choices
        choice = self._choices.get(part.index)
        if choice is None or part.delta != NOTHING or reason not in FINISH_REASONS or not choice.is_content:
            return None
        if self._guard.counts.blocked_by is not None:
            return None  # the answer may end with this choice
        head = chunk.head()
        tail, after = self._guard.conclude(choice, reason, head)
        sent = b"" if after else sse.encode(encode(chunk))
        if tail:
            rest = chunks.chunk(head, [chunks.part(part.index, {"content": tail})])
            sent = sse.encode(json.encode(rest)) + sent
        return sent, after

    @property
    def framing(self) -> int:
        """The bytes of an event of `bytes_path` that are not its content's."""
        return 0 if self._template is None else self._template.size

    def bytes_path(self, limit: int) -> BytesPath | None:
        """The way for the next events, until one of them takes another; None if there is none. `limit`: bytes that an
        event may have."""
        template, record = self._template, None
        choice = None if template is None else self._choices.get(self._index)
        if template is None or choice is None or choice.ended or choice.calls:
            return None
        if self._encoder is not None:
            form = self._encoder.content_form()
            if form is None:
                return None
            template, record = template.translated(form.event), Record(form.tally, form.keep)
        return open_bytes_path(template, self._guard, choice.texts.get(_CONTENT), limit, record)

    def _censor(self, index: int, given: str, show: Callable[[str], bytes]) -> tuple[bytes, list[Json]] | None:
        choice = self._choices.get(index)
        if choice is None or choice.ended or choice.calls:
            return None
        if not choice.texts and self._encoder is None:
            return self._first(choice, given, show, shows_more=False)
        if (text := choice.texts.get(_CONTENT)) is None:
            return None
        shown = text.feed(given)
        shown = shown if self._enforces else given  # half a surrogate pair, which the text holds, has been shown
        choice.rule = text.rule
        sent = b""
        if shown or not given:
            sent = sse.encode(show(shown)) if self._encoder is None else self._translated(index, shown)
        return sent, [] if choice.rule is None else self._guard.block(choice)

    def _translated(self, index: int, content: str) -> bytes:
        assert self._encoder is not None
        sent = self._encoder.content(content)
        if sent is None:
            sent = self._encoder.events(chunks.chunk({}, [chunks.part(index, {"content": content})]))
        return sent

    def learn(self, data: bytes) -> None:
        """An event took the slow path; may others like it take the fast one?"""
        chunk = self._read(data) if self._guard.content_only else None
        if chunk is not None and all(map(self._guard.metadata.is_clean, chunk.labels().values())):
            self._known = chunk
            self._learn(data, chunk)

    def _learn(self, data: bytes, chunk: TypedChunk | None) -> None:
        assert chunk is not None
        self._learnt = True
        dropped = chunk.obfuscation is not UNSET or chunk.choices[0].token_ids is not UNSET
        # A usage is for the encoder.
        makes = (self._encoder is None or chunk.has_figures) and (self._enforces or not dropped)
        self._template, self._index = chunk.template(data) if makes else None, chunk.choices[0].index


def fast_path(
    guard: AnswerGuard, dialect: Dialect, encoder: AnswerEncoder, *, translates: bool
) -> FastPath | EventFastPath | None:
    """The fast path of an answer that comes in `dialect`; None if there is none. `translates`: `encoder` writes another
    dialect."""
    if isinstance(guard, ChatGuard) and dialect.read_typed is not None:
        return FastPath(guard, dialect.read_typed, encoder if translates else None)
    if isinstance(guard, EventGuard) and isinstance(encoder, EventEncoder) and dialect.events is not None:
        return EventFastPath(guard, dialect.events.read_delta, encoder)
    return None
