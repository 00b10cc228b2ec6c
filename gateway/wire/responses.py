"""The dialect of `/responses`, as OpenAI and vLLM speak it. Its answers are events: `wire.response_events`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gateway.wire import chat
from gateway.wire.dialect import BadRequest, ContentPlace, Dialect, RequestTexts, Translation, an_object
from gateway.wire.event_table import request_slots
from gateway.wire.json import Json
from gateway.wire.message import text_slots
from gateway.wire.names import named, reasons
from gateway.wire.response_events import RESPONSE_EVENTS
from gateway.wire.translation.responses_answer import ResponsesEncoder
from gateway.wire.translation.responses_request import to_chat

# Dropped beside what chat drops. docs/responses.md prints this table.
DROPPED_IN_REQUESTS = reasons("responses", "dropped_in_requests")
# Of input items, beside what answers have.
_NAMES = named("responses", "request_names")
_WITHOUT_INPUT = ("prompt", "previous_response_id", "conversation")


def count_prompts(body: Json) -> int:
    """Always one prompt. Raises `BadRequest` for what no upstream could take, and for what is not served."""
    given = body.get("input")
    may_be_absent = any(body.get(field) is not None for field in _WITHOUT_INPUT)
    if not (isinstance(given, str | list) or (given is None and may_be_absent)):
        raise BadRequest("`input` must be a string or a list of items.", "input")
    for position, item in enumerate(given if isinstance(given, list) else ()):
        an_object(item, f"input[{position}]")
    instructions = body.get("instructions")
    if not (instructions is None or isinstance(instructions, str | list)):
        raise BadRequest("`instructions` must be a string.", "instructions")
    if (prompt := body.get("prompt")) is not None:
        an_object(prompt, "prompt")
    return 1


def prompt_texts(body: Json) -> Iterator[RequestTexts]:
    """The texts of the instructions, of each item of the input, and of the variables of a stored prompt."""
    for field in ("instructions", "input"):
        value = body.get(field)
        if isinstance(value, str):
            yield RequestTexts(field, text_slots(body, field))
        for position, item in enumerate(value if isinstance(value, list) else ()):
            slots = request_slots(value, position, RESPONSE_EVENTS, _NAMES)
            yield RequestTexts(field, slots, item if isinstance(item, dict) else None)
    if (prompt := body.get("prompt")) is not None:
        yield RequestTexts("prompt", request_slots(body, "prompt", RESPONSE_EVENTS, _NAMES), {"content": prompt})


def error_of(received: Json) -> Json | None:
    """The error in OpenAI's shape that an event or body is, if it is one; a response that failed is an answer."""
    error = received.get("error")
    if received.get("type") == "error":
        return {"error": error if error is not None else {name: received.get(name) for name in _ERROR_FIELDS}}
    if error is None or received.get("object") == "response":
        return None
    return {"error": error}


_ERROR_FIELDS = ("message", "code", "param")


RESPONSES = Dialect(
    path="/responses",
    prompt_fields=frozenset({"model", "input", "instructions", "prompt"}),
    prompt_texts=prompt_texts,
    count_prompts=count_prompts,
    refused=chat.REFUSED_IN_REQUESTS,
    dropped={**chat.DROPPED_IN_REQUESTS, **DROPPED_IN_REQUESTS},
    content=ContentPlace("content"),
    error_of=error_of,
    events=RESPONSE_EVENTS,
    translation=Translation(to_chat, ResponsesEncoder),
)


def stored_response(path: str, method: str, after: int = -1) -> Dialect:
    """The dialect of one answer that an upstream has stored, below its base URL at `path`. A client that has the events
    up to the number `after` gets those behind it.

    The whole stream is read and guarded again, so that its events have the numbers that they had: those of the upstream
    count deltas that the guard had held, too.
    """
    events = replace(
        RESPONSE_EVENTS,
        stored=True,
        after=after,
        read_delta=RESPONSE_EVENTS.read_delta if after < 0 else lambda data: None,  # writes events as they come
        usage_of=lambda received: None,  # it was counted when the answer was made
    )
    return replace(
        RESPONSES,
        path=path,
        method=method,
        events=events,
        translation=None,
        generates=False,
        served_with=RESPONSES.endpoint,
    )
