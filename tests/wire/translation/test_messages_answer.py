"""What the official client makes of a chat answer that was written as one of `/messages`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from gateway.wire.dialect import UntranslatableAnswer
from gateway.wire.translation.messages_answer import MessagesEncoder
from tests.support.chat_streams import assembled, chunk, encoded, function, streams, typed_events, usage_chunk
from tests.support.examples import examples
from tests.support.replaying import Replay, replaying

Json = dict[str, Any]
ASKED: Json = {"model": "asked", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
BODY: Json = {**ASKED, "stream": True}
THINKING: Json = {**BODY, "thinking": {"type": "enabled", "budget_tokens": 1024}}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def written(chunks: list[Json], body: Json = BODY) -> bytes:
    return encoded(MessagesEncoder(body), chunks)


def events_of(data: bytes) -> list[Json]:
    return typed_events(data, EVENT)


def whole(chunks: list[Json], body: Json = BODY) -> Json:
    answer = MessagesEncoder(body).answer(assembled(chunks))
    Message.model_validate(answer)
    return answer


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replaying() as server:
        yield server


@pytest.fixture(scope="module")
def client(replay: Replay) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=replay.base_url, api_key="k", max_retries=0)


def final(client: anthropic.Anthropic) -> Message:
    with client.messages.stream(**ASKED) as stream:
        return stream.get_final_message()


def test_a_text_has_the_events_of_the_api() -> None:
    chunks = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"}, "stop")]
    assert events_of(written([*chunks, usage_chunk()])) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_7",
                "type": "message",
                "role": "assistant",
                "model": "served",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 0,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 0,
                },
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {
                "input_tokens": 3,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 2,
                "output_tokens": 7,
            },
        },
        {"type": "message_stop"},
    ]


def test_a_call_is_a_tool_use(replay: Replay, client: anthropic.Anthropic) -> None:
    chunks = [
        *(chunk({"content": "I look."}), chunk(function(0, "tool", '{"a"')), chunk(function(1, "other"))),
        *(chunk(function(0, None, ": [1]}")), chunk({}, "stop")),
    ]
    replay.answer = written(chunks)
    message = final(client)
    assert [block.model_dump(exclude_none=True) for block in message.content] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_0", "name": "tool", "input": {"a": [1]}},
        {"type": "tool_use", "id": "call_1", "name": "other", "input": {}},
    ]
    assert message.stop_reason == "tool_use"
    assert whole(chunks)["content"] == message.to_dict()["content"]


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
    ],
)
def test_reasoning_is_shown_where_thinking_was_asked_for(
    thinking: Json | None, shown: bool, replay: Replay, client: anthropic.Anthropic
) -> None:
    body = {**BODY, "thinking": thinking}
    chunks = [chunk({"reasoning": "hm"}), chunk({"content": "x"}, "stop")]
    replay.answer = written(chunks, body)
    expected = [{"type": "thinking", "thinking": "hm", "signature": ""}] if shown else []
    expected.append({"type": "text", "text": "x"})
    assert final(client).to_dict()["content"] == expected
    assert whole(chunks, body)["content"] == expected


@pytest.mark.parametrize(
    ("end", "reason", "sequence"),
    [
        ({"reason": "stop"}, "end_turn", None),
        ({"reason": "length"}, "max_tokens", None),
        ({"reason": "content_filter"}, "refusal", None),
        ({"reason": "tool_calls"}, "tool_use", None),
        ({"reason": "abort"}, "end_turn", None),
        ({"reason": "stop", "stop_reason": "END"}, "stop_sequence", "END"),
        ({"reason": "stop", "stop_reason": "another"}, "end_turn", None),
        ({"reason": "length", "stop_reason": "END"}, "max_tokens", None),
    ],
)
def test_the_reason_of_the_end(
    end: Json, reason: str, sequence: str | None, replay: Replay, client: anthropic.Anthropic
) -> None:
    body = {**BODY, "stop_sequences": ["END"]}
    chunks = [chunk({"content": "x"}), chunk({}, **end)]
    replay.answer = written(chunks, body)
    message = final(client)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)
    answer = whole(chunks, body)
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)


def test_a_refusal_of_the_model_is_text_and_a_refusal() -> None:
    chunks = [chunk({"refusal": "I will not."}), chunk({}, "stop")]
    answer = whole(chunks)
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": "I will not."}], "refusal")
    assert events_of(written(chunks))[-2]["delta"]["stop_reason"] == "refusal"


@pytest.mark.parametrize("chunks", [[], [chunk({"content": "begun"})]])
def test_an_error_raises_in_the_client(chunks: list[Json], replay: Replay, client: anthropic.Anthropic) -> None:
    encoder = MessagesEncoder(BODY)
    error = {"error": {"message": "It broke.", "type": "upstream_error", "param": None, "code": "broken"}}
    replay.answer = b"".join([*map(encoder.events, chunks), encoder.error(error)])
    with pytest.raises(anthropic.APIStatusError, match="It broke") as raised:
        final(client)
    assert raised.value.body == {
        "type": "error",
        "error": {"type": "api_error", "message": "It broke.", "details": {"error_code": "broken"}},
    }


def test_structured_output_is_parsed(replay: Replay, client: anthropic.Anthropic) -> None:
    class Point(BaseModel):
        x: int

    replay.answer = written([chunk({"content": text}) for text in ('{"x"', ": 3", "}")] + [chunk({}, "stop")])
    with client.messages.stream(**ASKED, output_format=Point) as stream:
        assert stream.get_final_message().parsed_output == Point(x=3)


def test_arguments_that_are_no_object() -> None:
    cut = [chunk(function(0, "tool", '{"a": "b')), chunk({}, "length")]
    assert whole(cut)["content"][0]["input"] == {}
    for arguments in ('{"a"', "[1]", "x"):
        with pytest.raises(UntranslatableAnswer, match="not a JSON object") as raised:
            whole([chunk(function(0, "tool", arguments)), chunk({}, "tool_calls")])
        assert arguments not in str(raised.value)


def test_text_is_kept_up_to_a_bound() -> None:
    encoder = MessagesEncoder(BODY, max_text=10)
    encoder.events(chunk({"content": "0123456789"}))
    with pytest.raises(UntranslatableAnswer, match="10 characters"):
        encoder.events(chunk({"content": "x"}))


def in_order(answer: Json) -> Json:
    return {**answer, "content": sorted(answer["content"], key=lambda block: json.dumps(block, sort_keys=True))}


@settings(max_examples=examples(150))
@given(chunks=streams().filter(bool), body=st.sampled_from([BODY, THINKING]))  # without a chunk each id is a new one
def test_what_the_client_accumulates_is_the_whole_answer(
    replay: Replay, client: anthropic.Anthropic, chunks: list[Json], body: Json
) -> None:
    data = written(chunks, body)
    replay.answer = data
    assert in_order(final(client).to_dict()) == in_order({**whole(chunks, body), "stop_details": None})
    events = events_of(data)
    begun = [event["index"] for event in events if event["type"] == "content_block_start"]
    assert begun == list(range(len(begun)))
    assert begun == sorted(event["index"] for event in events if event["type"] == "content_block_stop")


def test_an_orderly_stream_and_the_whole_answer_are_one(replay: Replay, client: anthropic.Anthropic) -> None:
    chunks = [
        *(chunk({"reasoning": "hm "}), chunk({"reasoning": "so"}), chunk({"content": "It "}), chunk({"content": "is"})),
        *(chunk(function(0, "tool", "{")), chunk(function(1, "tool", "{}")), chunk(function(0, None, "}"))),
        *(chunk({}, "tool_calls"), usage_chunk()),
    ]
    replay.answer = written(chunks, THINKING)
    assert final(client).to_dict() == {**whole(chunks, THINKING), "stop_details": None}
