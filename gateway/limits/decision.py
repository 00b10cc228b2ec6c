"""The decision about a request, its response headers, and the protocol of limiters; and what one client key has used of
its limits: pure functions over frozen state, wherever it is stored; the time is passed in.

A limit of N a minute is a bucket that holds N and refills by N / 60 a second. So a key that was quiet may use a whole
minute's worth at once, and within any t seconds no more than N + t * N / 60 are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.policy.model import ClientKey

MINUTE = 60.0
# The end of a stream cannot be predicted, so this is only a pause that keeps a client from polling.
STREAM_PAUSE = 1.0

Reason = Literal["", "requests", "tokens", "streams"]


@dataclass(frozen=True, slots=True)
class Gauge:
    """One limit a minute: what `remaining` of `limit` may be used at once, and the seconds until it is full again."""

    limit: int
    remaining: int
    reset: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request may continue; where not, `reason` names the limit with the longest wait.

    `retry_after` is in seconds, 0 when admitted. `requests` and `tokens` are None where the key has no such limit.
    `too_large`: the request wants more tokens than a minute's limit, so that no wait helps.
    """

    admitted: bool
    retry_after: float = 0.0
    reason: Reason = ""
    requests: Gauge | None = None
    tokens: Gauge | None = None
    too_large: bool = False


class Limiter(Protocol):
    """Keeps every client key within its own limits. Nothing here raises when shared storage fails: then each process
    limits by itself."""

    async def reserve(self, key: ClientKey, tokens: int) -> Decision:
        """Count one request, reserve `tokens` (an estimate, at least 0) and one open stream: all of it or nothing."""
        ...

    async def release(self, key: ClientKey, reserved: int, used: int) -> None:
        """An admitted request ended: its stream is released, its tokens corrected from `reserved` to `used`.

        Once for every admission, with the key that was admitted. The correction may leave the key in debt, down to
        minus one minute's tokens.
        """
        ...

    async def close(self) -> None:
        """Release files, connections and tasks; the limiter must not be used afterwards."""
        ...


def headers(decision: Decision) -> dict[str, str]:
    """The decision as response headers, names in lower case: OpenAI's `x-ratelimit-*`, `retry-after` when refused.

    `x-should-retry: false` keeps official clients from retrying a request that no wait makes admissible.
    """
    made: dict[str, str] = {}
    for name, gauge in (("requests", decision.requests), ("tokens", decision.tokens)):
        if gauge is not None:
            made[f"x-ratelimit-limit-{name}"] = str(gauge.limit)
            made[f"x-ratelimit-remaining-{name}"] = str(gauge.remaining)
            made[f"x-ratelimit-reset-{name}"] = duration(gauge.reset)
    if not decision.admitted:
        made["retry-after"] = str(max(1, math.ceil(decision.retry_after)))
    if decision.too_large:
        made["x-should-retry"] = "false"
    return made


def duration(seconds: float) -> str:
    """Seconds as OpenAI writes them, rounded up to milliseconds: `6m0s`, `8.64s`, `20ms`, `0s`."""
    milliseconds = math.ceil(round(seconds * 1000, 6))  # without the noise of the multiplication
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{larger}{rest / 1000:.15g}s"


# -- what a key has used -----------------------------------------------------------------------------------------------


UNLIMITED = Decision(admitted=True)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was left, `level`, at the time `at` (seconds of a clock that the caller chooses). Below 0 is debt."""

    level: float
    at: float


# More than any limit: it counts as full before the limit is known, and after the limit was raised.
FULL = Bucket(math.inf, 0.0)


def level(bucket: Bucket, limit: int, now: float) -> float:
    """What is left at `now`, refilled since `bucket.at`; at most `limit`.

    A clock that went back refills nothing.
    """
    return min(limit, bucket.level + max(0.0, now - bucket.at) * limit / MINUTE)


def drawn(bucket: Bucket, limit: int, amount: int, now: float) -> Bucket:
    """The bucket with `amount` less, or more where that is negative; between a full bucket and one bucket of debt.

    The caller checks before whether there is enough: an amount that became known late is drawn in any case.
    """
    # The level lies within one limit of 0, so more than two change nothing; and a larger integer may be no float.
    bounded = max(-2 * limit, min(2 * limit, amount))
    return Bucket(max(-limit, min(limit, level(bucket, limit, now) - bounded)), now)


def seconds_until(wanted: float, have: float, limit: int) -> float:
    """How long a bucket that has `have` takes to refill to `wanted`; 0 if it has as much."""
    return max(0.0, wanted - have) * MINUTE / limit


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining quota at a time: None where the key has no such limit. `streams` are those that are open."""

    requests: float | None
    tokens: float | None
    streams: int


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """A key's two buckets and its open streams. A key that was never seen has the default."""

    requests: Bucket = FULL
    tokens: Bucket = FULL
    streams: int = 0

    def remaining(self, key: ClientKey, now: float) -> Remaining:
        return Remaining(
            requests=None if key.rpm is None else level(self.requests, key.rpm, now),
            tokens=None if key.tpm is None else level(self.tokens, key.tpm, now),
            streams=self.streams,
        )

    def changed(self, key: ClientKey, now: float, *, requests: int = 0, tokens: int = 0, streams: int = 0) -> KeyUsage:
        """With so much more used (negative: less), refilled up to `now`.

        To store this after a refusal matters where the clock may have gone back (another boot, another server): the
        level would not rise before the clock passes the time that is stored.
        """
        return KeyUsage(
            requests=self.requests if key.rpm is None else drawn(self.requests, key.rpm, requests, now),
            tokens=self.tokens if key.tpm is None else drawn(self.tokens, key.tpm, tokens, now),
            streams=max(0, self.streams + streams),
        )


def is_limited(key: ClientKey) -> bool:
    return not (key.rpm is None and key.tpm is None and key.max_streams is None)


def decide(key: ClientKey, remaining: Remaining, tokens: int) -> Decision:
    """Is a request with `tokens` within the limits? The decision's gauges are those after the request, if admitted."""
    too_large = key.tpm is not None and tokens > key.tpm
    waits = _waits(key, remaining, tokens)
    admitted = not waits
    return Decision(
        admitted=admitted,
        retry_after=max(waits.values(), default=0.0),
        reason="tokens" if too_large else max(waits, key=lambda reason: waits[reason], default=""),
        requests=_gauge(key.rpm, remaining.requests, 1 if admitted else 0),
        tokens=_gauge(key.tpm, remaining.tokens, tokens if admitted else 0),
        too_large=too_large,
    )


def _waits(key: ClientKey, remaining: Remaining, tokens: int) -> dict[Reason, float]:
    """Seconds for each limit that is exceeded."""
    waits: dict[Reason, float] = {}
    if key.rpm is not None and remaining.requests is not None and remaining.requests < 1:
        waits["requests"] = seconds_until(1, remaining.requests, key.rpm)
    if key.tpm is not None and remaining.tokens is not None and remaining.tokens < tokens:
        waits["tokens"] = seconds_until(min(tokens, key.tpm), remaining.tokens, key.tpm)
    if key.max_streams is not None and remaining.streams >= key.max_streams:
        waits["streams"] = STREAM_PAUSE
    return waits


def _gauge(limit: int | None, left: float | None, used: int) -> Gauge | None:
    if limit is None or left is None:
        return None
    after = left - used
    return Gauge(limit, max(0, int(after)), seconds_until(limit, after, limit))
