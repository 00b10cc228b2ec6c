"""The conversation before an answer: the request's system messages and earlier answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.censor.protect import Conversation
from gateway.surrogates import join_surrogates
from gateway.wire.dialect import Dialect
from gateway.wire.json import Json

_SYSTEM = frozenset({"system", "developer"})
_ASSISTANT = "assistant"
_PROMPTS = ("system", "instructions")  # fields of a request that are a system message
_MESSAGES = ("messages", "input")
_TEXTS = frozenset({"text", "input_text", "output_text"})


def conversation_of(body: Json, dialect: Dialect) -> Conversation:
    """The conversation in a request; nothing in it has been checked."""
    system = [text for field in _PROMPTS if field in dialect.prompt_fields for text in _texts(body.get(field))]
    answers: list[str] = []
    for field in _MESSAGES:
        messages = body.get(field) if field in dialect.prompt_fields else None
        for message in messages if isinstance(messages, list) else ():
            if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
                continue
            if role.casefold() in _SYSTEM:
                system += _texts(message.get("content"))
            elif role.casefold() == _ASSISTANT:
                answers += _texts(message.get("content"))
    prompt = join_surrogates("\n".join(system))
    return Conversation((prompt,) if prompt else (), join_surrogates("".join(answers)))


def _texts(content: Any) -> Iterator[str]:
    """The texts of a message's content, which is one or has parts."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield part
        elif (
            isinstance(part, dict) and part.get("type", "text") in _TEXTS and isinstance(text := part.get("text"), str)
        ):
            yield text
