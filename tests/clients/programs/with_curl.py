"""curl: the three endpoints, without any SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from harness import Way, run


class Refused(Exception):
    def __init__(self, answer: Any, status_code: int) -> None:
        super().__init__(json.dumps(answer))
        self.status_code = status_code


async def _curl(url: str, key: str, body: dict[str, Any]) -> tuple[str, int]:
    """The body of the answer and its status. `-N` passes a stream's events on as they come."""
    headers = ("-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json")
    command = ("curl", "-sN", "-w", "\n%{http_code}", *headers, "-d", json.dumps(body), url)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    answer, _, status = out.decode().rpartition("\n")
    return answer, int(status)


def _way(path: str, prompt_field: str, text_of: Callable[[Any], str], delta_of: Callable[[Any], str | None]) -> Any:
    def opened(url: str, key: str) -> Way:
        def body(prompt: str, **more: Any) -> dict[str, Any]:
            asked = prompt if prompt_field == "input" else [{"role": "user", "content": prompt}]
            limit = {"max_tokens": 99} if path == "messages" else {}
            return {"model": "any", prompt_field: asked, **limit, **more}

        async def ask(prompt: str) -> str:
            answer, status = await _curl(f"{url}/v1/{path}", key, body(prompt))
            if status != 200:
                raise Refused(json.loads(answer), status)
            return text_of(json.loads(answer))

        async def stream(prompt: str) -> AsyncIterator[str | None]:
            answer, status = await _curl(f"{url}/v1/{path}", key, body(prompt, stream=True))
            if status != 200:
                raise Refused(json.loads(answer), status)
            for line in answer.splitlines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    if event.get("error"):
                        raise Refused(event, status)
                    yield delta_of(event)

        return Way(ask, stream)

    return opened


run(
    {
        "chat": _way(
            "chat/completions",
            "messages",
            lambda answer: answer["choices"][0]["message"]["content"],
            lambda event: event["choices"][0]["delta"].get("content"),
        ),
        "responses": _way(
            "responses",
            "input",
            lambda answer: answer["output"][0]["content"][0]["text"],
            lambda event: event["delta"] if event["type"] == "response.output_text.delta" else None,
        ),
        "messages": _way(
            "messages",
            "messages",
            lambda answer: answer["content"][0]["text"],
            lambda event: event["delta"]["text"] if event["type"] == "content_block_delta" else None,
        ),
    }
)
