"""Streams and plain answers under the output rules: redacted, blocked, or converted from the one form to the other."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest

from gateway.policy.model import Channel, Mode, Rule, Unknown
from tests.support.gateway import TIMEOUT, before
from tests.support.upstream import (
    DONE,
    END,
    Call,
    chunk,
    completion,
    delta,
    event,
    events,
    http,
    plain,
    sending,
    sending_then_hanging,
    stream,
    stream_head,
)

# name → the deltas' texts, what comes out
TEXTS: dict[str, tuple[tuple[str, ...], str]] = {
    "clean": (("Nothing", " to", " see"), "Nothing to see"),
    "whole": (("It is 12MONKEYS.",), "It is [CENSORED]."),
    "split": (("It is 12", "MON", "KEY", "S."), "It is [CENSORED]."),
    "letter by letter": (tuple("It is 12MONKEYS."), "It is [CENSORED]."),
    "twice": (("12MONKEYS and ", "12MON", "KEYS"), "[CENSORED] and [CENSORED]"),
    "lower case": (("12mon", "keys"), "[CENSORED]"),
    "wide and invisible": (("１２ＭＯＮ", "KE\u200bYS!"), "[CENSORED]!"),
    "nearly": (("12MON ", "12MONK ey"), "12MON 12MONK ey"),
    "guarded tail": (("It is 12MONKEY",), "It is [CENSORED]"),
    "emoji": (("\U0001f600 12MONKEYS \U0001f600",), "\U0001f600 [CENSORED] \U0001f600"),
    "line breaks": (("a\nb\r\n12MON", "KEYS\u2028c\x00"), "a\nb\r\n[CENSORED]\u2028c\x00"),
    "empty": (("",), ""),
}


@pytest.mark.parametrize("case", TEXTS)
async def test_a_stream(case: str) -> None:
    texts, expected = TEXTS[case]
    async with before(sending(stream(*texts))) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish(), answer.done, answer.error) == (expected, "stop", True, None)
        assert answer.deltas()[0]["role"] == "assistant"
        (await gateway.metrics()).assert_covered()


async def test_plain_answers() -> None:
    async with before(echo_plain) as (gateway, _):
        for texts, expected in TEXTS.values():
            answer = await gateway.ask("".join(texts))
            assert answer.status_code == 200
            body = answer.json()
            choice = body["choices"][0]
            assert (choice["message"]["content"], choice["finish_reason"]) == (expected, "stop")
            assert body["usage"] == completion("")["usage"]
        (await gateway.metrics()).assert_covered()


async def echo_plain(call: Call) -> None:
    await call.send(plain(completion(call.body["messages"][-1]["content"])))


# -- a block -----------------------------------------------------------------------------------------------------------


async def test_a_block_ends_the_stream_and_stops_the_upstream() -> None:
    body = event(delta("Hello 12MON")) + event(delta("KEYS. FORB")) + event(delta("IDDEN and more"))
    async with before(sending_then_hanging(stream_head() + chunk(body))) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.content() == "Hello [CENSORED].  (stopped)"
        assert (answer.finish(), answer.done, answer.error) == ("content_filter", True, None)
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_matches_total", rule="stop", action="block", channel="content") == 1
        assert (await gateway.logged(1))[-1]["outcome"] == "blocked"


async def test_a_block_in_a_plain_answer_that_comes_as_a_stream_stops_the_upstream() -> None:
    body = event(delta("Hello ")) + event(delta("FORBIDDEN"))
    async with before(sending_then_hanging(stream_head() + chunk(body))) as (gateway, upstream):
        choice = (await gateway.ask()).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello  (stopped)", "content_filter")
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)


async def test_a_blocked_choice_ends_and_the_others_go_on() -> None:
    body = (
        event(delta("one FORBIDDEN x", index=0))
        + event(delta("two ", index=1))
        + event(delta("more of one", index=0))
        + event(delta("12MONKEYS", index=1))
        + event(delta(index=0, finish="stop"))
        + event(delta(index=1, finish="stop"))
        + DONE
    )
    async with before(sending(stream_head() + chunk(body) + END)) as (gateway, _):
        answer = await gateway.stream(n=2)
        assert (answer.content(0), answer.finish(0)) == ("one  (stopped)", "content_filter")
        assert (answer.content(1), answer.finish(1)) == ("two [CENSORED]", "stop")
        assert answer.done


async def test_a_blocked_plain_answer() -> None:
    async with before(sending(plain(completion("so 12MONKEYS, then FORBIDDEN things")))) as (gateway, _):
        answer = await gateway.ask()
        assert answer.status_code == 200
        choice = answer.json()["choices"][0]
        assert choice["message"]["content"] == "so [CENSORED], then  (stopped)"
        assert choice["finish_reason"] == "content_filter"
        (await gateway.metrics()).assert_covered()


# -- channels ----------------------------------------------------------------------------------------------------------


async def test_every_channel_is_scanned_on_its_own() -> None:
    call: dict[str, Any] = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "note", "arguments": ""},
    }

    def arguments(text: str) -> bytes:
        return event(delta(tool_calls=[{"index": 0, "function": {"arguments": text}}]))

    body = (
        event(delta(reasoning_content="think 12MON"))
        + event(delta("say 12MON"))
        + event(delta(reasoning_content="KEYS"))
        + event(delta("KEYS"))
        + event(delta(refusal="no 12MONKEYS"))
        + event(delta(tool_calls=[call]))
        + arguments('{"a": "is 12M')
        + arguments("ON\\u004bEYS")
        + arguments('"}')
        + event(delta(odd={"deep": ["12MONKEYS"]}))
        + event(delta(finish="tool_calls"))
        + DONE
    )
    async with before(sending(stream_head() + chunk(body) + END)) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == "say [CENSORED]"
        assert answer.content(field="reasoning_content") == "think [CENSORED]"
        assert answer.content(field="refusal") == "no [CENSORED]"
        calls = [part for each in answer.deltas() for part in each.get("tool_calls", ())]
        assert [part["function"]["name"] for part in calls if "name" in part["function"]] == ["note"]
        assert json.loads("".join(part["function"].get("arguments", "") for part in calls)) == {"a": "is [CENSORED]"}
        assert "MONKEYS" not in answer.response.text
        metrics = await gateway.metrics()
        metrics.assert_covered()
        for channel in ("content", "reasoning", "refusal", "tool_arguments", "other"):
            assert metrics.value("portcullis_matches_total", rule="password", channel=channel) == 1, channel


async def test_fields_that_would_lead_past_the_censor_are_dropped() -> None:
    spelled = {"content": [{"token": "12MONKEYS", "logprob": -1, "bytes": [49], "top_logprobs": []}]}
    chunked = delta("12MON")
    chunked["choices"][0]["logprobs"] = spelled
    chunked["obfuscation"] = "xyz"
    chunked["prompt_token_ids"] = [1, 2]
    whole = completion("12MONKEYS")
    whole["choices"][0]["logprobs"] = spelled
    whole["choices"][0]["token_ids"] = [3]
    whole["kv_transfer_params"] = {"x": 1}

    async def play(call: Call) -> None:
        body = event(chunked) + event(delta("KEYS")) + event(delta(finish="stop")) + DONE
        await call.send(stream_head() + chunk(body) + END if call.body.get("stream") else plain(whole))

    async with before(play) as (gateway, _):
        for text in ((await gateway.stream()).response.text, (await gateway.ask()).text):
            for gone in ("MONKEYS", "obfuscation", "token_ids", "kv_transfer_params", "top_logprobs"):
                assert gone not in text, gone


async def test_log_probabilities_come_with_their_text() -> None:
    def entry(token: str, *others: str) -> dict[str, Any]:
        listed = [{"token": other, "logprob": -2.0, "bytes": list(other.encode())} for other in others]
        return {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": listed}

    tokens = [entry("say ", "12MON", "tell "), entry("12MON"), entry("KEYS"), entry(" or"), entry(" not")]
    shown = [entry("say ", "tell "), entry(" or"), entry(" not")]

    async def play(call: Call) -> None:
        events = [delta(each["token"]) for each in tokens]
        for each, given in zip(events, tokens, strict=True):
            each["choices"][0]["logprobs"] = {"content": [given], "refusal": None}
        body = b"".join(map(event, [*events, delta(finish="stop")])) + DONE
        whole = completion("say 12MONKEYS or not")
        whole["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
        await call.send(stream_head() + chunk(body) + END if call.body.get("stream") else plain(whole))

    async with before(play) as (gateway, _):
        streamed = await gateway.stream()
        found = [choice.get("logprobs") for each in streamed.chunks for choice in each["choices"]]
        assert [each for lists in found if lists for each in lists["content"]] == shown
        assert (await gateway.ask()).json()["choices"][0]["logprobs"] == {"content": shown, "refusal": None}


@pytest.mark.parametrize("unknown", list(Unknown))
async def test_unknown_fields(unknown: Unknown) -> None:
    body = event(delta("hi", thinking_blocks=[{"text": "12MONKEYS"}])) + event(delta(finish="stop")) + DONE
    async with before(sending(stream_head() + chunk(body) + END), unknown=unknown) as (gateway, _):
        answer = await gateway.stream()
        assert "MONKEYS" not in answer.response.text
        assert ("thinking_blocks" in answer.response.text) is (unknown is Unknown.SCAN)
        assert (answer.error is not None) is (unknown is Unknown.REFUSE)


async def test_observe_counts_and_changes_nothing() -> None:
    async with before(sending(stream("12MONKEYS FORB", "IDDEN")), mode=Mode.OBSERVE) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish()) == ("12MONKEYS FORBIDDEN", "stop")
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_matches_total", action="flag") == 2
        metrics.assert_covered()


async def test_a_rule_for_one_channel_leaves_the_others() -> None:
    rules = (Rule(id="r", words=("secret",), channels=frozenset({Channel.REASONING})),)
    body = event(delta("secret", reasoning="secret")) + event(delta(finish="stop")) + DONE
    async with before(sending(stream_head() + chunk(body) + END), rules=rules) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.content(field="reasoning")) == ("secret", "[REDACTED]")


# -- one form asked for, the other answered ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/event-stream", "text/plain", "application/octet-stream"]
)
async def test_json_to_a_stream_request_becomes_a_stream(content_type: str) -> None:
    body = json.dumps(completion("It is 12MONKEYS", reasoning_content="so 12MONKEYS")).encode()
    async with before(sending(http(200, body, content_type))) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish(), answer.done) == ("It is [CENSORED]", "stop", True)
        assert answer.content(field="reasoning_content") == "so [CENSORED]"
        assert all(each["object"] == "chat.completion.chunk" for each in answer.chunks)
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json", "text/html"])
async def test_a_stream_to_a_plain_request_becomes_json(content_type: str) -> None:
    head = stream_head(content_type=content_type)
    async with before(sending(head + chunk(events("It is 12M", "ONKEYS", " ok")) + END)) as (gateway, _):
        answer = await gateway.ask()
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        body = answer.json()
        assert body["object"] == "chat.completion"
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "It is [CENSORED] ok"}
        assert body["choices"][0]["finish_reason"] == "stop"
        (await gateway.metrics()).assert_covered()


async def test_a_stream_that_fails_inside_a_plain_request_is_502() -> None:
    body = chunk(event(delta("It is 12M")) + event({"error": {"message": "12MONKEYS"}}))
    async with before(sending(stream_head() + body + END)) as (gateway, _):
        answer = await gateway.ask()
        assert answer.status_code == 502
        assert "MONKEYS" not in answer.text
        assert "12M" not in answer.text


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_answers(coding: str) -> None:
    def packed(data: bytes) -> bytes:
        return gzip.compress(data) if coding == "gzip" else zlib.compress(data)

    async def play(call: Call) -> None:
        assert call.request.headers["accept-encoding"] == "identity"
        if call.body.get("stream"):
            data = packed(events("It is 12M", "ONKEYS"))
            await call.send(stream_head(f"Content-Encoding: {coding}"), *(chunk(bytes([byte])) for byte in data), END)
        else:
            data = packed(json.dumps(completion("It is 12MONKEYS")).encode())
            await call.send(http(200, data, "application/json", f"Content-Encoding: {coding}"))

    async with before(play) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.done) == ("It is [CENSORED]", True)
        assert "content-encoding" not in answer.response.headers
        whole = await gateway.ask()
        assert whole.json()["choices"][0]["message"]["content"] == "It is [CENSORED]"
        assert "content-encoding" not in whole.headers


async def test_a_compression_bomb_is_refused() -> None:
    bomb = gzip.compress(b'{"x": "' + b"A" * 64 * 1024 * 1024)
    async with before(sending(http(200, bomb, "application/json", "Content-Encoding: gzip"))) as (gateway, _):
        assert (await gateway.ask()).status_code == 502
        assert (await gateway.stream()).error is not None
