"""Text completions under a policy: the censor's rules hold as they do for chat, in this endpoint's own shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.guard.chat import MAX_CHOICES
from gateway.guard.pseudonyms import Pseudonyms
from gateway.policy.model import Channel
from tests.support.completions_client import (
    HEAD,
    SEEN,
    Reader,
    answer_for,
    body,
    broken,
    part,
    plain,
    play,
    splits,
    stream,
    whole_of,
)
from tests.support.guard_client import (
    BLOCK,
    DROP,
    OBSERVE,
    REFUSE,
    WORD,
    event,
    policy,
    rule,
    script,
)

# -- texts -------------------------------------------------------------------------------------------------------------

TEXT = f"a {WORD}, 12MON 12"
SHOWN = f"a {SEEN}, 12MON 12"


def test_every_split_of_a_text() -> None:
    for texts in splits(TEXT, 3):
        data = script(*map(part, texts), part(finish="stop"))
        reader = play(policy(), data)
        assert (reader.said(), reader.finish, reader.done) == (SHOWN, {0: "stop"}, True), texts
        answer, _ = plain(policy(), data)
        assert answer == {**HEAD, "choices": [{"text": SHOWN, "index": 0, "finish_reason": "stop"}]}, texts


def test_the_last_text_may_come_with_the_reason() -> None:
    for texts in splits(TEXT, 3):
        reader = stream(policy(), *map(part, texts[:-1]), part(texts[-1], finish="length"), done=False)
        assert (reader.said(), reader.finish) == (SHOWN, {0: "length"})
        assert reader.events[-1]["choices"][0]["finish_reason"] == "length"


def test_every_split_of_the_bytes() -> None:
    data = script(part("a 12MON"), part("KEYS, 12\u200bMO"), part("N 12", finish="stop"), done=False)
    expected = play(policy(), data)
    assert expected.said() == f"a {SEEN}, 12\u200bMON 12"
    for at in range(1, len(data)):
        assert play(policy(), data[:at], data[at:]).raw == expected.raw


def test_an_event_of_which_nothing_is_safe_is_not_sent() -> None:
    answer, reader = answer_for(policy()), Reader()
    sent = []
    for text in ("a", "1", "2", "MO", "x", ""):
        reader.take(answer.feed(event(part(text)), 0.0))
        sent.append(len(reader.events))
    assert sent == [1, 1, 1, 1, 2, 3] and reader.said() == "a12MOx"


def test_clean_events_pass_as_they_came() -> None:
    values = [part("a"), part("b", stop_reason=None), part("", finish="stop", stop_reason=7), {**HEAD, "choices": []}]
    assert stream(policy(), *values).events == values


CHANNELS: dict[str, tuple[str, Channel]] = {
    "text": ("text", Channel.CONTENT),
    "reasoning": ("reasoning", Channel.REASONING),
    "reasoning content": ("reasoning_content", Channel.REASONING),
    "refusal": ("refusal", Channel.REFUSAL),
    "an unknown field": ("new", Channel.OTHER),
    "chat's content": ("content", Channel.OTHER),
}


@pytest.mark.parametrize("case", CHANNELS)
def test_every_field_of_a_choice_is_one_text_across_its_events(case: str) -> None:
    field, channel = CHANNELS[case]
    values = [part(**{"text": "-", field: text}) for text in ("say ", "12MO", "NKE", "YS ok 1", "2")]
    for wrapped in (False, True):
        if wrapped and field == "text":
            continue
        if wrapped:
            values = [part("-", **{field: {"of": [v["choices"][0][field]]}}) for v in values]
        reader = stream(policy(), *values, part(finish="stop"))
        found = reader.messages[0][field]
        if field != "text":
            assert reader.said() == "-----"
        if not wrapped:
            assert found == f"say {SEEN} ok 12"
        assert WORD not in reader.text and SEEN in reader.text
        counts = {count.channel: count for count in reader.scanned.channels}
        assert counts[channel].replaced == len(WORD)
        answer, _ = plain(policy(), script(*values))
        assert WORD not in json.dumps(answer) and SEEN in json.dumps(answer)


def test_texts_that_are_none() -> None:
    values = [part(None), part(1), part(2), part([{"x": "12"}]), {"choices": [{}]}, {"choices": [{"index": 0, "x": 1}]}]
    reader = stream(policy(rule("12")), *values)
    assert "12" not in reader.raw.decode() and SEEN in reader.raw.decode() and not reader.errors
    assert reader.events[0]["choices"][0]["text"] == ""
    assert reader.events[-1]["choices"] == [{"text": "", "x": 1, "index": 0}]
    for text in (None, 12, ["12", {"a": "12"}], {"12": "12"}, True, [[["12"]]]):
        answer, _ = plain(policy(rule("12")), body(whole_of(text)))
        assert "12" not in json.dumps(answer) and "text" in answer["choices"][0]
    deep: Any = WORD
    for _ in range(100):
        deep = [deep]
    assert stream(policy(), part(deep)).errors[0]["code"] == "upstream_protocol_error"
    assert broken(policy(), body(whole_of(deep)))["code"] == "upstream_protocol_error"


def test_a_whole_answer() -> None:
    more = {"usage": {"total_tokens": 12}, "system_fingerprint": "fp"}
    answer, fact = plain(policy(rule(WORD, "12")), body(whole_of(f"a {WORD}", "b", **more)), expected=2)
    assert answer == whole_of(f"a {SEEN}", "b", **more)
    assert [(m.channel, m.count) for m in fact.matches] == [("content", 2)]


def test_an_observed_answer_passes_as_it_is() -> None:
    given = whole_of(f"a {WORD}", usage={"total_tokens": 1}, kv_transfer_params=None)
    given["choices"][0] |= {"logprobs": {"tokens": [WORD]}, "token_ids": [1], "prompt_token_ids": None, WORD: WORD}
    assert plain(OBSERVE, body(given))[0] == given
    event_ = {**HEAD, "choices": given["choices"]}
    assert stream(OBSERVE, event_).events == [event_]


def test_what_describes_the_text_is_taken_out() -> None:
    spelling = {
        "logprobs": {"tokens": [WORD], "token_logprobs": [-1.0], "top_logprobs": [{WORD: -1.0}], "text_offset": [0]},
        "prompt_logprobs": [None, {"1": {"decoded_token": WORD}}],
        "token_ids": [1, 2],
        "prompt_token_ids": [3],
    }
    reader = stream(policy(), part("a", **spelling), part("b", finish="stop", **spelling))
    assert [e["choices"][0] for e in reader.events] == [part("a")["choices"][0], part("b", finish="stop")["choices"][0]]
    answer = whole_of("a")
    answer["choices"][0] |= spelling
    assert plain(policy(), body({**answer, "prompt_logprobs": [1]}))[0] == whole_of("a")


def test_what_the_protocol_fixes_is_no_text() -> None:
    words = policy(rule("text", "completion", "stop", "length", "chat", "chunk", "index"))
    reader = stream(words, part("a"), part("b", finish="length"))
    assert [e["object"] for e in reader.events] == ["text_completion"] * 2 and reader.finish == {0: "length"}
    assert plain(words, body(whole_of("a")))[0] == whole_of("a")
    odd = {**part("a"), "object": f"x {WORD}"}
    assert stream(policy(), odd).events[0]["object"] == f"x {SEEN}"


def test_labels_around_the_text_are_scanned() -> None:
    reader = stream(policy(), part("a", stop_reason=WORD), {**part("b", finish=WORD), "id": WORD})
    assert WORD not in reader.text and reader.said() == "ab" and reader.finish == {0: SEEN}
    assert reader.events[0]["choices"][0]["stop_reason"] == SEEN


def test_unknown_fields() -> None:
    value = part("a", new="b", number=1)
    reader = stream(DROP, value)
    assert reader.messages == {0: {"text": "a", "number": 1}} and reader.scanned.unknown_events == 1
    assert stream(REFUSE, value).errors[0]["code"] == "upstream_protocol_error"
    assert broken(REFUSE, script(value))["code"] == "upstream_protocol_error"
    reader = stream(policy(), {**HEAD, "choices": [f"no object {WORD}", 5]})
    assert WORD not in reader.text and reader.scanned.unknown_events == 2


@pytest.mark.parametrize("name", ["index", "finish_reason", "logprobs", "text", "object"])
def test_no_field_becomes_another_by_what_a_rule_takes_out_of_its_name(name: str) -> None:
    taken_out = policy(rule(replacement=""))
    reader = stream(taken_out, part("a", **{WORD + name: 5}), part("b", finish="stop"))
    assert (reader.said(), reader.finish, set(reader.messages)) == ("ab", {0: "stop"}, {0})
    assert WORD not in reader.text


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_a_block_says_the_rules_message_as_text() -> None:
    for texts in splits(f"a {WORD} more", 3):
        reader = stream(BLOCK, *map(part, texts), part(finish="stop"), done=False)
        assert (reader.said(), reader.finish, reader.done) == ("a Not shown.", {0: "content_filter"}, True)
        assert reader.stopped and reader.scanned.blocked_by == "r"
    answer, fact = plain(BLOCK, body(whole_of(f"a {WORD} more")))
    assert answer["choices"][0]["text"] == "a Not shown." and fact.blocked_by == "r"
    assert answer["choices"][0]["finish_reason"] == "content_filter"
    answer, _ = plain(BLOCK, script(part("a 12MON"), part("KEYS"), part("more")))
    assert answer["choices"][0]["text"] == "a Not shown." and answer["object"] == "text_completion"


def test_prompts_and_their_answers_end_on_their_own() -> None:
    values = [part(text, index) for index, text in ((0, "a 12"), (3, "d 12"), (1, "b"), (2, "c "), (0, "MONKEYS"))]
    answer, reader = answer_for(BLOCK, expected=4), Reader()
    reader.take(answer.feed(b"".join(map(event, values)), 0.0))
    assert reader.finish == {0: "content_filter"} and not reader.stopped
    reader.take(answer.feed(event(part("MONKEYS", 3)) + event(part("x", 0)), 0.0))
    reader.take(answer.feed(event(part("", 1, "stop")), 0.0))
    assert not reader.stopped
    reader.take(answer.feed(event(part(WORD, 2)), 0.0))
    assert reader.stopped and reader.done
    assert reader.finish == {0: "content_filter", 3: "content_filter", 1: "stop", 2: "content_filter"}
    assert [reader.said(index) for index in range(4)] == ["a Not shown.", "b", "c Not shown.", "d Not shown."]


def test_several_choices_in_one_event() -> None:
    choices = [part(text, index)["choices"][0] for index, text in enumerate(("a 12", "b"))]
    usage = {"total_tokens": 1}
    reader = stream(policy(), {**HEAD, "choices": choices, "usage": usage}, part("MON", finish="stop"), expected=2)
    assert [reader.said(0), reader.said(1), reader.usage] == ["a 12MON", "b", usage]


def test_more_choices_than_there_may_be_end_the_answer() -> None:
    values = [part("a", index) for index in range(MAX_CHOICES + 1)]
    assert play(policy(), script(*values)).errors[0]["code"] == "upstream_protocol_error"
    assert broken(policy(), body({"choices": [{"text": "a"}] * (MAX_CHOICES + 1)}))["code"] == "upstream_protocol_error"


# -- the other form, and what is no answer -----------------------------------------------------------------------------


def test_json_where_a_stream_was_asked_for_becomes_a_stream() -> None:
    whole = whole_of(f"a {WORD}", "b 12", usage={"total_tokens": 1})
    whole["choices"][1] |= {"new": "c", "finish_reason": "length", "stop_reason": 5}
    data = body(whole)
    for reads in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        reader = play(policy(), *reads, expected=2)
        assert reader.messages == {0: {"text": f"a {SEEN}"}, 1: {"text": "b 12", "new": "c"}}
        assert reader.finish == {0: "stop", 1: "length"} and reader.done and reader.usage == {"total_tokens": 1}
        assert {e["object"] for e in reader.events} == {"text_completion"}
        assert 5 in [c.get("stop_reason") for e in reader.events for c in e["choices"]]
    reader = play(BLOCK, body(whole_of(f"a {WORD} more")))
    assert (reader.said(), reader.finish, reader.done) == ("a Not shown.", {0: "content_filter"}, True)
    assert play(policy(), body({"choices": [f"{WORD}", 5, {"new": 1}]})).done


def test_a_stream_where_json_was_asked_for_becomes_json() -> None:
    values = [part("a 12MON"), part("b", 1, new="c"), part("KEYS", stop_reason="x"), part("", finish="stop"),
              part("", 1, "length", new="d"), {**HEAD, "choices": [], "usage": {"total_tokens": 1}}]  # fmt: skip
    answer, _ = plain(policy(), script(*values), expected=2)
    assert answer == {
        **HEAD,
        "choices": [
            {"text": f"a {SEEN}", "index": 0, "finish_reason": "stop", "stop_reason": "x"},
            {"text": "b", "index": 1, "new": "cd", "finish_reason": "length"},
        ],
        "usage": {"total_tokens": 1},
    }


def test_errors_are_scanned() -> None:
    for data in (body({"error": {"message": WORD}}), script({"error": {"message": WORD}})):
        assert broken(policy(), data)["message"] == SEEN
        assert play(policy(), data).errors[0]["message"] == SEEN
    reader = stream(policy(), part("a 12"), {"error": {"message": WORD}})
    assert reader.said() == "a 12" and reader.errors[0]["message"] == SEEN and not reader.done


@pytest.mark.parametrize("data", [b"", b"<html>", b"{", b"[1]", b"data: {\n\n", b"data: 12MONKEYS\n\n"])
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    assert broken(policy(), data)["code"] == "upstream_protocol_error"
    assert play(policy(), data).errors[0]["code"] == "upstream_protocol_error"


def test_chunks_of_a_chat_hide_nothing() -> None:
    chunk = {"id": "qz", "object": "chat.completion.chunk", "created": 1, "model": "mz"}
    values = [{**chunk, "choices": [{"index": 0, "delta": {"content": text}}]} for text in ("a ", "12", "MON", "KEYS")]
    reader = stream(policy(), *values)
    assert WORD not in reader.text and reader.messages[0] == {"text": f"a {SEEN}"}


ESCAPED = json.dumps({"tool_calls": [{"function": {"arguments": '{"p":"\\u0031\\u0032MONKEYS"}'}}], "content": WORD})


@pytest.mark.parametrize("beside", ["delta", "message"])
@pytest.mark.parametrize("said", [WORD, {"content": WORD}, json.loads(ESCAPED)])
def test_d11_what_a_chat_would_say_beside_the_text_is_left_out(beside: str, said: Any) -> None:
    content = policy(rule(channels=frozenset({Channel.CONTENT})))
    reader = stream(content, part("a ", **{beside: said}), part("12MON", **{beside: said}), part("KEYS", finish="stop"))
    assert WORD not in reader.text and "MONKEYS" not in reader.text and reader.messages[0] == {"text": f"a {SEEN}"}
    whole = {**HEAD, "choices": [{"text": f"a {WORD}", "index": 0, "finish_reason": "stop", beside: said}]}
    assert plain(content, body(whole))[0]["choices"] == [{"text": f"a {SEEN}", "index": 0, "finish_reason": "stop"}]
    observed = stream(OBSERVE, part("a ", **{beside: said}))
    assert observed.messages[0][beside] == (said if isinstance(said, str) else observed.messages[0][beside])


@pytest.mark.parametrize("name", ["delta", "message"])
def test_d22_a_chats_answer_without_a_text_is_read_as_one(name: str) -> None:
    values = [{**HEAD, "choices": [{"index": 0, name: {"content": text}}]} for text in ("a ", "12MON", "KEYS")]
    assert stream(policy(), *values).said() == f"a {SEEN}"
    whole = {**HEAD, "choices": [{"index": 0, name: {"content": f"a {WORD}"}, "finish_reason": "stop"}]}
    assert plain(policy(), body(whole))[0]["choices"][0]["text"] == f"a {SEEN}"


def test_a_value_comes_back_where_its_placeholder_was() -> None:
    table = Pseudonyms({"<MAIL_1_abcdefgh>": WORD})
    for texts in splits("a <MAIL_1_abcdefgh>, <MAIL_2", 3):
        reader = stream(policy(), *map(part, texts), part(finish="stop"), pseudonyms=table)
        assert reader.said() == f"a {WORD}, <MAIL_2"
