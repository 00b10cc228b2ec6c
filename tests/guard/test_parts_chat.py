"""The text parts of one message of a chat's answer are one text, streamed and whole."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.model import Action, Rule
from tests.support.examples import examples
from tests.support.guard_client import OBSERVE, WORD, chunk, completion, plain, play, policy, rule, script, stream
from tests.support.oracle_parts import replaced

SEEN = "[REDACTED]"
Json = dict[str, Any]


def part(at: int, text: str, kind: str = "text") -> Json:
    return {"index": at, "type": kind, "text": text}


def texts_of(client: Any) -> list[str]:
    """The parts as a client adds them up that goes by their numbers."""
    texts: dict[int, str] = {}
    for event in client.events:
        for choice in event["choices"]:
            for each in choice["delta"].get("content") or ():
                texts[each["index"]] = texts.get(each["index"], "") + each["text"]
    return [texts.get(at, "") for at in range(max(texts, default=-1) + 1)]


def streamed(parts: list[str], *rules: Rule, size: int = 99) -> list[str]:
    pieces = [
        (at, text[start : start + size]) for at, text in enumerate(parts) for start in range(0, max(len(text), 1), size)
    ]
    client = stream(
        policy(*rules), *(chunk({"content": [part(at, piece)]}) for at, piece in pieces), chunk(finish="stop")
    )
    assert not client.errors
    shown = texts_of(client)
    return shown + [""] * (len(parts) - len(shown))


def at_once(parts: list[str], *rules: Rule) -> list[str]:
    """All parts in one delta, and in a whole answer."""
    message = {"content": [part(at, text) for at, text in enumerate(parts)]}
    client = play(policy(*rules), script(chunk(json.loads(json.dumps(message))), chunk(finish="stop")))
    body, _ = plain(policy(*rules), json.dumps(completion(message)).encode())
    shown = [each["text"] for each in body["choices"][0]["message"]["content"]]
    assert texts_of(client) + [""] * (len(shown) - len(texts_of(client))) == shown
    return shown


@pytest.mark.parametrize("cut", range(len(WORD) + 1))
def test_a_word_over_two_parts_is_replaced_where_it_begins(cut: int) -> None:
    parts = [f"so {WORD[:cut]}", f"{WORD[cut:]}, no"]
    expected = replaced(parts, [WORD], SEEN)
    assert expected == [["so ", f"{SEEN}, no"], [f"so {SEEN}", ", no"]][cut > 0]
    for size in (1, 2, 99):
        assert streamed(parts, rule(), size=size) == expected
    assert at_once(parts, rule()) == expected


LETTERS = st.text("ab1", max_size=5)
WORDS = st.sets(st.text("ab1", min_size=1, max_size=5), min_size=1, max_size=3)


@given(st.lists(LETTERS, min_size=2, max_size=5), WORDS, st.integers(1, 3))
@settings(max_examples=examples(100), deadline=None)
def test_what_comes_out_is_what_a_naive_reading_says(parts: list[str], words: set[str], size: int) -> None:
    rules = [Rule(id=word, words=(word,)) for word in sorted(words)]
    expected = replaced(parts, sorted(words), SEEN)
    assert streamed(parts, *rules, size=size) == expected
    assert at_once(parts, *rules) == expected


def test_what_waits_for_the_next_part_comes_before_it() -> None:
    values = [chunk({"content": [part(at, text)]}) for at, text in enumerate(["so 12MON", "x"])]
    client = play(policy(), script(*values))
    given_out = [
        (each["index"], each["text"]) for event in client.events for each in event["choices"][0]["delta"]["content"]
    ]
    assert given_out == [(0, "so "), (0, "12MON"), (1, "x")]


def test_words_at_the_edges_of_parts() -> None:
    whole = [Rule(id="ass", words=("ass",), whole_word=True), Rule(id="android", words=("android",))]
    for parts, expected in (
        (["kick ass", "and go"], [f"kick {SEEN}", "and go"]),
        (["go and", "ass kicks"], ["go and", f"{SEEN} kicks"]),
        (["x as", "sume"], ["x as", "sume"]),
    ):
        assert streamed(parts, *whole) == streamed(parts, *whole, size=1) == at_once(parts, *whole) == expected


def test_json_in_parts_is_read_in_each() -> None:
    parts = ['{"a": "12MON', "KEYS", '{"b": "12M\\u004fNKEYS"}']
    for shown in (streamed(parts, rule()), at_once(parts, rule())):
        assert WORD not in "".join(shown) and "u004f" not in "".join(shown)


@pytest.mark.parametrize("cut", range(1, len(WORD)))
def test_a_block_over_two_parts(cut: int) -> None:
    rules = policy(rule(action=Action.BLOCK, message="No."))
    parts = [part(0, f"so {WORD[:cut]}"), part(1, f"{WORD[cut:]}, no")]
    client = stream(rules, *(chunk({"content": [each]}) for each in parts), chunk(finish="stop"))
    assert client.finish == {0: "content_filter"}
    shown = [text for event in client.events for text in parts_in(event)]
    assert "".join(shown) == "so " and "No." in client.text
    body, _ = plain(rules, json.dumps(completion({"content": [*parts, part(2, "more")]})).encode())
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "content_filter"
    assert [each["text"] for each in choice["message"]["content"] if "text" in each][:3] == ["so ", "", ""]


def parts_in(event: Json) -> list[str]:
    content = event["choices"][0]["delta"].get("content")
    return [each["text"] for each in content] if isinstance(content, list) else []


def test_a_part_that_was_left_in_the_middle_of_a_word_does_not_go_on() -> None:
    values = [part(0, "so 12M"), part(1, "O"), part(0, "ONKEYS")]
    client = stream(policy(), *(chunk({"content": [each]}) for each in values), chunk(finish="stop"))
    assert client.errors[0]["code"] == "upstream_protocol_error" and "ONKEYS" not in client.text
    apart = [part(0, "so 12"), part(1, " "), part(0, "3")]
    client = stream(policy(rule("x")), *(chunk({"content": [each]}) for each in apart), chunk(finish="stop"))
    assert texts_of(client) == ["so 123", " "] and not client.errors


def test_parts_within_parts() -> None:
    thoughts = [{"index": 0, "type": "thinking", "thinking": [part(0, "so 12MON"), part(1, "KEYS")]}, part(1, "KEYS")]
    body, _ = plain(policy(), json.dumps(completion({"content": thoughts})).encode())
    thinking, text = body["choices"][0]["message"]["content"]
    assert [each["text"] for each in thinking["thinking"]] == [f"so {SEEN}", ""] and text["text"] == "KEYS"


def test_parts_are_only_observed() -> None:
    parts = [part(0, "so 12MON"), part(1, "KEYS")]
    client = stream(OBSERVE, *(chunk({"content": [each]}) for each in parts), chunk(finish="stop"))
    assert texts_of(client) == ["so 12MON", "KEYS"]
    assert [match.count for match in client.scanned.matches] == [1]


def test_many_parts_are_bounded_as_texts_are() -> None:
    values = [chunk({"content": [part(at, "12MON")]}) for at in range(600)]
    client = stream(policy(), *itertools.chain(values, [chunk(finish="stop")]))
    assert client.errors[0]["code"] == "upstream_protocol_error"
