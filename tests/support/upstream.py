"""An upstream on a real socket whose answers a test plays byte by byte, and the bytes of common answers.

A *play* is a coroutine function that gets a `Call`: the request, already read, and the connection to answer on.
`GET …/models`, which the gateway's probes ask for, is answered by itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.scripted_server import Conversation, Received, Script, serving

Json = dict[str, Any]
MODEL = "gpt-test"
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "someone"}]}


@dataclass(frozen=True, slots=True)
class Call:
    conversation: Conversation
    request: Received
    raw: bytes

    @property
    def body(self) -> Json:
        parsed: Json = json.loads(self.raw)
        return parsed

    async def send(self, *pieces: bytes) -> None:
        await self.conversation.send(*pieces)

    async def hang(self) -> None:
        """Say nothing more until the gateway closes."""
        await self.conversation.until_client_leaves()

    def close(self) -> None:
        self.conversation.writer.close()


Play = Callable[[Call], Awaitable[None]]


@dataclass
class Upstream:
    base_url: str = ""
    calls: list[Call] = field(default_factory=list)
    probes: int = 0  # requests for the models

    @property
    def asked(self) -> Call:
        """The only call there was."""
        assert len(self.calls) == 1, [call.request.target for call in self.calls]
        return self.calls[0]


@asynccontextmanager
async def playing(play: Play, models: bytes | None = None) -> AsyncIterator[Upstream]:
    """An upstream that plays `play` for each call, and answers requests for its models with `models`."""
    upstream = Upstream()
    async with serving(_script(play, upstream, models or plain(MODELS))) as server:
        upstream.base_url = f"http://127.0.0.1:{server.port}/v1"
        yield upstream


def _script(play: Play, upstream: Upstream, models: bytes) -> Script:
    async def script(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            raw = await conversation.body()
            if request.target.partition("?")[0].endswith("/models"):
                upstream.probes += 1
                await conversation.send(models)
                continue
            call = Call(conversation, request, raw)
            upstream.calls.append(call)
            await play(call)

    return script


def sending(*pieces: bytes) -> Play:
    """Answers with these bytes and keeps the connection."""

    async def play(call: Call) -> None:
        await call.send(*pieces)

    return play


def sending_then_closing(*pieces: bytes) -> Play:
    async def play(call: Call) -> None:
        await call.send(*pieces)
        call.close()

    return play


def sending_then_resetting(*pieces: bytes) -> Play:
    async def play(call: Call) -> None:
        await call.send(*pieces)
        call.conversation.reset()

    return play


def sending_then_hanging(*pieces: bytes) -> Play:
    async def play(call: Call) -> None:
        await call.send(*pieces)
        await call.hang()

    return play


# Bytes of answers.


def http(status: int, body: bytes, content_type: str = "application/json", *more: str) -> bytes:
    """A whole response with a Content-Length; `more` are header lines."""
    lines = [f"HTTP/1.1 {status} Because", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *more]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def plain(value: object, status: int = 200, *more: str) -> bytes:
    return http(status, json.dumps(value).encode(), "application/json", *more)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


END = b"0\r\n\r\n"


def stream_head(*more: str, content_type: str = "text/event-stream") -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", "Transfer-Encoding: chunked", *more]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


DONE = event(b"[DONE]")


def delta(content: str | None = None, *, index: int = 0, finish: str | None = None, **fields: Any) -> Json:
    """One chunk of a chat stream."""
    said = {**({} if content is None else {"content": content}), **fields}
    choice = {"index": index, "delta": said, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}


def events(*texts: str, finish: str = "stop") -> bytes:
    """The events of a whole stream, one delta for each text."""
    said = b"".join(event(delta(text)) for text in texts)
    return event(delta("", role="assistant")) + said + event(delta(finish=finish)) + DONE


def stream(*texts: str, finish: str = "stop") -> bytes:
    """A whole streamed response."""
    return stream_head() + chunk(events(*texts, finish=finish)) + END


def completion(content: str | None, finish: str = "stop", **fields: Any) -> Json:
    """A whole chat answer."""
    message = {"role": "assistant", "content": content, **fields}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
    return {**head, "choices": [choice], "usage": usage}
