"""The dialect of `/messages`, as Anthropic speaks it. Its answers are events: `wire.message_events`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gateway.wire import chat
from gateway.wire.dialect import BadRequest, ContentPlace, Dialect, RequestTexts, Translation, require_messages
from gateway.wire.event_table import request_slots
from gateway.wire.json import Json
from gateway.wire.message import text_slots
from gateway.wire.message_events import MESSAGE_EVENTS, error_body
from gateway.wire.translation.messages_answer import MessagesEncoder
from gateway.wire.translation.messages_request import to_chat

# Of requests, beside what answers have.
_NAMES = frozenset({"cache_control", "media_type", "ttl", "context", "enabled", "tool_name"})


def count_prompts(body: Json) -> int:
    """Always one prompt. Raises `BadRequest` for what no upstream could take."""
    require_messages(body)
    if not (body.get("system") is None or isinstance(body["system"], str | list)):
        raise BadRequest("`system` must be a string or a list of blocks.", "system")
    return 1


def prompt_texts(body: Json) -> Iterator[RequestTexts]:
    """The texts of the system prompt, then of each message."""
    if isinstance(system := body.get("system"), str):
        yield RequestTexts("system", text_slots(body, "system"))
    elif system is not None:
        yield RequestTexts("system", request_slots(body, "system", MESSAGE_EVENTS, _NAMES), {"content": system})
    messages = body["messages"]
    for position, message in enumerate(messages):
        yield RequestTexts("messages", request_slots(messages, position, MESSAGE_EVENTS, _NAMES), message)


def error_of(received: Json) -> Json | None:
    """The error in OpenAI's shape that an event or body is, if it is one."""
    error = received.get("error")
    if received.get("type") != "error" and (error is None or received.get("type") == "message"):
        return None
    return {"error": error if isinstance(error, dict) else {"message": error}}


MESSAGES = Dialect(
    path="/messages",
    prompt_fields=frozenset({"model", "messages", "system"}),
    prompt_texts=prompt_texts,
    count_prompts=count_prompts,
    refused=chat.REFUSED_IN_REQUESTS,
    dropped=chat.DROPPED_IN_REQUESTS,
    content=ContentPlace("content"),
    error_of=error_of,
    error_body=error_body,
    events=MESSAGE_EVENTS,
    translation=Translation(to_chat, MessagesEncoder),
)


# How many tokens a request has; its answer is a number.
COUNT_TOKENS = replace(
    MESSAGES,
    path="/messages/count_tokens",
    to_wire=lambda answer: {name: value for name, value in answer.items() if name != "choices" or value},
    is_end=lambda event: True,  # no answer is a stream
    events=None,
    translation=None,
    generates=False,
    served_with=MESSAGES.endpoint,
)
