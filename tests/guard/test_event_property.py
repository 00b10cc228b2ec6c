"""Random texts in random places of a response or message, cut at random and interleaved, against the oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.policy.model import Policy
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support import message_streams, response_streams
from tests.support.event_client import anthropic_message, openai_response, plain, play, script
from tests.support.examples import examples
from tests.support.oracle import Oracle
from tests.support.random_policies import ALPHABETS, blocks, cut, policies


def slow(dialect: Dialect) -> Dialect:
    """The dialect without the fast path of its deltas."""
    assert dialect.events is not None
    return replace(dialect, events=replace(dialect.events, read_delta=lambda _: None))


SLOW_RESPONSES, SLOW_MESSAGES = slow(RESPONSES), slow(MESSAGES)
Drawn = tuple[Policy, list[tuple[int, list[str]]], bool, list[int]]


@cache
def texts_of(alphabet: str, kinds: int) -> st.SearchStrategy[list[tuple[int, str, list[int]]]]:
    cuts = st.lists(st.integers(0, 40), max_size=4)
    texts = st.tuples(st.integers(0, kinds - 1), st.text(alphabet, max_size=12), cuts)
    return st.lists(texts, min_size=1, max_size=3)


@st.composite
def answers(draw: st.DrawFn, kinds: int) -> Drawn:
    """A policy, the kind of each item with its text in pieces, whether they are interleaved, and cuts of the bytes."""
    alphabet = draw(st.sampled_from(ALPHABETS))
    policy = draw(policies(alphabet).filter(lambda each: not blocks(each)))
    items = []
    for kind, text, cuts in draw(texts_of(alphabet, kinds)):
        written = json.dumps({"zq": text}, ensure_ascii=draw(st.booleans())) if kind == 0 else text
        items.append((kind, cut(written, cuts)))
    return policy, items, draw(st.booleans()), draw(st.lists(st.integers(0, 4000), max_size=5))


def said(kind: int, pieces: list[str]) -> str:
    text = "".join(pieces)
    return str(json.loads(text)["zq"]) if kind == 0 else text


_ITEMS = (
    response_streams.function_call,
    response_streams.message,
    response_streams.refusal,
    response_streams.reasoning,
    response_streams.summary,
    response_streams.custom_call,
    response_streams.code_call,
)


def text_of(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(json.loads(item["arguments"])["zq"])
    parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
    texts = [part.get("text", part.get("refusal")) for part in parts]
    return "".join(texts) if texts else str(item.get("input", item.get("code")))


@settings(max_examples=examples(150))
@given(answers(len(_ITEMS)))
def test_responses(drawn: Drawn) -> None:
    policy, items, interleaved, cuts = drawn
    made = [_ITEMS[kind](*pieces) for kind, pieces in items]
    for number, item in enumerate(made):
        for each in (item.begun, item.done):  # of letters that no alphabet has
            each |= {"id": "q" * (number + 1), "call_id": "z" * (number + 1)}
    expected = [Oracle(policy).whole(said(kind, pieces))[0] for kind, pieces in items]
    data = script(response_streams.events(*made, interleaved=interleaved))
    client = play(policy, RESPONSES, *cut(data, cuts))
    assert client.events == play(policy, SLOW_RESPONSES, data).events
    last = openai_response(client)
    assert [text_of(item) for item in last["output"]] == expected
    assert plain(policy, RESPONSES, data)[0]["output"] == last["output"]
    whole = response_streams.response(*(item.done for item in made))
    assert [text_of(item) for item in plain(policy, RESPONSES, json.dumps(whole).encode())[0]["output"]] == expected


TEXT = 1
_BLOCKS = (message_streams.tool_use, message_streams.text, message_streams.thinking)


@settings(max_examples=examples(150))
@given(answers(len(_BLOCKS)))
def test_messages(drawn: Drawn) -> None:
    policy, items, interleaved, cuts = drawn
    made = [_BLOCKS[kind](*pieces) for kind, pieces in items]
    expected = [Oracle(policy).whole(said(kind, pieces))[0] for kind, pieces in items]
    # Texts of one message are one text, of which test_parts_events has the property: here nothing is found in several.
    texts_said = ["".join(pieces) for kind, pieces in items if kind == TEXT]
    if len(texts_said) > 1:
        assume(not interleaved)
        assume(not any(Oracle(policy).history(text)[0] for text in ("".join(texts_said), *texts_said)))
    data = script(message_streams.events(*made, interleaved=interleaved))
    client = play(policy, MESSAGES, *cut(data, cuts))
    assert client.events == play(policy, SLOW_MESSAGES, data).events
    message = anthropic_message(client)

    def texts(blocks: list[dict[str, Any]]) -> list[str]:
        return [
            block["input"]["zq"] if "input" in block else block.get("text", block.get("thinking")) for block in blocks
        ]

    assert texts(message["content"]) == expected
    assert texts(plain(policy, MESSAGES, data)[0]["content"]) == expected
