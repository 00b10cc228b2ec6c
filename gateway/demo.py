"""The embedded upstream: a small Gandalf game behind an OpenAI-compatible API.

It guards a password as badly as a language model does. The player's words decide in which way it leaks; every way
splits the password over tokens. It needs no network and no model; `portcullis demo` is a gateway in front of it.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
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
    """One answer, token by token."""

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


def _script_for(text: str) -> Script:
    """The answer to a message or prompt. This Gandalf gives in to anyone who asks for the password."""
    return next((script for word, script in _SCRIPTS if word in text.lower()), Script(_GREETING))


class Answer(NamedTuple):
    """`choices` are those of the complete answer, `chunks` the single choices of a stream's events."""

    kind: str
    chunk_kind: str
    id: str
    choices: list[dict[str, Any]]
    chunks: list[dict[str, Any]]
    tokens: int


def _chat_answer(body: dict[str, Any]) -> Answer:
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else {}
    content = last.get("content") if isinstance(last, dict) else ""
    script = _script_for(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    message: dict[str, Any] = {"role": "assistant", "content": "".join(script.content) or None}
    if script.reasoning:
        message["reasoning_content"] = "".join(script.reasoning)
    if script.arguments:
        function = {"name": "remember", "arguments": "".join(script.arguments)}
        message["tool_calls"] = [{"id": "call_gandalf", "type": "function", "function": function}]
    reason = "tool_calls" if script.arguments else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    chunks: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in _deltas(script)]
    chunks.append({"index": 0, "delta": {}, "finish_reason": reason})
    return Answer("chat.completion", "chat.completion.chunk", "chatcmpl", [choice], chunks, sum(map(len, script)))


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


def _text_answer(body: dict[str, Any]) -> Answer:
    """Continues each prompt. Where there is no dialogue, there are no thoughts or calls."""
    prompt = body.get("prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    texts = [_script_for(str(each)).content or _GREETING for each in prompts]
    choices = [_text(index, "".join(tokens), "stop") for index, tokens in enumerate(texts)]
    chunks = []
    for index, tokens in enumerate(texts):
        chunks += [*(_text(index, token) for token in tokens), _text(index, "", "stop")]
    return Answer("text_completion", "text_completion", "cmpl", choices, chunks, sum(map(len, texts)))


def _text(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish_reason}


def build_demo(pause: float = TOKEN_PAUSE) -> FastAPI:
    """The demo upstream as an application of its own, with `pause` seconds between tokens."""
    app = FastAPI(openapi_url=None)

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        model = {"id": MODEL, "object": "model", "created": 1700000000, "owned_by": "portcullis"}
        return JSONResponse({"object": "list", "data": [model]})

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _respond(request, _chat_answer, pause)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _respond(request, _text_answer, pause)

    return app


async def _respond(request: Request, answer_to: Callable[[dict[str, Any]], Answer], pause: float) -> Response:
    try:
        body = await request.json()
    except ValueError:
        return _error("The body is not JSON.")
    if not isinstance(body, dict):
        return _error("The body must be a JSON object.")
    answer = answer_to(body)
    head = {"id": f"{answer.id}-{uuid.uuid4().hex[:24]}", "created": int(time.time()), "model": MODEL}
    usage = {"prompt_tokens": 12, "completion_tokens": answer.tokens, "total_tokens": 12 + answer.tokens}
    if not body.get("stream"):
        return JSONResponse({**head, "object": answer.kind, "choices": answer.choices, "usage": usage})
    options = body.get("stream_options")
    wants_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    events = _events({**head, "object": answer.chunk_kind}, answer.chunks, usage if wants_usage else None, pause)
    return EventSourceResponse(events, ping=15, send_timeout=30, sep="\n")


def _error(message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status_code=400)


async def _events(
    head: dict[str, Any], chunks: list[dict[str, Any]], usage: dict[str, int] | None, pause: float
) -> AsyncIterator[str]:
    for choice in chunks:
        yield json.dumps({**head, "choices": [choice]}, ensure_ascii=False)
        if choice["finish_reason"] is None:
            await asyncio.sleep(pause)
    if usage is not None:
        yield json.dumps({**head, "choices": [], "usage": usage}, ensure_ascii=False)
    yield "[DONE]"
