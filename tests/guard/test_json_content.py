"""Answers that were requested as JSON, and what is JSON or escaped within JSON: every decoded text is under the rules,
and what was JSON stays it."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard.constrained import asks_for_json
from gateway.guard.pseudonyms import Pseudonyms
from gateway.policy.model import Action, Channel, Constrain, Direction, Fold, Language, Mode, Policy
from tests.support.examples import examples
from tests.support.guard_client import (
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
from tests.support.json_content import (
    BLOCKING,
    CARD,
    FRAGMENTS,
    POLICIES,
    POLICY,
    SECRET,
    SEEN,
    censored,
    content_of,
    documents,
    every_way,
    read,
)
from tests.support.prompts import guarded
from tests.support.random_policies import ALPHABETS

OBJECT = Constrain(language=Language.JSON_SCHEMA, texts=('{"type": "object"}',))
CLEAN = r'{"a": "[\"\\u00e9\\/\", 1.50, \"\\n\t\"]"}'
EXPRESSION = r'{"a": "[\\u4e00-\\u9fff]+[^\\d\\w]"}'
DEEPER = r'["[\"[\\\"\\\\u0073ecretword\\\"]\"]"]'

# name: (what the model writes, what the client gets)
CONTENT = {
    "clean": ('{"a": [1, "b", null]}', '{"a": [1, "b", null]}'),
    "escapes": (r'{"note": "the \u0073ecretword"}', f'{{"note": "the {SEEN}"}}'),
    "a key": (r'{"\u0073ecretword": 1}', f'{{"{SEEN}": 1}}'),
    "a number": ('{"card": 4111111111111111}', f'{{"card": "{SEEN}"}}'),
    "a number in a list": ("[1, 4111111111111111]", f'[1, "{SEEN}"]'),
    "a number alone": ("4111111111111111", f'"{SEEN}"'),
    "a string alone": (r'"\u0073ecretword"', f'"{SEEN}"'),
    "space around it": (' \n{"a": "secretword"}\n', f' \n{{"a": "{SEEN}"}}\n'),
    "cut short": (r'{"note": "a \u0073ecretw', '{"note": "a secretw'),
    "cut in an escape": (r'{"note": "a\u00', '{"note": "a'),
    "prose": ("I cannot say secretword.", f"I cannot say {SEEN}."),
    "prose with escapes": (r"It is `\u0073ecretword`, \frac{1}{2}", rf"It is `{SEEN}`, \frac{{1}}{{2}}"),
    "fenced": ('```\n{"a": "\\u0073ecretword", "b": "\\u00e9"}\n```', f'```\n{{"a": "{SEEN}", "b": "\\u00e9"}}\n```'),
    "two values": ('{"a": 1}\n{"b": "\\u0073ecretword"}', f'{{"a": 1}}\n{{"b": "{SEEN}"}}'),
    "another language": (r"{'a': '\x73ecretword', b: True,}", f"{{'a': '{SEEN}', b: True,}}"),
    "an object in a string": (r'{"a": "{\"b\": \"\\u0073ecretword\"}"}', rf'{{"a": "{{\"b\": \"{SEEN}\"}}"}}'),
    "a number in a string": (r'{"a": "{\"b\": 4111111111111111}"}', rf'{{"a": "{{\"b\": \"{SEEN}\"}}"}}'),
    "a list in a string": (r'{"a": " [\"\\u0073ecretword\"]"}', rf'{{"a": " [\"{SEEN}\"]"}}'),
    "a string in a string": (r'{"a": "\"\\u0073ecretword\""}', rf'{{"a": "\"{SEEN}\""}}'),
    "clean in a string": (CLEAN, CLEAN),
    "almost JSON in a string": (r'{"a": "{b: \"\\u0073ecretword\", \\\"c}"}', rf'{{"a": "{{b: \"{SEEN}\", \\\"c}}"}}'),
    "an expression in a string": (EXPRESSION, EXPRESSION),
    "a string in a string in a string": (DEEPER, DEEPER.replace(r"\\\\u0073ecretword", SEEN)),
    "brackets of a rule's own": ('{"a": "[INST] x"}', f'{{"a": "{SEEN} x"}}'),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CONTENT.values(), ids=CONTENT)
def test_e5_content_that_was_asked_for_as_json(text: str, expected: str) -> None:
    client = every_way(policy(SECRET, CARD, rule("[INST]", id="inst")), text)
    assert content_of(client) == expected


@pytest.mark.parametrize(("text", "expected"), CONTENT.values(), ids=CONTENT)
def test_e5_arguments_are_read_in_the_same_way(text: str, expected: str) -> None:
    client = stream(
        policy(SECRET, CARD, rule("[INST]", id="inst")), calls(call(0, "f", text)), chunk(finish="tool_calls")
    )
    assert client.messages[0]["tool_calls"][0]["function"]["arguments"] == expected


SPELLED = '{"b": "\\u0073ecretword"}'
OBJECTS: list[dict[str, Any]] = [
    {"function": {"name": "f", "arguments": {"a": SPELLED}}},
    {"function": {"name": "f", "arguments": [SPELLED]}},
    {"function": {"name": "f", "arguments": {"a": '"\\u0073ecretword"'}}},
    {"custom": {"name": "f", "input": SPELLED}},
    {"arguments": SPELLED},
]


@pytest.mark.parametrize("called", OBJECTS)
def test_e5_arguments_that_come_as_an_object_are_read_in_the_same_way(called: dict[str, Any]) -> None:
    client = stream(policy(SECRET), chunk({"tool_calls": [{"index": 0, **called}]}), chunk(finish="tool_calls"))
    assert "u0073" not in client.text and SEEN in client.text
    message = {"role": "assistant", "tool_calls": [called]}
    body, _ = plain(policy(SECRET), json.dumps(completion(message)).encode())
    assert "u0073" not in json.dumps(body) and SEEN in json.dumps(body)


@pytest.mark.parametrize("called", OBJECTS[:4])
def test_e5_and_those_of_a_prompt(called: dict[str, Any]) -> None:
    rules = policy(rule("secretword", apply_to=frozenset({Direction.INPUT})))
    asked, _ = guarded(rules, {"role": "assistant", "tool_calls": [deepcopy(called)]})
    assert "u0073" not in json.dumps(asked) and SEEN in json.dumps(asked)


def test_e5_a_replacement_is_escaped_at_every_level() -> None:
    quoting = policy(rule("secretword", replacement='"\\\n'))
    client = every_way(quoting, r'{"a": "\u0073ecretword", "b": "[\"\\u0073ecretword\"]"}')
    value = json.loads(content_of(client))
    assert value["a"] == '"\\\n' and json.loads(value["b"]) == ['"\\\n']


def test_e5_content_that_nobody_asked_for_as_json_stays_as_it_was_spelled() -> None:
    text = r'{"note": "\u0061", "n": 4111111111111111'
    client = stream(POLICY, chunk({"content": text}), chunk(finish="stop"))
    assert content_of(client) == text.replace("4111111111111111", SEEN)


def test_e5_clean_strings_stream_on_and_numbers_wait_for_their_end() -> None:
    answer, client = answer_for(POLICY, json_content=True), Client()
    seen = []
    for piece in ['{"no', 'te": "a ', "lo", 'ng", "n": 4', '2, "j": "{', "\\", '"k\\": \\"l', "m"]:
        client.take(answer.feed(event(chunk({"content": piece})), 0.0))
        seen.append(client.content)
    assert [b.removeprefix(a) for a, b in pairwise(["", *seen])] == [
        '{"no', 'te": "a ', "lo", 'ng", "n": ', '42, "j": "{', "", '\\"k\\": \\"l', "m",
    ]  # fmt: skip


BLOCKED = {
    "a value": (r'{"a": ["x", "y \u0073ecretword", 1]}', '{"a": ["x", "y "]}'),
    "a key": ('{"x": 1, "secretword": 2}', '{"x": 1, "":null}'),
    "the first": ('"secretword"', '""'),
    "in a string": (r'{"a": "{\"b\": \"\\u0073ecretword\"}", "c": 1}', r'{"a": "{\"b\": \"\"}"}'),
    "prose": ("no secretword", "no "),
}


@pytest.mark.parametrize(("text", "expected"), BLOCKED.values(), ids=BLOCKED)
def test_e5_a_block_closes_the_json_and_its_message_is_a_refusal(text: str, expected: str) -> None:
    client = every_way(BLOCKING, text)
    assert client.messages[0] == {"content": expected, "refusal": "Not shown."}
    assert client.finish == {0: "content_filter"}


def test_e5_a_block_elsewhere_closes_the_json_too() -> None:
    events = [chunk({"content": '{"a": ["b'}), chunk({"reasoning": "secretword"})]
    client = stream(BLOCKING, *events, json_content=True)
    assert client.messages[0]["content"] == '{"a": ["b"]}'


def test_e5_each_choice_is_json_of_its_own() -> None:
    events = [
        chunk({"content": '{"a": "secret'}, 0),
        chunk({"content": '["secret'}, 1),
        chunk({"content": 'word"}'}, 0),
    ]
    client = stream(POLICY, *events, chunk({"content": 's"]'}, 1), expected=2, json_content=True)
    assert [client.messages[index]["content"] for index in (0, 1)] == [f'{{"a": "{SEEN}"}}', '["secrets"]']


def test_e5_parts_are_read_as_json_too() -> None:
    part = {"type": "text", "index": 0, "text": r'{"a": "\u0073ecretword"}'}
    client = stream(POLICY, chunk({"content": [part]}), chunk(finish="stop"), json_content=True)
    assert content_of(client)[0]["text"] == f'{{"a": "{SEEN}"}}'


def test_e5_channels_without_rules_wait_for_nothing() -> None:
    elsewhere = policy(rule(channels=frozenset({Channel.REASONING})))
    answer, client = answer_for(elsewhere, json_content=True), Client()
    client.take(answer.feed(event(chunk({"content": '{"\\u0061": 12'})), 0.0))
    assert client.content == '{"\\u0061": 12'


def test_e5_what_is_only_observed_passes_as_it_is_and_is_counted_once() -> None:
    observed = policy(SECRET, mode=Mode.OBSERVE)
    text = r'{"a": "secretword", "b": "{\"secretword\": \"\\u0073ecretword\"}"} secretword \x73ecretword'
    client = every_way(observed, text)
    assert content_of(client) == text
    assert sum(match.count for match in client.scanned.matches) == 5


def test_e5_a_constraint_checks_what_the_model_wrote() -> None:
    held = policy(SECRET, constrain=OBJECT)
    client = every_way(held, r'{"a": "\u0073ecretword"}')
    assert content_of(client) == f'{{"a": "{SEEN}"}}' and client.finish == {0: "stop"}
    client = every_way(held, r'{"a": ["\u0073ecretwor"} and')
    assert content_of(client) == '{"a": ["secretwor"]}' and client.finish == {0: "content_filter"}


def test_e5_values_come_back_as_json() -> None:
    table = Pseudonyms({"<PERSON_1_abc>": 'Ann "Zed"\n'})
    rules = policy(rule("Zed", id="zed"), rule("PERSON", id="person"))
    text = r'{"a": "by <PERSON_1_abc>, Zed", "b": "[\"<PERSON_1_abc> \\u005aed\"]"}'
    client = stream(rules, chunk({"content": text}), chunk(finish="stop"), pseudonyms=table, json_content=True)
    value = json.loads(content_of(client))
    assert value == {"a": f'by Ann "Zed"\n, {SEEN}', "b": f'["Ann "Zed"\n {SEEN}"]'}


def test_e5_values_in_a_prompts_nested_arguments_get_their_pseudonyms() -> None:
    taken = policy(rule("Ann", action=Action.PSEUDONYMIZE, apply_to=frozenset({Direction.INPUT})))
    arguments = json.dumps({"a": json.dumps({"b": "Ann", "c": "x"})})
    message = {"role": "assistant", "tool_calls": [call(0, "f", arguments)]}
    asked, _ = guarded(taken, message)
    inner = json.loads(json.loads(asked["messages"][0]["tool_calls"][0]["function"]["arguments"])["a"])
    assert inner["b"].startswith("<R_1_") and inner["c"] == "x"


SCHEMA = {"type": "object"}
ASKING: list[dict[str, Any]] = [
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"response_format": {"type": "json", "value": SCHEMA}},
    {"Response_Format": {"type": "JSON_OBJECT"}},
    {"guided_json": SCHEMA},
    {"guided_json": "{}"},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json_object": True}},
    {"nvext": {"guided_json": SCHEMA}},
    {"json_schema": "{}"},
    {"format": "json"},
    {"format": SCHEMA},
    {"grammar": {"type": "json", "value": SCHEMA}},
    {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
]
NOT_ASKING: list[dict[str, Any]] = [
    {},
    {"response_format": None},
    {"response_format": {"type": "text"}},
    {"response_format": {"type": "structural_tag"}},
    {"guided_json": None},
    {"guided_regex": "[a-z]+"},
    {"structured_outputs": {"regex": "[a-z]+", "json": None}},
    {"structured_outputs": {"json_object": False}},
    {"messages": [{"role": "user", "content": "json"}], "text": ["json"]},
]


@pytest.mark.parametrize("body", ASKING, ids=str)
def test_e5_what_asks_for_json(body: dict[str, Any]) -> None:
    assert asks_for_json({"model": "m", **body}, policy())


@pytest.mark.parametrize("body", NOT_ASKING, ids=str)
def test_e5_what_does_not_ask_for_json(body: dict[str, Any]) -> None:
    assert not asks_for_json({"model": "m", **body}, policy())


def test_e5_a_policy_that_is_enforced_asks_for_json() -> None:
    assert asks_for_json({}, policy(constrain=OBJECT))
    assert not asks_for_json({}, policy(constrain=OBJECT, mode=Mode.OBSERVE))
    assert not asks_for_json({}, policy(constrain=Constrain(language=Language.REGEX, texts=("[a-z]+",))))


# -- against the oracle ------------------------------------------------------------------------------------------------


def streamed(rules: Policy, text: str, cuts: list[int]) -> str:
    edges = [0, *sorted(cuts), len(text)]
    events = [chunk({"content": text[a:b]}) for a, b in pairwise(edges)]
    client = play(rules, script(*events, chunk(finish="stop")), json_content=True)
    body, _ = plain(rules, json.dumps(completion({"content": text})).encode(), json_content=True)
    assert body["choices"][0]["message"]["content"] == client.content
    return client.content


@settings(max_examples=examples(300), deadline=None)
@given(documents([*ALPHABETS, "12a", "1-2"]))
def test_e5_every_text_of_the_json_is_censored_as_the_oracle_says(case: tuple[Policy, str, list[int]]) -> None:
    rules, text, cuts = case
    assert read(streamed(rules, text, cuts)) == censored(rules, read(text))


@settings(max_examples=examples(300), deadline=None)
@given(documents(["xyz"], whole_word=False), st.booleans())
def test_e5_and_so_is_every_text_of_json_within_it(case: tuple[Policy, str, list[int]], ascii_only: bool) -> None:
    """What escapes and structure are spelled with is of another alphabet, so the text as it stands has no match. (A
    replacement can be the edge of a whole word.)"""
    rules, text, cuts = case
    inner = f"[{text}]"
    outer = json.dumps({"": inner}, ensure_ascii=ascii_only)
    ((_, shown),) = read(streamed(rules, outer, cuts)) if rules.mode is Mode.ENFORCE else read(outer)
    assert read(shown) == censored(rules, read(inner))
    if read(shown) == read(inner):
        assert shown == inner, "it stays as it was spelled"


TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)


@settings(max_examples=examples(300), deadline=None)
@given(POLICIES, TEXTS)
def test_e5_no_cut_can_be_seen_in_what_comes_out_and_in_the_counts(rules: Policy, text: str) -> None:
    every_way(rules, text)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join))
def test_e5_what_no_rule_wants_is_only_spelled_anew(text: str) -> None:
    """Strings of the JSON itself may get other escapes, which no reader can tell; nothing else changes."""
    shown = content_of(every_way(policy(rule("zq", fold=frozenset({Fold.CASE}))), text)) or ""
    try:
        assert read(shown) == read(text)
    except ValueError:
        if "\\" not in text:
            assert shown == text
