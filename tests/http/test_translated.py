"""The official clients of `/responses` and `/messages` through a gateway whose upstream only speaks chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from gateway.policy.model import Action, Direction, Rule
from tests.support.chat_streams import USAGE, assembled, function, usage_chunk
from tests.support.chat_streams import chunk as of_chat
from tests.support.gateway import RunningGateway, before
from tests.support.guard_client import WORD, script
from tests.support.upstream import END, MODEL, Play, Upstream, chunk, plain, sending, sending_then_closing, stream_head

SEEN = "[REDACTED]"
REDACT = Rule(id="r", words=(WORD,))
BLOCK = Rule(id="r", words=(WORD,), action=Action.BLOCK, message="Not shown.")
INPUT = Rule(id="r", words=(WORD,), apply_to=frozenset({Direction.INPUT}))
CHUNKS = [
    *(of_chat({"content": "a 12MON"}), of_chat({"content": "KEYS"}), of_chat(function(0, "f", '{"a": "12MON'))),
    *(of_chat(function(0, None, 'KEYS"}')), of_chat({}, "tool_calls"), usage_chunk()),
]
STREAM = stream_head() + chunk(script(*CHUNKS)) + END
TOOLS = {
    "/v1/responses": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "/v1/messages": [{"name": "f", "input_schema": {"type": "object"}}],
}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@asynccontextmanager
async def serving(play: Play, rule: Rule = REDACT) -> AsyncIterator[tuple[RunningGateway, Upstream]]:
    async with before(play, rules=[rule]) as (gateway, upstream):
        yield gateway, upstream
        (await gateway.metrics()).assert_covered()


def of_openai(gateway: RunningGateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)


def of_anthropic(gateway: RunningGateway) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0)


ASKED: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}


async def test_a_streamed_response() -> None:
    async with (
        serving(sending(STREAM)) as (gateway, upstream),
        of_openai(gateway) as client,
        client.responses.stream(model=MODEL, input="x", tools=TOOLS["/v1/responses"]) as stream,
    ):
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final: Any = await stream.get_final_response()
        assert texts == ["a ", SEEN] and final.output_text == f"a {SEEN}"
        assert final.output[1].arguments == f'{{"a": "{SEEN}"}}'
        assert final.usage.total_tokens == USAGE["total_tokens"]
        assert upstream.asked.request.target == "/v1/chat/completions"
        assert upstream.asked.body == {
            "model": MODEL,
            "messages": [{"role": "user", "content": "x"}],
            "tools": [CHAT_TOOL],
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def test_a_streamed_message() -> None:
    async with (
        serving(sending(STREAM)) as (gateway, upstream),
        of_anthropic(gateway) as client,
        client.messages.stream(**ASKED, tools=TOOLS["/v1/messages"]) as stream,
    ):
        assert [text async for text in stream.text_stream] == ["a ", SEEN]
        final: Any = await stream.get_final_message()
        assert final.content[1].input == {"a": SEEN} and final.stop_reason == "tool_use"
        assert final.usage.output_tokens == USAGE["completion_tokens"]
        assert upstream.asked.request.target == "/v1/chat/completions"
        assert upstream.asked.body == {
            "model": MODEL,
            "messages": [{"role": "user", "content": "x"}],
            "max_completion_tokens": 9,
            "tools": [CHAT_TOOL],
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def test_a_whole_answer() -> None:
    async with serving(sending(plain(assembled(CHUNKS)))) as (gateway, _):
        async with of_openai(gateway) as client:
            response: Any = await client.responses.create(model=MODEL, input="x")
            assert response.output_text == f"a {SEEN}" and response.output[1].arguments == f'{{"a": "{SEEN}"}}'
        async with of_anthropic(gateway) as other:
            message: Any = await other.messages.create(**ASKED)
            assert message.content[0].text == f"a {SEEN}" and message.content[1].input == {"a": SEEN}


async def test_a_blocked_answer() -> None:
    async with serving(sending(STREAM), BLOCK) as (gateway, _):
        async with of_openai(gateway) as client:
            *_, last = [event async for event in await client.responses.create(model=MODEL, input="x", stream=True)]
            assert last.type == "response.incomplete" and last.response.output_text == "a Not shown."
            assert last.response.incomplete_details.reason == "content_filter"
        async with of_anthropic(gateway) as other, other.messages.stream(**ASKED) as stream:
            final: Any = await stream.get_final_message()
            assert (final.stop_reason, final.content[0].text) == ("refusal", "a Not shown.")


async def test_an_answer_that_breaks_off() -> None:
    async with serving(sending_then_closing(stream_head() + chunk(script(CHUNKS[0], done=False)))) as (gateway, _):
        async with of_openai(gateway) as client:
            with pytest.raises(openai.APIError) as raised:
                async for _ in await client.responses.create(model=MODEL, input="x", stream=True):
                    pass
            assert raised.value.code is not None
        async with of_anthropic(gateway) as other:
            with pytest.raises(anthropic.APIStatusError):
                async with other.messages.stream(**ASKED) as stream:
                    await stream.get_final_message()


async def test_the_prompt_is_scanned_before_it_is_translated() -> None:
    async with serving(sending(plain(assembled(CHUNKS))), INPUT) as (gateway, upstream):
        async with of_openai(gateway) as client:
            result = {"type": "function_call_output", "call_id": "c", "output": f"so {WORD}"}
            call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": f'{{"a": "{WORD}"}}'}
            await client.responses.create(
                model=MODEL, input=[call, result], instructions=WORD, tools=TOOLS["/v1/responses"]
            )
        async with of_anthropic(gateway) as other:
            use = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": WORD}}
            answer = {"type": "tool_result", "tool_use_id": "c", "content": f"so {WORD}"}
            turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
            await other.messages.create(**{**ASKED, "messages": turns}, system=WORD)
        for asked in upstream.calls:
            assert WORD.encode() not in asked.raw and asked.raw.count(SEEN.encode()) == 3


async def test_what_chat_cannot_express_reaches_no_upstream() -> None:
    async with serving(sending(STREAM)) as (gateway, upstream):
        async with of_openai(gateway) as client:
            with pytest.raises(openai.BadRequestError) as raised:
                await client.responses.create(model=MODEL, input="x", tools=[{"type": "web_search"}])
            assert raised.value.param == "tools[0]"
        async with of_anthropic(gateway) as other:
            with pytest.raises(anthropic.BadRequestError, match=r"`tools\[0\]` cannot be translated"):
                await other.messages.create(**ASKED, tools=[{"type": "bash_20250124", "name": "bash"}])
        assert not upstream.calls
