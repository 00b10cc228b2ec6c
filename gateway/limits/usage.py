"""What one client key has used of its limits, and whether a request is within them: pure functions over frozen state,
wherever it is stored; the time is passed in.

A limit of N a minute is a bucket that holds N and refills by N / 60 a second. So a key that was quiet may use a whole
minute's worth at once, and within any t seconds no more than N + t * N / 60 are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gateway.limits.decision import Decision, Gauge, Reason
from gateway.policy.model import ClientKey

MINUTE = 60.0
# The end of a stream cannot be predicted, so this is only a pause that keeps a client from polling.
STREAM_PAUSE = 1.0

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
