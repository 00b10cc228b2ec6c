"""Two whole gateways on one real Redis: a key has its limits once, not once at each."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest

from gateway.limits.redis import script
from gateway.policy.model import ClientKey
from tests.support.gateway import RunningGateway, config_for, error_of, running
from tests.support.redis_servers import PASSWORD, RedisServer
from tests.support.upstream import (
    DONE,
    END,
    Call,
    Play,
    Upstream,
    chunk,
    completion,
    delta,
    event,
    plain,
    playing,
    sending,
    sending_then_closing,
    stream,
    stream_head,
)

pytestmark = pytest.mark.services

KEY = "sk-shared"
RPM = 30


@asynccontextmanager
async def two(
    server: RedisServer | LateSettling, play: Play, **limits: int
) -> AsyncIterator[tuple[RunningGateway, RunningGateway, Upstream]]:
    """Two gateways in front of one upstream, asked with a key that has these limits."""
    key = ClientKey.of(KEY, "team", **limits)
    async with playing(play) as upstream:
        made = config_for(upstream.base_url, keys=(key,), state=server.url)
        async with running(made) as one, running(made) as other:
            for gateway in (one, other):
                gateway.client.headers["authorization"] = f"Bearer {KEY}"
            yield one, other, upstream


async def in_turn(gateway: RunningGateway, count: int) -> list[httpx2.Response]:
    return [await gateway.ask() for _ in range(count)]


async def test_requests_a_minute_are_shared_exactly(redis_server: RedisServer) -> None:
    async with two(redis_server, sending(plain(completion("ok"))), rpm=RPM) as (one, other, upstream):
        began = time.monotonic()
        # Four clients at each gateway, who together ask for more than the limit at either of them.
        asked = await asyncio.gather(*(in_turn(gateway, 10) for gateway in (one, other) for _ in range(4)))
        refilled = (time.monotonic() - began) * RPM / 60
        statuses = Counter(answer.status_code for answers in asked for answer in answers)
        assert statuses.keys() == {200, 429}
        assert RPM <= statuses[200] <= RPM + refilled
        assert len(upstream.calls) == statuses[200]
        # Each of them took part, and each of them refused.
        for gateway in (one, other):
            metrics = await gateway.metrics()
            assert metrics.value("portcullis_key_requests_total", key="team", status="200") > 0
            assert metrics.value("portcullis_limited_total", key="team", reason="requests") > 0


async def test_what_one_has_used_the_other_does_not_have(redis_server: RedisServer) -> None:
    async with two(redis_server, sending(plain(completion("ok"))), rpm=2) as (one, other, _):
        left = [int((await gateway.ask()).headers["x-ratelimit-remaining-requests"]) for gateway in (one, other)]
        assert left == [1, 0]
        for gateway in (one, other):
            assert error_of(await gateway.ask(), 429)["code"] == "rate_limit_exceeded"


async def test_tokens_that_the_upstream_counted_at_one_are_owed_at_the_other(redis_server: RedisServer) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}
    answer = plain({**completion("ok"), "usage": usage})
    async with two(redis_server, sending(answer), tpm=150) as (one, other, upstream):
        assert (await one.ask()).status_code == 200
        assert error_of(await other.ask(), 429)["type"] == "tokens"
        assert len(upstream.calls) == 1


async def test_streams_at_the_same_time_are_shared(redis_server: RedisServer) -> None:
    go_on = asyncio.Event()

    async def play(call: Call) -> None:
        await call.send(stream_head(), chunk(event(delta("Hi"))))
        await go_on.wait()
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)

    async with two(redis_server, play, max_streams=1) as (one, other, upstream):
        running_one = asyncio.create_task(one.stream())
        while not upstream.calls:
            await asyncio.sleep(0.002)
        for gateway in (one, other):
            assert error_of(await gateway.ask(), 429)["type"] == "streams"
        go_on.set()
        assert (await running_one).content() == "Hi"
        assert (await other.stream()).content() == "Hi"


class LateSettling:
    """Stands between the gateways and Redis, and hands on what settles a request only after a while.

    So it shows whether an answer waits for it: the next request comes on another connection, and is not held up.
    """

    DELAY = 0.1  # seconds; a limiter waits for its Redis ten times as long
    SETTLING = hashlib.sha1(script("release").encode()).hexdigest().encode()  # the name that Redis gives the script

    def __init__(self, server: RedisServer) -> None:
        self._behind = urlsplit(server.url)
        self.url = ""

    async def __aenter__(self) -> LateSettling:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        credentials = self._behind.netloc.rpartition("@")[0]
        self.url = urlunsplit(self._behind._replace(netloc=f"{credentials}@127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(self._behind.hostname, self._behind.port)
        await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.SETTLING in data:
                    await asyncio.sleep(self.DELAY)
                writer.write(data)
        writer.close()


IN_TURN = [
    pytest.param(True, sending(stream("12MON", "KEYS")), 200, id="stream"),
    pytest.param(False, sending(plain(completion("ok"))), 200, id="plain"),
    pytest.param(False, sending(plain({"error": {"message": "no"}}, 500)), 500, id="error"),
    pytest.param(True, sending_then_closing(stream_head()), 200, id="cut stream"),
    pytest.param(False, sending_then_closing(), 502, id="no answer"),
    pytest.param(True, sending(plain({}, 401)), 502, id="our own credentials refused"),
]


@pytest.mark.parametrize(("streamed", "play", "status"), IN_TURN)
async def test_a_client_that_asks_in_turn_always_has_its_one_place(
    streamed: bool, play: Play, status: int, redis_server: RedisServer
) -> None:
    async with LateSettling(redis_server) as late, two(late, play, max_streams=1) as (one, other, _):
        for _ in range(3):
            for gateway in (one, other):
                assert (await gateway.ask(stream=streamed)).status_code == status


async def test_a_blocked_prompt_has_its_place_back_before_it_is_told(redis_server: RedisServer) -> None:
    async with LateSettling(redis_server) as late, two(late, sending(b""), max_streams=1) as (one, other, _):
        for gateway in (one, other, one):
            assert error_of(await gateway.ask("detonator"), 400)["code"] == "content_filter"


async def test_without_redis_each_gateway_limits_by_itself(redis_server: RedisServer) -> None:
    async with two(redis_server, sending(plain(completion("ok"))), rpm=1) as (one, other, _):
        redis_server.stop()
        for gateway in (one, other):
            assert (await gateway.ask()).status_code == 200
            refused = await gateway.ask()
            assert error_of(refused, 429)["code"] == "rate_limit_exceeded"
            said = refused.text + gateway.log.getvalue() + (await gateway.metrics()).text
            assert PASSWORD not in said
            assert KEY not in said
