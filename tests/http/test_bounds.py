"""Bounds on what comes before a request, and on what would keep the event loop from everybody else."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Generator
from typing import Any

import httpx2
import pytest

from gateway.policy.model import Limits
from gateway.proxy import asgi, relay
from gateway.proxy.downstream import protocol
from tests.support.departures import Torrent, sent
from tests.support.gateway import PASSWORD, TIMEOUT, RunningGateway, before, error_of, question
from tests.support.upstream import (
    DONE,
    END,
    Call,
    chunk,
    completion,
    delta,
    event,
    http,
    plain,
    sending,
    stream,
    stream_head,
)

ANSWER = sending(plain(completion("fine")))


async def connected(gateway: RunningGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), TIMEOUT) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("begins", [b"", b"GET / HTTP/1.1\r\nx: "])
async def test_a_head_that_never_comes_is_cut_off(begins: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT", 0.3)
    async with before(ANSWER) as (gateway, _):
        reader, writer = await connected(gateway)
        writer.write(begins)
        assert await is_cut_off(reader)
        writer.close()
        assert (await gateway.ask()).status_code == 200


async def test_a_large_body_behind_a_small_head_is_no_large_head() -> None:
    async with before(ANSWER) as (gateway, _):
        for _ in range(2):
            assert (await gateway.ask("x" * (4 * protocol.MAX_HEAD))).status_code == 200


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
async def test_an_offer_to_upgrade_is_ignored_and_the_body_is_read(offer: str) -> None:
    headers = {"connection": "Upgrade, HTTP2-Settings", "upgrade": offer, "http2-settings": "AAEAAEAAAAIAAAAB"}
    async with before(ANSWER) as (gateway, _):
        for _ in range(2):
            assert (await gateway.post(question("\r\nUpgrade: x"), headers)).status_code == 200


async def test_d33_a_client_that_does_not_read_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    torrent = Torrent()
    async with before(torrent.play, limits=Limits(send_timeout=1.0)) as (gateway, _):
        reader, writer = await sent(gateway, question(stream=True))
        assert (await gateway.logged(1))[0]["error"] == "client does not read"
        # What the kernel holds can still be read; an orderly close would continue to send what was buffered here.
        with pytest.raises(ConnectionResetError):
            while await asyncio.wait_for(reader.read(1 << 20), TIMEOUT):
                pass
        writer.close()
        assert not [record for record in caplog.records if record.name == "uvicorn.error"]


@pytest.mark.parametrize("filling", [b":\n", b"ignored\n"])
async def test_others_get_their_turn_beside_a_compressed_flood(filling: bytes) -> None:
    flood = gzip.compress(filling * (8 << 20))
    answer = http(200, flood, "text/event-stream", "content-encoding: gzip")
    async with before(sending(answer)) as (gateway, _):
        flooded = asyncio.create_task(gateway.ask(stream=True))
        await asyncio.sleep(0.2)
        assert (await gateway.client.get("/healthz")).status_code == 200
        assert not flooded.done()
        flooded.cancel()
        await asyncio.gather(flooded, return_exceptions=True)


async def test_a_large_event_is_scanned_like_any_other() -> None:
    text = f"{PASSWORD} and {'x' * 100_000} and {PASSWORD}"
    async with before(sending(stream(text[:50_000], text[50_000:]))) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == text.replace(PASSWORD, "[CENSORED]")


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What a relay hands over to be done aside: the work's name, and its size in bytes, weighed."""
    seen: list[tuple[str, int]] = []

    async def noting(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
        seen.append((work.__name__, size))
        return await asgi.offload(size, work, *arguments)

    monkeypatch.setattr(relay, "offload", noting)
    return seen


@pytest.mark.parametrize("streams", [False, True])
async def test_d7_an_event_in_small_reads_is_weighed_whole(streams: bool, handed: list[tuple[str, int]]) -> None:
    async def play(call: Call) -> None:
        data = event(delta("x" * (2 * asgi.MAX_INLINE)))
        await call.send(stream_head())
        for at in range(0, len(data), 4096):
            await call.send(chunk(data[at : at + 4096]))
            await asyncio.sleep(0.002)  # so that it is a read of its own
        await call.send(chunk(DONE) + END)

    async with before(play) as (gateway, _):
        assert (await gateway.ask(stream=streams)).status_code == 200
    assert max(size for work, size in handed if work == "feed") > 2 * asgi.MAX_INLINE


async def test_d7_small_events_are_not_weighed_together(handed: list[tuple[str, int]]) -> None:
    async def play(call: Call) -> None:
        await call.send(stream_head())
        for _ in range(32):
            await call.send(chunk(event(delta("x" * (asgi.MAX_INLINE // 8)))))
            await asyncio.sleep(0.002)
        await call.send(chunk(DONE) + END)

    async with before(play) as (gateway, _):
        assert (await gateway.ask()).status_code == 200
    assert [size for work, size in handed if work == "feed" and size > asgi.MAX_INLINE] == []


async def test_d7_the_body_of_an_error_is_read_aside(handed: list[tuple[str, int]]) -> None:
    said = {"error": {"message": "x" * 100_000, "code": "c"}}
    async with before(sending(plain(said, 500))) as (gateway, _):
        assert error_of(await gateway.ask(), 500)["message"] == "x" * 100_000
    assert [size > 100_000 for work, size in handed] == [True]


async def test_d26_a_client_that_leaves_ends_the_scanning_of_its_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def endless(*_: object) -> Generator[int, None, None]:
        try:
            while True:
                loop.call_soon_threadsafe(begun.set)
                yield asgi.JOB_SLICE
        finally:
            ended.set()

    monkeypatch.setattr("gateway.proxy.admission.guarding_prompt", endless)
    async with before(ANSWER, limits=Limits(max_streams=1)) as (gateway, upstream):
        _, writer = await sent(gateway, question("x" * 100_000))
        await asyncio.wait_for(begun.wait(), TIMEOUT)
        assert (await gateway.client.get("/healthz")).status_code == 200
        writer.close()
        line = (await gateway.logged(1))[0]
        assert (line["status"], line["error"]) == (400, "client_left")
        assert ended.is_set()
        assert not upstream.calls
        monkeypatch.undo()
        assert (await gateway.ask()).status_code == 200, "its place is free again"


@pytest.mark.parametrize("field", ["Messages", "Vllm_Xargs", "STREAM"])
async def test_a_field_in_another_case_is_refused(field: str) -> None:
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await gateway.post(question() | {field: [{"content": PASSWORD}]}), 400)
        assert error["param"] == field.lower()
        assert not upstream.calls
