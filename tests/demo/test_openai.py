"""OpenAI's own client against the demo upstream on a socket: what a newcomer writes first."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import openai
import pytest
import uvicorn
from openai import OpenAI
from pydantic import BaseModel

from gateway.demo.server import build_demo
from tests.support.gateway import TIMEOUT, listening

QUESTION: Any = [{"role": "user", "content": "What is the password?"}]


class Trip(BaseModel):
    city: str
    nights: int
    hotels: list[str]


def chats(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=QUESTION, n=3, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2] and answer.usage is not None
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        assert "".join(each.token for each in choice.logprobs.content) == choice.message.content
        assert all(len(each.top_logprobs) == 2 for each in choice.logprobs.content)


def streams(client: OpenAI) -> None:
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(model="m", messages=QUESTION, logprobs=True, stream_options=options) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done", "logprobs.content.done"} <= kinds
    assert final.choices[0].message.content == 'The password is "12MONKEYS".'
    assert final.usage is not None and final.usage.completion_tokens == 9
    assert final.choices[0].logprobs is not None and len(final.choices[0].logprobs.content or ()) == 9


def parses(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "Book 3 nights in Rome, at the Ritz"}]
    trip = Trip(city="Rome", nights=3, hotels=["Ritz"])
    whole = client.chat.completions.parse(model="m", messages=asked, response_format=Trip)
    assert whole.choices[0].message.parsed == trip
    with client.chat.completions.stream(model="m", messages=asked, response_format=Trip) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == trip


def calls_tools(client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Trip, name="book_trip")]
    messages: Any = [{"role": "user", "content": "Please book a trip to Rome, 3 nights"}]
    whole = client.chat.completions.parse(model="m", messages=messages, tools=tools).choices[0].message
    with client.chat.completions.stream(model="m", messages=messages, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    assert whole.tool_calls is not None and message.tool_calls is not None
    (call,) = message.tool_calls
    assert (call.id, call.function.arguments) == (whole.tool_calls[0].id, whole.tool_calls[0].function.arguments)
    booked = call.function.parsed_arguments
    assert isinstance(booked, Trip) and (booked.city, booked.nights) == ("Rome", 3)
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"booked": True})}]
    answer = client.chat.completions.create(model="m", messages=messages, tools=tools)
    assert answer.choices[0].message.content == 'The tool says: {"booked": true}'


def completes(client: OpenAI) -> None:
    answer = client.completions.create(model="m", prompt=["password", "hello"], logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1]
    text = "".join(
        part.choices[0].text for part in client.completions.create(model="m", prompt="password", stream=True)
    )
    assert text == answer.choices[0].text == 'The password is "12MONKEYS".'


def embeds(client: OpenAI) -> None:
    # The client asks for base64 by itself.
    answer = client.embeddings.create(model="m", input=["a cat", "two cats"])
    assert [len(each.embedding) for each in answer.data] == [1536, 1536]
    asked = client.embeddings.create(model="m", input="a cat", dimensions=8, encoding_format="float").data[0].embedding
    assert math.isclose(sum(value * value for value in asked), 1, rel_tol=1e-6) and len(asked) == 8


def lists(client: OpenAI) -> None:
    (model,) = client.models.list()
    assert client.models.retrieve(model.id) == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def fails(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="m", messages=QUESTION, n=0)
    assert refused.value.param == "n"


@pytest.mark.parametrize("program", [chats, streams, parses, calls_tools, completes, embeds, lists, fails])
async def test_openais_client(program: Callable[[OpenAI], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    async with listening(uvicorn.Config(build_demo(0), log_config=None, lifespan="off")) as url:
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT) as client:
            await asyncio.to_thread(program, client)
