"""Tool calls: names whole or not at all, arguments that stay JSON, official clients' way of adding calls up."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from openai.lib.streaming._deltas import accumulate_delta

from gateway.policy.model import Action, Channel
from tests.guard.playbook import (
    BLOCK,
    OBSERVE,
    WORD,
    Client,
    answer_for,
    call,
    calls,
    chunk,
    event,
    policy,
    rule,
    stream,
)

SEEN = "[REDACTED]"


def official(client: Client) -> dict[Any, Any]:
    """What the official Python client makes of the first choice's deltas."""
    whole: dict[Any, Any] = {}
    for value in client.events:
        for choice in value.get("choices", ()):
            if choice["index"] == 0:
                accumulate_delta(whole, copy.deepcopy(choice["delta"]))
    return whole


def functions(client: Client) -> list[dict[str, Any]]:
    whole = official(client)
    assert whole.get("tool_calls") == client.messages[0].get("tool_calls")
    return [{"name": None, **entry["function"]} for entry in whole["tool_calls"]]


def test_a_call_is_shown_with_its_whole_name() -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(event(calls(call(0, "12MON", "", id="a", type="function"))), 0.0))
    client.take(answer.feed(event(calls(call(0, "KEYS_f"))), 0.0))
    assert client.events == []
    client.take(answer.feed(event(calls(call(0, arguments='{"a":'))), 0.0))
    first = client.events[0]["choices"][0]["delta"]["tool_calls"][0]
    assert first == {"index": 0, "id": "a", "type": "function", "function": {"name": f"{SEEN}_f", "arguments": '{"a":'}}
    client.take(answer.feed(event(calls(call(0, "dropped", " 1}"))), 0.0))
    client.take(answer.feed(event(chunk(finish="tool_calls")), 0.0))
    assert functions(client) == [{"name": f"{SEEN}_f", "arguments": '{"a": 1}'}]


@pytest.mark.parametrize("after", [chunk(finish="tool_calls"), chunk({"content": "x"}), calls(call(1, "g", "{}"))])
def test_a_name_ends_with_the_next_chunk_that_does_not_go_on_with_it(after: dict[str, Any]) -> None:
    client = stream(policy(), calls(call(0, "f12", id="a")), after)
    assert client.messages[0]["tool_calls"][0] == {"index": 0, "id": "a", "function": {"name": "f12"}}


def test_a_call_that_carries_more_than_its_name_is_shown_at_once() -> None:
    client = stream(policy(), calls(call(0, "f", new="x")), calls({"index": 0, "new": "y", "function": "odd"}))
    assert client.messages[0]["tool_calls"][0]["new"] == "xy"
    assert client.events[0]["choices"][0]["delta"]["tool_calls"][0]["function"] == {"name": "f"}


def test_odd_shapes_of_one_call_in_one_chunk_do_no_harm() -> None:
    client = stream(
        policy(), calls({"index": 0, "function": {"name": "f"}}, {"index": 0, "function": "abc"}, None, "x")
    )
    assert not client.errors
    client = stream(
        policy(), calls({"index": 0, "function": {"name": "f"}, "custom": {"name": "g"}}), chunk(finish="stop")
    )
    assert not client.errors and "g" in client.text


def test_custom_calls_and_function_call_have_names_too() -> None:
    client = stream(
        policy(),
        calls({"index": 0, "custom": {"name": WORD}}),
        calls({"index": 0, "custom": {"input": "1"}}),
        chunk(finish="tool_calls"),
    )
    assert client.messages[0]["tool_calls"] == [{"index": 0, "custom": {"name": SEEN, "input": "1"}}]
    client = stream(
        policy(),
        chunk({"function_call": {"name": "12MON"}}),
        chunk({"function_call": {"name": "KEYS"}}),
        chunk({"function_call": {"arguments": '{"a'}}),
        chunk({"function_call": {"arguments": '":"12MONKEYS"}'}}),
        chunk(finish="function_call"),
    )
    assert client.messages[0]["function_call"] == {"name": SEEN, "arguments": f'{{"a":"{SEEN}"}}'}
    client = stream(policy(), chunk({"function_call": {"name": "f"}}), chunk(finish="function_call"))
    assert client.messages[0]["function_call"] == {"name": "f"}


