"""All that is known of one client key, and what a request may have of it: pure, whatever the state is kept in."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.limits.bucket import FULL, Bucket, drawn, level, seconds_until
from gateway.limits.decision import Decision, Gauge, Reason
from gateway.policy.model import ClientKey

# Nobody knows when a stream ends, so this is only a pause that keeps a client from asking all the time.
STREAM_PAUSE = 1.0

UNLIMITED = Decision(admitted=True)


@dataclass(frozen=True, slots=True)
class Account:
    """A key's two buckets and its open streams. A key that was never seen has the default."""

    requests: Bucket = FULL
    tokens: Bucket = FULL
    streams: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left at one moment: None where the key has no such limit. `streams` are those that are open."""

    requests: float | None
    tokens: float | None
    streams: int


def is_limited(key: ClientKey) -> bool:
    return not (key.rpm is None and key.tpm is None and key.max_streams is None)


def standing(account: Account, key: ClientKey, now: float) -> Standing:
    return Standing(
        requests=None if key.rpm is None else level(account.requests, key.rpm, now),
        tokens=None if key.tpm is None else level(account.tokens, key.tpm, now),
        streams=account.streams,
    )


def judge(key: ClientKey, now_left: Standing, tokens: int) -> Decision:
    """May a request with `tokens` go on? The gauges of the decision tell what is left after it."""
    too_large = key.tpm is not None and tokens > key.tpm
    waits = _waits(key, now_left, tokens)
    admitted = not waits
    return Decision(
        admitted=admitted,
        retry_after=max(waits.values(), default=0.0),
        reason="tokens" if too_large else max(waits, key=lambda reason: waits[reason], default=""),
        requests=_gauge(key.rpm, now_left.requests, 1 if admitted else 0),
        tokens=_gauge(key.tpm, now_left.tokens, tokens if admitted else 0),
        too_large=too_large,
    )


def charged(account: Account, key: ClientKey, tokens: int, now: float) -> Account:
    """With one more request of `tokens`, and its stream."""
    return Account(
        requests=_drawn(account.requests, key.rpm, 1, now),
        tokens=_drawn(account.tokens, key.tpm, tokens, now),
        streams=account.streams + 1,
    )


def refilled(account: Account, key: ClientKey, now: float) -> Account:
    """As it stands at `now`. To keep this after a refusal matters where the clock may have gone back (another boot,
    another server): the level would not rise before the clock passes the time that is kept."""
    return Account(
        requests=_drawn(account.requests, key.rpm, 0, now),
        tokens=_drawn(account.tokens, key.tpm, 0, now),
        streams=account.streams,
    )


def settled(account: Account, key: ClientKey, correction: int, now: float) -> Account:
    """With one stream less, and `correction` tokens more used than were reserved (negative: fewer)."""
    return Account(
        requests=account.requests,
        tokens=_drawn(account.tokens, key.tpm, correction, now),
        streams=max(0, account.streams - 1),
    )


def _waits(key: ClientKey, now_left: Standing, tokens: int) -> dict[Reason, float]:
    """Seconds for each limit that is in the way."""
    waits: dict[Reason, float] = {}
    if key.rpm is not None and now_left.requests is not None and now_left.requests < 1:
        waits["requests"] = seconds_until(1, now_left.requests, key.rpm)
    if key.tpm is not None and now_left.tokens is not None and now_left.tokens < tokens:
        waits["tokens"] = seconds_until(min(tokens, key.tpm), now_left.tokens, key.tpm)
    if key.max_streams is not None and now_left.streams >= key.max_streams:
        waits["streams"] = STREAM_PAUSE
    return waits


def _gauge(limit: int | None, left: float | None, taken: int) -> Gauge | None:
    if limit is None or left is None:
        return None
    after = left - taken
    return Gauge(limit, max(0, int(after)), seconds_until(limit, after, limit))


def _drawn(bucket: Bucket, limit: int | None, amount: int, now: float) -> Bucket:
    return bucket if limit is None else drawn(bucket, limit, amount, now)
