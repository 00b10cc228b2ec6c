"""litellm: its providers of OpenAI, chat and responses, and of Anthropic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2  # noqa: F401 - litellm imports it in a thread of its first call; others beside it would see half of it
import litellm
from harness import Note, Way, run


def _completion(model: str, suffix: str) -> Callable[[str, str], Way]:
    def opened(url: str, key: str) -> Way:
        def fields(prompt: str) -> dict[str, Any]:
            messages = [{"role": "user", "content": prompt}]
            return {"model": model, "messages": messages, "api_base": f"{url}{suffix}", "api_key": key}

        async def ask(prompt: str) -> str | None:
            return (await litellm.acompletion(**fields(prompt))).choices[0].message.content

        async def stream(prompt: str) -> AsyncIterator[str | None]:
            async for chunk in await litellm.acompletion(**fields(prompt), stream=True):
                yield chunk.choices[0].delta.content

        async def parse(prompt: str) -> str:
            answer = await litellm.acompletion(**fields(prompt), response_format=Note)
            return Note.model_validate_json(answer.choices[0].message.content).note

        return Way(ask, stream, parse)

    return opened


def responses(url: str, key: str) -> Way:
    def fields(prompt: str) -> dict[str, Any]:
        return {"model": "openai/gpt-4o", "input": prompt, "api_base": f"{url}/v1", "api_key": key}

    async def ask(prompt: str) -> str:
        return (await litellm.aresponses(**fields(prompt))).output[0].content[0].text

    async def stream(prompt: str) -> AsyncIterator[str]:
        async for event in await litellm.aresponses(**fields(prompt), stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta

    return Way(ask, stream)


run(
    {
        "openai": _completion("openai/gpt-4o", "/v1"),
        "openai, responses": responses,
        "anthropic": _completion("anthropic/claude-sonnet-4-5", ""),
    }
)
