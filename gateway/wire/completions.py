"""Text completions on the wire, as a dialect of chat: `text` in a choice is what `content` in its delta or message is.

A chunk and a whole answer have one shape here, and a choice is its own delta: beside its text stand the few fields that
say how it ends, and whatever else an upstream adds streams on from chunk to chunk like the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gateway.wire import chat
from gateway.wire.chat import Json, SlotKind, TextSlot

OBJECT = "text_completion"

# Refused in requests, beside what chat refuses. docs/semantics.md prints this table.
REFUSED_IN_REQUESTS = {
    "prompt_embeds": "a prompt as vectors cannot be scanned",
}

# What stands around the text; everything else in a choice goes where text goes.
_AROUND = frozenset({"index", "finish_reason", "stop_reason", *chat.DROPPED_IN_ANSWERS})
# Swapped, not renamed: a `content` that an upstream adds must not take the text's place.
_SWAPPED = {"text": "content", "content": "text"}
_CHUNK, _COMPLETION = "chat.completion.chunk", "chat.completion"


# -- requests ----------------------------------------------------------------------------------------------------------


def prompts_in(prompt: Any) -> int | None:
    """How many prompts there are in a request's `prompt`, each with answers of its own; None if it is no prompt."""
    if prompt is None or isinstance(prompt, str):
        return 1
    if not isinstance(prompt, list) or not prompt:
        return None
    types = set(map(type, prompt))
    if types == {int}:
        return 1
    of_token_ids = types == {list} and set(map(type, itertools.chain.from_iterable(prompt))) <= {int}
    return len(prompt) if of_token_ids or types == {str} else None


def has_token_ids(prompt: Any) -> bool:
    """Is there anything in a request's `prompt` that is no text?"""
    return isinstance(prompt, list) and not all(isinstance(item, str) for item in prompt)


def prompt_slots(body: Json) -> Iterator[TextSlot]:
    """The texts of a request's `prompt`; token ids are none."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        yield TextSlot(body, "prompt", ("prompt",), "content", SlotKind.TEXT)
    elif isinstance(prompt, list):
        for position, item in enumerate(prompt):
            if isinstance(item, str):
                yield TextSlot(prompt, position, ("prompt", position), "content", SlotKind.TEXT)


# -- answers -----------------------------------------------------------------------------------------------------------


def as_chunk(received: Json) -> Json:
    """The chunk of a chat stream that says what an event says; the event is used up."""
    return _in_chats_words(received, "delta", _CHUNK)


def as_completion(received: Json) -> Json:
    """The whole chat answer that says what a whole answer says; that is used up."""
    return _in_chats_words(received, "message", _COMPLETION)


def _in_chats_words(received: Json, part: str, kind: str) -> Json:
    choices = received.get("choices")
    if isinstance(choices, list):
        received["choices"] = [_split(choice, part) if isinstance(choice, dict) else choice for choice in choices]
    if received.get("object") == OBJECT:
        received["object"] = kind
    return received


def _split(choice: Json, part: str) -> Json:
    around = {field: value for field, value in choice.items() if field in _AROUND}
    said = {_SWAPPED.get(field, field): value for field, value in choice.items() if field not in _AROUND}
    if choice.get("text") is None and isinstance(nested := chat.take_part(said, *chat.PARTS_OF_CHUNKS[:2]), dict):
        said = {**said, **nested}  # as a chat would say it
    return {**around, part: said}


def spelled(said: Json) -> Json:
    """A chunk or a whole answer in chat's words, as the clients of this endpoint read it."""
    own = {"object": OBJECT} if said.get("object") in (_CHUNK, _COMPLETION) else {}
    return {**said, **own, "choices": list(map(_joined, said["choices"]))}


def _joined(choice: Json) -> Json:
    part = "delta" if "delta" in choice else "message"
    # A field that got another name must not end up as one of those around the text.
    said = {_SWAPPED.get(field, field): value for field, value in choice[part].items() if field not in _AROUND}
    if part == "message" and said.get("role") == "assistant":
        del said["role"]  # of chat's, for a message put together from chunks
    text = said.pop("text", None)
    around = {field: value for field, value in choice.items() if field != part}
    # Clients append the text without asking whether there is any.
    return {"text": "" if text is None else text, **said, **around}
