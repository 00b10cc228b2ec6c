"""anthropic, sync and async: messages, plainly and by the stream helper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from anthropic import Anthropic, AsyncAnthropic, beta_async_tool
from harness import Note, Way, run


def _question(prompt: str) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": [{"role": "user", "content": prompt}]}


def messages(url: str, key: str) -> Way:
    client = AsyncAnthropic(base_url=url, api_key=key)

    async def ask(prompt: str) -> str:
        return (await client.messages.create(**_question(prompt))).content[0].text

    async def stream(prompt: str) -> AsyncIterator[str]:
        async for event in await client.messages.create(**_question(prompt), stream=True):
            if event.type == "content_block_delta":
                yield event.delta.text

    async def parse(prompt: str) -> str:
        return (await client.messages.parse(**_question(prompt), output_format=Note)).parsed_output.note

    async def call(prompt: str) -> str:
        noted: list[str] = []

        @beta_async_tool
        async def remember(note: str) -> str:
            """Remember a note."""
            noted.append(note)
            return "kept"

        answer = await client.beta.messages.tool_runner(**_question(prompt), tools=[remember]).until_done()
        return f"{noted[0]}; {answer.content[0].text}"

    return Way(ask, stream, parse, call)


def helper(url: str, key: str) -> Way:
    client = AsyncAnthropic(base_url=url, api_key=key)

    async def stream(prompt: str) -> AsyncIterator[str]:
        async with client.messages.stream(**_question(prompt)) as events:
            async for text in events.text_stream:
                yield text

    return Way(None, stream)


def sync(url: str, key: str) -> Way:
    client = Anthropic(base_url=url, api_key=key)

    async def ask(prompt: str) -> str:
        return (await asyncio.to_thread(client.messages.create, **_question(prompt))).content[0].text

    async def stream(prompt: str) -> AsyncIterator[str]:
        with client.messages.stream(**_question(prompt)) as events:
            for text in events.text_stream:
                yield text

    return Way(ask, stream)


run({"messages": messages, "messages, stream helper": helper, "messages, sync": sync})
