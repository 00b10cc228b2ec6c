"""The demo upstream as an application: endpoints, streams, errors."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
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
    """What is to be sent; `id` is how its id begins."""

    id: str
    generation: Generation
    generated: list[Generated]
    prompt_tokens: int

    @property
    def usage(self) -> Json:
        return answers.usage_of(self.prompt_tokens, self.generated)


# By the beginning of an answer's id: its object and that of its chunks, and what writes a choice whole or in deltas.
_FORMS = {
    "chatcmpl": ("chat.completion", "chat.completion.chunk", answers.chat_choice, answers.chat_deltas),
    "cmpl": ("text_completion", "text_completion", answers.text_choice, answers.text_deltas),
}


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
    prompt = [{key: value for key, value in each.items() if key != "role"} for each in request.messages]
    prompt_tokens = count_tokens([prompt, body.get("tools")]) + TOKENS_A_MESSAGE * len(prompt)
    return DemoAnswer("chatcmpl", request.generation, generate_chat(request), prompt_tokens)


def _text_answer(body: Json) -> DemoAnswer:
    request = requests.read_text(body)
    generated = [each for prompt in request.prompts for each in generate_text(prompt, request.generation)]
    return DemoAnswer("cmpl", request.generation, generated, count_tokens(list(request.prompts)))


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
    kind, _, choice, _ = _FORMS[answer.id]
    choices = [choice(*each, answer.generation.logprobs) for each in enumerate(answer.generated)]
    return _json({**head, "object": kind, "choices": choices, "usage": answer.usage})


async def _events(head: Json, answer: DemoAnswer, pause: float) -> AsyncIterator[str]:
    counted = answer.generation.include_usage
    _, kind, _, deltas = _FORMS[answer.id]
    head = {**head, "object": kind, **({"usage": None} if counted else {})}
    streams = [deltas(*each, answer.generation.logprobs) for each in enumerate(answer.generated)]
    for choice in answers.interleaved(streams):
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
