"""The endpoints that the bench asks: for each the request, the script of an answer, and how a client reads it.

Scripts of all endpoints have the same number of chunks for the same text: one that begins the answer, one a token, one
that ends it. Shapes and the names in front of events are those of OpenAI and Anthropic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "bench-model"

Event = dict[str, Any]
Chunk = tuple[bytes, bytes | None]  # bytes before and after the stamp; None: without one


@dataclass(slots=True)
class Reading:
    """What one event says: a delta of the text, why the answer ended, whether that was its last event; `stamp`: of the
    upstream's chunk that it was made from; `repeated`: the whole text once more."""

    delta: str = ""
    finish: str | None = None
    last: bool = False
    stamp: int | None = None
    repeated: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """One endpoint: its path below `/v1`, the fields of a request besides `model` and `stream`, the chunks of an answer
    with these deltas, and what one of its events says."""

    path: str
    prompt: Callable[[str], Event]
    script: Callable[[Sequence[str]], list[Chunk]]
    read: Callable[[Event], Reading]

    @property
    def endpoint(self) -> str:
        """Its name among the `endpoints` of an upstream."""
        return self.path.removeprefix("/v1/")


# -- chat completions --------------------------------------------------------------------------------------------------


def chunk(delta: str | None, finish: str | None = None) -> tuple[bytes, bytes]:
    """One event in two parts, before and after the stamp; None is the role chunk that opens an answer."""
    role = {"role": "assistant", "content": "", "refusal": None}
    content = role if delta is None else {"content": delta} if delta else {}
    event = {
        "id": "chatcmpl-BenchBenchBenchBenchBenchBenc",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": content, "logprobs": None, "finish_reason": finish}],
    }
    before, _, after = _encoded(event).partition(b'"created":0')
    return b'data: %s"created":' % before, after + b"\n\n"


def _chat_script(deltas: Sequence[str]) -> list[Chunk]:
    before, after = chunk("", finish="stop")
    return [chunk(None), *map(chunk, deltas), (before, after + b"data: [DONE]\n\n")]


def _read_chat(event: Event) -> Reading:
    reading = Reading(stamp=event["created"])
    for choice in event["choices"]:
        reading.delta += choice["delta"].get("content") or ""
        reading.finish = choice["finish_reason"] or reading.finish
    return reading


# -- responses ---------------------------------------------------------------------------------------------------------


def _response_events(deltas: Sequence[str]) -> Iterator[list[Event]]:
    item = {"id": "msg_Bench", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part: Event = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = {**part, "text": "".join(deltas)}
    done = {**item, "status": "completed", "content": [whole]}
    response = {"id": "resp_Bench", "object": "response", "created_at": 1, "model": MODEL, "status": "in_progress"}
    at: Event = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield [
        {"type": "response.created", "response": {**response, "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **at, "part": part},
    ]
    for delta in deltas:
        yield [{"type": "response.output_text.delta", **at, "delta": delta, "logprobs": [], "obfuscation": "aB3dE6gH9"}]
    yield [
        {"type": "response.output_text.done", **at, "text": whole["text"], "logprobs": []},
        {"type": "response.content_part.done", **at, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [done]}},
    ]


def _response_script(deltas: Sequence[str]) -> list[Chunk]:
    number = 0
    script: list[Chunk] = []
    for events in _response_events(deltas):
        numbered = [{**event, "sequence_number": number + place} for place, event in enumerate(events)]
        number += len(events)
        script.append(_named(numbered))
    return script


def _read_response(event: Event) -> Reading:
    match event["type"]:
        case "response.output_text.delta":
            return Reading(event["delta"])
        case "response.output_text.done":
            return Reading(repeated=event["text"])
        case "response.completed":
            texts = [part["text"] for item in event["response"]["output"] for part in item["content"]]
            return Reading(finish="stop", last=True, repeated="".join(texts))
    return Reading()


# -- messages ----------------------------------------------------------------------------------------------------------


def _message_script(deltas: Sequence[str]) -> list[Chunk]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_Bench", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    script = [
        _named(
            [
                {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            ]
        )
    ]
    for delta in deltas:
        script.append(
            _named([{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": delta}}])
        )
    end: list[Event] = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": len(deltas)}},
        {"type": "message_stop"},
    ]
    return [*script, _named(end)]


def _read_message(event: Event) -> Reading:
    match event["type"]:
        case "content_block_delta":
            return Reading(event["delta"]["text"])
        case "message_delta":
            reason = event["delta"]["stop_reason"]
            return Reading(finish="stop" if reason == "end_turn" else reason)
        case "message_stop":
            return Reading(last=True)
    return Reading()


def _named(events: Iterable[Event]) -> Chunk:
    """Events with their names in front, written at once."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (event["type"].encode(), _encoded(event)) for event in events), None


def _encoded(event: Event) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _messages(text: str) -> Event:
    return {"messages": [{"role": "user", "content": text}]}


DIALECTS = {
    "chat": Dialect("/v1/chat/completions", _messages, _chat_script, _read_chat),
    "responses": Dialect("/v1/responses", lambda text: {"input": text}, _response_script, _read_response),
    "messages": Dialect(
        "/v1/messages", lambda text: {**_messages(text), "max_tokens": 100_000}, _message_script, _read_message
    ),
}
OVER_CHAT = "-over-chat"  # behind a dialect's name: the upstream speaks only chat
WAYS = (*DIALECTS, *(name + OVER_CHAT for name in DIALECTS if name != "chat"))


def of_path(path: str) -> Dialect:
    """The dialect that a request's path is of; chat's for any other."""
    return next((dialect for dialect in DIALECTS.values() if dialect.path == path), DIALECTS["chat"])
