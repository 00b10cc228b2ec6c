"""Several gateways on one real Redis, which comes and goes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from gateway.limits import Decision
from gateway.limits import redis as redis_limits
from gateway.limits.redis import RedisLimiter
from gateway.policy.model import ClientKey
from tests.support.limit_process import KEY, KEY_RPM, NARROW, Process
from tests.support.redis_servers import PASSWORD, RedisServer

TIMEOUT = 30.0
STREAMS = ClientKey.of("c", "streams", max_streams=2)
TOKENS = ClientKey.of("b", "tokens", tpm=6)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await condition():
            await asyncio.sleep(0.02)


def limiter_on(server: RedisServer, timeout: float = TIMEOUT, lease: float = 60.0) -> RedisLimiter:
    return RedisLimiter(server.url, timeout=timeout, lease=lease)


@pytest.mark.services
def test_two_gateways_together_admit_exactly_the_limit(redis_server: RedisServer) -> None:
    gateways = [Process("redis", redis_server.url, 60) for _ in range(2)]
    try:
        for gateway in gateways:
            gateway.wait_ready()
        began = time.monotonic()
        for gateway in gateways:
            gateway.ask(KEY, KEY_RPM)
        answers = [gateway.answer() for gateway in gateways]
        refilled = (time.monotonic() - began) * KEY_RPM / 60
    finally:
        for gateway in gateways:
            gateway.kill()
    assert [answer.failures for answer in answers] == [0, 0]
    assert KEY_RPM <= sum(answer.admitted for answer in answers) <= KEY_RPM + refilled


@pytest.mark.services
async def test_a_gateway_that_dies_gives_its_streams_back(redis_server: RedisServer) -> None:
    survivor = limiter_on(redis_server, lease=1.0)
    gateway = Process("redis", redis_server.url, 1.0)
    try:
        gateway.wait_ready()
        gateway.ask(NARROW, 5)
        assert gateway.answer().admitted == 3
    finally:
        gateway.kill()

    async def admitted() -> bool:
        return (await survivor.reserve(NARROW, 0)).admitted

    await until(admitted)
    assert survivor.failures == 0
    await survivor.close()


@pytest.mark.services
async def test_a_stream_that_goes_on_keeps_its_lease(redis_server: RedisServer) -> None:
    lease = 1.5
    one, other = limiter_on(redis_server, lease=lease), limiter_on(redis_server, lease=lease)
    assert [(await one.reserve(STREAMS, 0)).admitted for _ in range(2)] == [True, True]
    async with Redis.from_url(redis_server.url) as redis:

        async def expiry() -> float:
            first_to_expire = await redis.zrange("portcullis:streams:streams", 0, 0, withscores=True)
            return float(first_to_expire[0][1])

        first = await expiry()

        async def renewed_past_the_first_lease() -> bool:
            return await expiry() > first + 1.5 * lease * 1_000_000

        await until(renewed_past_the_first_lease)
    assert (await other.reserve(STREAMS, 0)).reason == "streams"
    await one.close()
    assert (await other.reserve(STREAMS, 0)).admitted, "a gateway that ends in order gives its streams back at once"
    await other.close()


@pytest.mark.services
async def test_a_stream_that_ends_while_it_is_renewed_leaves_no_lease(redis_server: RedisServer) -> None:
    limiter = limiter_on(redis_server)
    async with Redis.from_url(redis_server.url) as redis:
        for _ in range(20):
            # A script that Redis has to be sent first takes more ways than one that it knows: so the renewal, which
            # is scheduled for every 20 seconds and asked for here, arrives behind the end of the streams.
            await redis.script_flush()
            await limiter.reserve(NARROW, 0)
            await limiter.release(NARROW, 0, 0)
            streams = [await limiter.reserve(NARROW, 0) for _ in range(3)]
            assert all(stream.admitted for stream in streams)
            await asyncio.gather(limiter._renew(NARROW.name), *(limiter.release(NARROW, 0, 0) for _ in streams))
            assert await redis.zcard("portcullis:narrow:streams") == 0
    await limiter.close()


@pytest.mark.services
async def test_without_redis_the_limits_hold_for_this_gateway_and_then_for_all_again(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_limits, "PAUSE", 0.05)
    one, other = (limiter_on(redis_server, lease=0.3) for _ in range(2))
    assert (await one.reserve(STREAMS, 0)).admitted
    redis_server.stop()
    assert [(await one.reserve(STREAMS, 0)).admitted for _ in range(2)] == [True, False]
    assert one.failures >= 2
    assert one.last_failure == "ConnectionError"
    redis_server.start()

    async def refused_by_redis() -> bool:
        """Redis lost all; the first gateway's renewal tells it of both streams, also of the one it never saw."""
        decision = await other.reserve(STREAMS, 0)
        if decision.admitted:
            await other.release(STREAMS, 0, 0)
        return decision.reason == "streams"

    await until(refused_by_redis)
    assert other.failures == 0
    await one.release(STREAMS, 0, 0)
    assert (await other.reserve(STREAMS, 0)).admitted
    await one.close()
    await other.close()


