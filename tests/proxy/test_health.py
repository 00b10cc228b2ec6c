"""The decisions of load balancing: breakers, budgets, order, pauses."""

from __future__ import annotations

import pytest

from gateway.policy.model import Balance, Health
from gateway.proxy.upstreams.balancer import (
    MAX_SAVED_RETRIES,
    RetryBudget,
    backoff,
    by_preference,
)
from gateway.proxy.upstreams.health import Breaker, BreakerState, retry_after_of


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(Health(eject_after=3, eject_for=10))
    for now in (0, 1):
        breaker.record_failure(now)
    breaker.record_success(2)
    for now in (3, 4):
        breaker.record_failure(now)
    assert breaker.state(4) is BreakerState.CLOSED
    breaker.record_failure(5)
    assert breaker.state(5) is BreakerState.OPEN
    assert not breaker.allows(14.9)


def test_half_open_lets_one_through_at_a_time() -> None:
    breaker = Breaker(Health(eject_after=1, eject_for=10))
    breaker.record_failure(0)
    assert breaker.state(10) is BreakerState.HALF_OPEN
    assert breaker.allows(10)
    trial = breaker.start_trial(10)
    assert trial is not None
    assert not breaker.allows(11)
    assert breaker.start_trial(11) is None
    breaker.abandon_trial(None)  # one that was no trial ends without an outcome
    assert not breaker.allows(11)
    breaker.abandon_trial(trial)
    assert breaker.allows(11)


def test_the_trial_decides() -> None:
    breaker = Breaker(Health(eject_after=3, eject_for=10))
    for now in (0, 0, 0):
        breaker.record_failure(now)
    breaker.start_trial(10)
    breaker.record_failure(12)
    assert breaker.state(21.9) is BreakerState.OPEN
    breaker.start_trial(22)
    breaker.record_success(23)
    assert breaker.state(23) is BreakerState.CLOSED
    breaker.record_failure(24)
    assert breaker.allows(24), "the count begins again"


def test_late_failures_do_not_prolong_an_ejection() -> None:
    breaker = Breaker(Health(eject_after=1, eject_for=10))
    breaker.record_failure(0)
    breaker.record_failure(9)
    assert breaker.allows(10)


def test_a_budget_is_a_share_of_requests() -> None:
    budget = RetryBudget(0.1)
    assert sum(budget.spend() for _ in range(100)) == MAX_SAVED_RETRIES
    spent = 0
    for _ in range(1000):
        budget.deposit()
        spent += budget.spend()
    assert spent == 100
    for _ in range(1000):
        budget.deposit()
    assert sum(budget.spend() for _ in range(100)) == MAX_SAVED_RETRIES


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = RetryBudget(0.0)
    budget.deposit()
    assert not budget.spend()


# Name → balance, names, requests in flight, the ejected, and the order that comes of it.
ORDERS: dict[str, tuple[Balance, str, dict[str, int], str, str]] = {
    "as written": (Balance.FIRST, "abc", {}, "", "abc"),
    "first does not count": (Balance.FIRST, "abc", {"a": 9}, "", "abc"),
    "ejected last": (Balance.FIRST, "abc", {}, "a", "bca"),
    "all ejected": (Balance.FIRST, "abc", {}, "abc", "abc"),
    "least busy": (Balance.LEAST_BUSY, "abc", {"a": 2, "b": 3, "c": 1}, "", "cab"),
    "ties by position": (Balance.LEAST_BUSY, "abc", {"a": 1, "c": 1}, "", "bac"),
    "idle but ejected": (Balance.LEAST_BUSY, "abc", {"b": 2, "c": 1}, "a", "cba"),
}


@pytest.mark.parametrize("case", ORDERS)
def test_order(case: str) -> None:
    balance, names, busy, ejected, expected = ORDERS[case]
    in_flight = {name: busy.get(name, 0) for name in names}
    assert "".join(by_preference(names, balance, in_flight, {name: name not in ejected for name in names})) == expected


def test_backoff_doubles_up_to_a_second() -> None:
    assert [backoff(attempt, None, 0.5) for attempt in range(6)] == [0.025, 0.05, 0.1, 0.2, 0.4, 0.5]
    assert backoff(3, None, 0.0) == 0


def test_backoff_honours_what_the_server_asks_for() -> None:
    assert backoff(0, 0.5, 0.5) == 0.525
    assert backoff(0, 1.0, 0.0) == 1.0
    assert backoff(0, 1.01, 0.0) is None


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "30"}, 30),
        ({"retry-after": "1", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, float("inf")),
        ({"retry-after": "-1"}, float("inf")),
        ({"retry-after": "nan"}, float("inf")),
        ({"retry-after": ""}, float("inf")),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(headers) == seconds
