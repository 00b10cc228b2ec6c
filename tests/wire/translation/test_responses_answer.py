"""What the official client makes of a chat answer that was written as one of `/responses`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from gateway.wire.dialect import UntranslatableAnswer
from gateway.wire.translation.responses_answer import ResponsesEncoder
from tests.support.chat_streams import HEAD, assembled, chunk, encoded, function, streams, typed_events, usage_chunk
from tests.support.examples import examples
from tests.support.replaying import Replay, replaying

Json = dict[str, Any]
BODY: Json = {
    "model": "asked",
    "input": "hello",
    "instructions": "Be brief.",
    "metadata": {"a": "b"},
    "tools": [{"type": "function", "name": "tool", "parameters": {"type": "object"}}],
    "temperature": 0,
    "stream": True,
}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def written(chunks: list[Json], body: Json = BODY) -> bytes:
    return encoded(ResponsesEncoder(body), chunks)


def events_of(data: bytes) -> list[Json]:
    return typed_events(data, EVENT)


def types_of(data: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events_of(data)]


def whole(chunks: list[Json], body: Json = BODY) -> Json:
    answer = ResponsesEncoder(body).answer(assembled(chunks))
    Response.model_validate(answer)
    return answer


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replaying() as server:
        yield server


@pytest.fixture(scope="module")
def client(replay: Replay) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{replay.base_url}/v1", api_key="k", max_retries=0)


def test_a_text_has_the_events_of_the_api() -> None:
    data = written(
        [chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"}, "stop")]
    )
    assert types_of(data) == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    events = events_of(data)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert {event["item_id"] for event in events if "item_id" in event} == {events[-1]["response"]["output"][0]["id"]}


def test_the_terminal_event_waits_for_the_usage_but_the_items_end_with_the_text() -> None:
    encoder = ResponsesEncoder(BODY)
    finished = encoder.events(chunk({"content": "x"}, "stop"))
    assert types_of(finished)[-1] == "output_item.done"
    assert encoder.events(usage_chunk()) == b""
    assert events_of(encoder.end())[0]["response"]["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 12,
    }


@pytest.mark.parametrize(
    ("delta", "types"),
    [
        (
            {"reasoning": "hm"},
            ("content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"),
        ),
        ({"refusal": "no"}, ("content_part.added", "refusal.delta", "refusal.done", "content_part.done")),
        (
            function(0, "tool", "{}"),
            ("function_call_arguments.delta", "function_call_arguments.done"),
        ),
        (
            {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
            ("custom_tool_call_input.delta", "custom_tool_call_input.done"),
        ),
    ],
)
def test_every_channel_has_events_of_its_own(delta: Json, types: tuple[str, ...]) -> None:
    assert types_of(written([chunk(delta), chunk({}, "stop")])) == [
        *("created", "in_progress", "output_item.added", *types, "output_item.done", "completed")
    ]


def test_reasoning_comes_as_a_summary_where_one_was_asked_for() -> None:
    body = {**BODY, "reasoning": {"effort": "low", "summary": "auto"}}
    chunks = [chunk({"reasoning_content": "hm"}), chunk({}, "stop")]
    assert types_of(written(chunks, body))[3:7] == [
        *("reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done"),
    ]
    assert whole(chunks, body)["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]


def test_reasoning_in_two_fields_is_one_text() -> None:
    chunks = [chunk({"reasoning": "hm", "reasoning_content": "hm"}), chunk({"content": "x"}, "stop")]
    for answer in (whole(chunks), events_of(written(chunks))[-1]["response"]):
        assert [part["text"] for part in answer["output"][0]["content"]] == ["hm"]


@pytest.mark.parametrize(("reason", "cause"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_answer_is_incomplete(reason: str, cause: str, replay: Replay, client: openai.OpenAI) -> None:
    chunks = [chunk({"content": "Not shown."}), chunk({}, reason)]
    replay.answer = written(chunks)
    last = list(client.responses.create(**BODY))[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == cause
    assert [item.status for item in last.response.output] == ["incomplete"]
    assert last.response.model_dump(exclude_unset=True) == Response.model_validate(whole(chunks)).model_dump(
        exclude_unset=True
    )


def test_the_answer_repeats_the_request() -> None:
    answer = whole([chunk({"content": "x"}, "stop")], {**BODY, "store": True, "parallel_tool_calls": False})
    shown = {field: answer[field] for field in ("instructions", "metadata", "temperature", "parallel_tool_calls")}
    assert shown == {
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "temperature": 0,
        "parallel_tool_calls": False,
    }
    assert (answer["model"], answer["id"], answer["created_at"]) == ("served", "resp_7", HEAD["created"])
    assert answer["store"] is False


def test_an_answer_without_an_id_gets_one() -> None:
    chunks = [{**chunk({"content": "x"}, "stop"), "id": "no id \n", "model": None}]
    events = events_of(written(chunks))
    assert events[-1]["response"]["id"] == events[0]["response"]["id"] != "resp_no id \n"
    assert events[-1]["response"]["model"] == "asked"


def test_logprobs_stand_with_their_text() -> None:
    entry = {
        "token": "x",
        "logprob": -0.1,
        "bytes": [120],
        "top_logprobs": [{"token": "y", "logprob": -2.0, "bytes": None}],
    }
    chunks = [chunk({"content": "x"}, "stop", logprobs={"content": [entry], "refusal": None})]
    expected = [{**entry, "top_logprobs": [{"token": "y", "logprob": -2.0, "bytes": []}]}]
    events = events_of(written(chunks))
    assert [event["logprobs"] for event in events if "output_text." in event["type"]] == [expected, expected]
    assert events[-1]["response"]["output"] == whole(chunks)["output"]
    assert whole(chunks)["output"][0]["content"][0]["logprobs"] == expected


def test_annotations_follow_the_text() -> None:
    cited = {"start_index": 0, "end_index": 1, "title": "t", "url": "http://u"}
    chunks = [
        chunk({"content": "x"}),
        chunk({"annotations": [{"type": "url_citation", "url_citation": cited}]}, "stop"),
    ]
    events = events_of(written(chunks))
    added = next(event for event in events if event["type"] == "response.output_text.annotation.added")
    assert added["annotation"] == {"type": "url_citation", **cited}
    assert events[-1]["response"] == whole(chunks)


def test_a_name_that_comes_after_arguments_opens_the_call_with_them() -> None:
    early = {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": '{"a'}}]}
    late = {"tool_calls": [{"index": 0, "function": {"name": "tool", "arguments": '":1}'}}]}
    events = events_of(written([chunk(early), chunk(late), chunk({}, "tool_calls")]))
    added = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    assert (added["name"], added["call_id"], added["arguments"]) == ("tool", "c", "")
    assert events[-1]["response"]["output"][0]["arguments"] == '{"a":1}'


def test_a_call_of_a_namespaces_tool_has_both_names() -> None:
    tools = [{"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "function", "name": "get"}]}]
    chunks = [chunk(function(0, "crm__get", "{}")), chunk(function(1, "other__get")), chunk({}, "tool_calls")]
    answer = whole(chunks, {**BODY, "tools": tools})
    assert [(item["name"], item.get("namespace")) for item in answer["output"]] == [
        ("get", "crm"),
        ("other__get", None),
    ]
    assert events_of(written(chunks, {**BODY, "tools": tools}))[-1]["response"] == answer


def test_a_call_without_a_name_or_id_is_not_lost() -> None:
    nameless = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    call = events_of(written([chunk(nameless), chunk({}, "tool_calls")]))[-1]["response"]["output"][0]
    assert (call["name"], call["arguments"], call["call_id"]) == ("", "{}", "call_7_0")


def test_what_comes_after_the_end_is_left_out() -> None:
    chunks = [chunk({"content": "x"}, "stop"), chunk({"content": "y"}), chunk({}, "length")]
    assert written(chunks) == written(chunks[:1])


def test_an_empty_stream_is_an_empty_answer(replay: Replay, client: openai.OpenAI) -> None:
    replay.answer = written([])
    with client.responses.stream(model="m", input="x") as stream:
        assert stream.get_final_response().output == []


@pytest.mark.parametrize("chunks", [[], [chunk({"content": "begun"}), chunk(function(0, "tool", "{"))]])
def test_an_error_raises_in_the_client(chunks: list[Json], replay: Replay, client: openai.OpenAI) -> None:
    encoder = ResponsesEncoder(BODY)
    error = {"error": {"message": "It broke.", "type": "upstream_error", "param": None, "code": "broken"}}
    data = b"".join([*map(encoder.events, chunks), encoder.error(error)])
    last = events_of(data)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": "server_error", "message": "It broke."}
    assert "".join(part["text"] for item in last["response"]["output"] for part in item.get("content", ())) == (
        "begun" if chunks else ""
    )
    replay.answer = data
    with pytest.raises(openai.APIError, match="It broke") as raised:
        list(client.responses.create(**BODY))
    assert raised.value.code == "broken"


def test_structured_output_is_parsed(replay: Replay, client: openai.OpenAI) -> None:
    class Point(BaseModel):
        x: int

    chunks = [chunk({"content": text}) for text in ('{"x"', ": 3", "}")] + [chunk({}, "stop")]
    replay.answer = written(chunks)
    with client.responses.stream(model="m", input="x", text_format=Point) as stream:
        assert stream.get_final_response().output_parsed == Point(x=3)


def test_text_is_kept_up_to_a_bound() -> None:
    encoder = ResponsesEncoder(BODY, max_text=10)
    encoder.events(chunk({"content": "0123456789"}))
    with pytest.raises(UntranslatableAnswer, match="10 characters"):
        encoder.events(chunk({"reasoning": "x"}))
    assert types_of(encoder.error({"error": {"message": "m"}}))[-1] == "failed"
    with pytest.raises(UntranslatableAnswer):
        ResponsesEncoder(BODY, max_text=10).answer(assembled([chunk({"content": "0123456789x"})]))


def in_order(answer: Json) -> Json:
    """The items sorted, without what follows from their order."""
    output = [{**item, "id": None, "content": sorted(item.get("content") or [], key=str)} for item in answer["output"]]
    return {**answer, "output": sorted(output, key=lambda item: (item["type"], item.get("call_id", "")))}


@settings(max_examples=examples(150))
@given(chunks=streams())
def test_what_the_client_accumulates_is_the_whole_answer(
    replay: Replay, client: openai.OpenAI, chunks: list[Json]
) -> None:
    data = written(chunks)
    events = events_of(data)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    replay.answer = data
    raw = list(client.responses.create(**BODY))
    expected = in_order(whole(chunks))
    if not chunks:  # nor an id of the upstream's: each answer makes one up
        expected["id"] = raw[-1].response.id
    assert in_order(raw[-1].response.to_dict()) == expected
    assert accumulated(events) == [
        {key: value for key, value in item.items() if key != "status"} for item in events[-1]["response"]["output"]
    ]
    with client.responses.stream(model="m", input="x") as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert deltas == raw[-1].response.output_text
        if raw[-1].type == "response.completed":
            assert stream.get_final_response().output_text == deltas


def accumulated(events: list[Json]) -> list[Json]:
    """The items that the deltas alone add up to."""
    items: dict[int, Json] = {}
    for event in events:
        kind, at = event["type"].removeprefix("response."), event.get("output_index", -1)
        if kind == "output_item.added":
            items[at] = {key: value for key, value in copy.deepcopy(event["item"]).items() if key != "status"}
        elif kind == "content_part.added":
            assert len(items[at]["content"]) == event["content_index"]
            items[at]["content"].append(copy.deepcopy(event["part"]))
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            items[at]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "refusal.delta":
            items[at]["content"][event["content_index"]]["refusal"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            items[at]["arguments"] += event["delta"]
    return [items[at] for at in sorted(items)]


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_an_orderly_stream_and_the_whole_answer_are_one(reason: str) -> None:
    chunks = [
        *(chunk({"reasoning": "hm "}), chunk({"reasoning": "so"}), chunk({"content": "It "}), chunk({"content": "is"})),
        *(chunk(function(0, "tool", "{")), chunk(function(1, "tool", "{}")), chunk(function(0, None, "}"))),
        *(chunk({}, reason), usage_chunk()),
    ]
    assert events_of(written(chunks))[-1]["response"] == whole(chunks)
