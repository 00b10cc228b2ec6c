"""The text parts of one message of a request are one text: words are found across their edges."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.guard.prompt import guard_prompt
from gateway.policy.model import Action, Direction, Mode, Policy, Rule
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support.examples import examples
from tests.support.guard_client import WORD, balanced
from tests.support.oracle_parts import replaced

SEEN = "[R]"
INPUT = frozenset({Direction.INPUT})
Json = dict[str, Any]


def rule(*words: str, **more: Any) -> Rule:
    return Rule(**{"id": words[0], "words": words, "replacement": SEEN, "apply_to": INPUT, **more})


def policy(*rules: Rule, **more: Any) -> Policy:
    return Policy(name="p", rules=rules or (rule(WORD),), **more)


def asked(dialect: Dialect, parts: list[str], kind: str = "text") -> Json:
    kind = {RESPONSES: "input_text"}.get(dialect, kind)
    message = {"role": "user", "content": [{"type": kind, "text": part} for part in parts]}
    return {"model": "m", "input" if dialect is RESPONSES else "messages": [message]}


def texts_of(body: Json) -> list[str]:
    ((message,),) = [each for each in body.values() if isinstance(each, list)]
    return [part["text"] for part in message["content"]]


def shown(body: Json, given: Policy, dialect: Dialect = CHAT) -> Json:
    body = copy.deepcopy(body)
    guarded = guard_prompt(body, compile_policy(given), None, dialect)
    assert guarded.rule is None and guarded.refusal is None and guarded.scanned is not None
    assert balanced(guarded.scanned)
    return body


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES], ids=lambda dialect: dialect.path)
@pytest.mark.parametrize("cut", range(len(WORD) + 1))
def test_a_word_over_two_parts_is_replaced_where_it_begins(dialect: Dialect, cut: int) -> None:
    parts = [f"so {WORD[:cut]}", f"{WORD[cut:]}, no"]
    expected = [["so ", f"{SEEN}, no"], [f"so {SEEN}", ", no"]][cut > 0]
    assert texts_of(shown(asked(dialect, parts), policy(), dialect)) == expected == replaced(parts, [WORD], SEEN)


LETTERS = st.text("ab1", max_size=6)


@given(
    st.lists(LETTERS, min_size=2, max_size=6), st.lists(st.text("ab1", min_size=1, max_size=5), min_size=1, max_size=3)
)
@settings(max_examples=examples(200), deadline=None)
def test_what_comes_out_is_what_a_naive_reading_says(parts: list[str], words: list[str]) -> None:
    assert texts_of(shown(asked(CHAT, parts), policy(*(rule(word) for word in set(words))))) == replaced(
        parts, words, SEEN
    )


EDGES = {
    "an end": (["kick ass", "and go"], [f"kick {SEEN}", "and go"]),
    "a beginning": (["go and", "ass kicks"], ["go and", f"{SEEN} kicks"]),
    "an end behind a beginning": (["x andr", "ass", "y"], ["x andr", SEEN, "y"]),
    "both, over two": (["x as", "s y"], [f"x {SEEN}", " y"]),
    "neither": (["x as", "sume"], ["x as", "sume"]),
    "within": (["class", "ic"], ["class", "ic"]),
}


@pytest.mark.parametrize(("parts", "expected"), EDGES.values(), ids=EDGES)
def test_the_edges_of_parts_are_edges_of_words(parts: list[str], expected: list[str]) -> None:
    rules = policy(rule("ass", whole_word=True), rule("android"))
    assert texts_of(shown(asked(CHAT, parts), rules)) == expected


def test_a_pattern_over_many_parts() -> None:
    rules = policy(Rule(id="n", pattern="[0-9]{4}-[0-9]{4}", replacement=SEEN, apply_to=INPUT))
    parts = ["call 12", "3", "4-", "", "56", "78 now"]
    assert texts_of(shown(asked(CHAT, parts), rules)) == [f"call {SEEN}", "", "", "", "", " now"]


def test_a_mask_and_what_stands_between() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://a.b/c"}}
    body = asked(CHAT, ["a 12MON", "KEYS"])
    body["messages"][0]["content"].insert(1, picture)
    masked = shown(body, policy(rule(WORD, replacement="[REDACTED]", mask="*")))
    assert masked["messages"][0]["content"] == [
        {"type": "text", "text": "a *********"},
        picture,
        {"type": "text", "text": ""},
    ]


def test_a_block_and_a_report_over_parts() -> None:
    found: list[Any] = []
    body = asked(CHAT, ["a 12MON", "KEYS"])
    blocked = guard_prompt(body, compile_policy(policy(rule(WORD, action=Action.BLOCK))), found.append)
    assert blocked.rule is not None and blocked.rule.id == WORD and texts_of(body) == ["a 12MON", "KEYS"]
    assert [(each.offset, each.length) for each in found] == [(2, 9)]
    observed = policy(mode=Mode.OBSERVE)
    assert shown(body, observed) == body


def test_messages_are_texts_of_their_own() -> None:
    body = {"messages": [{"role": "user", "content": "12MON"}, {"role": "user", "content": "KEYS"}]}
    assert shown(body, policy()) == body
    lists = {"messages": [{"role": "user", "content": [{"type": "text", "text": each}]} for each in ("12MON", "KEYS")]}
    assert shown(lists, policy()) == lists


def text(*parts: str, kind: str = "text") -> list[Json]:
    return [{"type": kind, "text": part} for part in parts]


def result(*parts: str) -> list[Json]:
    return [{"role": "user", "content": [{"type": "tool_result", "content": text(*parts)}]}]


def summary(*parts: str) -> list[Json]:
    return [{"type": "reasoning", "summary": text(*parts, kind="summary_text")}]


HALVES = ("12MON", "KEYS")
PLACES: dict[str, tuple[Dialect, Json, Json]] = {
    "strings of content": (
        CHAT,
        {"messages": [{"role": "user", "content": ["12MON", "KEYS"]}]},
        {"messages": [{"role": "user", "content": [SEEN, ""]}]},
    ),
    "an unknown field of a message": (
        CHAT,
        {"messages": [{"role": "user", "content": "x", "zq": {"a": list(WORD)}}]},
        {"messages": [{"role": "user", "content": "x", "zq": {"a": [SEEN, *[""] * 8]}}]},
    ),
    "an unknown field": (CHAT, {"messages": [], "zq": ["12MON", "KEYS"]}, {"messages": [], "zq": [SEEN, ""]}),
    "a list that is known": (CHAT, {"messages": [], "stop": [*HALVES]}, {"messages": [], "stop": [*HALVES]}),
    "the system": (MESSAGES, {"system": text(*HALVES), "messages": []}, {"system": text(SEEN, ""), "messages": []}),
    "a result": (MESSAGES, {"messages": result("12MON", "KEYS")}, {"messages": result(SEEN, "")}),
    "a summary": (RESPONSES, {"input": summary("12MON", "KEYS")}, {"input": summary(SEEN, "")}),
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "body", "expected"), PLACES.values(), ids=PLACES)
def test_texts_that_follow_each_other_in_a_list_are_one(dialect: Dialect, body: Json, expected: Json) -> None:
    assert shown(body, policy(), dialect) == expected


def test_a_pseudonym_over_parts_stands_where_its_value_begins() -> None:
    rules = policy(Rule(id="mail", detector="email", action=Action.PSEUDONYMIZE, apply_to=INPUT), rule(WORD))
    body = asked(CHAT, ["a 12MON", "KEYS, write to jo", "e@example.org and", " 12MONKEYS"])
    guarded = guard_prompt(body, compile_policy(rules))
    assert guarded.pseudonyms is not None
    ((placeholder, value),) = guarded.pseudonyms.values.items()
    assert value == "joe@example.org"
    assert texts_of(body) == [f"a {SEEN}", f", write to {placeholder}", " and", f" {SEEN}"]


def test_the_order_of_many_changes_is_kept() -> None:
    parts = ["12MON", *["KEYS and 12MON"] * 1500, "KEYS"]
    out = texts_of(shown(asked(CHAT, parts), policy()))
    assert WORD not in "".join(out) and "".join(out).count(SEEN) == 1501
    assert json.dumps(out[:1000]) == json.dumps([SEEN, *[f" and {SEEN}"] * 999])
