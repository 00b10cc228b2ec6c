"""The dialect of `/chat/completions`. Its answers are in the guard's form as they are (`wire.message`)."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.wire import chunk_template
from gateway.wire.dialect import ContentPlace, Dialect, RequestTexts, an_object, require_messages
from gateway.wire.json import Json
from gateway.wire.message import slots
from gateway.wire.names import reasons

# docs/semantics.md prints both tables.
DROPPED_IN_REQUESTS = reasons("chat", "dropped_in_requests")
REFUSED_IN_REQUESTS = reasons("chat", "refused_in_requests")


def count_prompts(body: Json) -> int:
    """Always one prompt. Raises `BadRequest` for what no upstream could take."""
    require_messages(body)
    if (prediction := body.get("prediction")) is not None:
        an_object(prediction, "prediction")
    return 1


def prompt_texts(body: Json) -> Iterator[RequestTexts]:
    """The texts of each message, then of the `prediction`, which is read as a message."""
    for message in body["messages"]:
        yield RequestTexts("messages", slots(message), message)
    if isinstance(prediction := body.get("prediction"), dict):
        yield RequestTexts("prediction", slots(prediction), prediction)


CHAT = Dialect(
    path="/chat/completions",
    prompt_fields=frozenset({"model", "messages", "prediction"}),
    prompt_texts=prompt_texts,
    count_prompts=count_prompts,
    refused=REFUSED_IN_REQUESTS,
    dropped=DROPPED_IN_REQUESTS,
    content=ContentPlace("content", holder="delta"),
    read_typed=chunk_template.read_typed,
)
