"""A question to each endpoint by its official Python client, streamed or not, and what the client has of the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.gateway import TIMEOUT
from tests.support.vllm_server import NAME

Json = dict[str, Any]
SHAPE = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}}


@dataclass
class Answer:
    """`text` is the sum of the deltas, and `raw` all that the client has got; `usage` counts prompt and answer."""

    text: str = ""
    reason: str | None = None
    usage: tuple[int, int] | None = None
    names: dict[Any, str] = field(default_factory=dict)
    arguments: dict[Any, str] = field(default_factory=dict)
    spelled: str = ""  # by log probabilities
    raw: str = ""

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The names of the tools called, with their arguments."""
        return [(name, json.loads(self.arguments[at])) for at, name in self.names.items()]

    def call(self, at: Any, name: str | None, arguments: str | None) -> None:
        self.names[at] = self.names.get(at, "") + (name or "")
        self.arguments[at] = self.arguments.get(at, "") + (arguments or "")

    async def parts(self, answer: Any, stream: bool, leave: bool) -> AsyncIterator[Any]:
        """What the client gets, piece by piece; no more after the first text if it is to leave."""
        if not stream:
            self.raw = answer.model_dump_json()
            yield answer
            return
        async for part in answer:
            self.raw += part.model_dump_json() + "\n"
            yield part
            if leave and self.text:
                return


def openai_client(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-any", max_retries=0, timeout=TIMEOUT)


def anthropic_client(url: str) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=url, api_key="sk-any", max_retries=0, timeout=TIMEOUT)


def user(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


async def by_chat(
    url: str, question: str, stream: bool, *, limit: int = 60, tool: str = "", leave: bool = False, **more: Any
) -> Answer:
    found = Answer()
    if tool:
        more["tools"] = [{"type": "function", "function": {"name": tool, "parameters": SHAPE}}]
    async with openai_client(url) as client:
        answer = await client.chat.completions.create(
            **_asked(stream, more), messages=user(question), max_tokens=limit, **_with_usage(stream)
        )
        async for part in found.parts(answer, stream, leave):
            if part.usage:
                found.usage = part.usage.prompt_tokens, part.usage.completion_tokens
            for choice in part.choices:
                said = choice.delta if stream else choice.message
                found.text += said.content or ""
                found.reason = choice.finish_reason or found.reason
                if choice.logprobs is not None:
                    found.spelled += "".join(each.token for each in choice.logprobs.content or ())
                for at, call in enumerate(said.tool_calls or ()):
                    found.call(call.index if stream else at, call.function.name, call.function.arguments)
    return found


async def by_completions(
    url: str, question: str, stream: bool, *, limit: int = 60, leave: bool = False, **more: Any
) -> Answer:
    found = Answer()
    async with openai_client(url) as client:
        answer = await client.completions.create(
            **_asked(stream, more), prompt=question, max_tokens=limit, **_with_usage(stream)
        )
        async for part in found.parts(answer, stream, leave):
            if part.usage:
                found.usage = part.usage.prompt_tokens, part.usage.completion_tokens
            for choice in part.choices:
                found.text += choice.text
                found.reason = choice.finish_reason or found.reason
                if choice.logprobs is not None:
                    found.spelled += "".join(choice.logprobs.tokens or ())
    return found


async def by_responses(
    url: str, question: str, stream: bool, *, limit: int = 60, tool: str = "", leave: bool = False, **more: Any
) -> Answer:
    """The response that ends a stream must repeat what was streamed."""
    found = Answer()
    if tool:
        more["tools"] = [{"type": "function", "name": tool, "parameters": SHAPE, "strict": False}]
    async with openai_client(url) as client:
        answer = await client.responses.create(**_asked(stream, more), input=question, max_output_tokens=limit)
        async for part in found.parts(answer, stream, leave):
            if not stream:
                _end_response(found, part)
            elif part.type == "response.output_text.delta":
                found.text += part.delta
            elif part.type == "response.function_call_arguments.delta":
                found.call(part.output_index, None, part.delta)
            elif part.type in ("response.completed", "response.incomplete"):
                streamed = Answer(text=found.text, arguments=found.arguments)
                _end_response(found, part.response)
                assert (streamed.text, streamed.arguments) == (found.text, found.arguments)
    return found


def _end_response(found: Answer, response: Any) -> None:
    found.text = response.output_text
    found.arguments = {}
    for at, item in enumerate(response.output):
        if item.type == "function_call":
            found.call(at, item.name, item.arguments)
    details = response.incomplete_details
    found.reason = details.reason if details else response.status
    if response.usage:
        found.usage = response.usage.input_tokens, response.usage.output_tokens


async def by_messages(
    url: str, question: str, stream: bool, *, limit: int = 60, tool: str = "", leave: bool = False, **more: Any
) -> Answer:
    """The client's own sum of a stream must be what was streamed. Its newest versions have no `temperature`."""
    found, message = Answer(), None
    if tool:
        more["tools"] = [{"name": tool, "input_schema": SHAPE}]
    temperature = {"temperature": more.pop("temperature", 0)}
    given = {"model": NAME, "messages": user(question), "max_tokens": limit, "extra_body": temperature, **more}
    async with anthropic_client(url) as client:
        if not stream:
            message = await client.messages.create(**given)
            found.raw = message.model_dump_json()
        else:
            async with client.messages.stream(**given) as events:
                async for part in found.parts(events, stream, leave):
                    if part.type == "text":
                        found.text += part.text
                if not leave:
                    message = await events.get_final_message()
                    assert found.text == _said(message)
    if message is not None:
        found.text, found.reason = _said(message), message.stop_reason
        usage = message.usage
        found.usage = usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens
        for at, block in enumerate(message.content):
            if block.type == "tool_use":
                found.call(at, block.name, json.dumps(block.input))
    return found


def _said(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _asked(stream: bool, more: Json) -> Json:
    return {"model": NAME, "temperature": 0, "stream": stream, **more}


def _with_usage(stream: bool) -> Json:
    return {"stream_options": {"include_usage": True}} if stream else {}


ASKED = {"chat": by_chat, "completions": by_completions, "responses": by_responses, "messages": by_messages}
