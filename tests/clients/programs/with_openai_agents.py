"""openai-agents with its defaults: the Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
from harness import Note, Way, run


def _opened(url: str, key: str, *, streamed: bool = False) -> Way:
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

    def caller() -> tuple[Agent, list[str]]:
        noted: list[str] = []

        @function_tool
        def remember(note: str) -> str:
            """Remember a note."""
            noted.append(note)
            return "kept"

        return Agent(name="assistant", model="gpt-4o", tools=[remember]), noted

    async def call(prompt: str) -> str:
        agent, noted = caller()
        answer = (await Runner.run(agent, prompt, run_config=config)).final_output
        return f"{noted[0]}; {answer}"

    async def call_streamed(prompt: str) -> str:
        agent, noted = caller()
        running = Runner.run_streamed(agent, prompt, run_config=config)
        async for _ in running.stream_events():
            pass
        return f"{noted[0]}; {running.final_output}"

    return Way(None, None, None, call_streamed) if streamed else Way(ask, stream, parse, call)


run({"default": _opened, "default, calls of streams": lambda url, key: _opened(url, key, streamed=True)})
