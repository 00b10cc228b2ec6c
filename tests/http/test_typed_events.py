"""`/v1/responses` and `/v1/messages` of an upstream that speaks them, through a real gateway to official clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from gateway.policy.model import Action, Rule
from tests.support import message_streams, response_streams
from tests.support.event_client import script
from tests.support.gateway import RunningGateway, before, http_client
from tests.support.guard_client import WORD
from tests.support.upstream import END, MODEL, Play, Upstream, chunk, plain, sending, sending_then_closing, stream_head

SEEN = "[REDACTED]"
SPEAKS = {"endpoints": frozenset({"chat/completions", "responses", "messages"})}
REDACT = Rule(id="r", words=(WORD,))
BLOCK = Rule(id="r", words=(WORD,), action=Action.BLOCK, message="Not shown.")
ITEMS = (response_streams.message("a 12MON", "KEYS"), response_streams.function_call(f'{{"a":"{WORD}"}}'))
BLOCKS = (message_streams.text("a 12MON", "KEYS"), message_streams.tool_use(f'{{"a":"{WORD}"}}'))
RESPONSE = response_streams.response(*(item.done for item in ITEMS))
MESSAGE = message_streams.message(
    {"type": "text", "text": f"a {WORD}"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": WORD}}
)


def streamed(events: list[dict[str, Any]]) -> bytes:
    return stream_head() + chunk(script(events)) + END


@asynccontextmanager
async def serving(play: Play, rule: Rule = REDACT) -> AsyncIterator[tuple[RunningGateway, Upstream]]:
    async with before(play, rules=[rule], upstream=SPEAKS) as (gateway, upstream):
        yield gateway, upstream
        (await gateway.metrics()).assert_covered()


def of_openai(gateway: RunningGateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)


def of_anthropic(gateway: RunningGateway) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0)


ASKED: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}


async def test_a_streamed_response() -> None:
    async with (
        serving(sending(streamed(response_streams.events(*ITEMS)))) as (gateway, upstream),
        of_openai(gateway) as client,
        client.responses.stream(model=MODEL, input="x") as stream,
    ):
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
        assert texts == ["a ", SEEN] and final.output_text == f"a {SEEN}"
        assert json.loads(final.output[1].arguments) == {"a": SEEN}
        assert upstream.asked.request.target == "/v1/responses" and upstream.asked.body["input"] == "x"


async def test_a_whole_response() -> None:
    async with serving(sending(plain(RESPONSE))) as (gateway, _), of_openai(gateway) as client:
        final = await client.responses.create(model=MODEL, input="x")
        assert final.output_text == f"a {SEEN}" and final.usage is not None and final.usage.total_tokens == 7


async def test_a_blocked_response() -> None:
    async with (
        serving(sending(streamed(response_streams.events(*ITEMS))), BLOCK) as (gateway, _),
        of_openai(gateway) as client,
    ):
        events = [event async for event in await client.responses.create(model=MODEL, input="x", stream=True)]
        last: Any = events[-1]
        assert last.type == "response.incomplete" and last.response.incomplete_details.reason == "content_filter"
        assert last.response.output_text == "a Not shown."


async def test_a_streamed_message() -> None:
    async with (
        serving(sending(streamed(message_streams.events(*BLOCKS)))) as (gateway, upstream),
        of_anthropic(gateway) as client,
        client.messages.stream(**ASKED) as stream,
    ):
        assert [text async for text in stream.text_stream] == ["a ", SEEN]
        final: Any = await stream.get_final_message()
        assert final.content[1].input == {"a": SEEN} and final.usage.output_tokens == 9
        assert upstream.asked.request.target == "/v1/messages"


async def test_a_whole_message() -> None:
    async with serving(sending(plain(MESSAGE))) as (gateway, _), of_anthropic(gateway) as client:
        final: Any = await client.messages.create(**ASKED)
        assert final.content[0].text == f"a {SEEN}" and final.content[1].input == {"a": SEEN}


async def test_a_blocked_message() -> None:
    async with (
        serving(sending(streamed(message_streams.events(*BLOCKS))), BLOCK) as (gateway, _),
        of_anthropic(gateway) as client,
        client.messages.stream(**ASKED) as stream,
    ):
        final = await stream.get_final_message()
        assert final.stop_reason == "refusal" and await stream.get_final_text() == "a Not shown."


async def test_an_upstream_that_breaks_off_a_response() -> None:
    broken = stream_head() + chunk(script(response_streams.events(*ITEMS)[:5]))
    async with serving(sending_then_closing(broken)) as (gateway, _), of_openai(gateway) as client:
        stream = await client.responses.create(model=MODEL, input="x", stream=True)
        read: list[Any] = []
        with pytest.raises(openai.APIError) as raised:
            async for each in stream:
                read.append(each)
        assert raised.value.code == "upstream_protocol_error"
        assert [each.delta for each in read if each.type == "response.output_text.delta"] == ["a ", "12MON"]


async def test_an_upstream_that_breaks_off_a_message() -> None:
    broken = stream_head() + chunk(script(message_streams.events(*BLOCKS)[:4]))
    async with serving(sending_then_closing(broken)) as (gateway, _), of_anthropic(gateway) as client:
        with pytest.raises(anthropic.APIStatusError) as raised:
            async with client.messages.stream(**ASKED) as stream:
                await stream.get_final_message()
        assert isinstance(raised.value.body, dict) and raised.value.body["error"]["type"] == "api_error"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_errors_have_the_shape_of_the_endpoint(path: str) -> None:
    failed = {"type": "error", "error": {"type": "rate_limit_error", "message": f"slow down, {WORD}"}}
    async with serving(sending(plain(failed, 429))) as (gateway, _), http_client(gateway.url) as client:
        body = {**ASKED, "input": "x"}
        answer = await client.post(path, json=body)
        assert answer.status_code == 429 and answer.json()["error"]["message"] == f"slow down, {SEEN}"
        assert answer.json().get("type") == ("error" if path == "/v1/messages" else None)
        bad = await client.post(path, json={"model": MODEL})
        assert bad.status_code == 400
        error = bad.json()["error"]
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "made",
    [
        lambda: ("/v1/responses", {"model": MODEL, "input": f"a {WORD}", "instructions": WORD}),
        lambda: ("/v1/messages", {**ASKED, "system": WORD, "messages": [{"role": "user", "content": f"a {WORD}"}]}),
    ],
)
async def test_prompts_are_censored(made: Callable[[], tuple[str, dict[str, Any]]]) -> None:
    path, body = made()
    rule = Rule(id="r", words=(WORD,), apply_to=frozenset({"input"}))  # type: ignore[arg-type]
    async with serving(sending(plain(RESPONSE)), rule) as (gateway, upstream), http_client(gateway.url) as client:
        await client.post(path, json=body)
        assert WORD not in json.dumps(upstream.asked.body) and SEEN in json.dumps(upstream.asked.body)
