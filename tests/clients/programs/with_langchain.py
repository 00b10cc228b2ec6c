"""langchain-openai: chat completions, its default, and the Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from harness import Note, Way, run
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def remember(note: str) -> str:
    """Remember a note."""
    return "kept"


def _way(url: str, key: str, **more: Any) -> Way:
    model = ChatOpenAI(model="gpt-4o", base_url=f"{url}/v1", api_key=key, **more)

    async def ask(prompt: str) -> str:
        return (await model.ainvoke(prompt)).text

    async def stream(prompt: str) -> AsyncIterator[str]:
        async for chunk in model.astream(prompt):
            yield chunk.text

    async def parse(prompt: str) -> str:
        return (await model.with_structured_output(Note).ainvoke(prompt)).note

    async def call(prompt: str) -> str:
        messages: list[Any] = [HumanMessage(prompt)]
        messages.append(await model.bind_tools([remember]).ainvoke(messages))
        (asked,) = messages[-1].tool_calls
        messages.append(await remember.ainvoke(asked))
        return f"{asked['args']['note']}; {(await model.bind_tools([remember]).ainvoke(messages)).text}"

    return Way(ask, stream, parse, call)


run({"chat": _way, "responses": lambda url, key: _way(url, key, use_responses_api=True)})
