"""What a decision says, and how a client reads it."""

from __future__ import annotations

import pytest

from gateway.limits import Decision, Gauge, headers
from gateway.limits.decision import STREAM_PAUSE, KeyUsage, Remaining, decide, duration
from gateway.policy.model import ClientKey

KEY = ClientKey.of("k", rpm=60, tpm=600, max_streams=2)


def left(requests: float = 60, tokens: float = 600, streams: int = 0) -> Remaining:
    return Remaining(requests, tokens, streams)


@pytest.mark.parametrize(
    "now_left, tokens, reason, wait",
    [
        (left(requests=0.5), 0, "requests", 0.5),
        (left(tokens=-600), 600, "tokens", 120),
        (left(tokens=90), 100, "tokens", 1),
        (left(streams=2), 0, "streams", STREAM_PAUSE),
        (left(requests=0.5, tokens=90), 100, "tokens", 1),
        (left(requests=-1, tokens=90), 100, "requests", 2),
        (left(requests=0, tokens=90), 601, "tokens", 51),
    ],
)
def test_the_limit_with_the_longest_wait_is_the_reason(
    now_left: Remaining, tokens: int, reason: str, wait: float
) -> None:
    decision = decide(KEY, now_left, tokens)
    assert (decision.admitted, decision.reason, decision.retry_after) == (False, reason, wait)


def test_the_gauges_tell_what_is_left_after_an_admission() -> None:
    decision = decide(KEY, left(requests=10.5, tokens=300), 30)
    assert decision == Decision(True, 0.0, "", Gauge(60, 9, 50.5), Gauge(600, 270, 33.0))


def test_the_gauges_of_a_refusal_tell_what_is_left_now() -> None:
    decision = decide(KEY, left(requests=10.5, tokens=-60.5), 30)
    assert decision.requests == Gauge(60, 10, 49.5)
    assert decision.tokens == Gauge(600, 0, 66.05)


def test_a_limit_that_a_key_does_not_have_has_no_gauge() -> None:
    key = ClientKey.of("k", max_streams=1)
    usage = KeyUsage().changed(key, 0.0, requests=1, tokens=5, streams=1)
    assert decide(key, usage.remaining(key, 0.0), 5).reason == "streams"
    assert headers(decide(key, usage.changed(key, 0.0, streams=-1).remaining(key, 0.0), 5)) == {}


def test_a_bucket_is_full_when_its_limit_appears() -> None:
    usage = KeyUsage().changed(ClientKey.of("k", rpm=1), 0.0, requests=1, tokens=5, streams=1)
    assert usage.remaining(KEY, 0.0).tokens == 600


def test_an_admission_in_headers() -> None:
    decision = Decision(True, requests=Gauge(60, 9, 50.5), tokens=Gauge(600, 270, 0.02))
    assert headers(decision) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "50.5s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "270",
        "x-ratelimit-reset-tokens": "20ms",
    }


@pytest.mark.parametrize("wait, whole", [(0.001, "1"), (1.0, "1"), (1.001, "2"), (119.2, "120")])
def test_a_refusal_in_headers(wait: float, whole: str) -> None:
    assert headers(Decision(False, wait, "streams")) == {"retry-after": whole}


def test_official_clients_are_told_not_to_repeat_what_is_too_large() -> None:
    made = headers(decide(KEY, left(), 601))
    assert made["x-should-retry"] == "false"
    assert made["retry-after"] == "1"


@pytest.mark.parametrize(
    "seconds, written",
    [
        (0, "0s"),
        (0.02, "20ms"),
        (0.0001, "1ms"),
        (0.9995, "1s"),
        (1, "1s"),
        (8.64, "8.64s"),
        (60, "1m0s"),
        (86.4, "1m26.4s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
    ],
)
def test_durations_read_as_openai_writes_them(seconds: float, written: str) -> None:
    assert duration(seconds) == written
