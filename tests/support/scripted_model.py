"""A model server that says what a test wants, token by token, in vLLM's words: as events, or on a real socket."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from gateway.automata.vocabulary import Vocabulary
from gateway.decode.vocabulary import _BYTE_OF

Json = dict[str, Any]
MODEL = "scripted"
PROMPT = (1, 2, 1)  # what every chat becomes


@dataclass(frozen=True)
class Step:
    """What a model goes by: the tokens of its answer so far, those that must not come next, the request's seed, and how
    many tokens this request has had."""

    said: tuple[int, ...]
    forbidden: frozenset[int]
    seed: int | None
    since: int


Choose = Callable[[Step], int]


def vocabulary_of(*pieces: str | bytes) -> Vocabulary:
    """The last token ends a text."""
    written = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return Vocabulary([*written, None], end=[len(written)])


def insisting(*wanted: int, otherwise: Sequence[int] = (), end: int) -> Choose:
    """Wants to say some tokens; where one is forbidden, the first of `otherwise` that is not, and after it the end."""

    def choose(step: Step) -> int:
        at = len(step.said)
        if step.said == wanted[:at] and at < len(wanted):
            candidates = [wanted[at], *otherwise, end]
        else:
            candidates = [end]
        return next(token for token in candidates if token not in step.forbidden)

    return choose


@dataclass
class ScriptedModel:
    """`merge`: how many tokens come in an event. `masks`: it knows `portcullis.not_first`. `requests` are all that
    came, with their paths; `prompt` is what a chat becomes; `room` is the length of its context."""

    vocabulary: Vocabulary
    choose: Choose
    merge: int = 1
    masks: bool = False
    prompt: tuple[int, ...] = PROMPT
    room: int = 1000
    tells_ids: bool = True
    requests: list[tuple[str, Json]] = field(default_factory=list)
    running: int = 0

    def events(self, path: str, body: Json) -> Iterator[Json]:
        """The events of a streamed answer, `[DONE]` left out."""
        self.requests.append((path, body))
        chat = path.endswith("/chat/completions")
        given = tuple(body["prompt"]) if not chat else self.prompt
        said = list(given[len(self.prompt) :])
        head = {"id": f"cmpl-{len(self.requests)}", "created": 1, "model": MODEL}
        head["object"] = "chat.completion.chunk" if chat else "text_completion"
        if chat:
            delta = {"role": "assistant", "content": ""}
            first = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield {**head, "choices": [first], "prompt_token_ids": list(given)}
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or self.room - len(given)
        stops = [body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop") or []
        reach = max(map(len, stops), default=1) - 1
        biased = {int(token) for token, bias in (body.get("logit_bias") or {}).items() if bias <= -100}
        arguments = body.get("vllm_xargs") or {}
        not_first = set(arguments.get("portcullis.not_first", ())) if self.masks else set()
        count, pending, text, sent, tokens = 0, "", "", 0, []
        told = False
        reason: str | None = None
        stop: Any = None
        while reason is None:
            forbidden = frozenset(biased | (set() if count else not_first))
            token = self.choose(Step(tuple(said), forbidden, body.get("seed"), count))
            assert token not in forbidden
            said.append(token)
            tokens.append(token)
            count += 1
            if token in self.vocabulary.end:
                reason = "stop"
            else:
                text += decoder.decode(self.vocabulary.tokens[token] or b"")
                found = next((s for s in stops if s in text), None)
                if found is not None:
                    text, reason, stop = text[: text.index(found)], "stop", found
                elif count >= limit:
                    reason = "length"
            if reason is not None or len(tokens) >= self.merge:
                until = len(text) if reason is not None else max(len(text) - reach, sent)
                pending, sent = text[sent:until], until
                choice = self._choice(chat, pending, tokens, reason, stop)
                if not chat:
                    choice["prompt_token_ids"] = None if told else list(given)
                yield {**head, "choices": [choice]}
                tokens, told = [], True
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": len(given), "completion_tokens": count, "total_tokens": len(given) + count}
            yield {**head, "choices": [], "usage": usage}

    def _choice(self, chat: bool, text: str, tokens: list[int], reason: str | None, stop: Any) -> Json:
        told = {"delta": {"content": text}} if chat else {"text": text}
        choice = {"index": 0, **told, "logprobs": None, "finish_reason": reason, "stop_reason": stop}
        return {**choice, "token_ids": list(tokens)} if self.tells_ids else choice

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/v1/models")
        async def models() -> Response:
            return JSONResponse({"object": "list", "data": [{"id": MODEL, "max_model_len": self.room}]})

        @app.post("/v1/chat/completions")
        @app.post("/v1/completions")
        async def answer(request: Request) -> Response:
            body = await request.json()
            if not body.get("stream"):
                return JSONResponse({"error": {"message": "only streams are scripted"}}, 400)
            return StreamingResponse(self._stream(request.url.path, body), media_type="text/event-stream")

        return app

    async def _stream(self, path: str, body: Json) -> AsyncIterator[bytes]:
        self.running += 1
        try:
            for event in self.events(path, body):
                yield b"data: " + json.dumps(event).encode() + b"\n\n"
                await asyncio.sleep(0)
            yield b"data: [DONE]\n\n"
        finally:
            self.running -= 1


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def write_tokenizer(vocabulary: Vocabulary, folder: Path) -> Path:
    """A model's folder, with the vocabulary as a byte-level tokenizer."""
    shown = {byte: char for char, byte in _BYTE_OF.items()}
    named = {token: "".join(shown[byte] for byte in text or b"") for token, text in enumerate(vocabulary.tokens)}
    (end,) = vocabulary.end
    described = {
        "model": {"type": "BPE", "vocab": {named[token]: token for token in named if token != end}, "merges": []},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": end, "content": "</s>", "special": True}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(described))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    return folder


@contextlib.asynccontextmanager
async def serving(model: ScriptedModel) -> AsyncIterator[str]:
    """Serves a model; its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Quiet(uvicorn.Config(model.app(), log_config=None, access_log=False, lifespan="off"))
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = server.force_exit = True
        await task
