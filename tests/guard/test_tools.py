"""Tool calls: names whole or not at all, arguments that stay JSON, official clients' way of adding calls up."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming._deltas import accumulate_delta

from gateway.guard.numbers import MAX_ENTRIES
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action, Channel
from tests.support.examples import examples
from tests.support.guard_client import (
    BLOCK,
    OBSERVE,
    WORD,
    Client,
    answer_for,
    call,
    calls,
    chunk,
    completion,
    event,
    plain,
    play,
    policy,
    rule,
    script,
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


def test_d13_calls_are_numbered_in_the_order_in_which_they_appear() -> None:
    """The official client inserts an index that it does not have at the end, and continues with that one as another."""
    for first, second in ((1, 0), (5, 2), (9, 9)):
        values = [calls(call(first, "12MONKEY", "{}", id="a")), calls(call(second, "S", "[]", id="b"))]
        client = stream(policy(rule(WORD, "KEYb")), *values, chunk(finish="tool_calls"))
        whole = official(client)["tool_calls"]
        assert whole == client.messages[0]["tool_calls"] and WORD not in json.dumps(whole)
        assert [entry["index"] for entry in whole] == list(range(len(whole)))
    values = [
        calls(call(3, "f", "[1", id="a"), call(0, "g", "[", id="b")),
        calls(call(0, arguments="2]"), call(3, arguments="]")),
    ]
    whole = official(stream(policy(), *values, chunk(finish="tool_calls")))["tool_calls"]
    assert [(entry["id"], entry["function"]["arguments"]) for entry in whole] == [("a", "[1]"), ("b", "[2]")]


def test_d13_a_call_stands_once_in_a_delta() -> None:
    pieces = [call(0, "12MON", id="a"), call(0, "KEYS"), call(0, None, '["12'), call(0, None, 'MONKEYS"]')]
    client = stream(policy(), calls(*pieces), calls(call(1, "g", "{}")), chunk(finish="tool_calls"))
    for value in client.events:
        numbers = [entry["index"] for entry in value["choices"][0]["delta"].get("tool_calls", ())]
        assert len(set(numbers)) == len(numbers)
    assert functions(client) == [
        {"name": SEEN, "arguments": f'["{SEEN}"]'},
        {"name": "g", "arguments": "{}"},
    ]


LISTS: list[Any] = [
    lambda items: {"annotations": items},
    lambda items: {"new": items},
    lambda items: {"content": items},
    lambda items: {"new": {"of": items}},
]


def titled(index: int, title: str) -> dict[str, Any]:
    return {"index": index, "title": title}


@pytest.mark.parametrize("wrap", LISTS)
@pytest.mark.parametrize("order", [(1, 0), (0, 1), (4, 4), (2, 7)])
def test_d13_elements_of_other_lists_are_numbered_too(wrap: Any, order: tuple[int, int]) -> None:
    first, second = order
    apart = [chunk(wrap([titled(first, "12MONKEY")])), chunk(wrap([titled(second, "S")]))]
    together = [titled(first, "12MON"), titled(first, "KEYS"), titled(second, "12")]
    for values in (apart, [chunk(wrap(together)), chunk(wrap([titled(second, "MONKEYS")]))]):
        client = stream(policy(), *values, chunk(finish="stop"))
        assert WORD not in json.dumps(official(client)) and WORD not in client.text


TEXTS = st.sampled_from(["12", "MON", "12MON", "KEYS", "x"])
ENTRIES = st.lists(st.fixed_dictionaries({"index": st.integers(0, 3)}, optional={"t": TEXTS}), max_size=4)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(["tool_calls", "annotations", "new", "content"]), st.lists(ENTRIES, max_size=6))
def test_d13_official_clients_never_read_the_word(field: str, deltas: list[Any]) -> None:
    client = stream(policy(), *(chunk({field: entries}) for entries in deltas), chunk(finish="stop"))
    assert not client.errors and WORD not in json.dumps(official(client)) and WORD not in client.text


@pytest.mark.parametrize("odd", [None, 5, "x", 1.5, True, [], [[]], [{"index": 0}], WORD, [WORD]])
@pytest.mark.parametrize("rules", [policy(), BLOCK, OBSERVE])
def test_d14_elements_that_are_no_calls_do_no_harm(odd: Any, rules: Any) -> None:
    named = {"index": 0, "id": "i", "type": "function", "function": {"name": "Y"}}
    for entries in ([odd, named], [named, odd], [odd], [odd, named, odd, call(1, "g", "{}")]):
        for more in ((), (calls(call(0, arguments="{}")),)):
            client = stream(rules, chunk({"tool_calls": copy.deepcopy(entries)}), *more, chunk(finish="tool_calls"))
            assert not client.errors and not any(isinstance(fact, GuardFailed) for fact in client.facts)
            if rules is not OBSERVE and named in entries:
                assert official(client)["tool_calls"][0]["function"]["name"] == "Y" and WORD not in client.text
        body, _ = plain(rules, json.dumps(completion({"content": "a", "tool_calls": entries})).encode())
        assert rules is OBSERVE or WORD not in json.dumps(body)


def test_d13_the_objects_in_lists_are_bounded() -> None:
    values = [chunk({"new": [{"index": 100 * n + at} for at in range(100)]}) for n in range(MAX_ENTRIES // 100)]
    rest = [{"index": 10**6 + at} for at in range(MAX_ENTRIES % 100)]
    assert not play(policy(), script(*values, chunk({"new": rest}))).errors
    over = play(policy(), script(*values, chunk({"new": [*rest, {"index": 10**7}]})))
    assert str(MAX_ENTRIES) in over.errors[0]["message"]
