"""JSON in content that was not asked for as JSON, and JSON within JSON: its escapes are seen through, and what no rule
wants comes out as it was spelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard.pseudonyms import Pseudonyms
from gateway.policy.model import Action, Mode, Policy, Rule
from gateway.wire.fences import MAX_INFO, ContentReader
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support import event_client, message_streams, response_streams
from tests.support.examples import examples
from tests.support.guard_client import Client, answer_for, call, calls, chunk, event, play, policy, rule, script, stream
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
    matches_of,
    read,
)

WORD = r"\u0073ecretword"
LONG_INFO = "json" + "x" * MAX_INFO

# name: (what the model writes, what the client gets)
UNASKED = {
    "an object": (f'{{"note": "the {WORD}"}}', f'{{"note": "the {SEEN}"}}'),
    "a list behind blanks": (f' \n["{WORD}"]', f' \n["{SEEN}"]'),
    "a key": (f'{{"{WORD}": 1}}', f'{{"{SEEN}": 1}}'),
    "other escapes stay": (rf'["\u0061\/\"\n{WORD}\t\ud83d\ude00"]', rf'["\u0061\/\"\n{SEEN}\t\ud83d\ude00"]'),
    "an escape before it": (r'["\nsecretword", "\u0041secretword"]', rf'["\n{SEEN}", "\u0041{SEEN}"]'),
    "half a pair within it": (r'["secret\ud83dword"]', r'["secret\ud83dword"]'),
    "a number stays a number's place": ("[1, 4111111111111111]", f"[1, {SEEN}]"),
    "a whole float": ("[4111111111111111.0, 4.111111111111111e+15, 4.5]", f"[{SEEN}, {SEEN}, 4.5]"),
    "cut short": (r'{"note": "a \u0073ecretw', r'{"note": "a \u0073ecretw'),
    "cut in an escape": (r'["a \u00', r'["a \u00'),
    "cut behind it": (f'["{WORD}', f'["{SEEN}'),
    "it stops being JSON": (f'{{"a": "{WORD}", b: "{WORD}"}}', f'{{"a": "{SEEN}", b: "{WORD}"}}'),
    "at an escape that is none": (rf'["{WORD} \x20 {WORD}"]', rf'["{SEEN} \x20 {WORD}"]'),
    "one value a line": (f'{{"a": 1}}\n{{"b": "{WORD}"}}', f'{{"a": 1}}\n{{"b": "{SEEN}"}}'),
    "prose": (f'say "{WORD}"', f'say "{WORD}"'),
    "prose in brackets": (f'[sic] "{WORD}"', f'[sic] "{WORD}"'),
    "a fenced block": (f'A\n```json\n["{WORD}"]\n```\n"{WORD}"', f'A\n```json\n["{SEEN}"]\n```\n"{WORD}"'),
    "a fenced string": (f'```JSON\n"{WORD}"\n```', f'```JSON\n"{SEEN}"\n```'),
    "a fence in one line": (f'```json ["{WORD}"]```', f'```json ["{SEEN}"]```'),
    "a name behind the tag": (f'````jsonc a.json\r\n\n ["{WORD}"]', f'````jsonc a.json\r\n\n ["{SEEN}"]'),
    "a fence without a tag": (f'x\n```\n["{WORD}"]\n```', f'x\n```\n["{SEEN}"]\n```'),
    "no JSON in a fence without a tag": (f'x\n```\n"{WORD}"\n```', f'x\n```\n"{WORD}"\n```'),
    "two fences": (f'```json\n[1]\n```\n```json\n["{WORD}"]\n```', f'```json\n[1]\n```\n```json\n["{SEEN}"]\n```'),
    "another language": (f'```python\n["{WORD}"]\n```', f'```python\n["{WORD}"]\n```'),
    "two backticks": (f'``json\n["{WORD}"]``', f'``json\n["{WORD}"]``'),
    "a long line behind the backticks": (f'```{LONG_INFO}\n["{WORD}"]', f'```{LONG_INFO}\n["{WORD}"]'),
    "JSON that stops at a fence": (f'[1```json\n["{WORD}"]', f'[1```json\n["{SEEN}"]'),
    "JSON in JSON": (rf'{{"a": "{{\"b\": \"\{WORD}\"}}"}}', rf'{{"a": "{{\"b\": \"{SEEN}\"}}"}}'),
    "the raw text": ('{"a": "secretword"} secretword', f'{{"a": "{SEEN}"}} {SEEN}'),
    "a rule for the text as it stands": ('{"password":"x"}', f"{{{SEEN}x\"}}"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), UNASKED.values(), ids=UNASKED)
def test_json_that_was_not_asked_for(text: str, expected: str) -> None:
    assert content_of(every_way(_rules_for(text), text, asked=False)) == expected


def _rules_for(text: str) -> Policy:
    cards = [CARD] if "1111" in text else []  # it takes long to compile
    return policy(SECRET, *cards, rule('"password":"', id="raw"))


@pytest.mark.parametrize(("text", "expected"), UNASKED.values(), ids=UNASKED)
def test_typed_events_hold_such_json_too(text: str, expected: str) -> None:
    rules = _rules_for(text)
    client = event_client.stream(rules, RESPONSES, response_streams.events(response_streams.message(*text)))
    response = event_client.openai_response(client)
    assert response["output"][0]["content"][0]["text"] == expected
    client = event_client.stream(rules, MESSAGES, message_streams.events(message_streams.text(*text)))
    assert event_client.anthropic_message(client)["content"][0]["text"] == expected


def test_the_text_of_a_custom_call_may_be_json() -> None:
    sent = response_streams.events(response_streams.custom_call('["a ', WORD, '"]'))
    client = event_client.stream(POLICY, RESPONSES, sent)
    assert event_client.openai_response(client)["output"][0]["input"] == f'["a {SEEN}"]'


def test_a_replacement_is_escaped_where_it_stands() -> None:
    quoting = policy(rule("secretword", replacement='"\\\n'))
    text = rf'{{"a": "{WORD}", "b": "[\"\{WORD}\"]"}} secretword'
    shown = content_of(every_way(quoting, text, asked=False))
    assert shown.endswith('} "\\\n')
    value = json.loads(shown.removesuffix(' "\\\n'))
    assert value["a"] == '"\\\n' and json.loads(value["b"]) == ['"\\\n']


def test_a_mask_has_a_character_for_each_that_is_decoded() -> None:
    client = every_way(policy(rule("secretword", mask="*")), rf'["{WORD}", "[\"\{WORD}\"]"]', asked=False)
    assert content_of(client) == rf'["{"*" * 10}", "[\"{"*" * 10}\"]"]'


def test_a_block_ends_the_text_where_it_is() -> None:
    client = every_way(BLOCKING, f'{{"a": "y {WORD}", "b": 1}}', asked=False)
    assert client.messages[0] == {"content": '{"a": "y Not shown.'}
    assert client.finish == {0: "content_filter"}


def test_what_is_seen_twice_counts_once() -> None:
    both = policy(SECRET, CARD, rule("see", id="flag", action=Action.FLAG), Rule(id="word", pattern="secretwor[a-z]"))
    text = f'{{"see": "secretword {WORD}", "n": 4111111111111111}} secretword'
    client = every_way(both, text, asked=False)
    counts = {match.rule: match.count for match in client.scanned.matches}
    assert counts == {"secret": 3, "word": 3, "card": 1, "flag": 1}


@pytest.mark.parametrize("asked", [True, False])
def test_what_was_inserted_is_not_read_again(asked: bool) -> None:
    """A replacement that holds another rule's word, and one that makes such a word with its neighbours."""
    rules = policy(rule("secretword", id="a", replacement="a banana b"), rule("banana", id="b"), rule("b\\", id="c"))
    text = rf'{{"k": "{{\"j\": \"\{WORD}\"}}", "l": "{WORD}\\"}} secretword \x73ecretword banana'
    client = every_way(rules, text, asked=asked)
    assert client.content.count("a banana b") == (4 if asked else 3)
    counts = {match.rule: match.count for match in client.scanned.matches}
    assert counts == {"a": 4 if asked else 3, "b": 1}


