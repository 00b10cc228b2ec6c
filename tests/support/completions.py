"""The endpoint /v1/completions: what clients ask and read there, and what its upstreams answer."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.support.gateway import RunningGateway, Streamed
from tests.support.upstream import DONE, END, MODEL, Json, chunk, event, stream_head

PATH = "/v1/completions"
HEAD: Json = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL}
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def asking(prompt: Any = "hello", **fields: Any) -> Json:
    return {"model": MODEL, "prompt": prompt, **fields}


def choice(text: Any, index: Any = 0, finish: Any = None, **more: Any) -> Json:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish, **more}


def part(text: Any = "", index: Any = 0, finish: Any = None, **more: Any) -> Json:
    """One event of a stream; `more` stands in its choice."""
    return {**HEAD, "choices": [choice(text, index, finish, **more)]}


def parts(*texts: str, finish: str = "stop") -> bytes:
    """The events of a whole stream, one for each text."""
    return b"".join(event(part(text)) for text in texts) + event(part(finish=finish)) + DONE


def streamed(*texts: str, finish: str = "stop") -> bytes:
    """A whole streamed response."""
    return stream_head() + chunk(parts(*texts, finish=finish)) + END


def completed(*texts: Any, finish: str = "stop") -> Json:
    """A whole answer with a choice for each text."""
    return {**HEAD, "choices": [choice(text, index, finish) for index, text in enumerate(texts)], "usage": USAGE}


async def post(gateway: RunningGateway, body: Json, headers: dict[str, str] | None = None) -> httpx2.Response:
    return await gateway.client.post(PATH, json=body, headers=headers)


async def ask(gateway: RunningGateway, prompt: Any = "hello", **fields: Any) -> httpx2.Response:
    return await post(gateway, asking(prompt, **fields))


async def stream(gateway: RunningGateway, prompt: Any = "hello", **fields: Any) -> TextStream:
    """A prompt whose answer is streamed and read to its end."""
    return TextStream(await ask(gateway, prompt, stream=True, **fields))


class TextStream(Streamed):
    """A streamed answer as a strict client of this endpoint reads it."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response)
        for each in self.chunks:
            assert "error" in each or each["object"] == "text_completion"
            for found in each.get("choices", ()):
                assert isinstance(found["text"], str) and not found.keys() & {"delta", "message"}

    def text(self, index: int = 0) -> str:
        found = (choice for each in self.chunks for choice in each.get("choices", ()))
        return "".join(choice["text"] for choice in found if choice["index"] == index)
