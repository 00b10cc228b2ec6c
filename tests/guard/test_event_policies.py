"""Typed events under policies with more than words: constraints, pseudonyms, channels, bounds on what is held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.answer import StreamAnswer
from gateway.guard.open import open_guard
from gateway.guard.pseudonyms import Pseudonyms
from gateway.policy.model import Channel, Constrain, Language, Policy
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from tests.support import message_streams, response_streams
from tests.support.event_client import Received, anthropic_message, openai_response, plain, play, script, stream
from tests.support.guard_client import MAX_EVENT, MAX_WHOLE, WORD, policy, rule

SEEN = "[REDACTED]"
VALUES = Pseudonyms({"<NAME_1_abcdefgh>": "Voldemort"})


def restored(dialect: Dialect, *events: dict[str, Any]) -> Received:
    guard = open_guard(dialect, compile_policy(policy()), 1, ("mz",), pseudonyms=VALUES)
    answer, client = StreamAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE, dialect=dialect), Received()
    client.take(answer.feed(script(events), 0.0))
    client.take(answer.close(1.0))
    return client


def test_values_come_back_in_their_places() -> None:
    text = list("hi <NAME_1_abcdefgh>, <NAME_1_x")
    items = [response_streams.message(*text), response_streams.function_call(*json.dumps({"a": "".join(text)}))]
    message, call = openai_response(restored(RESPONSES, *response_streams.events(*items)))["output"]
    assert message["content"][0]["text"] == json.loads(call["arguments"])["a"] == "hi Voldemort, <NAME_1_x"
    blocks = [message_streams.text(*text), message_streams.thinking(*text)]
    said, thought = anthropic_message(restored(MESSAGES, *message_streams.events(*blocks)))["content"]
    assert said["text"] == thought["thinking"] == "hi Voldemort, <NAME_1_x"
    assert thought["signature"] == ""  # it is not what the model wrote


CONSTRAINED = Policy(name="p", rules=(), constrain=Constrain(language=Language.REGEX, texts=("[a-z]+!",)))


@pytest.mark.parametrize(
    ("text", "shown", "ends"),
    [("abc!", "abc!", "completed"), ("abc?d", "abc", "incomplete"), ("abc", "abc", "incomplete")],
)
def test_content_keeps_to_the_language_of_a_constraint(text: str, shown: str, ends: str) -> None:
    client = play(CONSTRAINED, RESPONSES, script(response_streams.events(response_streams.message(*text))))
    last = openai_response(client)
    assert (last["output"][0]["content"][0]["text"], last["status"]) == (shown, ends)
    client = play(CONSTRAINED, MESSAGES, script(message_streams.events(message_streams.text(*text))))
    message = anthropic_message(client)
    reason = "end_turn" if ends == "completed" else "refusal"
    assert (message["content"][0]["text"], message["stop_reason"]) == (shown, reason)
    whole, _ = plain(
        CONSTRAINED, RESPONSES, json.dumps(response_streams.response(response_streams.message(text).done)).encode()
    )
    assert whole["status"] == ends


def test_a_call_of_a_tool_leaves_the_language() -> None:
    client = play(CONSTRAINED, RESPONSES, script(response_streams.events(response_streams.function_call("{}"))))
    assert openai_response(client)["status"] == "incomplete"
    client = play(CONSTRAINED, MESSAGES, script(message_streams.events(message_streams.tool_use("{}"))))
    assert anthropic_message(client)["stop_reason"] == "refusal"


def test_a_rule_looks_at_its_channels_only() -> None:
    only = policy(rule(channels=frozenset({Channel.REASONING})))
    items = [response_streams.message(WORD), response_streams.reasoning(WORD)]
    message, reasoning = openai_response(stream(only, RESPONSES, response_streams.events(*items)))["output"]
    assert message["content"][0]["text"] == WORD and reasoning["content"][0]["text"] == SEEN


def test_an_answer_that_nobody_reads_on_is_counted_once() -> None:
    for dialect, sent in (
        (RESPONSES, response_streams.events(response_streams.message("a 12MON"))[:5]),
        (MESSAGES, message_streams.events(message_streams.text("a 12MON"))[:4]),
    ):
        guard = open_guard(dialect, compile_policy(policy()), 1, ("mz",))
        answer, client = StreamAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE, dialect=dialect), Received()
        client.take(answer.feed(script(sent), 0.0))
        client.take(answer.cancel())
        assert client.forwarded("content") == (7, 2) and client.stopped
