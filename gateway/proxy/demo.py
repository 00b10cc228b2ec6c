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
    said = said.lower()
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


def _usage(script: Script) -> dict[str, int]:
    tokens = len(script.content) + len(script.reasoning) + len(script.arguments)
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
        try:
            body = await request.json()
        except ValueError:
            return _error("The body is not JSON.")
        if not isinstance(body, dict):
            return _error("The body must be a JSON object.")
        script = script_for(body.get("messages"))
        head = {"id": f"chatcmpl-{uuid.uuid4().hex[:24]}", "created": int(time.time()), "model": MODEL}
        if not body.get("stream"):
            return JSONResponse(_whole(head, script))
        options = body.get("stream_options")
        wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return EventSourceResponse(_events(head, script, pause, wants_usage), ping=15, send_timeout=30, sep="\n")

    return app


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
    return {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(script)}


async def _events(head: dict[str, Any], script: Script, pause: float, wants_usage: bool) -> AsyncIterator[str]:
    def event(choices: list[dict[str, Any]], **more: Any) -> str:
        chunk = {**head, "object": "chat.completion.chunk", "choices": choices, **more}
        return json.dumps(chunk, ensure_ascii=False)

    for delta in _deltas(script):
        yield event([{"index": 0, "delta": delta, "finish_reason": None}])
        await asyncio.sleep(pause)
    yield event([{"index": 0, "delta": {}, "finish_reason": _finish_reason(script)}])
    if wants_usage:
        yield event([], usage=_usage(script))
    yield "[DONE]"
