"""The dialect of `/completions` (text completions): `text` in a choice is what `content` in chat's delta or message is.

A chunk and a whole answer have one shape here, and a choice is its own delta: beside its text stand the few fields that
say how it ends, and whatever else an upstream adds streams on from chunk to chunk like the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gateway.wire import chat
from gateway.wire.chunks import pop_first
from gateway.wire.dialect import BadRequest, ContentPlace, Dialect, RequestTexts
from gateway.wire.json import Json
from gateway.wire.message import DROPPED_IN_ANSWERS, KEPT_AROUND, text_slots
from gateway.wire.names import reasons

OBJECT = "text_completion"

# Refused beside what chat refuses. docs/semantics.md prints this table.
REFUSED_IN_REQUESTS = reasons("completions", "refused_in_requests")

# What stands around the text; everything else in a choice goes where text goes.
_AROUND = frozenset({"index", "finish_reason", *KEPT_AROUND, *DROPPED_IN_ANSWERS})
# Swapped, not renamed: a `content` that an upstream adds must not take the text's place.
_SWAPPED = {"text": "content", "content": "text"}
_CHUNK, _ANSWER = "chat.completion.chunk", "chat.completion"


# -- requests ----------------------------------------------------------------------------------------------------------


def count_prompts(body: Json) -> int:
    """How many prompts there are. Raises `BadRequest` for what is none."""
    prompt = body.get("prompt")
    if prompt is None or isinstance(prompt, str):
        return 1
    types = set(map(type, prompt)) if isinstance(prompt, list) else set()
    if types == {int}:
        return 1
    of_token_ids = types == {list} and set(map(type, itertools.chain.from_iterable(prompt))) <= {int}
    if of_token_ids or types == {str}:
        return len(prompt)
    raise BadRequest("`prompt` must be a string, a non-empty list of strings, or token ids.", "prompt")


def prompt_texts(body: Json) -> Iterator[RequestTexts]:
    yield RequestTexts("prompt", text_slots(body, "prompt"))


# -- answers -----------------------------------------------------------------------------------------------------------


def chunk_to_chat(event: Json) -> Json:
    return _to_chat(event, "delta", _CHUNK)


def answer_to_chat(answer: Json) -> Json:
    return _to_chat(answer, "message", _ANSWER)


def _to_chat(received: Json, part: str, kind: str) -> Json:
    choices = received.get("choices")
    if isinstance(choices, list):
        received["choices"] = [_split(choice, part) if isinstance(choice, dict) else choice for choice in choices]
    if received.get("object") == OBJECT:
        received["object"] = kind
    return received


def _split(choice: Json, part: str) -> Json:
    around = {field: value for field, value in choice.items() if field in _AROUND}
    message = {_SWAPPED.get(field, field): value for field, value in choice.items() if field not in _AROUND}
    if choice.get("text") is None and isinstance(nested := pop_first(message, ("delta", "message")), dict):
        message = {**message, **nested}  # from an upstream that answers as a chat does
    return {**around, part: message}


def to_wire(chunk: Json) -> Json:
    """A chunk or a whole answer in chat's form as the clients of this endpoint read it."""
    own = {"object": OBJECT} if chunk.get("object") in (_CHUNK, _ANSWER) else {}
    return {**chunk, **own, "choices": list(map(_join, chunk["choices"]))}


def _join(choice: Json) -> Json:
    part = "delta" if "delta" in choice else "message"
    # A field that got another name must not end up as one of those around the text.
    message = {_SWAPPED.get(field, field): value for field, value in choice[part].items() if field not in _AROUND}
    if part == "message" and message.get("role") == "assistant":
        del message["role"]  # of chat's, for a message put together from chunks
    text = message.pop("text", None)
    around = {field: value for field, value in choice.items() if field != part}
    # Clients append the text without checking that there is any.
    return {"text": "" if text is None else text, **message, **around}


COMPLETIONS = Dialect(
    path="/completions",
    prompt_fields=frozenset({"model", "prompt"}),
    prompt_texts=prompt_texts,
    count_prompts=count_prompts,
    refused={**chat.REFUSED_IN_REQUESTS, **REFUSED_IN_REQUESTS},
    dropped=chat.DROPPED_IN_REQUESTS,
    text_only=("prompt",),
    content=ContentPlace("text"),
    chunk_to_chat=chunk_to_chat,
    answer_to_chat=answer_to_chat,
    to_wire=to_wire,
)
