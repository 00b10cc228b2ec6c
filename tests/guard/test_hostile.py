"""An upstream that wants the forbidden word to reach the client, or the guard to grow."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.guard.answer import StreamAnswer
from gateway.guard.channels import MAX_TEXTS, InvalidAnswer
from gateway.guard.chat import MAX_CHOICES
from gateway.guard.metadata import MAX_PLACES
from gateway.guard.open import open_guard
from gateway.guard.tool_calls import MAX_NAME
from gateway.policy.model import Rule
from gateway.wire.chat import CHAT
from tests.support.guard_client import (
    BLOCK,
    HEAD,
    WORD,
    Client,
    answer_for,
    call,
    calls,
    chunk,
    event,
    play,
    policy,
    rule,
    script,
    stream,
)

SEEN = "[REDACTED]"


def choice(index: Any, text: str) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": index, "delta": {"content": text}}]}


@pytest.mark.parametrize("index", [0.0, "0", -1, None, True, [], {"a": 1}])
def test_an_index_that_only_some_clients_take_for_another(index: Any) -> None:
    client = stream(policy(), choice(0, "12MON"), choice(index, "KEYS"), chunk(finish="stop"))
    assert client.messages.keys() == {0} and client.content == SEEN


@pytest.mark.parametrize("index", [0.0, "0", -1, None, True])
def test_a_calls_index_that_only_some_clients_take_for_another(index: Any) -> None:
    values = [calls({"index": i, "custom": {"input": text}}) for i, text in ((0, "12MON"), (index, "KEYS"))]
    client = stream(policy(), *values)
    assert WORD not in client.text and client.messages[0]["tool_calls"] == [{"index": 0, "custom": {"input": SEEN}}]


@pytest.mark.parametrize("field", ["id", "name", "role", "tool_call_id"])
def test_labels_that_make_a_word_when_clients_append_them(field: str) -> None:
    for wrap in (
        lambda v: {field: v},
        lambda v: {"tool_calls": [{"index": 0, field: v}]},
        lambda v: {"new": {field: v}},
    ):
        client = stream(policy(), *(chunk(wrap(piece)) for piece in ("12M", "ONK", "EYS", "x")))
        assert WORD not in client.text and "12MONKx" in client.text


NUMBERS = {
    "a string behind a number": ("12MONKEYS", [12, "MONKEYS", "x"], [12, "", "x"]),
    "a number behind a string": ("ab12", ["ab", 12, 1], ["ab", "", 1]),
    "a number behind a number": ("1212", [12, 12, "3"], [12, 12, "3"]),
}


@pytest.mark.parametrize(("word", "given", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_labels_that_make_a_word_with_numbers(word: str, given: list[Any], expected: list[Any]) -> None:
    """Clients append a string to a number and a number to a string; a number takes the place of another."""
    client = stream(policy(rule(word)), *(chunk(new=value) for value in given))
    assert [each["new"] for each in client.events] == expected
    client = stream(policy(rule(word)), *(chunk({"name": value}) for value in given))
    shown = [each["choices"][0]["delta"].get("name") for each in client.events if each["choices"]]
    assert [value for value in shown if value] == [value for value in expected if value]


def test_a_label_that_repeats_is_kept_unless_it_makes_a_word_with_itself() -> None:
    client = stream(policy(rule("bonbon"), max_hold=8), *(chunk({"name": "bon"}) for _ in range(5)))
    assert client.messages[0]["name"] == "bon"
    client = stream(policy(max_hold=12), *(chunk({"name": "bon"}) for _ in range(9)))
    assert client.messages[0]["name"] == "bon" * 9


@pytest.mark.parametrize("length", [8, 1022, 1023, 1024, 1030, 3000])
def test_d12_a_long_label_makes_no_word_with_itself(length: int) -> None:
    label = "KEYS" + "x" * (length - 9) + "12MON"
    for wrap in (
        lambda v: {"name": v},
        lambda v: {"tool_calls": [{"index": 0, "id": v}]},
        lambda v: {"new": {"id": v}},
    ):
        client = stream(policy(), *(chunk(wrap(label)) for _ in range(3)))
        assert WORD not in client.text and client.raw.count(label.encode()) == 1
    client = stream(policy(), *(chunk(new=label) for _ in range(3)))
    assert [e.get("new") for e in client.events] == [label, "", ""]


def test_d6_labels_that_repeat_in_every_chunk_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    feed, feed_exempt = Censor.feed, Censor.feed_exempt
    monkeypatch.setattr(Censor, "feed", lambda censor, text: read.append(text) or feed(censor, text))
    monkeypatch.setattr(Censor, "feed_exempt", lambda censor, text: read.append(text) or feed_exempt(censor, text))
    results = [{"title": f"part {n}", "url": f"https://example.org/{n}", "date": None} for n in range(8)]
    more = {"citations": [each["url"] for each in results], "search_results": results, "provider": "(a b)"}
    rules = policy(rule(), Rule(id="url", detector="url"), Rule(id="mail", detector="email"))
    answer, client = answer_for(rules), Client()
    for number in range(12):
        if number == 2:
            read.clear()
        client.take(answer.feed(event(chunk({"content": "a"}, **more)), 0.0))
    assert read == ["a"] * 10 and not client.errors
    client.take(answer.close(0.0))
    assert sum(match.count for match in client.scanned.matches if match.rule == "url") == 12 * 16


def test_a_renamed_field_keeps_its_new_name_to_the_end() -> None:
    client = stream(policy(), chunk({WORD: "a 12", "new": {WORD: "b 12"}}), chunk({WORD: "M"}), chunk(finish="stop"))
    assert WORD not in client.text
    assert client.messages[0] == {SEEN: "a 12M", "new": {SEEN: "b 12"}}


def test_a_name_that_becomes_another_fields_is_left_out() -> None:
    emptying = policy(rule(WORD, replacement=""))
    client = stream(emptying, chunk({"content": "a", f"con{WORD}tent": "12MON"}), chunk({"content": "KEYS"}))
    assert client.content == "aKEYS"
    client = stream(emptying, chunk({"new": {"b": "c", f"{WORD}b": "d"}}), chunk(finish="stop"))
    assert client.messages[0]["new"] == {"b": "c"}


def test_what_two_fields_of_one_name_held_does_not_become_one_text() -> None:
    emptying = policy(rule("abab", replacement=""))
    for names in (["b", "ababb"], ["babab", "ababb"], ["ababb", "bab" + "ab"]):
        client = stream(emptying, chunk({"new": dict.fromkeys(names, "ab")}), chunk(finish="stop"))
        assert client.messages[0]["new"] == {"b": "ab"}


def test_calls_without_numbers_go_on_at_their_place() -> None:
    """Two pieces of arguments: whoever takes them for two calls would decode the second by itself."""
    first = {"tool_calls": [{"function": {"name": "f", "arguments": "MON"}}]}
    second = {"tool_calls": [{"function": {"arguments": r'"12MON\u004bEYS"'}}]}
    client = stream(policy(), chunk(first), chunk(second), chunk(finish="stop"))
    (call,) = client.messages[0]["tool_calls"]
    assert (call["index"], call["function"]["arguments"]) == (0, 'MON"[REDACTED]"')


def test_names_after_a_block_are_not_shown() -> None:
    client = stream(BLOCK, chunk({"content": f"a {WORD}", "new": {WORD: 1, "b": {WORD: "c"}}, WORD: [1]}))
    assert WORD not in client.text and client.content == "a Not shown."


def test_escapes_and_look_alikes_are_read_as_they_are_decoded() -> None:
    data = rb'{"choices":[{"index":0,"delta":{"content":"\u0031\u0032MON\u200bKEY\uff33"}}]}'
    assert stream(policy(), data).content == SEEN
    data = rb'{"ch\u006fices":[{"index":0,"d\u0065lta":{"c\u006fntent":"12MONKEYS"}}]}'
    assert stream(policy(), data).content == SEEN


def test_text_between_the_lines_of_an_event() -> None:
    data = b"event: 12MONKEYS\nid: 12MONKEYS\nretry: 1\nnew: 12MONKEYS\n" + event(chunk({"content": "a"}))
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(data, 0.0))
    assert client.content == "a" and WORD not in client.text
    lines = json.dumps(chunk({"content": WORD}), indent=1).encode().split(b"\n")
    client.take(answer.feed(b"".join(b"data:" + line + b"\r" for line in lines) + b"\r", 0.0))
    assert client.content == f"a{SEEN}"


def test_usual_chunks_are_censored_in_every_order_with_unusual_ones() -> None:
    usual = [chunk({"content": piece}) for piece in ("a ", "12", "MON")]
    client = stream(
        policy(),
        *usual,
        chunk({"content": "KE", "new": 1}),
        chunk({"content": "YS"}),
        chunk({"content": " 1"}),
        {**chunk({"content": "2"}), "obfuscation": "xx"},
        {**chunk({"content": "M"}), "id": WORD},
        {**chunk({"content": "!"}), "id": WORD},
        chunk({"content": "1"}, 1),
        chunk({"content": "2"}, 1),
        chunk(finish="stop"),
        expected=2,
    )
    assert client.content == f"a {SEEN} 12M!" and client.messages[1]["content"] == "12" and WORD not in client.text
    assert "obfuscation" not in client.text
    client = stream(BLOCK, *usual, chunk({"content": "KEYS"}), chunk({"content": "more"}), expected=1)
    assert client.content == "a Not shown." and client.finish == {0: "content_filter"} and client.done


@pytest.mark.parametrize(
    "values",
    [
        [chunk({"content": "a"}, index) for index in range(MAX_CHOICES + 1)],
        [chunk({f"new{number}": "a"}) for number in range(MAX_TEXTS + 1)],
        [calls(call(number, "f", "{}")) for number in range(MAX_TEXTS + 1)],
        [calls(call(number, "f")) for number in range(MAX_TEXTS + 1)],
        [calls(call(0, "f" * 1000)) for _ in range(MAX_NAME // 1000 + 1)],
        [chunk({f"new{number}": {"id": f"a{number}"}}) for number in range(MAX_PLACES + 1)],
    ],
    ids=["choices", "texts", "calls", "names", "a name", "labels"],
)
def test_an_answer_that_grows_without_end_is_ended(values: list[Any]) -> None:
    answer, client = answer_for(policy()), Client()
    for value in values:
        client.take(answer.feed(event(value), 0.0))
    assert answer.done and client.errors[0]["code"] == "upstream_protocol_error" and client.stopped


@pytest.mark.parametrize("asked", [1, 2, MAX_CHOICES])
def test_d8_an_answer_has_the_choices_that_were_asked_for_and_no_more(asked: int) -> None:
    values = [chunk({"content": "a"}, 7 * index) for index in range(asked)]
    assert not play(policy(), script(*values), expected=asked).errors
    client = play(policy(), script(*values, chunk({"content": "b"}, 7 * asked)), expected=asked)
    assert client.errors[0]["code"] == "upstream_protocol_error" and str(asked) in client.errors[0]["message"]
    assert client.messages.keys() == {7 * index for index in range(asked)} and not client.done
    together = {**HEAD, "choices": [part for value in values for part in value["choices"]] + [{"index": 1 + 7 * asked}]}
    assert play(policy(), script(together), expected=asked).errors[0]["code"] == "upstream_protocol_error"
    whole = [{"message": {"content": "a"}}] * (asked + 1)
    guard = open_guard(CHAT, compile_policy(policy()), asked)
    assert len(guard.completion({"choices": whole[:asked]})["choices"]) == asked
    with pytest.raises(InvalidAnswer):
        open_guard(CHAT, compile_policy(policy()), asked).completion({"choices": whole})


@pytest.mark.parametrize("choices", [1, 8, MAX_CHOICES])
@pytest.mark.parametrize("kind", ["text fields", "tool calls", "names"])
def test_d8_texts_are_bounded_for_all_choices_together(choices: int, kind: str) -> None:
    def said(number: int) -> dict[str, Any]:
        place = number // choices
        delta = {
            "text fields": {f"new{place}": "a"},
            "tool calls": {"tool_calls": [call(place, "f", "{}")]},
            "names": {"tool_calls": [call(place, "f")]},
        }[kind]
        return chunk(delta, number % choices)

    values = [said(number) for number in range(MAX_TEXTS + 1)]
    assert not play(policy(), script(*values[:-1]), expected=choices).errors
    assert str(MAX_TEXTS) in play(policy(), script(*values), expected=choices).errors[0]["message"]


GROWING: dict[str, Callable[[int], dict[str, Any]]] = {
    "choices with fields": lambda n: chunk({f"f{field}": "1" for field in range(500)}, n % MAX_CHOICES),
    "calls": lambda n: calls(*(call(number, "f", '["12') for number in range(300)), index=n % MAX_CHOICES),
    "call numbers": lambda n: calls(*({"index": 1000 * n + number} for number in range(500))),
    "labels": lambda n: chunk({f"{n}-{field}": {"id": f"{n}@{field}" + "x" * 100} for field in range(40)}),
    "lists": lambda n: chunk({"new": [[{"index": 1000 * n + number}] for number in range(500)]}),
}


@pytest.mark.parametrize("name", GROWING)
def test_d8_an_answer_takes_a_few_megabytes_at_most(name: str) -> None:
    events = [event(GROWING[name](number)) for number in range(200)]
    guard = open_guard(CHAT, compile_policy(policy()), MAX_CHOICES, ("mz",))
    answer, size, most = StreamAnswer(guard, max_event=1 << 20, max_whole=1 << 20), 0, 0
    tracemalloc.start()
    try:
        for data in events:
            size += len(data)
            answer.feed(data, 0.0)
            most = max(most, tracemalloc.get_traced_memory()[0])
            if answer.done or size > 700_000:
                break
    finally:
        tracemalloc.stop()
    assert most < 8_000_000


def test_deep_nesting_does_no_harm() -> None:
    for depth in (100, 600, 1500):
        deep = f'{{"new":{"[" * depth}"{WORD}"{"]" * depth}}}'.encode()
        for data in (deep, b'{"choices":[{"index":0,"delta":' + deep + b"}]}"):
            answer, client = answer_for(policy()), Client()
            client.take(answer.feed(event(data), 0.0))
            client.take(answer.close(0.0))
            assert WORD not in client.text and client.stopped


def test_json_where_a_stream_was_asked_for_hides_nothing() -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(b"\xef\xbb\xbf \n" + json.dumps({"choices": [{"message": WORD}]}).encode(), 0.0))
    client.take(answer.feed(script(chunk({"content": WORD})), 0.0))
    client.take(answer.close(0.0))
    assert WORD not in client.text and client.errors[0]["code"] == "upstream_protocol_error"


@pytest.mark.parametrize("content", [[{"index": ["12"]}], [{"index": {"index": "12"}}], [["12"]], [[["12"]]], "12"])
def test_what_is_held_in_an_odd_place_does_no_harm(content: Any) -> None:
    client = stream(policy(), chunk({"content": content}), chunk({"new": content}, finish="stop"))
    assert client.finish == {0: "stop"} and not client.errors
    assert [count.forwarded for count in client.scanned.channels if count.channel == "content"] == [2]
