"""Bounds on what comes before a request, and on what would keep the event loop from everybody else."""

from __future__ import annotations

import asyncio
import gzip

import httpx
import pytest

from gateway.policy.model import Limits
from gateway.proxy import server
from tests.http.gateway import PASSWORD, PATIENCE, RunningGateway, before, error_of, question
from tests.http.test_departures import Torrent, sent
from tests.http.upstream import completion, http, plain, sending, stream

ANSWER = sending(plain(completion("fine")))


async def connected(gateway: RunningGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", httpx.URL(gateway.url).port)


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("begins", [b"GET /", b"GET / HTTP/1.1\r\nx: "])
async def test_a_head_without_end_is_cut_off(begins: bytes) -> None:
    async with before(ANSWER) as (gateway, _):
        reader, writer = await connected(gateway)
        writer.write(begins + b"a" * (2 * server.MAX_HEAD))
        assert await is_cut_off(reader)
        writer.close()
        assert (await gateway.ask()).status_code == 200


@pytest.mark.parametrize("begins", [b"", b"GET / HTTP/1.1\r\nx: "])
async def test_a_head_that_never_comes_is_cut_off(begins: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_PATIENCE", 0.3)
    async with before(ANSWER) as (gateway, _):
        reader, writer = await connected(gateway)
        writer.write(begins)
        assert await is_cut_off(reader)
        writer.close()
        assert (await gateway.ask()).status_code == 200


async def test_a_large_body_behind_a_small_head_is_no_large_head() -> None:
    async with before(ANSWER) as (gateway, _):
        for _ in range(2):
            assert (await gateway.ask("x" * (4 * server.MAX_HEAD))).status_code == 200


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
async def test_an_offer_to_upgrade_is_ignored_and_the_body_is_read(offer: str) -> None:
    headers = {"connection": "Upgrade, HTTP2-Settings", "upgrade": offer, "http2-settings": "AAEAAEAAAAIAAAAB"}
    async with before(ANSWER) as (gateway, _):
        for _ in range(2):
            assert (await gateway.post(question("\r\nUpgrade: x"), headers)).status_code == 200


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    torrent = Torrent()
    async with before(torrent.play, limits=Limits(send_timeout=1.0)) as (gateway, _):
        reader, writer = await sent(gateway, question(stream=True))
        assert (await gateway.logged(1))[0]["error"] == "client does not read"
        # What the kernel holds can still be read; an orderly close would go on to send what was buffered here.
        with pytest.raises(ConnectionResetError):
            while await asyncio.wait_for(reader.read(1 << 20), PATIENCE):
                pass
        writer.close()


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


@pytest.mark.parametrize("field", ["Messages", "Vllm_Xargs", "STREAM"])
async def test_a_field_in_another_case_is_refused(field: str) -> None:
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await gateway.post(question() | {field: [{"content": PASSWORD}]}), 400)
        assert error["param"] == field.lower()
        assert not upstream.calls