@pytest.mark.services
async def test_tokens_that_redis_never_reserved_are_charged_when_they_are_settled(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_limits, "PAUSE", 0.05)
    one, other = limiter_on(redis_server), limiter_on(redis_server)
    redis_server.stop()
    assert (await one.reserve(TOKENS, 2)).admitted
    redis_server.start()
    failures = -1

    async def back() -> bool:
        nonlocal failures
        failures = one.failures
        await one.reserve(ClientKey.of("p", "probe", rpm=1), 0)
        return one.failures == failures

    await until(back)
    await one.release(TOKENS, 2, 4)
    assert (await other.reserve(TOKENS, 3)).reason == "tokens"
    assert (await other.reserve(TOKENS, 2)).admitted
    await one.close()
    await other.close()


@pytest.mark.services
async def test_a_redis_that_does_not_answer_costs_one_timeout_and_then_nothing(redis_server: RedisServer) -> None:
    limiter = limiter_on(redis_server, timeout=0.2)
    await until(lambda: _admitted_by_redis(limiter))
    redis_server.suspend()
    before = limiter.failures
    decisions = [await limiter.reserve(STREAMS, 0) for _ in range(50)]
    assert sum(decision.admitted for decision in decisions) == 1, "one stream was open before"
    assert limiter.failures == before + 50
    assert limiter.last_failure == "TimeoutError"
    redis_server.resume()
    await until(lambda: _admitted_by_redis(limiter))
    await limiter.close()


@pytest.mark.services
async def test_one_request_at_a_time_tries_a_redis_that_does_not_answer(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_limits, "PAUSE", 0.5)
    limiter = limiter_on(redis_server, timeout=0.5)
    redis_server.suspend()
    await limiter.reserve(STREAMS, 0)
    waiting: set[asyncio.Task[Decision]] = set()

    async def one_waits() -> bool:
        tasks = [asyncio.create_task(limiter.reserve(STREAMS, 0)) for _ in range(20)]
        await asyncio.sleep(0)
        waiting.update(task for task in tasks if not task.done())
        assert len(waiting) <= 1
        return len(waiting) == 1

    await until(one_waits)
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*waiting)
    await limiter.close()


async def _admitted_by_redis(limiter: RedisLimiter) -> bool:
    before = limiter.failures
    decision = await limiter.reserve(STREAMS, 0)
    by_redis = limiter.failures == before
    if decision.admitted and not by_redis:
        await limiter.release(STREAMS, 0, 0)
    return by_redis


@pytest.mark.services
async def test_a_wrong_password_is_a_failure_that_does_not_show_it(redis_server: RedisServer) -> None:
    limiter = RedisLimiter(redis_server.url.replace("s3cret", "guess"), timeout=TIMEOUT)
    assert (await limiter.reserve(STREAMS, 0)).admitted
    assert limiter.failures == 1
    assert limiter.last_failure == "AuthenticationError"
    await limiter.close()


@pytest.mark.services
async def test_redis_keeps_names_and_numbers_for_a_while_and_no_key(redis_server: RedisServer) -> None:
    limiter = limiter_on(redis_server)
    key = ClientKey.of("the key in clear", "everything", rpm=5, tpm=100, max_streams=2)
    await limiter.reserve(key, 10)
    async with Redis.from_url(redis_server.url, decode_responses=True) as redis:
        names = sorted(await redis.keys("*"))
        assert names == ["portcullis:everything:buckets", "portcullis:everything:streams"]
        assert sorted(await redis.hgetall(names[0])) == ["requests", "requests_at", "tokens", "tokens_at"]
        assert [0 < await redis.ttl(name) <= 180 for name in names] == [True, True]
    await limiter.close()


@pytest.mark.services
async def test_a_clock_that_went_back_does_not_stop_the_refill(redis_server: RedisServer) -> None:
    limiter = limiter_on(redis_server)
    key = ClientKey.of("d", "requests", rpm=1)
    assert (await limiter.reserve(key, 0)).admitted
    async with Redis.from_url(redis_server.url) as redis:
        ahead = int((await redis.hget("portcullis:requests:buckets", "requests_at")) or 0) + 10**12
        await redis.hset("portcullis:requests:buckets", "requests_at", str(ahead))
        assert (await limiter.reserve(key, 0)).reason == "requests"
        assert int((await redis.hget("portcullis:requests:buckets", "requests_at")) or ahead) < ahead
    await limiter.close()


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@localhost",
        "redis://:pass/word@localhost:6379",
        "redis://:word@[::1/0",
        "redis://:word@localhost/0?socket_timeout=word",
        "redis://:word@localhost/0?word=1",
        "",
    ],
)
def test_a_url_that_is_none_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="not a Redis URL") as refused:
        RedisLimiter(url)
    assert "word" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_nothing_shows_the_password() -> None:
    limiter = RedisLimiter("redis://:the-word@localhost:1/0")
    assert "the-word" not in repr(limiter) + str(limiter)


def test_without_the_package_the_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['redis'] = None; import gateway.limits, gateway.limits.redis"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=TIMEOUT)
    assert "ImportError: limits in Redis need the package redis: pip install -e '.[redis]'" in done.stderr
