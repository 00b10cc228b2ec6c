"""One token bucket: pure functions over frozen state; the time is passed in.

A limit of N a minute is a bucket that holds N and refills by N / 60 a second. So a key that was quiet may use a whole
minute's worth at once, and within any t seconds no more than N + t * N / 60 are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MINUTE = 60.0


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