def test_what_is_only_observed_passes_and_is_counted() -> None:
    text = rf'["{WORD}", "[\"\{WORD}\"]", 4.111111111111111e15]'
    client = every_way(policy(SECRET, CARD, mode=Mode.OBSERVE), text, asked=False)
    assert content_of(client) == text
    assert {match.rule: match.count for match in client.scanned.matches} == {"secret": 2, "card": 1}


def test_values_that_come_back_are_not_read() -> None:
    table = Pseudonyms({"<PERSON_1_abc>": 'Ann "Zed"\\u005a'})
    text = r'["by <PERSON_1_abc>, \u005aed"] <PERSON_1_abc>'
    client = stream(policy(rule("Zed")), chunk({"content": text}), chunk(finish="stop"), pseudonyms=table)
    assert content_of(client) == rf'["by Ann "Zed"\u005a, {SEEN}"] Ann "Zed"\u005a'


def test_only_what_a_rule_could_want_waits() -> None:
    answer, client = answer_for(policy(SECRET)), Client()
    steps = [
        ('{"no', '{"no'), ('te": "a ', 'te": "a '), (r"\u00", ""), ("6", ""), ("1", r"\u0061"), ("se", ""),
        ("x\\", "sex"), ('n", "n": 4', '\\n", "n": '), ("2", ""), (', "t": tr', '42, "t": tr'), ("ue} `", "ue} `"),
        ("``json", "``json"), ('\n["s', '\n["'), (r"\u0065", ""), ("c", ""), ('x"', r's\u0065cx"'),
    ]  # fmt: skip
    for piece, shown in steps:
        before = client.content
        client.take(answer.feed(event(chunk({"content": piece})), 0.0))
        assert client.content.removeprefix(before) == shown


