"""A limiter's decision, its response headers, and the protocol of limiters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.policy.model import ClientKey

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
