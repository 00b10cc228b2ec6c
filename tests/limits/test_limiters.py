"""What every limiter does, whatever it keeps its state in.

The limits are so low that a unit takes at least ten seconds to come back, longer than a test takes between two steps.
"""

from __future__ import annotations

import asyncio

from gateway.limits import Decision, Limiter, MemoryLimiter
from gateway.policy.model import ClientKey

REQUESTS = ClientKey.of("a", "requests", rpm=3)
TOKENS = ClientKey.of("b", "tokens", tpm=6)
STREAMS = ClientKey.of("c", "streams", max_streams=2)
ALL = ClientKey.of("d", "all", rpm=5, tpm=6, max_streams=2)


async def test_requests_are_admitted_up_to_the_limit(limiter: Limiter) -> None:
    decisions = await asyncio.gather(*(limiter.reserve(REQUESTS, 10) for _ in range(10)))
    assert sum(decision.admitted for decision in decisions) == 3
    refused = next(decision for decision in decisions if not decision.admitted)
    assert refused.reason == "requests"
    assert 0 < refused.retry_after <= 20
    assert refused.requests is not None and refused.requests.remaining == 0
    assert refused.tokens is None


async def test_keys_do_not_share(limiter: Limiter) -> None:
    other = ClientKey.of("e", "other", rpm=3)
    for _ in range(3):
        assert (await limiter.reserve(REQUESTS, 0)).admitted
    assert not (await limiter.reserve(REQUESTS, 0)).admitted
    assert (await limiter.reserve(other, 0)).admitted


async def test_a_key_without_limits_is_admitted_without_gauges(limiter: Limiter) -> None:
    free = ClientKey.of("f", "free")
    assert await limiter.reserve(free, 10**9) == Decision(True)
    await limiter.release(free, 10**9, 5)


async def test_a_refusal_takes_nothing(limiter: Limiter) -> None:
    first = await limiter.reserve(ALL, 4)
    for _ in range(10):
        assert (await limiter.reserve(ALL, 4)).reason == "tokens"
    second = await limiter.reserve(ALL, 2)
    assert first.requests is not None and second.requests is not None
    assert (first.requests.remaining, second.requests.remaining) == (4, 3)
    assert (await limiter.reserve(ALL, 0)).reason == "streams"


async def test_what_was_not_used_is_given_back(limiter: Limiter) -> None:
    assert (await limiter.reserve(TOKENS, 6)).admitted
    assert (await limiter.reserve(TOKENS, 1)).reason == "tokens"
    await limiter.release(TOKENS, 6, 2)
    assert (await limiter.reserve(TOKENS, 4)).admitted
    assert not (await limiter.reserve(TOKENS, 1)).admitted


async def test_what_was_used_beyond_the_estimate_is_owed(limiter: Limiter) -> None:
    assert (await limiter.reserve(TOKENS, 1)).admitted
    await limiter.release(TOKENS, 1, 10)
    refused = await limiter.reserve(TOKENS, 0)
    assert refused.reason == "tokens"
    assert 30 < refused.retry_after <= 40


async def test_the_debt_ends_at_one_minute(limiter: Limiter) -> None:
    assert (await limiter.reserve(TOKENS, 1)).admitted
    await limiter.release(TOKENS, 1, 10**400)
    refused = await limiter.reserve(TOKENS, 0)
    assert 50 < refused.retry_after <= 60
    assert refused.tokens is not None
    assert refused.tokens.remaining == 0
    assert 110 < refused.tokens.reset <= 120


async def test_a_correction_fills_no_more_than_the_bucket(limiter: Limiter) -> None:
    assert (await limiter.reserve(TOKENS, 1)).admitted
    await limiter.release(TOKENS, 1, -(10**400))
    assert (await limiter.reserve(TOKENS, 6)).admitted
    assert not (await limiter.reserve(TOKENS, 1)).admitted


async def test_more_tokens_than_a_minute_has_are_too_large(limiter: Limiter) -> None:
    for tokens in (7, 10**400):
        decision = await limiter.reserve(TOKENS, tokens)
        assert (decision.admitted, decision.reason, decision.too_large) == (False, "tokens", True)
    assert (await limiter.reserve(TOKENS, 6)).admitted


async def test_streams_are_given_back(limiter: Limiter) -> None:
    assert [(await limiter.reserve(STREAMS, 0)).admitted for _ in range(3)] == [True, True, False]
    await limiter.release(STREAMS, 0, 50)
    assert [(await limiter.reserve(STREAMS, 0)).admitted for _ in range(2)] == [True, False]


async def test_a_changed_limit_holds_at_once(limiter: Limiter) -> None:
    for _ in range(3):
        assert (await limiter.reserve(REQUESTS, 0)).admitted
    narrower = ClientKey.of("a", "requests", rpm=2, max_streams=3)
    assert (await limiter.reserve(narrower, 0)).reason == "requests"
    assert (await limiter.reserve(ClientKey.of("a", "requests", max_streams=3), 0)).reason == "streams"


async def test_time_brings_requests_back() -> None:
    now = 1000.0
    limiter = MemoryLimiter(clock=lambda: now)
    for _ in range(3):
        assert (await limiter.reserve(REQUESTS, 0)).admitted
    refused = await limiter.reserve(REQUESTS, 0)
    assert refused.retry_after == 20
    now += 19.9
    assert not (await limiter.reserve(REQUESTS, 0)).admitted
    now += 0.2
    assert (await limiter.reserve(REQUESTS, 0)).admitted
