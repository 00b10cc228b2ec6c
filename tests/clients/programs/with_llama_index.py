"""LlamaIndex: chat completions and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from harness import Note, Way, run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses


def _opened(kind: type[OpenAI] | type[OpenAIResponses]) -> Callable[[str, str], Way]:
    def opened(url: str, key: str) -> Way:
        model: Any = kind(model="gpt-4o", api_base=f"{url}/v1", api_key=key)

        async def ask(prompt: str) -> str:
            return (await model.acomplete(prompt)).text

        async def stream(prompt: str) -> AsyncIterator[str]:
            async for part in await model.astream_complete(prompt):
                yield part.delta

        async def parse(prompt: str) -> str:
            return (await model.astructured_predict(Note, PromptTemplate(prompt))).note

        async def call(prompt: str) -> str:
            noted: list[str] = []

            def remember(note: str) -> str:
                """Remember a note."""
                noted.append(note)
                return "kept"

            agent = FunctionAgent(llm=model, tools=[FunctionTool.from_defaults(remember)])
            answer = await agent.run(prompt)
            return f"{noted[0]}; {answer}"

        return Way(ask, stream, parse, call)

    return opened


run({"chat": _opened(OpenAI), "responses": _opened(OpenAIResponses)})
