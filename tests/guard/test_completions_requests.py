"""What clients of /v1/completions send: prompts censored, and refused where they are no text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.guard.chat import MAX_CHOICES
from gateway.guard.prompt import (
    BadRequest,
    ChatRequest,
    GuardedPrompt,
    apply_request_table,
    guard_prompt,
    read_request,
)
from gateway.policy.model import Action, Channel, Direction, Mode, Policy, Rule
from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from tests.support.guard_client import WORD, balanced, policy, rule
from tests.support.prompts import request_with

SEEN = "[REDACTED]"
INPUT = frozenset({Direction.INPUT})
REDACT = policy(rule(apply_to=INPUT))
IDS: list[Any] = [[1, 2], [[1], [2, 3]], [[]]]


def guarded(policy: Policy, **fields: Any) -> tuple[dict[str, Any], GuardedPrompt]:
    """The fields as they are forwarded."""
    body = {"model": WORD, **json.loads(json.dumps(fields))}
    found = guard_prompt(body, compile_policy(policy), dialect=COMPLETIONS)
    assert found.scanned is not None and balanced(found.scanned)
    assert body.pop("model") == WORD
    return body, found


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (f"a {WORD} b", f"a {SEEN} b"),
        ([WORD, "a", f"{WORD}!"], [SEEN, "a", f"{SEEN}!"]),
        (["12MON", "KEYS"], ["12MON", "KEYS"]),
        ("", ""),
        (None, None),
    ],
)
def test_every_prompt_is_a_text_of_its_own(given: Any, seen: Any) -> None:
    fields, found = guarded(REDACT, prompt=given)
    assert fields == {"prompt": seen} and found.scanned is not None
    counts = {count.channel: count for count in found.scanned.channels}
    assert counts.keys() <= {Channel.CONTENT}
    if given:
        assert counts[Channel.CONTENT].scanned == len("".join(given))


def test_a_prompt_is_content_and_everything_else_is_not() -> None:
    given = {"prompt": WORD, "suffix": WORD, "user": WORD, "stop": [WORD]}
    content = policy(rule(apply_to=INPUT, channels=frozenset({Channel.CONTENT})))
    assert guarded(content, **given)[0] == {**given, "prompt": SEEN}
    other = policy(rule(apply_to=INPUT, channels=frozenset({Channel.OTHER})))
    assert guarded(other, **given)[0] == {"prompt": WORD, "suffix": SEEN, "user": SEEN, "stop": [SEEN]}


def test_every_field_beside_the_prompt_is_censored() -> None:
    def given(text: str) -> dict[str, Any]:
        # What belongs to a chat is a field like any other here.
        chats = {"messages": [{"role": "x", "content": text}], "prediction": {"content": text}}
        return {"prompt": "a", "suffix": text, **chats, **request_with(text)}

    fields, _ = guarded(REDACT, **given(WORD))
    assert fields == given(SEEN)


def test_the_protocols_own_names_are_no_text() -> None:
    given = {"prompt": "a", "suffix": "b", "best_of": 2, "echo": True, "use_beam_search": False, "logprobs": 12}
    fields, found = guarded(policy(rule("prompt", "suffix", "best_of", "echo", "use_beam_search", "12",
                                        apply_to=INPUT)), **given)  # fmt: skip
    assert fields == given and found.scanned is not None and not found.scanned.matches


@pytest.mark.parametrize("prompt", [WORD, ["a", WORD]])
def test_a_prompt_can_block(prompt: Any) -> None:
    fields, found = guarded(policy(rule(action=Action.BLOCK, apply_to=INPUT)), prompt=prompt)
    assert found.rule is not None and found.rule.id == "r" and fields == {"prompt": prompt}
    assert found.scanned is not None and found.scanned.blocked_by == "r"
    assert guarded(policy(rule(action=Action.BLOCK, apply_to=INPUT)), prompt="a", suffix=WORD)[1].rule is not None


def test_an_observed_prompt_is_not_changed() -> None:
    observed = policy(rule(action=Action.BLOCK, apply_to=INPUT), mode=Mode.OBSERVE)
    fields, found = guarded(observed, prompt=[WORD, "a"])
    assert fields == {"prompt": [WORD, "a"]} and found.rule is None
    assert found.scanned is not None and found.scanned.matches[0].count == 1


def test_one_value_has_one_placeholder_in_all_prompts() -> None:
    fields, found = guarded(policy(rule(action=Action.PSEUDONYMIZE)), prompt=[f"a {WORD}", WORD], suffix=WORD)
    assert found.pseudonyms is not None
    ((placeholder, given),) = found.pseudonyms.values.items()
    assert given == WORD and fields == {"prompt": [f"a {placeholder}", placeholder], "suffix": placeholder}


def test_too_many_values_in_a_prompt_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.guard.pseudonyms.MAX_PLACEHOLDERS", 2)
    _, found = guarded(policy(Rule(id="n", pattern="[0-9]", action=Action.PSEUDONYMIZE)), prompt="1 2 3")
    assert found.refusal is not None and found.refusal.param == "prompt" and found.pseudonyms is None


@pytest.mark.parametrize("name", ["prompt", "suffix", "prompt_embeds"])
def test_no_field_becomes_a_prompt_by_what_a_rule_takes_out(name: str) -> None:
    _, found = guarded(policy(rule(apply_to=INPUT, replacement="")), prompt="a", **{WORD + name: "x"})
    assert found.refusal is not None and WORD not in str(found.refusal)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_is_read_of_a_request() -> None:
    good = {"model": "m", "prompt": "a"}
    assert read_request(good, COMPLETIONS) == ChatRequest("m", False, 1, COMPLETIONS)
    several = {**good, "prompt": ["a", "b"], "n": 3, "best_of": 5, "stream": True}
    assert read_request(several, COMPLETIONS) == ChatRequest("m", True, 6, COMPLETIONS)
    assert read_request({"model": "m"}, COMPLETIONS).choices == 1
    assert [read_request({**good, "prompt": ids, "n": 2}, COMPLETIONS).choices for ids in IDS] == [2, 4, 2]
    assert read_request({"model": "m", "messages": [{}]}, CHAT).dialect is CHAT
    with pytest.raises(BadRequest):
        read_request([good], COMPLETIONS)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": {"a": "b"}}, "prompt"),
        ({"prompt": ["a", 5]}, "prompt"),
        ({"prompt": [["a"]]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [1, 1.5]}, "prompt"),
        ({"prompt": ["a"] * (MAX_CHOICES + 1)}, "prompt"),
        ({"prompt": ["a"] * (MAX_CHOICES // 2 + 1), "n": 2}, "prompt"),
        ({"prompt": [[]] * (MAX_CHOICES + 1)}, "prompt"),
        ({"stream": "yes"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": MAX_CHOICES + 1}, "n"),
        ({"Prompt": "b"}, "prompt"),
        ({"PROMPT_EMBEDS": "b"}, "prompt_embeds"),
        ({"Vllm_Xargs": {}}, "vllm_xargs"),
        ({"N": 1}, "n"),
    ],
)
def test_bad_fields_are_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_request({"model": "m", "prompt": "a", **change}, COMPLETIONS)
    assert caught.value.param == param and f"`{param}`" in str(caught.value)


def test_the_most_answers_are_taken() -> None:
    assert read_request({"model": "m", "prompt": ["a"] * 64, "n": 2}, COMPLETIONS).choices == MAX_CHOICES


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("rules", [rule(), rule(apply_to=INPUT), rule(action=Action.FLAG)])
def test_token_ids_are_refused_where_a_policy_enforces(ids: Any, rules: Rule) -> None:
    with pytest.raises(BadRequest) as caught:
        apply_request_table({"prompt": ids}, compile_policy(policy(rules)), COMPLETIONS)
    assert caught.value.param == "prompt" and "token ids cannot be scanned. Send the text itself." in str(caught.value)


@pytest.mark.parametrize("ids", IDS)
def test_token_ids_pass_where_nothing_is_enforced(ids: Any) -> None:
    for free in (Policy(name="p"), policy(rule(apply_to=INPUT), mode=Mode.OBSERVE)):
        body = {"prompt": ids, "prompt_embeds": "x", "return_token_ids": True}
        apply_request_table(body, compile_policy(free), COMPLETIONS)
        guard_prompt(body, compile_policy(free), dialect=COMPLETIONS)
        assert body == {"prompt": ids, "prompt_embeds": "x", "return_token_ids": True}


@pytest.mark.parametrize("field", ["prompt_embeds", "vllm_xargs", "chat_template"])
def test_fields_that_lead_past_the_censor_are_refused(field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        apply_request_table({"prompt": "a", field: "x"}, compile_policy(policy()), COMPLETIONS)
    assert caught.value.param == field
    apply_request_table({"prompt": "a", field: None}, compile_policy(policy()), COMPLETIONS)


def test_fields_that_lead_past_the_censor_are_taken_out() -> None:
    past = {"return_token_ids": True, "return_tokens_as_token_ids": True, "prompt_logprobs": 1, "kv_transfer_params": 1}
    body = {"prompt": ["a"], "echo": True, "logprobs": 1, **past}
    apply_request_table(body, compile_policy(policy()), COMPLETIONS)
    assert body == {"prompt": ["a"], "echo": True, "logprobs": 1}


def test_a_chat_may_have_a_field_of_that_name() -> None:
    body = {"model": "m", "messages": [{"content": "a"}], "prompt": [WORD, 1], "prompt_embeds": WORD}
    assert read_request(body, CHAT).dialect is CHAT
    apply_request_table(body, compile_policy(policy()))
    guard_prompt(body, compile_policy(REDACT))
    assert body["prompt"] == [SEEN, 1] and body["prompt_embeds"] == SEEN
