"""A bucket never gives more than it promises, whatever is asked of it and when."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.decision import FULL, MINUTE, Bucket, drawn, level, seconds_until

LIMITS = st.integers(1, 1_000_000)
STARTS = st.floats(0, 1e7)


@st.composite
def askings(draw: st.DrawFn) -> tuple[int, list[tuple[float, int]]]:
    """A limit, and for every request the time since the one before and its amount."""
    limit = draw(LIMITS)
    pauses = st.one_of(st.just(0.0), st.floats(0, 2), st.floats(0, 200))
    return limit, draw(st.lists(st.tuples(pauses, st.integers(0, limit)), min_size=1, max_size=30))


@given(askings(), STARTS)
def test_no_window_admits_more_than_the_capacity_and_what_flows_in(
    asking: tuple[int, list[tuple[float, int]]], start: float
) -> None:
    limit, requests = asking
    bucket, now = FULL, start
    admitted: list[tuple[float, int]] = []
    for pause, amount in requests:
        now += pause
        if level(bucket, limit, now) >= amount:
            bucket = drawn(bucket, limit, amount, now)
            admitted.append((now, amount))
    for first in range(len(admitted)):
        total = 0
        for at, amount in admitted[first:]:
            total += amount
            allowed = limit + (at - admitted[first][0]) * limit / MINUTE
            assert total <= allowed + 1e-6 * limit


@given(LIMITS, st.floats(-1, 1), st.floats(0, 1), STARTS)
def test_the_wait_that_is_told_is_enough_and_not_too_long(limit: int, have: float, want: float, now: float) -> None:
    bucket = Bucket(have * limit, now)
    wait = seconds_until(want * limit, bucket.level, limit)
    assert level(bucket, limit, now + wait) >= want * limit - 1e-6 * limit
    if wait > 1e-3:
        assert level(bucket, limit, now + wait / 2) < want * limit


@given(LIMITS, st.lists(st.integers(-(10**500), 10**500), max_size=20), STARTS)
def test_the_level_stays_between_full_and_one_bucket_of_debt(limit: int, amounts: list[int], now: float) -> None:
    bucket = FULL
    for amount in amounts:
        bucket = drawn(bucket, limit, amount, now)
        assert -limit <= bucket.level <= limit


def test_a_new_bucket_is_full_under_every_limit() -> None:
    assert level(FULL, 7, 0.0) == 7
    assert math.isfinite(drawn(FULL, 7, 1, 0.0).level)


def test_a_clock_that_went_back_refills_nothing_and_goes_on() -> None:
    bucket = drawn(FULL, 60, 60, 1000.0)
    bucket = drawn(bucket, 60, 0, 10.0)
    assert level(bucket, 60, 10.0) == 0
    assert level(bucket, 60, 15.0) == 5
