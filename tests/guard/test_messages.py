"""`/messages`: blocks in deltas and whole, as the official client puts them together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.policy.model import Action
from gateway.wire.messages import MESSAGES
from tests.support import message_streams as given
from tests.support.event_client import Received, anthropic_message, plain, play, script
from tests.support.event_client import stream as play_stream
from tests.support.guard_client import BLOCK, OBSERVE, WORD, policy, rule
from tests.support.message_streams import SIGNATURE

SEEN = "[REDACTED]"
Made = Callable[..., list[dict[str, Any]]]
TEXTS: list[tuple[Made, str, str]] = [(given.text, "text", "content"), (given.thinking, "thinking", "reasoning")]


def stream(policy: Any, events: list[Any], **more: Any) -> Received:
    return play_stream(policy, MESSAGES, events, **more)


def cuts(text: str) -> list[list[str]]:
    return [[text[:at], text[at:]] for at in range(len(text) + 1)] + [list(text)]


@pytest.mark.parametrize(("made", "name", "channel"), TEXTS)
def test_a_word_in_any_text_is_taken_out_wherever_it_is_cut(made: Made, name: str, channel: str) -> None:
    text = f"a {WORD} b 12MON"
    for pieces in cuts(text):
        client = stream(policy(), given.events(made(*pieces)))
        (block,) = anthropic_message(client)["content"]
        assert block[name] == f"a {SEEN} b 12MON" and WORD not in client.text
        assert client.forwarded(channel) == (len(text), len(text) - len(WORD))
        assert client.types[-1] == "message_stop" and not any("error" in kind for kind in client.types)


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
def test_input_is_read_as_json(kind: str) -> None:
    for pieces in cuts('{"n": 4111, "a": "x \\u0031\\u0032MONKEYS y", "12MONKEYS": [1]}'):
        client = stream(policy(rule(WORD, "4111")), given.events(given.tool_use(*pieces, kind=kind)))
        (block,) = anthropic_message(client)["content"]
        assert block["input"] == {"n": SEEN, "a": f"x {SEEN} y", SEEN: [1]} and WORD not in client.text


def test_what_is_clean_comes_out_at_once_and_as_it_was() -> None:
    sent = given.events(given.thinking("th", "ink"), given.text("hello ", "world"), given.tool_use('{"a"', ": 1}"))
    assert stream(policy(), sent).events == sent


def test_blocks_side_by_side() -> None:
    word = list(f"{WORD} and {WORD}")
    sent = given.events(
        given.thinking(*word), given.text(*word), given.tool_use('{"a":"', *word, '"}'), interleaved=True
    )
    thought, text, call = anthropic_message(stream(policy(), sent))["content"]
    assert thought["thinking"] == text["text"] == call["input"]["a"] == f"{SEEN} and {SEEN}"


def test_a_signature_stays_with_the_thinking_that_it_signs() -> None:
    for pieces in cuts("clean 12MON"):
        (block,) = anthropic_message(stream(policy(), given.events(given.thinking(*pieces))))["content"]
        assert block == {"type": "thinking", "thinking": "clean 12MON", "signature": SIGNATURE}
        (block,) = anthropic_message(stream(policy(), given.events(given.thinking(*pieces, f" {WORD}"))))["content"]
        assert block == {"type": "thinking", "thinking": f"clean 12MON {SEEN}", "signature": ""}
    whole = given.message({"type": "thinking", "signature": SIGNATURE, "thinking": f"a {WORD}"})
    body, _ = plain(policy(), MESSAGES, json.dumps(whole).encode())
    assert body["content"] == [{"type": "thinking", "signature": "", "thinking": f"a {SEEN}"}]


def test_thinking_that_nobody_can_read_passes() -> None:
    block = {"type": "redacted_thinking", "data": SIGNATURE}
    assert anthropic_message(stream(policy(), given.events([block])))["content"] == [block]
    client = stream(policy(), given.events([{"type": "redacted_thinking", "data": f"a {WORD}"}]))
    assert WORD not in client.text


def test_citations_are_scanned() -> None:
    cited = {"type": "char_location", "cited_text": f"a {WORD}", "document_index": 0, "document_title": WORD}
    block = [*given.text("x"), {"type": "citations_delta", "citation": cited}]
    client = stream(policy(), given.events(block))
    (shown,) = anthropic_message(client)["content"][0]["citations"]
    assert shown == {**cited, "cited_text": f"a {SEEN}", "document_title": SEEN}


@pytest.mark.parametrize(("made", "name", "channel"), TEXTS)
def test_a_block_ends_the_message_in_order(made: Made, name: str, channel: str) -> None:
    for pieces in cuts(f"a {WORD} b"):
        client = stream(BLOCK, given.events(given.text("first"), made(*pieces), given.tool_use("{}")))
        message = anthropic_message(client)
        assert message["stop_reason"] == "refusal" and client.types[-2:] == ["message_delta", "message_stop"]
        assert client.types.count("content_block_start") == client.types.count("content_block_stop")
        assert client.stopped and client.scanned.blocked_by == "r"
        blocks = [block.get("text", block.get("thinking")) for block in message["content"]]
        assert blocks == (["first", "a Not shown."] if channel == "content" else ["first", "a ", "Not shown."])


def test_a_blocked_input_stays_json() -> None:
    for pieces in cuts('{"a": ["x", "y 12MONKEYS"]}'):
        client = stream(BLOCK, given.events(given.tool_use(*pieces)))
        call, text = anthropic_message(client)["content"]
        assert call["input"] == {"a": ["x", "y "]} and text["text"] == "Not shown."
        sums: dict[int, str] = {}
        for event in client.events:
            if event["type"] == "content_block_delta" and "partial_json" in event["delta"]:
                sums[event["index"]] = sums.get(event["index"], "") + event["delta"]["partial_json"]
        assert json.loads(sums[0]) == call["input"]


def test_a_block_in_a_name_and_without_a_message() -> None:
    client = stream(policy(rule(action=Action.BLOCK)), given.events(given.tool_use("{}", name=WORD)))
    assert WORD not in client.text and anthropic_message(client)["stop_reason"] == "refusal"


def test_json_content_is_read_as_json_and_no_message_comes_behind_it() -> None:
    for pieces in cuts('{"a": "\\u0031\\u0032MONKEYS"}'):
        client = stream(policy(), given.events(given.text(*pieces)), json_content=True)
        assert json.loads(anthropic_message(client)["content"][0]["text"]) == {"a": SEEN}
        client = stream(BLOCK, given.events(given.text(*pieces)), json_content=True)
        assert [json.loads(block["text"]) for block in anthropic_message(client)["content"]] == [{"a": ""}]


def test_observing_changes_nothing() -> None:
    sent = given.events(given.text("a 12MON", "KEYS"), given.tool_use(f'{{"a": "{WORD}"}}', name=WORD))
    client = stream(OBSERVE, sent)
    assert client.events == sent
    assert {(each.channel.value, each.count) for each in client.scanned.matches} == {
        ("content", 1),
        ("tool_arguments", 1),
        ("tool_names", 1),
    }


WHOLE = given.message(
    {"type": "thinking", "thinking": "clean", "signature": SIGNATURE},
    {"type": "text", "text": f"a {WORD}"},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": f"b {WORD}", "n": 1}},
)


def test_a_whole_message() -> None:
    body, _ = plain(policy(), MESSAGES, json.dumps(WHOLE).encode())
    thinking, text, call = body["content"]
    assert (thinking, text["text"], call["input"]) == (WHOLE["content"][0], f"a {SEEN}", {"a": f"b {SEEN}", "n": 1})
    assert plain(OBSERVE, MESSAGES, json.dumps(WHOLE).encode())[0] == WHOLE
    body, fact = plain(BLOCK, MESSAGES, json.dumps(WHOLE).encode())
    assert [block.get("text") for block in body["content"]] == [None, "a Not shown."]
    assert body["stop_reason"] == "refusal" and fact.blocked_by == "r"


def test_a_stream_becomes_a_whole_message_and_a_whole_message_a_stream() -> None:
    sent = given.events(
        given.thinking("clean"), given.text("a 12MON", "KEYS"), given.tool_use(f'{{"a":"b {WORD}","n":1}}')
    )
    body, _ = plain(policy(), MESSAGES, script(sent))
    whole, _ = plain(policy(), MESSAGES, json.dumps(WHOLE).encode())
    assert body == {**whole, "usage": {"input_tokens": 3, "output_tokens": 9}}
    client = play(policy(), MESSAGES, json.dumps(WHOLE).encode())
    assert anthropic_message(client)["content"] == whole["content"] and WORD not in client.text
    body, _ = plain(BLOCK, MESSAGES, script(sent))
    assert body["stop_reason"] == "refusal" and body["content"][1]["text"] == "a Not shown."


def test_usage_and_reasons_are_read() -> None:
    from tests.support.event_client import answer_for

    answer = answer_for(policy(), MESSAGES)
    answer.feed(script(given.events(given.text("x"), stop_reason="max_tokens")), 0.0)
    guard: Any = answer._guard
    assert guard.usage == (3, 9) and guard.reasons == ["length"]
