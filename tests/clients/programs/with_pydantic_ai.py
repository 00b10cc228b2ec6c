"""pydantic-ai with its default model of OpenAI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from harness import Note, Way, run
from pydantic_ai import Agent
from pydantic_ai.models import infer_model
from pydantic_ai.providers.openai import OpenAIProvider


def _opened(url: str, key: str) -> Way:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key=key)
    model: Any = infer_model("openai:gpt-4o", lambda name: provider)
    agent = Agent(model)

    async def ask(prompt: str) -> str:
        return (await agent.run(prompt)).output

    async def stream(prompt: str) -> AsyncIterator[str]:
        async with agent.run_stream(prompt) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                yield text

    async def parse(prompt: str) -> str:
        return (await Agent(model, output_type=Note).run(prompt)).output.note

    return Way(ask, stream, parse)


run({"default": _opened})
