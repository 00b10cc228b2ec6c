"""Facts in, Prometheus' text format out: names, labels and values."""

from __future__ import annotations

import pytest
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.values import MutexValue

from gateway.observe.facts import (
    ChannelCount,
    Fact,
    GuardFailed,
    HistogramCounts,
    MaskJudged,
    MatchCount,
    RequestFinished,
    TextScanned,
    UpstreamFailed,
)
from gateway.observe.metrics import CONTENT_TYPE, OVERHEAD_BOUNDS, TTFT_BOUNDS, Metrics, metrics_problem

HELD, HOLD = (0.0, 1.0, 8.0), (0.001, 0.1)
Sample = tuple[str, tuple[tuple[str, str], ...]]

TEXT = TextScanned(
    policy="default",
    direction="output",
    channels=(
        ChannelCount("content", scanned=20, forwarded=12, replaced=5, withheld=3),
        ChannelCount("reasoning", scanned=4, forwarded=4, replaced=0, withheld=0),
    ),
    matches=(MatchCount("password", "redact", "content", 2), MatchCount("name", "flag", "reasoning", 1)),
    overflows=3,
    unknown_events=2,
    held=HistogramCounts(HELD, (5, 1, 2, 1), 30.0),
    hold=HistogramCounts(HOLD, (2, 1, 0), 0.05),
)


def finished(**changes: object) -> RequestFinished:
    fields: dict[str, object] = {
        "request_id": "req-1",
        "path": "/v1/chat/completions",
        "route": "gpt-*",
        "policy": "default",
        "upstream": "openai",
        "status": 200,
        "outcome": "redacted",
        "stream": True,
        "duration": 1.5,
    }
    return RequestFinished(**(fields | changes))  # type: ignore[arg-type]


def metrics_of(*facts: Fact) -> Metrics:
    metrics = Metrics(HELD, HOLD)
    for fact in facts:
        metrics.record(fact)
    return metrics


def samples(metrics: Metrics) -> dict[Sample, float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((f"portcullis_{name}", tuple(sorted(labels.items()))))


def test_tokens_are_counted_by_route() -> None:
    metrics = metrics_of(finished(tokens=(3, 5)), finished(tokens=(1, 0)), finished())
    assert value(metrics, "tokens_total", route="gpt-*", kind="prompt") == 4
    assert value(metrics, "tokens_total", route="gpt-*", kind="completion") == 5


def test_a_text_is_counted_by_channel() -> None:
    metrics = metrics_of(TEXT, TEXT)
    for name, expected in [("scanned", 40), ("forwarded", 24), ("replaced", 10), ("withheld", 6)]:
        assert value(metrics, f"{name}_chars_total", channel="content") == expected
    assert value(metrics, "scanned_chars_total", channel="reasoning") == 8
    assert value(metrics, "matches_total", policy="default", rule="password", action="redact", channel="content") == 4
    assert value(metrics, "matches_total", policy="default", rule="name", action="flag", channel="reasoning") == 2
    assert value(metrics, "overflows_total", policy="default") == 6


def test_what_is_unaccounted_for_is_an_error_of_its_channel() -> None:
    lost = TextScanned("p", "output", (ChannelCount("content", scanned=9, forwarded=8, replaced=0, withheld=0),))
    assert lost.channels[0].missing == 1
    assert value(metrics_of(lost, TEXT), "coverage_errors_total", channel="content") == 1
    assert value(metrics_of(TEXT), "coverage_errors_total", channel="content") is None


def test_a_count_below_nothing_stops_no_counter() -> None:
    wrong = TextScanned("p", "output", (ChannelCount("content", scanned=1, forwarded=-2, replaced=3, withheld=0),))
    assert value(metrics_of(wrong), "forwarded_chars_total", channel="content") == 0


def test_requests_are_counted_by_route_and_status() -> None:
    metrics = metrics_of(finished(), finished(), finished(status=502, outcome="failed"))
    labels = {"path": "/v1/chat/completions", "route": "gpt-*", "policy": "default"}
    assert value(metrics, "requests_total", **labels, status="200") == 2
    assert value(metrics, "requests_total", **labels, status="502") == 1


def test_unknown_events_are_counted_by_path() -> None:
    metrics = metrics_of(finished(scanned=(TEXT, TEXT, TextScanned("p", "input"))))
    assert value(metrics, "unknown_events_total", path="/v1/chat/completions") == 4


def test_failures_are_counted() -> None:
    metrics = metrics_of(UpstreamFailed("openai", "timeout"), GuardFailed("default", "KeyError at chat.py line 1"))
    assert value(metrics, "upstream_errors_total", upstream="openai", kind="timeout") == 1
    assert value(metrics, "guard_failures_total", policy="default") == 1
    assert b"chat.py" not in metrics.exposition()


def test_histograms_add_whole_distributions() -> None:
    metrics = metrics_of(TEXT, TEXT)
    buckets = {bound: value(metrics, "held_chars_bucket", le=bound) for bound in ("0.0", "1.0", "8.0", "+Inf")}
    assert buckets == {"0.0": 10, "1.0": 12, "8.0": 16, "+Inf": 18}
    assert value(metrics, "held_chars_count") == 18
    assert value(metrics, "held_chars_sum") == 60
    assert value(metrics, "hold_seconds_bucket", le="0.1") == 6
    assert value(metrics, "hold_seconds_sum") == pytest.approx(0.1)


def test_overhead_comes_with_the_request() -> None:
    counts = (1, *[0] * (len(OVERHEAD_BOUNDS) - 1), 2)
    metrics = metrics_of(finished(overhead=HistogramCounts(OVERHEAD_BOUNDS, counts, 0.5)))
    assert value(metrics, "overhead_seconds_count") == 3
    assert value(metrics, "overhead_seconds_bucket", le="1e-05") == 1
    assert value(metrics, "overhead_seconds_sum") == 0.5


@pytest.mark.parametrize(("ttft", "first"), [(0.0, 0.01), (0.01, 0.01), (0.011, 0.025), (60.0, 60.0), (61.0, None)])
def test_ttft_falls_into_the_first_bucket_that_holds_it(ttft: float, first: float | None) -> None:
    metrics = metrics_of(finished(ttft=ttft))
    for bound in TTFT_BOUNDS:
        expected = 1 if first is not None and bound >= first else 0
        assert value(metrics, "ttft_seconds_bucket", le=repr(bound)) == expected
    assert value(metrics, "ttft_seconds_bucket", le="+Inf") == 1
    assert value(metrics, "ttft_seconds_sum") == ttft


def test_a_distribution_with_other_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="portcullis_held_chars: the distribution has other bounds"):
        metrics_of(TextScanned("p", "output", held=HistogramCounts((1.0,), (0, 0), 0.0)))


