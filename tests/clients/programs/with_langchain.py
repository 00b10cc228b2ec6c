"""langchain-openai: chat completions, its default, and the Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from harness import Note, Way, run
from langchain_openai import ChatOpenAI


def _way(url: str, key: str, **more: Any) -> Way:
    model = ChatOpenAI(model="gpt-4o", base_url=f"{url}/v1", api_key=key, **more)

    async def ask(prompt: str) -> str:
        return (await model.ainvoke(prompt)).text

    async def stream(prompt: str) -> AsyncIterator[str]:
        async for chunk in model.astream(prompt):
            yield chunk.text

    async def parse(prompt: str) -> str:
        return (await model.with_structured_output(Note).ainvoke(prompt)).note

    return Way(ask, stream, parse)


run({"chat": _way, "responses": lambda url, key: _way(url, key, use_responses_api=True)})