def test_each_choice_and_each_part_has_json_of_its_own() -> None:
    part = {"type": "text", "index": 0, "text": f'["{WORD}"]'}
    events = [chunk({"content": r'["\u0073ec'}, 0), chunk({"content": "```json\n"}, 1), chunk({"content": [part]}, 2)]
    events += [chunk({"content": 'retword"]'}, 0), chunk({"content": f'"{WORD}"'}, 1)]
    client = stream(POLICY, *events, expected=3)
    assert [client.messages[index]["content"] for index in (0, 1)] == [f'["{SEEN}"]', f'```json\n"{SEEN}"']
    assert client.messages[2]["content"][0]["text"] == f'["{SEEN}"]'


# -- numbers, and JSON within JSON -------------------------------------------------------------------------------------

NUMBERS = {
    "with an exponent": ('{"n": 4.111111111111111e15}', f'{{"n": "{SEEN}"}}'),
    "with a fraction": ("[4111111111111111.0]", f'["{SEEN}"]'),
    "shifted": ("[41111111111111110e-1, 411111111111111.1E1]", f'["{SEEN}", "{SEEN}"]'),
    "not whole": ("[4111111111111111.5, 4.1e3]", "[4111111111111111.5, 4.1e3]"),
    "too large to be exact": ("[4e400, -1e308]", "[4e400, -1e308]"),
    "in a string": (r'{"a": "[1, 4.111111111111111e15, 2]"}', rf'{{"a": "[1, \"{SEEN}\", 2]"}}'),
    "in a string of a string": (r'["[\"[4111111111111111]\"]"]', rf'["[\"[\\\"{SEEN}\\\"]\"]"]'),
}


