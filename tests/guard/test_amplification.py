"""What an upstream sends is not written many times over, whatever it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard.answer import StreamAnswer
from gateway.guard.chat import MAX_CHOICES, MAX_HEAD
from gateway.guard.commands import SendBytes
from gateway.guard.open import open_guard
from gateway.policy.model import Action, Policy
from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from gateway.wire.dialect import Dialect
from tests.support.compiled import compiled
from tests.support.examples import examples
from tests.support.guard_client import (
    HEAD,
    WORD,
    Client,
    call,
    calls,
    chunk,
    completion,
    event,
    policy,
    rule,
    script,
    stream,
)
from tests.support.random_answers import chunk as any_chunk
from tests.support.random_answers import whole as any_answer

FACTOR, ALLOWED = 4, 64 * 1024
EMPTYING = policy(rule("12MON", WORD, replacement=""))
BLOCKING = policy(rule(action=Action.BLOCK))
GUARDING = policy(rule(guard_tail=1, replacement=""))


def written(policy: Policy, data: bytes, dialect: Dialect, expected: int = MAX_CHOICES) -> bytes:
    guard = open_guard(CHAT, compiled(policy), expected, ("mz",))
    answer = StreamAnswer(guard, max_event=1 << 20, max_whole=1 << 22, dialect=dialect)
    commands = [*answer.feed(data, 0.0), *answer.close(1.0)]
    return b"".join(command.data for command in commands if isinstance(command, SendBytes))


def check(data: bytes) -> None:
    for rules in (EMPTYING, BLOCKING, GUARDING):
        for dialect in (CHAT, COMPLETIONS):
            out = written(rules, data, dialect)
            assert len(out) <= FACTOR * len(data) + ALLOWED


def said(index: int, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, **delta}


LONG = {"id": "i" * (MAX_HEAD - 100), "model": "mz"}
TAILS = ["content", "reasoning", "refusal", *(f"new{number}" for number in range(12))]
SHAPES: list[Any] = [["1"], [["1"]], [{"a": "1"}], {"b": ["1"]}]
HOSTILE: dict[str, list[Any]] = {
    "many choices under a long id": [{"id": "i" * 500_000, "choices": [{"delta": {"content": "a"}}] * 8000}],
    "as many choices as may be": [{**LONG, "choices": [said(n, content="a") for n in range(MAX_CHOICES)]}] * 20,
    "one choice many times": [{**LONG, "choices": [said(0, content="a")] * MAX_CHOICES}] * 20,
    "ends with tails": [
        {**LONG, "choices": [said(n, **dict.fromkeys(TAILS, "12")) for n in range(4)]},
        {**LONG, "choices": [{"index": n, "finish_reason": "stop"} for n in range(4)]},
    ],
    "each ends by itself": [
        event_
        for n in range(MAX_CHOICES)
        for event_ in ({"choices": [said(n, content="1")]}, {**LONG, "choices": [{"index": n, "finish_reason": "a"}]})
    ],
    "a long id and then short ends": [
        {**LONG, "choices": [said(n, content="12") for n in range(MAX_CHOICES)]},
        *({"choices": [{"index": n, "finish_reason": "a"}]} for n in range(MAX_CHOICES)),
    ],
    "a long id and then short blocks": [
        {**LONG, "choices": [said(n, content="12") for n in range(MAX_CHOICES)]},
        *({"choices": [said(n, content="MONKEYS")]} for n in range(MAX_CHOICES)),
    ],
    "open names": [{**LONG, "choices": [{"delta": {"tool_calls": [call(n, "f") for n in range(500)]}}]}, *[LONG] * 3],
    "names one after the other": [{"choices": [{"delta": {"tool_calls": [call(n, "f")]}}]} for n in range(500)],
    "texts that change their shape": [
        {**LONG, "choices": [said(0, content="1", new=["1"])]},
        *({"choices": [said(0, content=shape, new=shape)]} for shape in SHAPES * 9),
        {**LONG, "choices": [{"index": 0, "finish_reason": "a"}]},
    ],
    "strings in a list": [{**LONG, "choices": [said(0, new=["1"] * 500)]}, {"choices": [{"finish_reason": "a"}]}],
    "nothing but choices": [{"choices": [{}] * 128}] * 50,
    "labels that are objects": [
        {"id": ["i" * 9000], "model": {"a": "i" * 9000}, "choices": [said(0, content="12")]},
        {"choices": [{"finish_reason": "a"}]},
    ],
    "stray": [[["12"] * 100] * 5] * 20,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_d5_no_stream_is_written_many_times_over(name: str) -> None:
    check(script(*HOSTILE[name], done=False))


@pytest.mark.parametrize("count", [1, 128, 200])
def test_d5_no_answer_is_written_many_times_over(count: int) -> None:
    answer = completion(*[{"role": "assistant", "content": "12"}] * count, new="x" * 1_000_000, more=["y" * 100] * 100)
    check(json.dumps(answer).encode())
    texts = [{"index": index, "text": "12", "finish_reason": "stop"} for index in range(count)]
    check(json.dumps({**HEAD, "id": "i" * 2000, "choices": texts, "new": "x" * 500_000}).encode())


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(any_chunk, min_size=1, max_size=5), st.integers(1, 60), st.sampled_from([0, 10, 1900]))
def test_d5_events_of_any_shape_are_not_written_many_times_over(events: list[Any], times: int, length: int) -> None:
    check(script(*({**each, "id": "i" * length} for each in events * times), done=False))


@settings(max_examples=examples(100), deadline=None)
@given(any_answer, st.integers(1, 60))
def test_d5_answers_of_any_shape_are_not_written_many_times_over(answer: Any, times: int) -> None:
    check(json.dumps({**answer, "choices": answer["choices"] * times, "id": "i" * 500}).encode())


def test_d5_the_labels_of_an_event_are_bounded() -> None:
    length = MAX_HEAD - len(HEAD["object"] + HEAD["model"])
    client = stream(policy(), {**chunk({"content": "a"}), "id": "i" * length})
    assert client.content == "a" and not client.errors
    client = stream(policy(), {**chunk({"content": "a"}), "id": "i" * (length + 1)})
    assert client.errors[0]["code"] == "upstream_protocol_error" and str(MAX_HEAD) in client.errors[0]["message"]


def test_d5_the_choices_of_an_event_are_bounded() -> None:
    for count, errors in ((MAX_CHOICES, 0), (MAX_CHOICES + 1, 1)):
        data = event({**HEAD, "choices": [{}] * count})
        out = written(policy(), data, CHAT)
        assert out.count(b"upstream_protocol_error") == errors


def test_d5_choices_that_come_together_stay_together() -> None:
    both = [chunk({"content": text}, index)["choices"][0] for index, text in enumerate(("a 12", "b 12"))]
    ends = [chunk(index=index, finish="stop")["choices"][0] for index in (0, 1)]
    client = stream(
        policy(), {**HEAD, "choices": both}, {**HEAD, "choices": ends, "usage": {"total_tokens": 1}}, expected=2
    )
    assert [[part["index"] for part in each["choices"]] for each in client.events] == [[0, 1]] * 3
    assert [part["finish_reason"] for part in client.events[2]["choices"]] == ["stop", "stop"]
    assert {index: message["content"] for index, message in client.messages.items()} == {0: "a 12", 1: "b 12"}
    assert client.usage == {"total_tokens": 1}


def test_d5_a_block_of_one_choice_leaves_the_others_of_its_event() -> None:
    parts = [chunk({"content": text}, index)["choices"][0] for index, text in enumerate(("a", f"b {WORD}", "c"))]
    client = stream(BLOCKING, {**HEAD, "choices": parts}, {**HEAD, "choices": parts[:1]}, expected=3)
    assert {index: message["content"] for index, message in client.messages.items()} == {0: "aa", 1: "b ", 2: "c"}
    assert client.finish == {1: "content_filter"}


def test_d5_a_choice_that_stands_twice_in_an_event_is_read_as_clients_add_it_up() -> None:
    twice = [chunk({"content": text})["choices"][0] for text in ("a 12MON", "KEYS b")]
    client = stream(policy(), {**HEAD, "choices": twice})
    assert client.content == "a [REDACTED] b" and len(client.events) == 1


def test_d5_what_several_texts_hold_comes_in_one_chunk() -> None:
    held = chunk({"content": "a 12", "reasoning": "b 12", "new": {"of": ["12"]}, "audio": {"transcript": "12"}})
    args = calls(call(0, "f", '"12'), call(1, "g", '"12'))
    client = stream(policy(), held, args, chunk(finish="stop"))
    assert len(client.events) == 4
    assert client.messages[0]["content"] == "a 12" and client.messages[0]["reasoning"] == "b 12"
    assert [each["function"]["arguments"] for each in client.messages[0]["tool_calls"]] == ['"12', '"12']


def test_d5_other_fields_of_an_answer_come_once() -> None:
    answer = completion({"content": "a"}, {"content": "b"}, new="c")
    client = Client()
    guard = open_guard(CHAT, compiled(policy()), 2, ("mz",))
    whole = StreamAnswer(guard, max_event=4096, max_whole=4096)
    client.take([*whole.feed(json.dumps(answer).encode(), 0.0), *whole.close(1.0)])
    assert [each.get("new") for each in client.events] == ["c", None] and client.finish == {0: "stop", 1: "stop"}
