"""instructor, which asks for structured answers only: whole, and as partial objects of a stream."""

from __future__ import annotations

import instructor
from harness import Note, Way, run
from openai import AsyncOpenAI


def _opened(url: str, key: str) -> Way:
    client = instructor.from_openai(AsyncOpenAI(base_url=f"{url}/v1", api_key=key))

    async def parse(prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        return (await client.chat.completions.create(model="gpt-4o", messages=messages, response_model=Note)).note

    return Way(None, None, parse)


def _partial(url: str, key: str) -> Way:
    client = instructor.from_openai(AsyncOpenAI(base_url=f"{url}/v1", api_key=key))

    async def parse(prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        partial = client.chat.completions.create_partial(model="gpt-4o", messages=messages, response_model=Note)
        *_, last = [note async for note in partial]
        return last.note

    return Way(None, None, parse)


run({"create": _opened, "create_partial": _partial})