@pytest.mark.parametrize(("text", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_is_read_as_what_it_is_worth(text: str, expected: str) -> None:
    assert content_of(every_way(POLICY, text)) == expected
    client = stream(POLICY, calls(call(0, "f", text)), chunk(finish="tool_calls"))
    assert client.messages[0]["tool_calls"][0]["function"]["arguments"] == expected


def texts_in(value: Any, deeper: int) -> Iterator[str]:
    """Every string of a JSON value, and of the JSON in it."""
    match value:
        case str():
            yield value
            if deeper:
                try:
                    inner = read(value)
                except ValueError:
                    return
                yield from texts_in(inner, deeper - 1)
        case list() | tuple():
            for item in value:
                yield from texts_in(item, deeper)


def respelled(draw: st.DrawFn, text: str) -> str:
    """JSON with needless escapes in its strings."""
    out, within, after = "", False, False
    for char in text:
        needless = within and not after and char not in '"\\' and draw(st.integers(0, 4)) == 0
        out += f"\\u{ord(char):04x}" if needless else char
        within ^= char == '"' and not after
        after = char == "\\" and not after
    return out


@st.composite
def nested(draw: st.DrawFn, deepest: int = 2) -> str:
    """JSON with JSON in its strings, the word somewhere in them."""
    words = st.sampled_from(["secretword", "secret", 'a"b', "\\", "\n", "[", "{}", "xsecretwordx", "word", "1"])
    texts = st.lists(words, max_size=2).map("".join)
    items: list[Any] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 3))
        item: Any = draw(nested(deepest - 1)) if kind == 0 and deepest else draw(texts) if kind < 3 else 41
        items.append({draw(texts): item} if draw(st.booleans()) else item)
    return respelled(draw, json.dumps(items, ensure_ascii=draw(st.booleans())))


@settings(max_examples=examples(150), deadline=None)
@given(nested(), st.sampled_from([(True, ""), (False, ""), (False, "Here it is:\n```json\n")]))
def test_no_reader_finds_the_word(text: str, form: tuple[bool, str]) -> None:
    """Parse what came out, and the JSON in its strings, twice: the word is in none of them."""
    asked, before = form
    cuts = [[before + text], list(before + text)]
    whole, client = (
        play(policy(SECRET), script(*(chunk({"content": piece}) for piece in cut)), json_content=asked) for cut in cuts
    )
    assert client.content == whole.content and matches_of(client.scanned) == matches_of(whole.scanned)
    shown = client.content.removeprefix(before)
    found = [*texts_in(read(shown), 2)]
    assert not any("secretword" in each for each in found)
    if not any("secretword" in each for each in texts_in(read(text), 2)):
        assert found == [*texts_in(read(text), 2)]
        assert asked or shown == text


@settings(max_examples=examples(200), deadline=None)
@given(documents(["xyz"], whole_word=False), st.sampled_from(["", " \n", "So:\n```json\n", "```\n"]))
def test_strings_are_censored_as_the_oracle_says(case: tuple[Policy, str, list[int]], before: str) -> None:
    """What escapes and structure are spelled with is of another alphabet, so the text as it stands has no match."""
    rules, text, cuts = case
    text = before + f"[{text}]"
    edges = [0, *sorted(cuts), len(text)]
    client = play(rules, script(*(chunk({"content": text[a:b]}) for a, b in pairwise(edges)), chunk(finish="stop")))
    inner = text.removeprefix(before)
    expected = censored(rules, read(inner)) if rules.mode is Mode.ENFORCE else read(inner)
    shown = client.content.removeprefix(before)
    assert read(shown) == expected
    if expected == read(inner):
        assert shown == inner


@settings(max_examples=examples(200), deadline=None)
@given(POLICIES, st.lists(st.sampled_from([*FRAGMENTS, "```", "json", "\n", "`"]), max_size=12).map("".join))
def test_no_cut_can_be_seen(rules: Policy, text: str) -> None:
    every_way(rules, text, asked=False)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from([*FRAGMENTS, "```", "json", "\n", "`"]), max_size=14).map("".join))
def test_what_no_rule_wants_stays(text: str) -> None:
    client = every_way(policy(rule("zq")), text, asked=False)
    assert client.content == text
    assert not matches_of(client.scanned)


@settings(max_examples=examples(200), deadline=None)
@given(
    POLICIES,
    st.sampled_from(["", "a", "So ", "\ud83d", "ab 12 "]),
    st.lists(st.sampled_from([*FRAGMENTS, "```", "json", "\n", "`", "So ", "```json\n["]), max_size=12),
)
def test_a_scanner_of_inner_texts_that_is_made_late_finds_the_same(
    rules: Policy, prose: str, pieces: list[str]
) -> None:
    written = script(*(chunk({"content": piece}) for piece in (prose, *pieces)), chunk(finish="stop"))
    late = play(rules, written)
    with patch.object(ContentReader, "passes", lambda *_: False):
        early = play(rules, written)
    assert late.content == early.content and late.scanned == early.scanned
