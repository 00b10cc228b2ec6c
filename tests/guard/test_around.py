"""What servers add around the texts: usage, the results of Azure's filter, vLLM's extras, calls in the wrong place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.policy.model import Policy
from tests.support.guard_client import (
    BLOCK,
    DROP,
    HEAD,
    REFUSE,
    WORD,
    Client,
    chunk,
    completion,
    plain,
    policy,
    rule,
    script,
    stream,
)

SEEN = "[REDACTED]"


def used(count: int) -> dict[str, int]:
    return {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count}


def usages(client: Client) -> list[Any]:
    return [value["usage"] for value in client.events if value.get("usage")]


# -- usage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [policy(), DROP, REFUSE])
def test_the_usage_of_every_chunk_is_passed_on(rules: Policy) -> None:
    deltas = ["a ", "12", "MON", "KEYS", " b 12M"]
    values = [chunk({"content": text}, usage=used(at)) for at, text in enumerate(deltas)]
    ends = [chunk(finish="stop", usage=used(5)), {**HEAD, "choices": [], "usage": used(6)}]
    client = stream(rules, *values, *ends)
    assert client.content == f"a {SEEN} b 12M" and usages(client) == [used(at) for at in range(7)]
    calls = [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    called = stream(rules, chunk({"tool_calls": calls}, usage=used(1)), chunk(finish="tool_calls", usage=used(2)))
    assert usages(called) == [used(1), used(2)]


def test_the_usage_of_the_chunk_that_blocks_is_passed_on() -> None:
    for texts in (["a ", WORD], ["a ", "12MON", "KEYS"], [f"a {WORD} b"]):
        values = [chunk({"content": text}, usage=used(at)) for at, text in enumerate(texts)]
        client = stream(BLOCK, *values, done=False)
        assert client.content == "a Not shown." and usages(client) == [used(at) for at in range(len(texts))]
        assert client.events[-1]["usage"] == used(len(texts) - 1)
    other = stream(BLOCK, chunk({"content": WORD}, usage=None), chunk({"content": "b"}, 1, usage=None), expected=2)
    assert usages(other) == [] and other.finish == {0: "content_filter"}
    label = stream(BLOCK, {**chunk({"content": "a"}, usage=used(1)), "id": WORD}, done=False)
    assert usages(label) == [used(1)] and label.finish == {0: "content_filter"}
    body, _ = plain(BLOCK, script(chunk({"content": "a"}, usage=used(1)), chunk({"content": WORD}, usage=used(2))))
    assert body["usage"] == used(2)


# -- servers' fields ---------------------------------------------------------------------------------------------------

_RESULTS = {
    "hate": {"filtered": False, "severity": "safe"},
    "custom_blocklists": {"filtered": False, "details": [{"id": "list", "filtered": True}]},
    "protected_material_code": {"detected": True, "citation": {"URL": "https://a.b", "license": "MIT"}},
}


def azure(content: str, results: Any = _RESULTS) -> list[dict[str, Any]]:
    """A stream as Azure writes it: the prompt's results first, the answer's beside and behind the text."""
    first = {**HEAD, "choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": results}]}
    said, later, end = chunk({"content": content}), chunk(), chunk(finish="stop")
    said["choices"][0]["content_filter_results"] = {}
    later["choices"][0] |= {
        "content_filter_results": results,
        "content_filter_offsets": {"check_offset": 4, "start_offset": 4, "end_offset": 44},
    }
    return [first, said, later, end]


@pytest.mark.parametrize("rules", [policy(), DROP, REFUSE, policy(rule(WORD, "hate", "filtered", "citation"))])
def test_results_of_azures_filter_are_passed_on(rules: Policy) -> None:
    values = azure(f"a {WORD} b")
    client = stream(rules, *values)
    assert client.content == f"a {SEEN} b" and not client.errors and client.scanned.unknown_events == 0
    assert client.events[0] == values[0]
    assert [value["choices"][0].get("content_filter_results") for value in client.events[1:3]] == [{}, _RESULTS]
    assert "content_filter_offsets" not in client.text
    whole = completion({"content": "a"}, prompt_filter_results=values[0]["prompt_filter_results"])
    whole["choices"][0]["content_filter_results"] = _RESULTS
    assert plain(rules, json.dumps(whole).encode())[0] == whole


def test_texts_in_them_are_scanned() -> None:
    client = stream(policy(), *azure("a", {"error": {"message": WORD}, WORD: {"citation": {"URL": f"https://{WORD}"}}}))
    assert WORD not in client.text and client.text.count(SEEN) >= 3
    numbers = stream(policy(), *azure("a", {"details": list(WORD.encode())}))
    assert "75, 69" not in json.dumps(numbers.events)


def test_what_vllm_adds_to_a_choice() -> None:
    extras = {"stop_reason": 128009, "token_ids": [1], "routed_experts": [[1]], "prompt_token_ids": [2]}
    for rules in (policy(), DROP, REFUSE):
        value = chunk({"content": "a", "reasoning": "b", "reasoning_content": "b"}, finish="stop")
        value["choices"][0] |= extras
        client = stream(rules, value, {**HEAD, "choices": [], "usage": used(1), "kv_transfer_params": {"a": WORD}})
        ended = client.events[0]["choices"][0]
        assert ended["stop_reason"] == 128009 and not ended.keys() & {"token_ids", "routed_experts", "prompt_token_ids"}
        assert WORD not in client.text and not client.errors and client.scanned.unknown_events == 0
        assert client.messages[0] == {"content": "a", "reasoning": "b", "reasoning_content": "b"}
    ended_by = chunk({"content": "a"}, finish="stop")
    ended_by["choices"][0]["stop_reason"] = WORD
    assert WORD not in stream(policy(), ended_by).text


# -- calls beside the message ------------------------------------------------------------------------------------------

ESCAPED = '{"a": "\\u0031\\u0032MONKEYS"}'
BESIDE = [
    {"function_call": {"name": "f", "arguments": ESCAPED}},
    {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ESCAPED}}]},
    {"Function_Call": {"name": "f", "arguments": ESCAPED}},
]


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("within", [{}, {"content": "a"}])
def test_arguments_beside_a_message_are_read_as_arguments(beside: dict[str, Any], within: dict[str, Any]) -> None:
    value = chunk(within, finish="tool_calls")
    value["choices"][0] |= beside
    whole = completion({"content": None, **within})
    whole["choices"][0] |= beside
    shown = [stream(policy(), value).text, json.dumps(plain(policy(), json.dumps(whole).encode())[0])]
    for text in shown:
        assert "u0031" not in text and "MONKEYS" not in text
    if "function_call" in beside:
        call = stream(policy(), value).messages[0]["function_call"]
        assert json.loads(call["arguments"]) == {"a": SEEN}


def test_calls_beside_others_are_left_out() -> None:
    value = chunk({"function_call": {"name": "f", "arguments": "{}"}}, finish="stop")
    value["choices"][0]["function_call"] = {"name": "g", "arguments": ESCAPED}
    client = stream(policy(), value)
    assert client.messages[0]["function_call"] == {"name": "f", "arguments": "{}"} and "u0031" not in client.text


# -- labels of one place -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["id", "model", "system_fingerprint", "service_tier", "object"])
def test_labels_that_follow_each_other_make_no_match(field: str) -> None:
    values = [{**chunk({"content": "x"}), field: label} for label in ("12MON", "12MON", "KEYS", "KEYS", "KEYS", "z")]
    client = stream(policy(), *values, chunk(finish="stop"))
    assert client.content == "x" * 6 and not client.errors
    shown = [value[field] for value in client.events[:6]]
    assert shown == ["12MON", "12MON", "", "", "", "z"] and "12MONKEYS" not in "".join(shown)
    repeated = [{**chunk({"content": "x"}), field: "ab12"} for _ in range(4)]
    assert [value[field] for value in stream(policy(rule("12ab")), *repeated).events] == ["ab12"] * 4


def test_labels_of_a_choice_that_follow_each_other_make_no_match() -> None:
    values = [chunk({"content": "x"}), chunk({"content": "x"})]
    for value, label in zip(values, ("12MON", "KEYS"), strict=True):
        value["choices"][0]["stop_reason"] = label
    assert [value["choices"][0]["stop_reason"] for value in stream(policy(), *values).events] == ["12MON", ""]
