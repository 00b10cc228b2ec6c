"""Scripts of an upstream's stream, and what a client reads of it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.censor.stream import Censor
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Action, Channel, Mode, Policy
from tests.support.guard_client import (
    BLOCK,
    DROP,
    HEAD,
    MAX_EVENT,
    OBSERVE,
    REFUSE,
    WORD,
    Client,
    answer_for,
    at,
    call,
    calls,
    chunk,
    event,
    play,
    policy,
    rule,
    script,
    stream,
)

SEEN = "[REDACTED]"

CHANNELS: list[tuple[str, Any, tuple[Any, ...], str]] = [
    ("content", lambda t: {"content": t}, ("content",), "content"),
    ("refusal", lambda t: {"refusal": t}, ("refusal",), "refusal"),
    ("reasoning", lambda t: {"reasoning": t}, ("reasoning",), "reasoning"),
    ("reasoning_content", lambda t: {"reasoning_content": t}, ("reasoning_content",), "reasoning"),
    ("custom tool input", lambda t: {"tool_calls": [{"index": 0, "custom": {"input": t}}]},
     ("tool_calls", 0, "custom", "input"), "tool_arguments"),
    ("audio transcript", lambda t: {"audio": {"transcript": t}}, ("audio", "transcript"), "transcript"),
    ("other audio text", lambda t: {"audio": {"caption": t}}, ("audio", "caption"), "other"),
    ("unknown field", lambda t: {"new": t}, ("new",), "other"),
    ("unknown nested field", lambda t: {"new": {"of": [{"it": t}]}}, ("new", "of", 0, "it"), "other"),
    ("unknown field of a call", lambda t: {"tool_calls": [{"index": 0, "new": t}]}, ("tool_calls", 0, "new"), "other"),
    ("unknown field of a function", lambda t: {"tool_calls": [{"index": 0, "function": {"new": t}}]},
     ("tool_calls", 0, "function", "new"), "other"),
    ("part of the content", lambda t: {"content": [{"type": "text", "text": t}]}, ("content", 0, "text"), "content"),
    ("arguments that are an object", lambda t: {"tool_calls": [{"index": 0, "function": {"arguments": {"a": t}}}]},
     ("tool_calls", 0, "function", "arguments", "a"), "tool_arguments"),
    ("function_call that is a text", lambda t: {"function_call": t}, ("function_call",), "other"),
    ("tool_calls that are a text", lambda t: {"tool_calls": t}, ("tool_calls",), "other"),
    ("audio that is a text", lambda t: {"audio": t}, ("audio",), "other"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "path", "channel"), [c[1:] for c in CHANNELS], ids=[c[0] for c in CHANNELS])
def test_every_channel_is_one_text_across_its_deltas(shape: Any, path: tuple[Any, ...], channel: str) -> None:
    pieces = ["say ", "12MO", "NKE", "YS ok 1", "2"]
    client = stream(policy(), *(chunk(shape(piece)) for piece in pieces), chunk(finish="stop"))
    assert at(client, *path) == f"say {SEEN} ok 12"
    assert client.finish == {0: "stop"} and client.done and client.stopped
    counts = {count.channel: count for count in client.scanned.channels}
    assert counts[Channel(channel)].replaced == len(WORD)
    assert [(m.rule, m.action, m.channel, m.count) for m in client.scanned.matches] == [("r", "redact", channel, 1)]


@pytest.mark.parametrize(("shape", "path"), [c[1:3] for c in CHANNELS], ids=[c[0] for c in CHANNELS])
def test_a_block_in_any_channel_ends_the_choice(shape: Any, path: tuple[Any, ...]) -> None:
    client = stream(
        BLOCK,
        chunk({"reasoning_content": "held 12", **({} if path == ("content",) else {"content": "held 12"})}),
        chunk(shape("say 12MON")),
        chunk(shape("KEYS and more")),
        chunk({"content": "more"}, finish="stop"),
        done=False,
    )
    assert client.finish == {0: "content_filter"} and client.done and client.stopped
    assert WORD not in client.text and "more" not in client.text
    message = client.messages[0]
    assert (
        message["content"] == ("say Not shown." if path == ("content",) else "held Not shown.") or path[0] == "content"
    )
    if path[0] != "reasoning_content":
        assert message["reasoning_content"] == "held "
    assert client.scanned.blocked_by == "r"


def test_a_chunk_of_which_nothing_is_safe_is_not_sent_and_the_rest_comes_before_the_finish_reason() -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(event(chunk({"role": "assistant", "content": ""})), 0.0))
    assert len(client.events) == 1
    client.take(answer.feed(event(chunk({"content": "1"})) + event(chunk({"content": "2"})), 1.0))
    assert len(client.events) == 1
    client.take(answer.feed(event(chunk({"content": "M"}, finish="length", usage={"total_tokens": 3})), 2.0))
    reasons = [e["choices"][0]["finish_reason"] for e in client.events]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert client.content == "12M" and client.usage == {"total_tokens": 3}
    assert client.events[-1]["choices"][0]["delta"] == {} and client.events[-1]["id"] == "qz"


def test_choices_end_on_their_own() -> None:
    values = [
        {**HEAD, "choices": [{"index": i, "delta": {"content": text}} for i, text in enumerate(texts)]}
        for texts in (["a 12MON", "b 12", "c "], ["KEYS x", "MON y", "ok"])
    ]
    client = stream(
        BLOCK, *values, chunk(index=2, finish="stop"), chunk(index=1, finish="stop"), expected=3, done=False
    )
    assert {i: m["content"] for i, m in client.messages.items()} == {0: "a Not shown.", 1: "b 12MON y", 2: "c ok"}
    assert client.finish == {0: "content_filter", 1: "stop", 2: "stop"}
    assert client.done and client.stopped


def test_the_upstream_goes_on_while_a_choice_that_was_asked_for_has_not_ended() -> None:
    answer, client = answer_for(BLOCK, expected=2), Client()
    client.take(answer.feed(event(chunk({"content": WORD})), 0.0))
    assert client.finish == {0: "content_filter"} and not client.stopped
    client.take(answer.feed(event(chunk({"content": "dropped"}, usage={"total_tokens": 1})), 0.0))
    assert client.usage == {"total_tokens": 1} and "dropped" not in client.text
    client.take(answer.feed(event(chunk({"content": WORD}, index=1)), 0.0))
    assert client.finish == {0: "content_filter", 1: "content_filter"} and client.done and client.stopped


def test_a_block_that_only_the_end_makes_certain_still_ends_with_done() -> None:
    whole = policy(rule(WORD, action=Action.BLOCK, whole_word=True))
    for values in ([chunk({"content": f"a {WORD}"})], [chunk({"content": f"a {WORD}"}, finish="stop")]):
        client = stream(whole, *values, done=False)
        assert (client.content, client.finish, client.done) == ("a ", {0: "content_filter"}, True)


def test_an_end_without_finish_reason_releases_what_is_held() -> None:
    assert stream(policy(), chunk({"content": "a 12MON"})).content == "a 12MON"
    client = stream(policy(), chunk({"content": "a 12MON"}), done=False)
    assert client.content == "a 12MON" and not client.done and not client.errors
    assert stream(policy(rule(secret=True)), chunk({"content": "a 12MONK"})).content == f"a {SEEN}"


def test_a_failure_releases_what_is_held_and_then_says_so() -> None:
    client = play(policy(), script(chunk({"content": "a 12MON"}), done=False), fail={"error": {"message": "broke"}})
    assert (client.content, client.errors, client.done, client.stopped) == (
        "a 12MON",
        [{"message": "broke"}],
        False,
        True,
    )
    client = play(policy(rule(secret=True)), event(chunk({"content": "12MONK"})), fail={"error": {"message": "broke"}})
    assert client.content == SEEN


@pytest.mark.parametrize("error", [WORD, {"message": f"no {WORD}", "type": "t", WORD: [WORD, {"a": WORD}]}, [WORD]])
def test_error_events_are_scanned(error: Any) -> None:
    client = stream(policy(), chunk({"content": "a 12"}), {"error": error}, chunk({"content": "more"}))
    assert client.content == "a 12" and len(client.errors) == 1 and client.stopped and not client.done
    assert WORD not in client.text and SEEN in client.text and "more" not in client.text
    assert {"message", "type", "param", "code"} <= client.errors[0].keys()
    client = stream(BLOCK, {"error": error})
    assert client.errors[0]["message"] == "The upstream failed; its message is blocked by policy."


def test_names_that_clients_read_by_are_no_text() -> None:
    words = policy(rule("message", "prompt_tokens", "stop", "assistant", "text"))
    client = stream(words, chunk({"role": "assistant", "content": [{"type": "text", "text": "x"}]}, finish="stop"),
                    {**HEAD, "choices": [], "usage": {"prompt_tokens": 3}})  # fmt: skip
    assert client.messages[0]["content"] == [{"type": "text", "text": "x"}] and client.usage == {"prompt_tokens": 3}
    assert stream(words, {"error": {"message": "hm"}}).errors[0]["message"] == "hm"


def test_usage_and_empty_choices_pass() -> None:
    usage = {"total_tokens": 5, "details": {"new": 1.5, "none": None, WORD: WORD}}
    client = stream(policy(), chunk({"content": "a"}, finish="stop"), {**HEAD, "choices": [], "usage": usage},
                    {**HEAD, "choices": None}, {"new": "pong"})  # fmt: skip
    assert client.usage == {"total_tokens": 5, "details": {"new": 1.5, "none": None, SEEN: SEEN}}
    assert client.events[-2:] == [{**HEAD, "choices": []}, {"new": "pong", "choices": []}]


def test_unknown_fields_of_choice_and_chunk_are_scanned_and_kept() -> None:
    more = {"new": f"a {WORD}", WORD: [1, True, None, {"a": WORD}], "number": 12, "list": [WORD]}
    value = {**chunk({"content": "1"}), **more}
    value["choices"][0] |= more
    client = stream(policy(rule(WORD, "12")), value, chunk(finish="stop"))
    expected = {"new": f"a {SEEN}", SEEN: [1, True, None, {"a": SEEN}], "number": SEEN, "list": [SEEN]}
    seen = client.events[0]
    assert {name: seen[name] for name in expected} == expected
    assert {name: seen["choices"][0][name] for name in expected} == expected
    assert client.content == "1"


def test_what_comes_with_a_held_delta_or_an_ended_choice_is_kept() -> None:
    value = chunk({"content": "1"})
    value["choices"][0]["content_filter_results"] = {"hate": {"filtered": False}}
    client = stream(policy(), value, chunk({"content": "2"}, citations=["u"]), chunk(finish="stop"), chunk(new="a"))
    assert client.events[0]["choices"][0]["content_filter_results"] == {"hate": {"filtered": False}}
    assert client.events[1]["citations"] == ["u"] and client.events[-1] == {**HEAD, "new": "a", "choices": []}
    assert client.content == "12"


LABELS = ["role", "name", "id", "type", "tool_call_id", "index"]


@pytest.mark.parametrize("field", LABELS)
@pytest.mark.parametrize("value", [WORD, {"a": WORD}, [WORD], [[{"a": WORD}]]])
@pytest.mark.parametrize("place", ["delta", "call", "function", "audio", "unknown"])
def test_labels_are_scanned_wherever_they_stand(field: str, value: Any, place: str) -> None:
    labelled = {field: value}
    delta = {
        "delta": labelled,
        "call": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}, **labelled}]},
        "function": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}", **labelled}}]},
        "audio": {"audio": labelled},
        "unknown": {"new": [labelled]},
    }[place]
    if (place, field) == ("function", "name"):
        delta = {"tool_calls": [{"index": 0, "function": {"name": value, "arguments": "{}"}}]}
    for rules, finish in ((policy(), "stop"), (BLOCK, "content_filter")):
        client = stream(rules, chunk({"content": "a"}), chunk(delta), chunk({"content": "b"}, finish="stop"))
        assert WORD not in client.text and client.finish == {0: finish}


@pytest.mark.parametrize("value", [WORD, 4111, 4111.5, {"a": WORD}])
@pytest.mark.parametrize(
    "field", ["id", "object", "model", "system_fingerprint", "service_tier", "finish_reason", "new"]
)
def test_labels_around_the_delta_are_scanned(field: str, value: Any) -> None:
    words = policy(rule(WORD, "4111"))
    outer, inner = chunk({"content": "a"}), chunk({"content": "a"})
    outer[field] = value
    inner["choices"][0][field] = value
    for given in (outer, inner):
        client = stream(words, given, chunk(finish="stop"))
        assert WORD not in client.text and "4111" not in client.text and client.content == "a"


def test_a_block_around_the_delta_acts_on_what_it_is_about() -> None:
    inner = chunk({"content": "a"}, finish="stop")
    inner["choices"][0]["new"] = WORD
    client = stream(BLOCK, inner, chunk({"content": "b"}, index=1, finish="stop"), expected=2)
    assert {i: m["content"] for i, m in client.messages.items()} == {0: "Not shown.", 1: "b"}
    assert client.finish == {0: "content_filter", 1: "stop"}
    client = stream(BLOCK, chunk({"content": "a"}), chunk({"content": "b"}, new=WORD), expected=2)
    assert {i: m["content"] for i, m in client.messages.items()} == {0: "aNot shown.", 1: "Not shown."}
    assert client.finish == {0: "content_filter", 1: "content_filter"} and client.done


@pytest.mark.parametrize("value", [f'"{WORD}"', f'[1, "{WORD}"]', f'{{"choices": ["{WORD}", 1]}}'])
def test_events_that_are_no_chunks(value: str) -> None:
    client = stream(policy(), value.encode(), chunk({"content": "a"}, finish="stop"))
    assert WORD not in client.text and client.content == "a" and client.scanned.unknown_events >= 1
    assert stream(BLOCK, value.encode(), chunk({"content": "a"})).text.count(WORD) == 0
    assert WORD not in stream(DROP, value.encode()).text
    client = stream(REFUSE, chunk({"content": "a 12"}), value.encode(), chunk({"content": "more"}))
    assert client.content == "a 12" and client.errors[0]["code"] == "upstream_protocol_error" and client.stopped


def test_unknown_text_can_be_dropped_or_refused() -> None:
    value = chunk({"content": "a", "new": "b", "number": 1, "annotations": [{"url": "u"}]}, more="c", count=2)
    value["choices"][0]["inner"] = "d"
    client = stream(DROP, value)
    assert client.messages[0] == {"content": "a", "number": 1, "annotations": [{"url": "u"}]}
    assert "more" not in client.events[0] and client.events[0]["count"] == 2
    assert "inner" not in client.events[0]["choices"][0] and client.scanned.unknown_events == 3
    assert stream(REFUSE, value).errors[0]["code"] == "upstream_protocol_error"
    assert stream(REFUSE, chunk({"content": "a"}, finish="stop"), done=False).content == "a"


def test_fields_that_describe_the_text_are_dropped() -> None:
    fields = {"obfuscation": "x", "logprobs": {"content": [{"token": "12"}]}, "prompt_logprobs": [], "token_ids": [1],
              "prompt_token_ids": [1], "kv_transfer_params": {"a": 1}, "ec_transfer_params": {"a": 1}}  # fmt: skip
    value = {**chunk({"content": "a", "audio": {"data": "AAAA", "transcript": "t"}, **fields}), **fields}
    value["choices"][0] |= {**fields, "message": {"logprobs": [WORD], "content": "a"}}
    client = stream(policy(), value)
    seen = client.events[0]
    assert seen["choices"][0]["delta"] == {"content": "a", "audio": {"transcript": "t"}}
    assert "message" not in seen["choices"][0]
    for holder in (seen, seen["choices"][0]):
        assert not fields.keys() & holder.keys() - {"logprobs"} and holder.get("logprobs") is None


def test_observe_changes_nothing_but_counts() -> None:
    entry = {"index": 0, "id": "i", "type": "function", "function": {"name": WORD, "arguments": '{"\\u0031": [1'}}
    deltas = [
        {"role": "assistant", "content": f"a {WORD} 12"},
        {"content": None, WORD: WORD, "obfuscation": "x", "number": 12},
        {"tool_calls": [entry]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '2, "\\u0031\\u0032MONKEYS'}}]},
        {"content": [{"type": "text", "text": WORD}]},
    ]
    values = [chunk(delta, logprobs=None) for delta in deltas] + [chunk(finish="stop", usage={"total_tokens": 1})]
    client = stream(OBSERVE, *values)
    assert client.events == values and client.done
    assert {(m.action, m.channel): m.count for m in client.scanned.matches} == {
        ("flag", "content"): 2,
        ("flag", "other"): 2,
        ("flag", "tool_names"): 1,
        ("flag", "tool_arguments"): 1,
    }


def test_without_rules_everything_passes_at_once() -> None:
    nothing = Policy(name="p")
    answer, client = answer_for(nothing), Client()
    for text in ("a 12MON", "KEYS"):
        client.take(answer.feed(event(chunk({"content": text})), 0.0))
    assert client.content == "a 12MONKEYS" and nothing.mode is Mode.ENFORCE


def test_a_surrogate_pair_cut_in_two_is_joined_and_half_of_one_replaced() -> None:
    client = stream(
        policy(rule("😀")), chunk({"content": "a \ud83d"}), chunk({"content": "\ude00 \ud83d"}), chunk({"content": "b"})
    )
    assert client.content == f"a {SEEN} \ufffdb"
    client = stream(policy(), chunk({"content": "a \ud83d"}), chunk({"content": "\ude00 \ud83d"}, finish="stop"))
    assert client.content == "a 😀 \ufffd"
    lone = chunk({"role": "\ud83d", "\ude00": 1}, new="\ud83d")
    assert "\\ud" not in stream(policy(), lone).raw.decode()


def test_of_a_key_that_stands_twice_the_last_counts_as_for_every_client() -> None:
    data = b'{"choices":[{"index":0,"delta":{"content":"a","content":"12MONKEYS"},"delta":{"content":"b"}}]}'
    client = stream(policy(), data)
    assert client.content == "b" and WORD not in client.text


@pytest.mark.parametrize("garbage", [b"{", b"12MONKEYS", b"NaN", b'{"a":"', b"[" * 3000, b"\xff{}"])
def test_an_event_that_is_not_json_ends_the_stream(garbage: bytes) -> None:
    client = stream(policy(), chunk({"content": "a 12"}), garbage, chunk({"content": "more"}))
    assert client.content == "a 12" and not client.done and client.stopped
    assert client.errors[0]["code"] == "upstream_protocol_error"
    assert WORD not in client.text and "more" not in client.text


def test_a_last_event_that_nothing_ends_is_read() -> None:
    client = play(policy(), script(chunk({"content": "a 12MON"}), chunk({"content": "KEYS"}), done=False)[:-2])
    assert client.content == f"a {SEEN}"
    assert play(policy(), script(chunk({"content": "a 12MON"}), done=False)[:-9]).errors


def test_an_event_too_large_ends_the_stream_after_those_before_it() -> None:
    data = script(chunk({"content": "a 12"}), chunk({"content": "b" * MAX_EVENT}))
    client = play(policy(), data)
    assert client.content == "a 12" and client.errors[0]["code"] == "upstream_protocol_error" and client.stopped
    assert str(MAX_EVENT) in client.errors[0]["message"]


@pytest.mark.parametrize("data", [b"", b" \r\n", b"hello\n\n", b"<html></html>", b": comment\n\n", b"event: a\n\n"])
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    client = play(policy(), data)
    assert client.errors[0]["code"] == "upstream_protocol_error" and client.stopped


def test_comments_keep_the_connection_alive_without_their_text() -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(f": {WORD}\n\n".encode(), 0.0))
    client.take(answer.feed(b": more", 0.0))
    assert client.raw == b":\n\n"
    client.take(answer.feed(b"\n" + event(chunk({"content": "a"})), 0.0))
    assert client.raw.count(b":\n\n") == 1 and client.content == "a"


def test_clients_left_alone_when_they_leave() -> None:
    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(event(chunk({"content": "a 12"})), 0.0))
    client.take(answer.cancel())
    assert client.content == "a " and client.stopped and answer.done and answer.cancel() == []
    (count,) = (count for count in client.scanned.channels if count.channel == "content")
    assert (count.forwarded, count.withheld, count.missing) == (2, 2, 0)


@pytest.mark.parametrize("method", ["feed", "finish"])
def test_a_failing_guard_fails_closed(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def fail(censor: Censor, *text: str) -> str:
        raise RuntimeError(f"while reading {WORD} {text}")

    for end in ("feed", "close", "fail"):
        answer, client = answer_for(policy()), Client()
        client.take(answer.feed(event(chunk({"content": "a 12MON"})), 0.0))
        with monkeypatch.context() as patch:
            patch.setattr(Censor, method, fail)
            if end == "feed":
                client.take(answer.feed(event(chunk({"content": "K"}, finish="stop")), 0.0))
            elif end == "close":
                text = "K`" if method == "feed" else "K"  # with a backtick it does not take the shortest way
                client.take(answer.feed(event(chunk({"content": text})), 0.0))
                client.take(answer.close(0.0))
            else:
                if method == "feed":
                    client.take(answer.feed(event({"new": WORD}), 0.0))
                client.take(answer.fail({"error": {"message": "broke"}}, 0.0))
        assert client.content == "a " and client.errors[-1]["code"] == "guard_failed" and client.stopped
        failures = [fact for fact in client.facts if isinstance(fact, GuardFailed)]
        assert len(failures) == 1 and failures[0].policy == "p"
        assert failures[0].where.startswith("RuntimeError at ") and WORD not in repr(client.facts)
        assert WORD not in client.text and answer.feed(event(chunk({"content": "b"})), 0.0) == []


def test_a_guard_that_fails_while_it_refuses_fails_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(censor: Censor) -> str:
        raise RuntimeError(WORD)

    answer, client = answer_for(policy()), Client()
    client.take(answer.feed(event(chunk({"content": "a 12"})), 0.0))
    monkeypatch.setattr(Censor, "finish", fail)
    client.take(answer.feed(event(b"{"), 0.0))
    assert client.content == "a " and [error["code"] for error in client.errors] == ["guard_failed"] and client.stopped


def test_tool_calls_in_one_chunk_keep_their_order() -> None:
    both = calls(call(0, "f", "", id="a"), call(1, "g", "{}", id="b"))
    client = stream(policy(), both, calls(call(0, arguments="{}")), chunk(finish="tool_calls"))
    order = [entry["index"] for e in client.events for entry in e["choices"][0]["delta"].get("tool_calls", [])]
    assert list(dict.fromkeys(order)) == [0, 1]
    assert [c["function"] for c in at(client, "tool_calls")] == [
        {"name": "f", "arguments": "{}"},
        {"name": "g", "arguments": "{}"},
    ]


def test_a_block_at_the_end_drops_what_the_other_channels_hold() -> None:
    whole = policy(rule(WORD, action=Action.BLOCK, whole_word=True))
    client = stream(whole, chunk({"reasoning": f"a {WORD}", "content": "b 12"}), chunk(finish="stop"), done=False)
    assert client.messages[0] == {"reasoning": "a ", "content": "b "} and client.finish == {0: "content_filter"}
    client = stream(whole, calls(call(0, WORD), call(1, "12")), chunk({"content": "b 12"}), chunk(finish="stop"))
    assert "tool_calls" not in client.messages.get(0, {}) and client.finish == {0: "content_filter"}
