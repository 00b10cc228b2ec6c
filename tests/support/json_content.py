"""Answers in JSON: policies, documents, and each way in which an answer may come."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from gateway.observe.facts import TextScanned
from gateway.policy.model import Action, Overflow, Policy, Rule
from tests.support.guard_client import (
    Client,
    chunk,
    completion,
    plain,
    play,
    policy,
    rule,
    script,
)
from tests.support.oracle import Oracle
from tests.support.random_policies import ALPHABETS, policies

SECRET = rule("secretword", id="secret")
CARD = Rule(id="card", detector="credit_card")
POLICY = policy(SECRET, CARD)
BLOCKING = policy(rule("secretword", action=Action.BLOCK, message="Not shown."))
SEEN = "[REDACTED]"


def content_of(client: Client) -> Any:
    return client.messages.get(0, {}).get("content")


def shown_by(client: Client) -> Any:
    return {**client.messages.get(0, {}), "content": client.content}, client.finish


def matches_of(scanned: TextScanned) -> dict[tuple[str, Action], int]:
    return {(match.rule, match.action): match.count for match in scanned.matches}


def every_way(rules: Policy, text: str, *, asked: bool = True) -> Client:
    """The text as content, `asked` for as JSON or not: whole, character by character, cut in two anywhere; as a stream
    and plain. Neither what comes out nor what is counted differs."""
    whole = play(rules, script(chunk({"content": text}), chunk(finish="stop")), json_content=asked)
    cuts = [list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]
    for cut in cuts:
        client = play(
            rules, script(*(chunk({"content": piece}) for piece in cut), chunk(finish="stop")), json_content=asked
        )
        assert shown_by(client) == shown_by(whole)
        assert matches_of(client.scanned) == matches_of(whole.scanned)
    body, scanned = plain(rules, json.dumps(completion({"content": text})).encode(), json_content=asked)
    assert matches_of(scanned) == matches_of(whole.scanned)
    (choice,) = body["choices"]
    assert (choice["message"].get("content") or None, choice["finish_reason"]) == (
        content_of(whole) or None,
        whole.finish[0],
    )
    assert choice["message"].get("refusal") == whole.messages[0].get("refusal")
    return whole


class Number(str):
    """A number as it is written."""


def read(text: str) -> Any:
    """The value, with the members of objects in their order, also where two have one name."""
    return json.loads(text, object_pairs_hook=tuple, parse_int=Number, parse_float=Number)


def censored(rules: Policy, value: Any) -> Any:
    """Every string and number by the naive censor, one by one."""
    match value:
        case str():
            shown = Oracle(rules).whole(value)[0]
            return value if shown == value else shown
        case list() | tuple():
            return type(value)(censored(rules, item) for item in value)
        case _:
            return value


@cache
def values(alphabet: str) -> st.SearchStrategy[Any]:
    words = st.text(alphabet, max_size=6)
    return st.recursive(
        words | st.integers(-200, 200) | st.floats(-2, 2).map(lambda number: round(number, 2)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=7,
    )


def spelled(draw: st.DrawFn, text: str, alphabet: str) -> str:
    """The same JSON, with escapes that it does not need."""
    out, within, after = "", False, False
    for char in text:
        needless = within and not after and char in alphabet and draw(st.booleans())
        out += f"\\u{ord(char):04x}" if needless else char
        within ^= char == '"' and not after
        after = char == "\\" and not after
    return out


@st.composite
def documents(draw: st.DrawFn, alphabets: list[str], **given: Any) -> tuple[Policy, str, list[int]]:
    """A policy that does not block, and JSON; `given` of each rule is so."""
    alphabet = draw(st.sampled_from(alphabets))
    rules = draw(policies(alphabet).filter(lambda drawn: drawn.rules))
    overflow = Overflow.REDACT if rules.on_overflow is Overflow.BLOCK else rules.on_overflow
    harmless = [
        replace(each, **given, action=Action.REDACT if each.action is Action.BLOCK else each.action)
        for each in rules.rules
    ]
    rules = replace(rules, rules=tuple(harmless), on_overflow=overflow)
    text = json.dumps(draw(values(alphabet)), ensure_ascii=False)
    return rules, spelled(draw, text, alphabet), draw(st.lists(st.integers(0, len(text)), max_size=5))


FRAGMENTS = [
    '{"',
    '":',
    "}",
    "[",
    "]",
    ",",
    '"',
    "\\",
    "\\u0061",
    "\\x62",
    "a",
    "b",
    "ab",
    "1",
    "12",
    " ",
    "null",
    "'",
    '\\"',
]
POLICIES = st.sampled_from(ALPHABETS).flatmap(policies).filter(lambda drawn: drawn.rules)
