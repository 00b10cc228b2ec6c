"""Streams of another shape than the protocol's: what stands in them is guarded all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.policy.model import Channel
from tests.support.guard_client import (
    HEAD,
    OBSERVE,
    WORD,
    Client,
    at,
    broken,
    chunk,
    play,
    policy,
    rule,
    stream,
)

SEEN = "[REDACTED]"


def test_a_finish_reason_that_is_empty_ends_nothing() -> None:
    client = stream(
        policy(), chunk({"content": "a "}, finish=""), chunk({"content": "b"}, finish=""), chunk(finish="stop")
    )
    assert client.content == "a b" and client.finish == {0: "stop"}


def test_a_delta_may_be_a_text_or_missing() -> None:
    client = stream(
        policy(), chunk("a 12MON"), chunk("KEYS"), {**HEAD, "choices": [{"index": 0}]}, chunk(finish="stop")
    )
    assert client.content == f"a {SEEN}"


def test_content_may_change_its_shape() -> None:
    parts = [chunk({"content": [{"type": "text", "text": "a 12"}]}), chunk({"content": "b 12"}), chunk({"content": 12})]
    client = stream(policy(), *parts, chunk({"new": "c 12"}), chunk({"new": {"er": "d 12"}}), chunk(finish="stop"))
    assert not client.errors
    for text in ("a ", "b ", "c ", "d "):
        assert text in client.text


def test_digits_that_come_as_numbers_are_text() -> None:
    client = stream(policy(rule("1234")), chunk({"content": 12}), chunk({"content": 34}), chunk({"content": "!"}))
    assert client.content == f"{SEEN}!"
    client = stream(policy(rule("1234")), chunk({"new": 12345, "of": {"id": 1234}, "id": 1234, "content": [12345]}))
    assert "1234" not in client.text


def test_texts_that_are_complete_are_not_continued() -> None:
    annotations = [chunk({"annotations": [{"url": url}]}) for url in ("http://a/1", "http://b/2")]
    client = stream(policy(), *annotations)
    assert [e["choices"][0]["delta"]["annotations"][0]["url"] for e in client.events] == ["http://a/1", "http://b/2"]


@pytest.mark.parametrize(
    "told",
    [
        lambda piece: chunk({"annotations": piece}),
        lambda piece: chunk({"annotations": [{"index": 0, "url_citation": {"title": piece}}]}),
        lambda piece: {**HEAD, "choices": [{"index": 0, "new": piece, "delta": {}, "finish_reason": None}]},
        lambda piece: {**HEAD, "choices": [], "response": piece},
        lambda piece: {**HEAD, "choices": [], "delta": {"text": piece}},
    ],
)
def test_texts_outside_the_known_fields_make_no_word_together(told: Callable[[str], dict[str, Any]]) -> None:
    client = stream(policy(), told("12MON"), told("KEYS"), told("fine"))
    assert "12MON" in client.text
    assert "KEYS" not in client.text
    assert "fine" in client.text


ARGUMENTS = '{"p":"\\u0031\\u0032MONKEYS"}'
AGAIN: list[Any] = [
    f"say {WORD}",
    {"role": "assistant", "content": f"say {WORD}"},
    {"content": [{"type": "text", "text": WORD}]},
    {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ARGUMENTS}}]},
]


@pytest.mark.parametrize("beside", ["message", "text"])
@pytest.mark.parametrize("again", AGAIN)
def test_d11_what_stands_beside_a_delta_is_left_out(beside: str, again: Any) -> None:
    content = policy(rule(channels=frozenset({Channel.CONTENT})))
    values = [chunk({"content": "a "}), chunk({"content": "12MON"}), chunk({"content": "KEYS"}), chunk(finish="stop")]
    for value in values:
        value["choices"][0][beside] = again
    for rules in (content, policy()):
        client = stream(rules, *values)
        assert client.content == f"a {SEEN}" and "MONKEYS" not in client.text
        assert not any(beside in part for value in client.events for part in value["choices"])
    assert beside in stream(OBSERVE, *values).events[0]["choices"][0]


CAPITAL: list[dict[str, Any]] = [
    {**HEAD, "Choices": [{"index": 0, "delta": {"content": "12MON"}}]},
    {**HEAD, "choices": [{"index": 0, "Delta": {"content": "12MON"}}]},
    {**HEAD, "choices": [{"index": 0, "Mes\u017fage": {"content": "12MON"}}]},
    {**HEAD, "choices": [{"Index": 1, "delta": {"content": "12MON"}}]},
    chunk({"Content": "12MON"}),
    chunk({"content": [{"type": "text", "Text": "12MON"}]}),
    chunk({"Tool_Calls": [{"index": 0, "Function": {"Arguments": ARGUMENTS}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"Arguments": ARGUMENTS}}]}),
]


@pytest.mark.parametrize("value", CAPITAL)
def test_d25_names_in_other_letters_are_left_out_of_answers(value: Any) -> None:
    client = stream(policy(), value, chunk({"content": "KEYS"}), chunk(finish="stop"))
    assert WORD not in client.content and "u0031" not in client.text and client.finish == {0: "stop"}
    assert not any(name in client.text for name in ("Choices", "Delta", "Mes", "Index", "Content", "Text", "Arguments"))
    assert client.scanned.unknown_events == 1


@pytest.mark.parametrize("name", ["message", "text"])
def test_d22_a_choice_without_a_delta_says_what_it_says_elsewhere(name: str) -> None:
    def said(text: str) -> Any:
        return {**HEAD, "choices": [{"index": 0, name: {"content": text} if name == "message" else text}]}

    for rules, shown in ((policy(), SEEN), (OBSERVE, WORD)):
        client = stream(rules, said("a "), said("12MON"), said("KEYS"), chunk(finish="stop"))
        assert client.content == f"a {shown}" and client.finish == {0: "stop"}
        client = stream(rules, chunk({"content": "a "}), said("a and all that"), chunk({"content": "b"}))
        assert client.content == "a b"  # it says how far the answer has come


def test_d22_arguments_in_a_message_are_read_as_json() -> None:
    value = {**HEAD, "choices": [{"index": 0, "message": AGAIN[3]}]}
    client = stream(policy(), value, chunk(finish="tool_calls"))
    assert at(client, "tool_calls", 0, "function", "arguments") == f'{{"p":"{SEEN}"}}'


@pytest.mark.parametrize("choices", [{"0": WORD}, WORD, 5, True, 0, "", {}, 1.5])
def test_d22_choices_of_another_shape_are_an_error(choices: Any) -> None:
    client = stream(policy(), chunk({"content": "a 12"}), {**HEAD, "choices": choices}, chunk({"content": "b"}))
    assert client.content == "a 12" and client.errors[0]["code"] == "upstream_protocol_error" and not client.done
    for form in (play, broken):
        found = form(policy(), json.dumps({**HEAD, "choices": choices}).encode())
        error = found.errors[0] if isinstance(found, Client) else found
        assert error["code"] == "upstream_protocol_error" and WORD not in str(error)
    assert stream(policy(), {**HEAD, "choices": None}, chunk({"content": "a"})).content == "a"
