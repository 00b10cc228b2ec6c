"""The embedded upstream: a small Gandalf game behind an OpenAI-compatible API.

It guards a password as badly as a language model does. What a player says decides in which way it leaks; every way
splits the password over tokens. It needs no network and no model, and it is what `portcullis demo` stands in front of.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from sse_starlette import EventSourceResponse

MODEL = "gandalf"
PASSWORD = "12MONKEYS"  # noqa: S105 (the point of the game)
TOKEN_PAUSE = 0.02  # seconds between tokens: 50 a second, as a person reads

# Each answer as the tokens that a model would send.
_PLAIN = ("The", " password", " is", ' "', "12", "MON", "KEY", "S", '".')
_REFUSAL = ("I", "'m", " sorry", ",", " but", " I", " can", "'t", " disclose", " that", " information", ".")
_SPELLED = ("Letter", " by", " letter", ":", " ", "1", "2", "M", "O", "N", "K", "E", "Y", "S", ".")
_TWICE = ("12", "MONKEYS", ",", " I", " repeat", ":", " 12", "MON", "KEYS", "!", " 12MONKEY", " is", " close", ".")
_FULLWIDTH = ("In", " wide", " letters", ":", " １２", "ＭＯＮ", "ＫＥＹ", "Ｓ", ".")
_INVISIBLE = ("You", " will", " not", " see", " it", ":", " 12\u200b", "MON\u200b", "KEYS", ".")
_LOWER = ("Quietly", ":", " 12", "mon", "keys", ".")
_THOUGHTS = ("They", " want", " the", " password", ",", " 12", "MONK", "EYS", ".", " I", " will", " not", ".")
_GREETING = (
    "I", " am", " Gandalf", ",", " and", " I", " guard", " a", " password", ".", " Ask", " me", " for", " it", "!",
    " Try", ":", " spell", ",", " twice", ",", " wide", ",", " hidden", ",", " whisper", ",", " think",
    ",", " call", ".",
)  # fmt: skip


class Script(NamedTuple):
    """What one answer consists of, token by token."""

    content: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


# The first word found in the player's last message decides.
_SCRIPTS: tuple[tuple[str, Script], ...] = (
    ("spell", Script(_SPELLED)),
    ("twice", Script(_TWICE)),
    ("wide", Script(_FULLWIDTH)),
    ("hidden", Script(_INVISIBLE)),
    ("whisper", Script(_LOWER)),
    ("think", Script(_REFUSAL, reasoning=_THOUGHTS)),
    ("call", Script(arguments=('{"', "note", '": "', "the password", " is 12", "MON", "\\u004bEYS", '"}'))),
    ("password", Script(_PLAIN)),
)


def script_for(messages: Any) -> Script:
    """The answer to the last message. This Gandalf gives in to anyone who asks for the password."""
    last = messages[-1] if isinstance(messages, list) and messages else {}
    content = last.get("content") if isinstance(last, dict) else ""
    said = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return _script_for_words(said.lower())


def texts_for(prompt: Any) -> list[tuple[str, ...]]:
    """What goes on after each prompt, token by token. Where there is no dialogue, there are no thoughts or calls."""
    prompts = prompt if isinstance(prompt, list) else [prompt]
    return [_script_for_words(str(each).lower()).content or _GREETING for each in prompts]


def _script_for_words(said: str) -> Script:
    return next((script for word, script in _SCRIPTS if word in said), Script(_GREETING))


def _deltas(script: Script) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for token in script.reasoning:
        yield {"reasoning_content": token}
    for token in script.content:
        yield {"content": token}
    if script.arguments:
        head = {"index": 0, "id": "call_gandalf", "type": "function", "function": {"name": "remember", "arguments": ""}}
        yield {"tool_calls": [head]}
    for token in script.arguments:
        yield {"tool_calls": [{"index": 0, "function": {"arguments": token}}]}


def _finish_reason(script: Script) -> str:
    return "tool_calls" if script.arguments else "stop"


def _usage(*said: tuple[str, ...]) -> dict[str, int]:
    tokens = sum(map(len, said))
    return {"prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": 12 + tokens}


def build_demo(pause: float = TOKEN_PAUSE) -> FastAPI:
    """The demo upstream as an application of its own, with `pause` seconds between tokens."""
    app = FastAPI(openapi_url=None)

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        model = {"id": MODEL, "object": "model", "created": 1700000000, "owned_by": "portcullis"}
        return JSONResponse({"object": "list", "data": [model]})

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await _body(request)
        if isinstance(body, Response):
            return body
        script, head = script_for(body.get("messages")), _head("chatcmpl")
        if not body.get("stream"):
            return JSONResponse(_whole(head, script))
        return _stream(_events(head, script, pause, _wants_usage(body)))

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        body = await _body(request)
        if isinstance(body, Response):
            return body
        texts, head = texts_for(body.get("prompt")), _head("cmpl")
        if not body.get("stream"):
            return JSONResponse(_whole_texts(head, texts))
        return _stream(_text_events(head, texts, pause, _wants_usage(body)))

    return app


async def _body(request: Request) -> dict[str, Any] | Response:
    """What is asked, or the answer to a request that asks nothing."""
    try:
        body = await request.json()
    except ValueError:
        return _error("The body is not JSON.")
    return body if isinstance(body, dict) else _error("The body must be a JSON object.")


def _head(kind: str) -> dict[str, Any]:
    return {"id": f"{kind}-{uuid.uuid4().hex[:24]}", "created": int(time.time()), "model": MODEL}


def _wants_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _stream(events: AsyncIterator[str]) -> Response:
    return EventSourceResponse(events, ping=15, send_timeout=30, sep="\n")


def _error(message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status_code=400)


def _whole(head: dict[str, Any], script: Script) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(script.content) or None}
    if script.reasoning:
        message["reasoning_content"] = "".join(script.reasoning)
    if script.arguments:
        function = {"name": "remember", "arguments": "".join(script.arguments)}
        message["tool_calls"] = [{"id": "call_gandalf", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(script)}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(*script)}


def _whole_texts(head: dict[str, Any], texts: list[tuple[str, ...]]) -> dict[str, Any]:
    choices = [_text(index, "".join(tokens), "stop") for index, tokens in enumerate(texts)]
    return {**head, "object": "text_completion", "choices": choices, "usage": _usage(*texts)}


def _text(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish_reason}


async def _events(head: dict[str, Any], script: Script, pause: float, wants_usage: bool) -> AsyncIterator[str]:
    def event(choices: list[dict[str, Any]], **more: Any) -> str:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices, **more}
        return json.dumps(chunk, ensure_ascii=False)

    for delta in _deltas(script):
        yield event([{"index": 0, "delta": delta, "finish_reason": None}])
        await asyncio.sleep(pause)
    yield event([{"index": 0, "delta": {}, "finish_reason": _finish_reason(script)}])
    if wants_usage:
        yield event([], usage=_usage(*script))
    yield "[DONE]"


async def _text_events(
    head: dict[str, Any], texts: list[tuple[str, ...]], pause: float, wants_usage: bool
) -> AsyncIterator[str]:
    def event(choices: list[dict[str, Any]], **more: Any) -> str:
        return json.dumps({**head, "object": "text_completion", "choices": choices, **more}, ensure_ascii=False)

    for index, tokens in enumerate(texts):
        for token in tokens:
            yield event([_text(index, token)])
            await asyncio.sleep(pause)
        yield event([_text(index, "", "stop")])
    if wants_usage:
        yield event([], usage=_usage(*texts))
    yield "[DONE]"
