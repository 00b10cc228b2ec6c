"""Annotations of what the rules did, for clients that ask: `portcullis` in an answer or its last event.

Rules are named, their words and what they matched are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.observe.facts import TextScanned
from gateway.observe.log import outcome_of
from gateway.wire import chunks, json, sse
from gateway.wire.dialect import AnswerEncoder, Dialect
from gateway.wire.event_template import ContentForm
from gateway.wire.json import Json

FIELD = "portcullis"
# The last events of streams whose events have a type.
LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "message_stop"})
_DATA = b"data: "


def annotation_of(scanned: Iterable[TextScanned]) -> Json:
    """Verdict and matches of a prompt and its answer."""
    texts = tuple(scanned)
    counts: Counter[tuple[str, str, str]] = Counter()
    for text in texts:
        for match in text.matches:
            counts[match.rule, match.action, match.channel] += match.count
    outcome = outcome_of(texts)
    matches = [
        {"rule": rule, "action": action, "channel": channel, "count": count}
        for (rule, action, channel), count in counts.items()
    ]
    return {"verdict": "pass" if outcome == "ok" else outcome, "matches": matches}


class AnnotatingEncoder:
    """An encoder that adds the annotation, which is made when all texts have ended."""

    def __init__(self, encoder: AnswerEncoder, client: Dialect, annotation: Callable[[], Json]) -> None:
        self._encoder = encoder
        self._in_chunks = client.events is None
        self._annotation = annotation
        self._head: Json = {}

    def events(self, chunk: Json) -> bytes:
        if self._in_chunks:
            self._head = self._head or chunks.head_of(chunk)
        elif chunk.get("type") in LAST_EVENTS:
            chunk[FIELD] = self._annotation()
        return self._encoder.events(chunk)

    def content(self, text: str) -> bytes | None:
        return self._encoder.content(text)

    def content_form(self) -> ContentForm | None:
        return self._encoder.content_form()

    def end(self) -> bytes:
        """Of a chat: a chunk without choices, as the one with the usage; else in the event that ends the stream."""
        if self._in_chunks:
            last = {**chunks.chunk(self._head, []), FIELD: self._annotation()}
            return self._encoder.events(last) + self._encoder.end()
        end = self._encoder.end()
        before, _, payload = end.rpartition(_DATA)
        if not payload.startswith(b"{"):
            return end  # the event before it has the annotation
        last_event = json.decode(payload)
        assert isinstance(last_event, dict)
        return before + sse.encode(json.encode({**last_event, FIELD: self._annotation()}))

    def error(self, error: Json) -> bytes:
        return self._encoder.error(error)

    def answer(self, answer: Json) -> Json:
        return {**self._encoder.answer(answer), FIELD: self._annotation()}
