"""The fields beside a request's messages: every text in them is censored, and what the protocol fixes stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.prompt import GuardedPrompt, guard_prompt
from gateway.policy.model import Action, Channel, Direction, Mode, Policy, Rule
from gateway.wire import json as wire
from tests.support.guard_client import WORD, balanced, policy, rule
from tests.support.prompts import request_with

SEEN = "[REDACTED]"
INPUT = frozenset({Direction.INPUT})
REDACT = policy(rule(apply_to=INPUT))


def guarded(policy: Policy, **fields: Any) -> tuple[dict[str, Any], GuardedPrompt]:
    """The fields as they are forwarded."""
    body = {"model": WORD, "messages": [{"role": "user", "content": "hi"}], **json.loads(json.dumps(fields))}
    prompt = guard_prompt(body, compile_policy(policy))
    assert prompt.scanned is not None and balanced(prompt.scanned)
    assert body.pop("model") == WORD
    del body["messages"]
    return body, prompt


def test_every_text_is_censored() -> None:
    fields, _ = guarded(REDACT, **request_with(WORD))
    assert fields == request_with(SEEN)
    assert json.dumps(fields) == json.dumps(request_with(SEEN))  # names stay in their order


def test_observed_fields_are_counted_and_stay() -> None:
    given = request_with(WORD)
    fields, prompt = guarded(policy(rule(apply_to=INPUT, action=Action.BLOCK), mode=Mode.OBSERVE), **given)
    assert fields == given and prompt.rule is None and prompt.scanned is not None
    assert sum(count.count for count in prompt.scanned.matches) == json.dumps(given).count(WORD)


@pytest.mark.parametrize("field", sorted(request_with(WORD).keys() - {"stream_options"}))
def test_each_field_can_block_and_be_flagged(field: str) -> None:
    given = request_with(WORD)[field]
    assert guarded(policy(rule(apply_to=INPUT, action=Action.BLOCK)), **{field: given})[1].rule is not None
    fields, prompt = guarded(policy(rule(apply_to=INPUT, action=Action.FLAG)), **{field: given})
    assert fields == {field: given}
    assert prompt.scanned is not None and prompt.scanned.matches


def test_values_get_placeholders_and_one_value_the_same_everywhere() -> None:
    fields, prompt = guarded(policy(rule(id="w", action=Action.PSEUDONYMIZE)), **request_with(WORD))
    assert prompt.pseudonyms is not None
    ((placeholder, value),) = prompt.pseudonyms.values.items()
    assert value == WORD
    assert fields == request_with(placeholder)


def test_what_the_protocol_fixes_is_no_text() -> None:
    fixed = {
        "tools": [{"type": "function", "function": {"description": "a", "parameters": {"type": "object"}}}],
        "tool_choice": "auto",
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "modalities": ["text"],
        "logit_bias": {"50256": -100, "12": 1.5},
        "temperature": 0.12,
        "seed": 12,
        "stream": True,
        "n": 2,
        "stop_token_ids": [12],
        "service_tier": "default",
    }
    words = ("function", "description", "object", "auto", "low", "text", "12", "50256", "default", "seed", "tools")
    fields, prompt = guarded(policy(rule(*words, apply_to=INPUT)), **fixed)
    assert fields == fixed
    assert prompt.scanned is not None and not prompt.scanned.matches


def test_words_of_the_protocol_are_text_elsewhere() -> None:
    given = {"user": "auto", "metadata": {"note": "object"}, "documents": ["text"], "tools": [{"type": "auto12"}]}
    fields, _ = guarded(policy(rule("auto", "object", "text", "12", apply_to=INPUT)), **given)
    assert fields == {
        "user": SEEN,
        "metadata": {"note": SEEN},
        "documents": [SEEN],
        "tools": [{"type": SEEN + SEEN}],
    }


@pytest.mark.parametrize("bias", [{WORD: 1}, {"4111111111111111": 1}, {"12": WORD}, [WORD]])
def test_a_logit_bias_that_is_none_is_text(bias: Any) -> None:
    fields, _ = guarded(policy(rule(WORD, "4111111111111111", apply_to=INPUT)), logit_bias=bias)
    assert SEEN in json.dumps(fields)


def test_channels_are_other_and_tool_names() -> None:
    def channels(channel: Channel) -> str:
        return json.dumps(guarded(policy(rule(apply_to=INPUT, channels=frozenset({channel}))), **request_with(WORD))[0])

    assert not any(SEEN in channels(channel) for channel in set(Channel) - {Channel.OTHER, Channel.TOOL_NAMES})
    names = json.loads(channels(Channel.TOOL_NAMES))
    assert names["tools"][0]["function"]["name"] == SEEN and names["functions"][0]["name"] == SEEN
    assert names["tool_choice"]["function"]["name"] == SEEN
    assert json.dumps(names).count(SEEN) == 3
    assert json.loads(channels(Channel.OTHER))["tools"][0]["function"]["name"] == WORD


@pytest.mark.parametrize("name", ["chat_template", "messages", "Tools"])
def test_no_field_becomes_another_by_what_a_rule_takes_out(name: str) -> None:
    taken_out = policy(rule(apply_to=INPUT, replacement=""))
    for fields in ({WORD + name: "x"}, {"metadata": {name + WORD: "x"}}):
        fields, prompt = guarded(taken_out, **fields)
        assert prompt.refusal is not None and WORD not in str(prompt.refusal)
    message = {"messages": [{"content": "a", f"{WORD}content": "b"}]}
    assert guard_prompt(message, compile_policy(taken_out)).refusal is not None


def test_depth_is_no_matter() -> None:
    depth = 900  # the decoder takes hardly more
    body: Any = wire.decode('{"messages":[],"x":' + "[" * depth + f'"{WORD}"' + "]" * depth + "}")
    guard_prompt(body, compile_policy(REDACT))
    assert wire.encode(body).decode() == '{"messages":[],"x":' + "[" * depth + f'"{SEEN}"' + "]" * depth + "}"


def test_too_many_values_name_no_field_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.guard.pseudonyms.MAX_PLACEHOLDERS", 2)
    number = policy(Rule(id="n", pattern="[0-9]", action=Action.PSEUDONYMIZE))
    _, prompt = guarded(number, metadata={"a": "1 2", "b": "3"})
    assert prompt.refusal is not None and prompt.refusal.param is None and prompt.pseudonyms is None
    assert prompt.scanned is not None and sum(count.count for count in prompt.scanned.matches) == 3