def test_a_text_without_distributions_adds_none() -> None:
    assert value(metrics_of(TextScanned("p", "input")), "held_chars_count") == 0


def test_gauges_are_set_by_whoever_knows() -> None:
    metrics = Metrics(HELD, HOLD)
    metrics.set_streams(1)
    metrics.upstream_up.labels("openai").set(0)
    assert value(metrics, "streams_active") == 1
    assert value(metrics, "upstream_up", upstream="openai") == 0


def test_a_mask_is_in_force_only_if_a_canary_says_so() -> None:
    metrics = metrics_of(MaskJudged("local", "strict", "unknown", "the server is down"))
    assert value(metrics, "mask_in_force", upstream="local", policy="strict") == 0
    metrics.record(MaskJudged("local", "strict", "in force", ""))
    assert value(metrics, "mask_in_force", upstream="local", policy="strict") == 1
    metrics.record(MaskJudged("local", "strict", "missing", "the server has other words"))
    assert value(metrics, "mask_in_force", upstream="local", policy="strict") == 0
    assert b"other words" not in metrics.exposition()


def test_a_mask_that_is_no_more_has_no_gauge() -> None:
    metrics = Metrics(HELD, HOLD)
    metrics.set_masks([("a", "strict"), ("b", "strict"), ("c", "strict")])
    for upstream in ("a", "b"):
        metrics.record(MaskJudged(upstream, "strict", "in force", ""))
    metrics.set_masks([("a", "strict")])
    assert value(metrics, "mask_in_force", upstream="a", policy="strict") == 1
    assert value(metrics, "mask_in_force", upstream="b", policy="strict") is None


def test_registries_are_apart() -> None:
    one, other = metrics_of(TEXT), Metrics(HELD, HOLD)
    assert value(one, "overflows_total", policy="default") == 3
    assert value(other, "overflows_total", policy="default") is None


def test_the_exposition_says_its_types() -> None:
    exposition = metrics_of(TEXT, finished()).exposition().decode()
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
    for line in (
        "# TYPE portcullis_requests_total counter",
        "# TYPE portcullis_matches_total counter",
        "# TYPE portcullis_held_chars histogram",
        "# TYPE portcullis_ttft_seconds histogram",
        "# TYPE portcullis_streams_active gauge",
    ):
        assert line in exposition.splitlines()


def test_the_installed_prometheus_client_has_the_internals_that_counts_are_added_to() -> None:
    assert metrics_problem() is None


class _Renamed(MutexValue):
    inc = property()  # which nothing can be read from


class _Forgetful(MutexValue):
    def inc(self, amount: float) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(_Renamed, "AttributeError: "), (_Forgetful, 'it does not show portcullis_retries_total{upstream="u"} 1.0')],
)
def test_what_is_different_in_another_prometheus_client_is_named(
    kind: type, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "ValueClass", kind)
    assert (metrics_problem() or "").startswith(problem)
