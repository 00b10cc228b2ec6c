"""A client key's usage of its limits, and whether a request is within them. Pure, independent of the storage."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.limits.bucket import FULL, Bucket, drawn, level, seconds_until
from gateway.limits.decision import Decision, Gauge, Reason
from gateway.policy.model import ClientKey

# The end of a stream cannot be predicted, so this is only a pause that keeps a client from polling.
STREAM_PAUSE = 1.0

UNLIMITED = Decision(admitted=True)


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
