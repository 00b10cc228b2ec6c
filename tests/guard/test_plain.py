"""Whole answers, and answers in the other form than was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.guard.answer import BrokenAnswer, PlainAnswer
from gateway.guard.open import open_guard
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action, Channel
from gateway.wire.chat import CHAT
from tests.support.guard_client import (
    BLOCK,
    DROP,
    HEAD,
    MAX_EVENT,
    MAX_WHOLE,
    OBSERVE,
    REFUSE,
    WORD,
    broken,
    call,
    calls,
    chunk,
    completion,
    plain,
    play,
    policy,
    rule,
    script,
)

SEEN = "[REDACTED]"


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def texts(word: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": word,
        "refusal": word,
        "reasoning": word,
        "reasoning_content": word,
        "audio": {"id": "x", "transcript": word, "expires_at": 1},
        "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": word, "arguments": json.dumps({word: [word, 12]})}},
            {"id": "y", "type": "custom", "custom": {"name": word, "input": word}},
        ],
        "function_call": {"name": word, "arguments": json.dumps(word)},
        "annotations": [{"url": word}],
        "new": {"of": [word, {"a": word}]},
    }


def test_every_text_of_a_whole_answer_is_censored() -> None:
    answer, fact = plain(policy(), body(completion(texts(WORD), new=WORD, usage={"total_tokens": 1})))
    assert answer == completion({**texts(SEEN)}, new=SEEN, usage={"total_tokens": 1}) and WORD not in json.dumps(answer)
    assert {count.channel for count in fact.channels} == {
        *("content", "refusal", "reasoning", "transcript", "tool_names", "tool_arguments", "other")
    }


def test_labels_of_a_second_answer_are_counted_as_those_of_the_first() -> None:
    compiled = compile_policy(policy())
    facts = []
    for _ in range(2):
        guard = open_guard(CHAT, compiled)
        guard.completion(completion({"role": "assistant", "content": "a"}, system_fingerprint="fp_1", new=WORD))
        facts.append(guard.counts.fact())
    assert facts[0] == facts[1]


def test_json_where_a_stream_was_asked_for_becomes_a_stream() -> None:
    data = body(completion(texts(WORD), texts("b"), usage={"total_tokens": 1}))
    for reads in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        client = play(policy(), *reads, expected=2)
        for index, word in enumerate((SEEN, "b")):
            expected = texts(word)
            expected["tool_calls"] = [{"index": at, **entry} for at, entry in enumerate(expected["tool_calls"])]
            assert client.messages[index] == expected
        assert client.finish == {0: "stop", 1: "stop"} and client.done and client.usage == {"total_tokens": 1}
    client = play(BLOCK, body(completion({"content": f"a {WORD} more"})))
    assert (client.content, client.finish, client.done) == ("a Not shown.", {0: "content_filter"}, True)
    client = play(policy(), body({"choices": [{"message": f"a {WORD}"}, 5, {"new": 1}]}), expected=2)
    assert client.content == f"a {SEEN}" and client.done
    assert play(policy(), body({"choices": 5})).errors


def test_a_stream_where_json_was_asked_for_becomes_json() -> None:
    values = [chunk({"role": "assistant", "content": ""}), chunk({"content": "a 12MON"}), chunk({"content": "KEYS"}),
              calls(call(0, "f", '{"a": ', id="x"), call(1, "g", "{}", id="y")), calls(call(0, arguments='"12"}')),
              chunk({"content": [{"type": "text", "text": "p"}]}, 1), chunk({"new": ["b"]}), chunk({"new": ["c"]}),
              chunk({"new": {"d": "e"}}, finish="stop"),
              {**HEAD, "choices": [], "usage": {"total_tokens": 1}}]  # fmt: skip
    answer, fact = plain(policy(), script(*values), expected=2)
    first, second = answer["choices"]
    assert answer["object"] == "chat.completion" and answer["usage"] == {"total_tokens": 1} and answer["id"] == "qz"
    assert first["message"]["content"] == f"a {SEEN}" and first["finish_reason"] == "stop"
    assert [entry["function"] for entry in first["message"]["tool_calls"]] == [
        {"name": "f", "arguments": '{"a": "12"}'},
        {"name": "g", "arguments": "{}"},
    ]
    assert "index" not in first["message"]["tool_calls"][0]
    assert second["message"] == {"role": "assistant", "content": [{"type": "text", "text": "p"}]}
    assert fact.matches[0].count == 1
    assert plain(policy(), script(calls("x"), done=False))[0]["choices"] == []  # no call, and counted as unknown
    assert plain(policy(), script(chunk({"tool_calls": "x"})))[0]["choices"][0]["message"]["tool_calls"] == "x"


def test_a_block_in_a_stream_where_json_was_asked_for() -> None:
    answer, fact = plain(BLOCK, script(chunk({"content": f"a {WORD}"}), chunk({"content": "more"})), b"more")
    assert answer["choices"][0]["message"]["content"] == "a Not shown." and fact.blocked_by == "r"
    assert answer["choices"][0]["finish_reason"] == "content_filter"


def test_a_block_in_a_whole_answer_ends_its_choice() -> None:
    messages = [texts(f"a {WORD}"), {"content": [{"type": "text", "text": f"a {WORD}"}, {"type": "text", "text": "b"}]},
                {"content": None, "refusal": WORD, "new": {WORD: 1}}, {"content": "b"}]  # fmt: skip
    answer, _ = plain(BLOCK, body(completion(*messages)), expected=4)
    reasons = [choice["finish_reason"] for choice in answer["choices"]]
    assert reasons == ["content_filter", "content_filter", "content_filter", "stop"]
    shown = [choice["message"] for choice in answer["choices"]]
    assert shown[0]["content"] == "Not shown." and shown[0]["reasoning"] == "a "
    assert not {"tool_calls", "function_call"} & shown[0].keys()
    assert shown[1]["content"] == [
        {"type": "text", "text": "a "}, {"type": "text", "text": ""}, {"type": "text", "text": "Not shown."},
    ]  # fmt: skip
    assert shown[2]["content"] == "Not shown." and shown[3] == {"content": "b"}
    assert WORD not in json.dumps(answer)
    silent, _ = plain(policy(rule(action=Action.BLOCK)), body(completion({"content": WORD})))
    assert silent["choices"][0]["message"]["content"] == ""


def test_a_block_around_a_message_ends_its_choice_only() -> None:
    given = completion({"content": "a"}, {"content": "b"})
    given["choices"][0]["new"] = WORD
    answer, _ = plain(BLOCK, body(given), expected=2)
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["Not shown.", "b"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["content_filter", "stop"]
    answer, _ = plain(BLOCK, body({**completion({"content": "a"}, {"content": "b"}), "new": WORD}), expected=2)
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["Not shown.", "Not shown."]


def test_choices_that_claim_one_index_are_all_kept() -> None:
    given = completion({"content": "a 12MON"}, {"content": "KEYS"})
    given["choices"][1]["index"] = 0
    answer, _ = plain(policy(), body(given), expected=2)
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["a 12MON", "KEYS"]


def test_observed_answers_pass_as_they_are() -> None:
    given = completion(texts(WORD), logprobs=[1], obfuscation="x")
    assert plain(OBSERVE, body(given))[0] == given


def test_unknown_fields_of_a_whole_answer() -> None:
    given = completion({"content": "a", "new": "b", "number": 1}, new="c")
    answer, fact = plain(DROP, body(given))
    assert answer["choices"][0]["message"] == {"content": "a", "number": 1} and "new" not in answer
    assert fact.unknown_events == 2
    assert broken(REFUSE, body(given))["code"] == "upstream_protocol_error"
    given["choices"].append(f"no object {WORD}")
    answer, fact = plain(policy(), body(given))
    assert len(answer["choices"]) == 1 and fact.unknown_events == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"<html>", b"{", b"[1]", b'"12MONKEYS"', b"data: {\n\n", b"data: 12MONKEYS\n\n", b": comment\n\n",
     b"data: " + b"a" * MAX_EVENT * 2, b"{" + b" " * MAX_WHOLE, b": a\n\n" * MAX_WHOLE],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    error = broken(policy(), data)
    assert error["code"] == "upstream_protocol_error" and WORD not in str(error)
    assert play(policy(), data).errors[0]["code"] == "upstream_protocol_error"


def test_errors_in_a_good_status_are_scanned() -> None:
    for data in (body({"error": {"message": WORD}}), script({"error": {"message": WORD}})):
        assert broken(policy(), data)["message"] == SEEN
        assert play(policy(), data).errors[0]["message"] == SEEN
    assert "blocked by policy" in broken(BLOCK, body({"error": WORD}))["message"]


def test_strays_in_a_stream_are_left_out() -> None:
    answer, fact = plain(policy(), script([WORD], chunk({"content": "a"})))
    assert answer["choices"][0]["message"]["content"] == "a" and fact.unknown_events == 1


def test_done_is_enough() -> None:
    guard = open_guard(CHAT, compile_policy(policy()), 1, ())
    answer = PlainAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE)
    assert not answer.done
    answer.feed(script(chunk({"content": "a"})) + script(chunk({"content": "b"})), 0.0)
    assert answer.done and json.loads(answer.close(0.0))["choices"][0]["message"]["content"] == "a"


def test_a_failing_guard_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(censor: Censor, text: str) -> str:
        raise RuntimeError(f"while reading {text}")

    guard = open_guard(CHAT, compile_policy(policy()), 1, ())
    answer = PlainAnswer(guard, max_event=MAX_EVENT, max_whole=MAX_WHOLE)
    answer.feed(body(completion({"content": WORD})), 0.0)
    monkeypatch.setattr(Censor, "feed", fail)
    with pytest.raises(RuntimeError) as caught:
        answer.close(0.0)
    assert not isinstance(caught.value, BrokenAnswer)
    fact = GuardFailed.of("p", caught.value)
    assert fact.policy == "p" and "test_plain" in fact.where and WORD not in repr(fact)
    assert GuardFailed.of("p", ValueError(WORD)).where == "ValueError"


def test_a_message_within_a_stream_does_not_replace_what_the_deltas_say() -> None:
    value = chunk({"content": "a"}, finish="stop")
    value["choices"][0]["message"] = "b"
    answer, _ = plain(policy(), script(value))
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "a"}


ARGUMENTS = {"tool_calls": [{"function": {"name": "f", "arguments": '{"p":"\\u0031\\u0032MONKEYS"}'}}]}


@pytest.mark.parametrize("beside", ["delta", "text"])
@pytest.mark.parametrize("again", [WORD, {"content": WORD}, ARGUMENTS])
def test_d11_what_stands_beside_a_message_is_left_out(beside: str, again: Any) -> None:
    given = completion({"content": "a"})
    given["choices"][0][beside] = again
    content = policy(rule(channels=frozenset({Channel.CONTENT})))
    for rules in (content, policy()):
        assert plain(rules, body(given))[0] == completion({"content": "a"})
        assert play(rules, body(given)).messages == {0: {"content": "a"}}
    assert plain(OBSERVE, body(given))[0] == given


@pytest.mark.parametrize("name", ["delta", "text"])
def test_d22_a_choice_without_a_message_says_what_it_says_elsewhere(name: str) -> None:
    said = {"content": f"a {WORD}", **ARGUMENTS} if name == "delta" else f"a {WORD}"
    given = {**completion(), "choices": [{"index": 0, name: said, "finish_reason": "stop"}]}
    message = plain(policy(), body(given))[0]["choices"][0]["message"]
    assert message["content"] == f"a {SEEN}" and "MONKEYS" not in json.dumps(message)
    assert play(policy(), body(given)).content == f"a {SEEN}"


def test_d25_names_in_other_letters_are_left_out_of_plain_answers() -> None:
    body, _ = plain(policy(), json.dumps(completion({"Content": "12MON", "content": "KEYS"})).encode())
    assert body["choices"][0]["message"] == {"content": "KEYS"}
