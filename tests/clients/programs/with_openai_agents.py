"""openai-agents with its defaults: the Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agents import Agent, OpenAIProvider, RunConfig, Runner
from harness import Note, Way, run


def _opened(url: str, key: str) -> Way:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key=key)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    agent = Agent(name="assistant", model="gpt-4o")

    async def ask(prompt: str) -> str:
        return (await Runner.run(agent, prompt, run_config=config)).final_output

    async def stream(prompt: str) -> AsyncIterator[str]:
        async for event in Runner.run_streamed(agent, prompt, run_config=config).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta

    async def parse(prompt: str) -> str:
        structured = Agent(name="assistant", model="gpt-4o", output_type=Note)
        return (await Runner.run(structured, prompt, run_config=config)).final_output.note

    return Way(ask, stream, parse)


run({"default": _opened})
