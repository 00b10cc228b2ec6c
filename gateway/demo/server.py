"""The demo upstream as an application: endpoints, streams, errors."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse

from gateway.demo import answers, requests
from gateway.demo.embeddings import embeddings_answer
from gateway.demo.gandalf import MODEL
from gateway.demo.generate import Generated, generate_chat, generate_text
from gateway.demo.requests import Generation
from gateway.demo.tokens import count_tokens
from gateway.wire import json
from gateway.wire.dialect import BadRequest
from gateway.wire.json import Json

TOKEN_PAUSE = 0.02  # seconds between tokens: 50 a second, as a person reads
TOKENS_A_MESSAGE = 4  # of a chat's template
_ENTRY = {"id": MODEL, "object": "model", "created": 1700000000, "owned_by": "portcullis"}


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """What is to be sent. `deltas` are the choices of a stream's events, `choices` those of a whole answer: one of both
    is used."""

    id: str
    kind: str
    chunk_kind: str
    generation: Generation
    choices: Iterator[Json]
    deltas: Iterator[Json]
    usage: Json


def build_demo(pause: float = TOKEN_PAUSE) -> FastAPI:
    """The demo upstream as an application of its own, with `pause` seconds between tokens."""
    app = FastAPI(openapi_url=None)

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [_ENTRY]})

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> Response:
        if model == MODEL:
            return _json(_ENTRY)
        return _error(404, f"The model {model[:64]!r} does not exist; there is {MODEL!r}.", "model", "model_not_found")

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _respond(request, _chat_answer, pause)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _respond(request, _text_answer, pause)

    @app.post("/v1/embeddings")
    async def embeddings(request: Request) -> Response:
        return await _respond(request, lambda body: embeddings_answer(requests.read_embeddings(body)), pause)

    return app


def _chat_answer(body: Json) -> DemoAnswer:
    request = requests.read_chat(body)
    generated = generate_chat(request)
    prompt = [{key: value for key, value in each.items() if key != "role"} for each in request.messages]
    prompt_tokens = count_tokens([prompt, body.get("tools")]) + TOKENS_A_MESSAGE * len(prompt)
    logprobs = request.generation.logprobs
    return DemoAnswer(
        id="chatcmpl",
        kind="chat.completion",
        chunk_kind="chat.completion.chunk",
        generation=request.generation,
        choices=(answers.chat_choice(*each, logprobs) for each in enumerate(generated)),
        deltas=answers.interleaved([answers.chat_deltas(*each, logprobs) for each in enumerate(generated)]),
        usage=answers.usage_of(prompt_tokens, generated),
    )


def _text_answer(body: Json) -> DemoAnswer:
    request = requests.read_text(body)
    generation = request.generation
    generated: list[Generated] = []
    for prompt in request.prompts:
        generated += generate_text(prompt, generation)
    return DemoAnswer(
        id="cmpl",
        kind="text_completion",
        chunk_kind="text_completion",
        generation=generation,
        choices=(answers.text_choice(*each, generation.logprobs) for each in enumerate(generated)),
        deltas=answers.interleaved([answers.text_deltas(*each, generation.logprobs) for each in enumerate(generated)]),
        usage=answers.usage_of(count_tokens(list(request.prompts)), generated),
    )


async def _respond(request: Request, answer_to: Callable[[Json], DemoAnswer | Json], pause: float) -> Response:
    try:
        body = json.decode(await request.body())
    except json.JSONError:
        return _error(400, "The body is not JSON.")
    if not isinstance(body, dict):
        return _error(400, "The body must be a JSON object.")
    if not isinstance(body.get("model"), str):
        return _error(400, "'model' must be a string.", "model")
    try:
        # A large schema, or thousands of vectors, would keep the gateway waiting, which may run in the same loop.
        answer = await asyncio.to_thread(answer_to, body)
    except BadRequest as refused:
        return _error(400, str(refused), refused.param, refused.code)
    if isinstance(answer, dict):
        return await asyncio.to_thread(_json, answer)
    head = {"id": f"{answer.id}-{uuid.uuid4().hex[:24]}", "created": int(time.time()), "model": MODEL}
    if not answer.generation.stream:
        return await asyncio.to_thread(_plain_answer, head, answer)
    return EventSourceResponse(_events(head, answer, pause), ping=15, send_timeout=30, sep="\n")


def _plain_answer(head: Json, answer: DemoAnswer) -> Response:
    return _json({**head, "object": answer.kind, "choices": list(answer.choices), "usage": answer.usage})


async def _events(head: Json, answer: DemoAnswer, pause: float) -> AsyncIterator[str]:
    counted = answer.generation.include_usage
    head = {**head, "object": answer.chunk_kind, **({"usage": None} if counted else {})}
    for choice in answer.deltas:
        yield json.encode({**head, "choices": [choice]}).decode()
        if choice["finish_reason"] is None:
            await asyncio.sleep(pause)
    if counted:
        yield json.encode({**head, "choices": [], "usage": answer.usage}).decode()
    yield "[DONE]"


def _json(value: Json, status: int = 200) -> Response:
    return Response(json.encode(value), status, media_type="application/json")


def _error(status: int, message: str, param: str | None = None, code: str | None = None) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return _json({"error": error}, status)
