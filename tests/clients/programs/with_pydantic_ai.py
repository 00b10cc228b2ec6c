"""pydantic-ai with its default model of OpenAI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from harness import Note, Way, run
from pydantic_ai import Agent
from pydantic_ai.models import infer_model
from pydantic_ai.providers.openai import OpenAIProvider


def _opened(url: str, key: str, *, streamed: bool = False) -> Way:
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

    def caller() -> tuple[Any, list[str]]:
        noted: list[str] = []

        def remember(note: str) -> str:
            """Remember a note."""
            noted.append(note)
            return "kept"

        return Agent(model, tools=[remember]), noted

    async def call(prompt: str) -> str:
        agent, noted = caller()
        answer = (await agent.run(prompt)).output
        return f"{noted[0]}; {answer}"

    async def call_streamed(prompt: str) -> str:
        agent, noted = caller()
        async with agent.run_stream(prompt) as result:
            answer = await result.get_output()
        return f"{noted[0]}; {answer}"

    return Way(None, None, None, call_streamed) if streamed else Way(ask, stream, parse, call)


run({"default": _opened, "default, calls of streams": lambda url, key: _opened(url, key, streamed=True)})
