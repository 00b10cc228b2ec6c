"""Answers of any shape, made of the pieces of a word: it never comes out, nothing breaks, the books are balanced."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.guard.answer import BrokenAnswer
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Policy
from tests.support.examples import examples
from tests.support.guard_client import OBSERVE, plain, play, script
from tests.support.random_answers import (
    POLICIES,
    chunk,
    whole,
)


def arguments_in(messages: Iterable[Any]) -> Iterator[str]:
    """The arguments of all calls, decoded where they are JSON. Strings elsewhere are no JSON to anybody."""
    for message in messages:
        if not isinstance(message, dict):
            continue
        called = message.get("tool_calls")
        entries = [entry for entry in called if isinstance(entry, dict)] if isinstance(called, list) else []
        for function in (message.get("function_call"), *(entry.get("function") for entry in entries)):
            if isinstance(function, dict) and "arguments" in function:
                with contextlib.suppress(TypeError, ValueError):
                    yield json.dumps(json.loads(function["arguments"]))


def check(policy: Policy, data: bytes) -> None:
    word = policy.rules[0].words[0]
    client = play(policy, data)
    assert not any(isinstance(fact, GuardFailed) for fact in client.facts)
    assert word not in client.text + "".join(arguments_in(client.messages.values()))
    try:
        body, _ = plain(policy, data)
    except BrokenAnswer as error:
        assert word not in str(error.failure)
    else:
        assert word not in json.dumps(body) + "".join(arguments_in(choice["message"] for choice in body["choices"]))
    observed = play(OBSERVE, data)
    assert not any(isinstance(fact, GuardFailed) for fact in observed.facts)


@settings(max_examples=examples(250), deadline=None)
@given(st.sampled_from(POLICIES), st.lists(chunk, max_size=6))
def test_a_stream_of_any_shape(policy: Policy, chunks: list[Any]) -> None:
    check(policy, script(*chunks))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(POLICIES), whole)
def test_a_whole_answer_of_any_shape(policy: Policy, answer: Any) -> None:
    check(policy, json.dumps(answer).encode())
