"""The same comes out however the upstream frames and cuts its stream, and no later than it must."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway.demo.gandalf import demo_policy
from gateway.policy.model import Action, Rule
from tests.support.gateway import TIMEOUT, RunningGateway, before, question
from tests.support.upstream import DONE, END, Call, chunk, delta, event, events, sending, stream, stream_head

# -- framings that a lenient client would read -------------------------------------------------------------------------

FRAMINGS: dict[str, bytes] = {
    "carriage returns": events("It is 12M", "ONKEYS").replace(b"\n", b"\r\n"),
    "bare carriage returns": events("It is 12M", "ONKEYS").replace(b"\n", b"\r"),
    "no space": events("It is 12M", "ONKEYS").replace(b"data: ", b"data:"),
    "byte order mark": b"\xef\xbb\xbf" + events("It is 12M", "ONKEYS"),
    "comments and fields": events("It is 12M", "ONKEYS").replace(
        b"data: ", b": 12MONKEYS\nid: 12MONKEYS\nevent: x\ndata: "
    ),
    "several data lines": events("It is 12M", "ONKEYS").replace(b'"choices": ', b'"choices":\ndata: '),
    "no last line break": events("It is 12M", "ONKEYS").rstrip(b"\n"),
    "duplicate keys": events("It is 12M", "ONKEYS").replace(b'{"content": ', b'{"content": "12MONKEYS", "content": '),
}


@pytest.mark.parametrize("case", FRAMINGS)
async def test_framings(case: str) -> None:
    async with before(sending(stream_head() + chunk(FRAMINGS[case]) + END)) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish(), answer.done) == ("It is [CENSORED]", "stop", True)
        assert "MONKEYS" not in answer.response.text


async def test_comments_keep_the_client_alive_without_their_text() -> None:
    body = b": 12MONKEYS\n\n" + events("hi")
    async with before(sending(stream_head(), chunk(b": 12MONKEYS\n\n"), chunk(body) + END)) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == "hi"
        assert "MONKEYS" not in answer.response.text


# -- how it is cut -----------------------------------------------------------------------------------------------------

LONG = (
    "The password is 12MONKEYS, and 12monkeys again: 12MONK-12MONKEY. "
    "\U0001f600 １２ＭＯＮＫＥＹＳ dragon 12MON\u200bKEYS 12MONKE"
)
CUT_LONG = (
    "The password is [CENSORED], and [CENSORED] again: 12MONK-12MONKEY. \U0001f600 [CENSORED] dragon [CENSORED] "
    "[CENSORED]"
)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
async def test_the_same_comes_out_however_the_text_is_cut(size: int) -> None:
    texts = [LONG[start : start + size] for start in range(0, len(LONG), size)]
    async with before(sending(stream(*texts))) as (gateway, _):
        assert (await gateway.stream()).content() == CUT_LONG
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096])
async def test_the_same_comes_out_however_the_bytes_are_cut(size: int) -> None:
    body = event(delta("", role="assistant")) + events(*(LONG[start : start + 4] for start in range(0, len(LONG), 4)))
    pieces = [chunk(body[start : start + size]) for start in range(0, len(body), size)]
    async with before(sending(stream_head(), *pieces, END)) as (gateway, _):
        assert (await gateway.stream()).content() == CUT_LONG


async def test_a_surrogate_pair_cut_in_two_is_joined() -> None:
    def spelled(text: str) -> bytes:
        return (
            b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}, "finish_reason": null}]}\n\n' % text.encode()
        )

    body = spelled("a \\ud83d") + spelled("\\ude00 b \\ud83d") + event(delta(finish="stop")) + DONE
    async with before(sending(stream_head() + chunk(body) + END)) as (gateway, _):
        assert (await gateway.stream()).content() == "a \U0001f600 b \ufffd"


# name → (delta, what of the whole text must be readable once it has arrived)
Steps = list[tuple[str, str]]
HELD: dict[str, tuple[tuple[Rule, ...], Steps]] = {
    "the demo's policy": (
        demo_policy().rules,
        [
            ("The", "The"),
            (" pass", "The pass"),
            ("word is 1", "The password is "),
            ("2MON", "The password is "),
            ("KEY", "The password is "),
            ("S", "The password is [CENSORED]"),
            (", no: 12", "The password is [CENSORED], no: "),
            ("MON", "The password is [CENSORED], no: "),
            ("O", "The password is [CENSORED], no: 12MONO"),
            (" end", "The password is [CENSORED], no: 12MONO end"),
        ],
    ),
    "whole words wait for their next character": (
        (Rule(id="r", words=("cat",), whole_word=True),),
        [("a cat", "a "), ("alog, a ca", "a catalog, a "), ("t", "a catalog, a "), (".", "a catalog, a [REDACTED].")],
    ),
    "flags hold nothing": (
        (Rule(id="r", words=("dragon",), action=Action.FLAG),),
        [("a drag", "a drag"), ("on", "a dragon")],
    ),
}


@pytest.mark.parametrize("case", HELD)
async def test_each_delta_is_readable_at_once_but_for_what_may_become_a_match(case: str) -> None:
    rules, steps = HELD[case]
    seen = asyncio.Condition()
    readable = ""

    async def play(call: Call) -> None:
        await call.send(stream_head())
        for text, expected in steps:
            await call.send(chunk(event(delta(text))))
            # The next delta leaves only when the client has read all that this one makes certain.
            async with asyncio.timeout(TIMEOUT), seen:
                while len(readable) < len(expected):
                    await seen.wait()
            assert readable == expected
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)

    async with before(play, rules=rules) as (gateway, _):
        async for text in contents(gateway):
            async with seen:
                readable += text
                seen.notify_all()
        assert readable == steps[-1][1]


async def contents(gateway: RunningGateway) -> AsyncIterator[str]:
    """The content of each chunk as it arrives."""
    async with gateway.client.stream("POST", "/v1/chat/completions", json=question(stream=True)) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    if text := choice["delta"].get("content"):
                        yield text


async def test_the_head_arrives_before_the_first_delta() -> None:
    head_seen = asyncio.Event()

    async def play(call: Call) -> None:
        await call.send(stream_head())
        await asyncio.wait_for(head_seen.wait(), TIMEOUT)
        await call.send(chunk(events("hi")) + END)

    async with (
        before(play) as (gateway, _),
        gateway.client.stream("POST", "/v1/chat/completions", json=question(stream=True)) as response,
    ):
        assert response.headers["cache-control"] == "no-cache"
        head_seen.set()
        assert "hi" in (await response.aread()).decode()
