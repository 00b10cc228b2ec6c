"""Text in fields that nobody knows: spelled in numbers, and string by string."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.guard.choice import MAX_TYPE, MAX_TYPES
from gateway.policy.model import Action, Rule, Unknown
from tests.support.guard_client import (
    DROP,
    OBSERVE,
    REFUSE,
    WORD,
    Client,
    answer_for,
    broken,
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
CODES = [ord(char) for char in f"a {WORD}."]
CLEAN = [104, 101, 121]
ACCENTED = rule("12MONKÉYS")

# name: (a field of an answer, the same when the policy scans)
NUMBERS: dict[str, tuple[Any, Any]] = {
    "characters": (CODES, []),
    "whole floats": ([float(code) for code in CODES], []),
    "bytes": (list("12MONKÉYS".encode()), []),
    "utf-16": ([0xD83D, 0xDE00, *CODES], []),
    "with other values between": ([49, "x", *CODES[3:]], []),
    "mixed": ([*CODES, "x", None, 0.5, -1], []),
    "deeper": ({"a": [[CODES]]}, {"a": [[[]]]}),
    "clean": (CLEAN, CLEAN),
    "numbers past all characters": ([1114112, 5_000_000], [1114112, 5_000_000]),
    "halves of pairs": ([0xD83D, 0xDE00, 0xD83D], [0xD83D, 0xDE00, 0xD83D]),
    "fractions": ([0.25, -3, 1.5], [0.25, -3, 1.5]),
    "no numbers": ([], []),
}
RULES = policy(rule(), ACCENTED)


def places(value: Any) -> list[dict[str, Any]]:
    """An answer with the value where a message, a call, a choice and the answer itself may have fields."""
    calls = [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}", "zq": value}}]
    return [
        chunk({"content": "x", "zq": value}),
        chunk({"tool_calls": calls}),
        {**chunk({"content": "x"}), "zq": value},
        with_choice(chunk({"content": "x"}), zq=value),
    ]


def spelled_in(client: Client) -> bool:
    return "75,69,89,83" in client.text or "KEYS" in client.text


def with_choice(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    value["choices"][0].update(more)
    return value


def field_of(client: Client) -> list[Any]:
    found = []
    for value in client.events:
        found += [value["zq"]] if "zq" in value else []
        for choice in value.get("choices", ()):
            found += [choice["zq"]] if "zq" in choice else []
            found += [choice["delta"]["zq"]] if "zq" in choice["delta"] else []
            found += [
                each["function"]["zq"] for each in choice["delta"].get("tool_calls", ()) if "zq" in each["function"]
            ]
    return found


@pytest.mark.parametrize(("value", "expected"), NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("place", range(4))
def test_e7_numbers_that_spell_text_are_scanned(value: Any, expected: Any, place: int) -> None:
    client = stream(RULES, places(value)[place], chunk(finish="stop"))
    assert field_of(client) == [expected] and not client.errors


@pytest.mark.parametrize(("value", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_e7_in_plain_answers_too(value: Any, expected: Any) -> None:
    body, _ = plain(RULES, json.dumps(completion({"content": "x", "zq": value}, zq=value)).encode())
    assert body["choices"][0]["message"]["zq"] == body["zq"] == expected


@pytest.mark.parametrize("place", range(4))
def test_e7_numbers_can_block(place: int) -> None:
    client = stream(policy(rule(action=Action.BLOCK)), places(CODES)[place], chunk(finish="stop"))
    assert client.finish == {0: "content_filter"} and "zq" not in client.text


def test_e7_a_block_of_the_whole_answer_ends_every_choice() -> None:
    values = completion({"content": "x", "qz": CLEAN}, {"content": "y"}, zq=CODES)
    body, _ = plain(policy(rule(action=Action.BLOCK)), json.dumps(values).encode(), expected=2)
    assert [choice["finish_reason"] for choice in body["choices"]] == ["content_filter", "content_filter"]
    assert [choice["message"]["content"] for choice in body["choices"]] == ["", ""]


@pytest.mark.parametrize("value", [CODES, CLEAN, [7], [[7]], [0.5, 3.0], [5_000_000]])
@pytest.mark.parametrize("place", range(4))
def test_e7_numbers_that_may_be_tokens_are_unknown_text(value: Any, place: int) -> None:
    client = stream(DROP, places(value)[place], chunk(finish="stop"))
    assert all(shown in ([], [[]]) for shown in field_of(client)) and not client.errors
    assert client.scanned.unknown_events == 1
    refused = stream(REFUSE, places(value)[place], chunk(finish="stop"))
    assert refused.errors[0]["code"] == "upstream_protocol_error" and not field_of(refused)


@pytest.mark.parametrize("value", [[0.25, -3], [], 7, 0.5, True])
def test_e7_what_is_no_text_is_kept(value: Any) -> None:
    for rules in (DROP, REFUSE):
        client = stream(rules, chunk({"content": "x", "zq": value}), chunk(finish="stop"))
        assert field_of(client) == [value]


def test_e7_usage_is_counted_and_not_read() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "zq": {"qz": [1, 2]}}
    client = stream(REFUSE, chunk({"content": "x"}), {**chunk(finish="stop"), "usage": usage})
    assert client.usage == usage and not client.errors


@pytest.mark.parametrize("value", [CODES, [12, [CODES]], {"qz": CODES}, ["12MON", "KEYS"]])
def test_e7_figures_of_usage_spell_nothing(value: Any) -> None:
    values = [{**chunk({"content": "x"}), "usage": {"prompt_tokens": 1, "zq": value}} for _ in range(2)]
    assert not spelled_in(stream(RULES, *values, chunk(finish="stop")))
    body, _ = plain(RULES, json.dumps(completion({"content": "x"}, usage={"zq": value})).encode())
    assert "75, 69, 89, 83" not in json.dumps(body) and "KEYS" not in json.dumps(body)


def test_e7_texts_of_usage_that_follow_each_other_are_held_together() -> None:
    values = [{**chunk({"content": "x"}), "usage": {"zq": piece}} for piece in ("12MON", "KEYS")]
    client = stream(RULES, *values, chunk(finish="stop"))
    assert [each["usage"]["zq"] for each in client.events if "usage" in each] == ["12MON", ""]


CARD_NUMBER = 4111111111111111
LARGE: list[dict[str, Any]] = [
    {**chunk({"content": "x"}), "usage": {"prompt_tokens": CARD_NUMBER}},
    {**chunk({"content": "x"}), "created": CARD_NUMBER},
    {**chunk({"content": "x"}, index=CARD_NUMBER)},
    chunk({"content": "x", "zq": {"index": CARD_NUMBER}}),
    chunk({"tool_calls": [{"index": CARD_NUMBER, "function": {"name": "f", "arguments": "{}"}}]}),
]


@pytest.mark.parametrize("value", LARGE)
def test_e7_what_is_too_large_for_a_figure_is_text(value: Any) -> None:
    client = stream(policy(Rule(id="card", detector="credit_card")), value, chunk(finish="stop"))
    assert str(CARD_NUMBER) not in client.text and not client.errors


def test_e7_numbers_that_come_one_by_one_are_held_together() -> None:
    values = [chunk({"content": "x", "zq": [code]}) for code in CODES]
    client = stream(RULES, *values, chunk(finish="stop"))
    assert field_of(client) == [[] if code == ord("S") else [code] for code in CODES]
    observed = stream(OBSERVE, *values, chunk(finish="stop"))
    assert field_of(observed) == [[code] for code in CODES]


@pytest.mark.parametrize("pieces", [["12M", "ONKEYS"], ["a", "12", "MON", "KEYS", "b"], list(WORD)])
def test_e7_strings_that_come_item_by_item_are_one_text(pieces: list[str]) -> None:
    shown = "".join(pieces).replace(WORD, SEEN)
    for values in (
        [chunk({"zq": [piece]}) for piece in pieces],
        [chunk({"zq": pieces})],
        [chunk({"zq": {"qz": pieces[:2]}}), chunk({"zq": {"qz": pieces[2:]}})],
    ):
        client = stream(policy(), *values, chunk(finish="stop"))
        found = [choice["delta"].get("zq") for each in client.events for choice in each["choices"]]
        lists = [value["qz"] if isinstance(value, dict) else value for value in found if value]
        assert "".join(item for items in lists for item in items) == shown


def test_e7_items_of_a_whole_answer_stay_apart_where_they_may() -> None:
    clean = ["12", "MON", "https://a.b/12MON", "KEY"]
    body, _ = plain(policy(), json.dumps(completion({"zq": clean})).encode())
    assert body["choices"][0]["message"]["zq"] == clean
    body, _ = plain(policy(), json.dumps(completion({"zq": ["12MON", "KEYS", f"a {WORD}", "12M"]})).encode())
    assert body["choices"][0]["message"]["zq"] == ["12MON", "", f"a {SEEN}", "12M"]


def test_e7_unknown_numbers_break_a_plain_answer_that_refuses_them() -> None:
    error = broken(policy(unknown=Unknown.REFUSE), json.dumps(completion({"content": "x", "zq": CODES})).encode())
    assert error["code"] == "upstream_protocol_error" and WORD not in json.dumps(error)


# -- what was held, at the end -----------------------------------------------------------------------------------------


def test_e6_what_was_held_of_a_part_comes_with_its_type() -> None:
    part = {"type": "text", "index": 0, "text": "a 12M"}
    deeper = {"type": "thinking", "index": 1, "thinking": [{"type": "text", "index": 0, "text": "b 12"}]}
    client = stream(policy(), chunk({"content": [part, deeper]}), chunk(finish="stop"))
    tails = [part for each in client.events[1:] for part in each["choices"][0]["delta"].get("content", ())]
    assert tails == [
        {"index": 0, "type": "text", "text": "12M"},
        {"index": 1, "type": "thinking", "thinking": [{"index": 0, "type": "text", "text": "12"}]},
    ]
    assert client.messages[0]["content"][0]["text"] == "a 12M"


def test_e6_the_type_of_a_part_is_a_text_too() -> None:
    part = {"type": f"a {WORD}", "index": 0, "text": "a 12M"}
    client = stream(policy(), chunk({"content": [part]}), chunk(finish="stop"))
    assert client.events[1]["choices"][0]["delta"]["content"][0]["type"] == f"a {SEEN}"


def test_e6_types_are_bounded() -> None:
    parts = [{"type": "text", "index": at, "text": "12M"} for at in range(MAX_TYPES + 1)]
    client = play(policy(), script(*(chunk({"content": [part]}) for part in parts), chunk(finish="stop")))
    tails = [part for each in client.events for part in each["choices"][0]["delta"].get("content", ()) if part["text"]]
    assert ["type" in part for part in tails] == [True] * MAX_TYPES + [False]
    for length in (MAX_TYPE, MAX_TYPE + 1):
        part = {"type": "x" * length, "index": 0, "text": "a 12M"}
        client = stream(policy(), chunk({"content": [part]}), chunk(finish="stop"))
        (tail,) = client.events[1]["choices"][0]["delta"]["content"]
        assert ("type" in tail) == (length == MAX_TYPE)


def test_e6_fields_end_in_the_order_in_which_they_began() -> None:
    answer, client = answer_for(policy()), Client()
    deltas = [{"reasoning_content": "so 12"}, {"content": "it is 12M"}, {"refusal": "12"}, {"reasoning_content": "M"}]
    for delta in deltas:
        client.take(answer.feed(event(chunk(delta)), 0.0))
    assert client.messages[0] == {"reasoning_content": "so ", "content": "it is "}
    client.take(answer.feed(event(chunk(finish="stop")), 0.0))
    tails = [field for each in client.events[2:] for field in each["choices"][0]["delta"]]
    assert tails == ["reasoning_content", "content", "refusal"]
    assert client.messages[0] == {"reasoning_content": "so 12M", "content": "it is 12M", "refusal": "12"}


def test_e6_a_text_goes_on_where_another_one_came_between() -> None:
    """What is held of reasoning is not released at the first word of content: the rest of the match may still come."""
    values = [{"reasoning": "so 12MON"}, {"content": "x"}, {"reasoning": "KEYS"}]
    client = stream(policy(), *map(chunk, values), chunk(finish="stop"))
    assert client.messages[0] == {"reasoning": f"so {SEEN}", "content": "x"}