@pytest.mark.parametrize("cut", range(1, 36, 3))
def test_escaped_arguments_are_read_as_a_client_reads_them(cut: int) -> None:
    text = '{"\\u0031\\u0032MONKEYS": ["12MON\\u004b\\u0045YS", 12345, "12"]}'
    client = stream(policy(rule(WORD, "234")), calls(call(0, "f", text[:cut])), calls(call(0, arguments=text[cut:])))
    (function,) = functions(client)
    assert json.loads(function["arguments"]) == {SEEN: [SEEN, f"1{SEEN}5", "12"]}
    assert WORD not in client.text


@pytest.mark.parametrize("cut", range(1, 32, 3))
def test_blocked_arguments_stay_json(cut: int) -> None:
    text = '{"a": {"b": ["x", "y 12MONKEYS'
    client = stream(
        BLOCK, calls(call(0, "f", text[:cut], id="a")), calls(call(0, arguments=text[cut:])), calls(call(1, "g", "{}"))
    )
    (function,) = functions(client)
    assert json.loads(function["arguments"]) == {"a": {"b": ["x", "y "]}}
    assert client.content == "Not shown." and client.finish == {0: "content_filter"} and client.done


def test_a_block_elsewhere_closes_open_arguments_and_drops_open_names() -> None:
    client = stream(
        BLOCK,
        calls(call(0, "f", '{"a": [1, "12MON', id="a")),
        calls(call(1, "open", "", id="b")),
        chunk({"content": WORD, "tool_calls": [call(1, "ed")]}),
    )
    (function,) = functions(client)
    assert json.loads(function["arguments"]) == {"a": [1, ""]} and "open" not in client.text


def test_a_block_in_a_name_shows_nothing_of_the_call() -> None:
    whole = policy(rule("rm", action=Action.BLOCK, whole_word=True))
    for values in (
        [calls(call(0, "rm", '{"a": "b', id="a"))],
        [calls(call(0, "rm", id="a")), calls(call(0, arguments='{"a": "b'))],
        [calls(call(0, "rm", id="a")), chunk({"content": "x"})],
        [calls(call(0, "r", id="a"), call(0, "m x", '"'))],
        [chunk({"function_call": {"name": "rm", "arguments": '{"a": "b'}})],
    ):
        client = stream(whole, *values, chunk(finish="tool_calls"))
        assert client.finish == {0: "content_filter"}
        assert not client.messages[0].get("tool_calls") and not client.messages[0].get("function_call")


def test_a_block_before_a_call_in_the_same_chunk_shows_nothing_of_the_call() -> None:
    delta = {
        "content": f"a {WORD}",
        "tool_calls": [call(0, "f", "{}", id="x")],
        "function_call": {"name": "f"},
        WORD: 1,
    }
    client = stream(BLOCK, chunk(delta))
    assert client.messages[0] == {"content": "a Not shown."} and WORD not in client.text
    two = calls(call(0, "f", f'{{"a": "{WORD}"}}', id="x"), call(1, "g", "{}", id="y"))
    (function,) = functions(stream(BLOCK, two))
    assert json.loads(function["arguments"]) == {"a": ""}


def test_observed_calls_pass_as_they_are() -> None:
    values = [calls(call(0, WORD, "", id="a")), calls(call(0, arguments='"\\u0031" 12')), chunk(finish="tool_calls")]
    assert stream(OBSERVE, *values).events == values


def test_arguments_that_no_rule_looks_at_wait_for_nothing() -> None:
    content = policy(rule(channels=frozenset({Channel.CONTENT})))
    answer, client = answer_for(content), Client()
    client.take(answer.feed(event(calls(call(0, "f", '{"\\u0061": 12'))), 0.0))
    assert functions(client) == [{"name": "f", "arguments": '{"\\u0061": 12'}]


def test_official_clients_find_every_call_at_its_index() -> None:
    values = [
        calls(call(0, "f", '{"a": 1}', id="a"), call(1, "g", "", id="b")),
        calls(call(1, arguments="{}")),
        calls(call(2, "h", id="c")),
        calls(call(3, "i", "[]", id="d"), call(2, arguments="[1]")),
    ]
    client = stream(policy(), *values, chunk(finish="tool_calls"))
    assert [entry["id"] for entry in official(client)["tool_calls"]] == ["a", "b", "c", "d"]
    assert [f["arguments"] for f in functions(client)] == ['{"a": 1}', "{}", "[1]", "[]"]
