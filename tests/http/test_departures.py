"""Clients that leave or do not read: the upstream is let go at once, memory stays bounded. No test looks at a clock."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from gateway.policy.model import Limits
from tests.support.departures import Torrent, sent
from tests.support.endpoints import BODIES, NATIVE, STREAMED
from tests.support.gateway import TIMEOUT, before, question, quick
from tests.support.upstream import (
    DONE,
    END,
    Call,
    Play,
    chunk,
    completion,
    delta,
    event,
    plain,
    sending,
    sending_then_hanging,
    stream_head,
)

# Where the answer stands when the client leaves.
STANDS: dict[str, tuple[bool, Play]] = {
    "stream, before the head": (True, sending_then_hanging()),
    "stream, before the first token": (True, sending_then_hanging(stream_head())),
    "stream, within": (True, sending_then_hanging(stream_head(), chunk(event(delta("Hello 12MON"))))),
    "plain, before the head": (False, sending_then_hanging()),
    "plain, within": (False, sending_then_hanging(plain({"x": "y" * 999})[:300])),
    "error, within": (False, sending_then_hanging(plain({"x": "y" * 999}, 500)[:300])),
}


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("case", STANDS)
async def test_a_client_that_leaves_stops_the_upstream(case: str, how: str) -> None:
    streamed, play = STANDS[case]
    async with before(play) as (gateway, upstream):
        reader, writer = await sent(gateway, question(stream=streamed))
        while not upstream.calls:
            await asyncio.sleep(0.002)
        if streamed and "before the head" not in case:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT)
        if case == "stream, within":
            await asyncio.wait_for(reader.readuntil(b"Hello"), TIMEOUT)
        leave(writer, how)
        # The upstream never ends by itself: only the gateway's leaving ends this wait.
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        line = (await gateway.logged(1))[0]
        assert (line["outcome"], line["error"]) == ("cancelled", "client left")
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_streams_active") == 0
        assert sum(metrics.value(name) for name in metrics.names if name.endswith("upstream_errors_total")) == 0


async def test_a_client_that_leaves_any_endpoint_stops_the_upstream() -> None:
    fetched = ("/v1/responses/resp_1", "/v1/responses/resp_1?stream=true")
    asked = [(path, stream) for path in BODIES if path != "/v1/moderations" for stream in (False, path in STREAMED)]
    async with before(sending_then_hanging(), **NATIVE) as (gateway, upstream):
        for number, (path, stream) in enumerate([*asked, *((path, False) for path in fetched)], start=1):
            body = b"" if path in fetched else json.dumps({**BODIES[path], "stream": stream}).encode()
            url = httpx2.URL(gateway.url)
            _, writer = await asyncio.open_connection(url.host, url.port)
            head = (
                f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            while len(upstream.calls) < number:
                await asyncio.sleep(0.002)
            leave(writer, ("closes", "resets")[number % 2])
            await asyncio.wait_for(upstream.calls[-1].conversation.client_left.wait(), TIMEOUT)
            line = (await gateway.logged(number))[-1]
            assert (line["outcome"], line["error"]) == ("cancelled", "client left"), path
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_streams_active") == 0


def leave(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "resets":
        writer.transport.abort()
    else:
        writer.close()


async def test_a_client_that_leaves_frees_its_place() -> None:
    async with before(sending_then_hanging(stream_head()), limits=Limits(max_streams=1)) as (gateway, upstream):
        for number in range(1, 4):
            reader, writer = await sent(gateway, question(stream=True))
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT)
            assert len(upstream.calls) == number
            writer.close()
            await asyncio.wait_for(upstream.calls[-1].conversation.client_left.wait(), TIMEOUT)
            await gateway.logged(number)


async def test_a_client_that_does_not_read_stops_the_flow_and_is_dropped() -> None:
    torrent = Torrent()
    async with before(torrent.play, limits=Limits(send_timeout=3.0)) as (gateway, upstream):
        _, writer = await sent(gateway, question(stream=True))
        await asyncio.wait_for(torrent.stalled.wait(), TIMEOUT)
        # What the kernel's socket buffers and a few buffers of ours take; the answer itself has no end.
        assert torrent.written < 16 * 1024 * 1024
        line = (await asyncio.wait_for(gateway.logged(1), TIMEOUT))[0]
        assert (line["outcome"], line["error"]) == ("cancelled", "client does not read")
        while not upstream.asked.conversation.writer.is_closing():
            await asyncio.sleep(0.01)
        (await gateway.metrics()).assert_covered()
        writer.transport.abort()


async def test_a_slow_client_gets_everything() -> None:
    texts = [f"{number} " + "x" * 2000 for number in range(400)]

    async def play(call: Call) -> None:
        await call.send(stream_head(), *(chunk(event(delta(text))) for text in texts))
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)

    async with before(play) as (gateway, _):
        reader, writer = await sent(gateway, question(stream=True))
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.wait_for(reader.read(4096), TIMEOUT)
            await asyncio.sleep(0)
        writer.close()
        for number in range(400):
            assert b'"content":"%d x' % number in got
        assert b"[DONE]" in got


async def test_a_total_timeout_ends_a_stream_whose_client_does_not_read() -> None:
    torrent = Torrent()
    async with before(torrent.play, timeouts=quick(total=2.0)) as (gateway, upstream):
        _, writer = await sent(gateway, question(stream=True))
        await asyncio.wait_for(gateway.logged(1), TIMEOUT)
        while not upstream.asked.conversation.writer.is_closing():
            await asyncio.sleep(0.01)
        assert (await gateway.metrics()).value("portcullis_streams_active") == 0
        writer.transport.abort()


async def test_a_client_that_does_not_read_a_whole_answer_is_dropped() -> None:
    answer = plain(completion("x" * 24 * 1024 * 1024))
    limits = Limits(send_timeout=1.0, max_body=32 * 1024 * 1024)
    async with before(sending(answer), limits=limits) as (gateway, _):
        _, writer = await sent(gateway, question())
        line = (await asyncio.wait_for(gateway.logged(1), TIMEOUT))[0]
        assert (line["outcome"], line["error"]) == ("cancelled", "client does not read")
        writer.transport.abort()


async def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    async def play(call: Call) -> None:
        await call.send(stream_head(), chunk(event(delta("Hello "))), chunk(b"data: "))
        while not call.conversation.writer.is_closing():
            await call.send(chunk(b"12MONKEYS" * 8000))

    async with before(play, limits=Limits(max_event=1024 * 1024)) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.content() == "Hello "
        assert answer.error is not None
        assert "MONKEYS" not in answer.response.text
        while not upstream.asked.conversation.writer.is_closing():
            await asyncio.sleep(0.01)


async def test_a_megabyte_in_one_event_passes_censored() -> None:
    text = "lorem 12MONKEYS " * 50_000

    async def play(call: Call) -> None:
        body = event(delta(text)) + event(delta(finish="stop")) + DONE
        await call.send(stream_head() + chunk(body) + END)

    async with before(play) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == text.replace("12MONKEYS", "[CENSORED]")
        (await gateway.metrics()).assert_covered()


async def test_clients_that_leave_one_after_the_other_leave_nothing_behind() -> None:
    async with before(sending_then_hanging(stream_head(), chunk(event(delta("Hi"))))) as (gateway, upstream):
        connections = [await sent(gateway, question(stream=True)) for _ in range(40)]
        for reader, _ in connections:
            await asyncio.wait_for(reader.readuntil(b"Hi"), TIMEOUT)
        assert (await gateway.metrics()).value("portcullis_streams_active") == 40
        for _, writer in connections:
            writer.transport.abort()
        for call in upstream.calls:
            await asyncio.wait_for(call.conversation.client_left.wait(), TIMEOUT)
        await gateway.logged(40)
        assert (await gateway.metrics()).value("portcullis_streams_active") == 0
