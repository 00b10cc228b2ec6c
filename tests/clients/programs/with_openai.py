"""openai-python, sync and async: chat completions and responses, plainly, by the stream helpers, and parsed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from harness import Note, Way, run
from openai import AsyncOpenAI, OpenAI

MODEL = "gpt-4o"


def _messages(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


def chat(url: str, key: str) -> Way:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)

    async def ask(prompt: str) -> str | None:
        answer = await client.chat.completions.create(model=MODEL, messages=_messages(prompt))
        return answer.choices[0].message.content

    async def stream(prompt: str) -> AsyncIterator[str | None]:
        async for chunk in await client.chat.completions.create(model=MODEL, messages=_messages(prompt), stream=True):
            yield chunk.choices[0].delta.content

    async def parse(prompt: str) -> str:
        answer = await client.chat.completions.parse(model=MODEL, messages=_messages(prompt), response_format=Note)
        return answer.choices[0].message.parsed.note

    return Way(ask, stream, parse)


def chat_helper(url: str, key: str) -> Way:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)

    async def stream(prompt: str) -> AsyncIterator[str]:
        async with client.chat.completions.stream(model=MODEL, messages=_messages(prompt)) as events:
            async for event in events:
                if event.type == "content.delta":
                    yield event.delta

    async def parse(prompt: str) -> str:
        async with client.chat.completions.stream(
            model=MODEL, messages=_messages(prompt), response_format=Note
        ) as events:
            answer = await events.get_final_completion()
        return answer.choices[0].message.parsed.note

    return Way(None, stream, parse)


def responses(url: str, key: str) -> Way:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)

    async def ask(prompt: str) -> str:
        return (await client.responses.create(model=MODEL, input=prompt)).output_text

    async def stream(prompt: str) -> AsyncIterator[str]:
        async for event in await client.responses.create(model=MODEL, input=prompt, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta

    async def parse(prompt: str) -> str:
        return (await client.responses.parse(model=MODEL, input=prompt, text_format=Note)).output_parsed.note

    return Way(ask, stream, parse)


def responses_helper(url: str, key: str) -> Way:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)

    async def stream(prompt: str) -> AsyncIterator[str]:
        async with client.responses.stream(model=MODEL, input=prompt) as events:
            async for event in events:
                if event.type == "response.output_text.delta":
                    yield event.delta

    async def parse(prompt: str) -> str:
        async with client.responses.stream(model=MODEL, input=prompt, text_format=Note) as events:
            return (await events.get_final_response()).output_parsed.note

    return Way(None, stream, parse)


def sync(url: str, key: str) -> Way:
    client = OpenAI(base_url=f"{url}/v1", api_key=key)

    async def ask(prompt: str) -> str:
        return (await asyncio.to_thread(client.responses.create, model=MODEL, input=prompt)).output_text

    def deltas(prompt: str) -> Iterator[str]:
        for event in client.responses.create(model=MODEL, input=prompt, stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta

    async def stream(prompt: str) -> AsyncIterator[str]:
        pieces = deltas(prompt)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    async def parse(prompt: str) -> str:
        with client.responses.stream(model=MODEL, input=prompt, text_format=Note) as events:
            return events.get_final_response().output_parsed.note

    return Way(ask, stream, parse)


run(
    {
        "chat": chat,
        "chat, stream helper": chat_helper,
        "responses": responses,
        "responses, stream helper": responses_helper,
        "responses, sync": sync,
    }
)
