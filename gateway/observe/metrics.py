"""Facts → Prometheus. Label values come from the configuration; a client's text never becomes one."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from gateway.observe.facts import Distribution, Fact, GuardFailed, RequestFinished, TextScanned, UpstreamFailed

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

TTFT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_BOUNDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)


class _Histogram(Collector):
    """A histogram without labels that takes whole distributions: streams count by themselves and report once, since an
    observation for every chunk would cost more than the censor."""

    def __init__(self, name: str, documentation: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, distribution: Distribution) -> None:
        if distribution.bounds != self._bounds:
            raise ValueError(f"{self._name}: the distribution has other bounds")
        self._counts = [have + more for have, more in zip(self._counts, distribution.counts, strict=True)]
        self._total += distribution.total

    def collect(self) -> Iterable[HistogramMetricFamily]:
        cumulative: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip([*self._bounds, float("inf")], self._counts, strict=True):
            running += count
            cumulative.append(("+Inf" if bound == float("inf") else repr(float(bound)), running))
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], cumulative, self._total)
        yield family


class Metrics:
    """One process's metrics in a registry of their own. `record` takes facts; the gauges are set by whoever knows."""

    def __init__(self, held_bounds: tuple[float, ...], hold_bounds: tuple[float, ...]) -> None:
        self.registry = CollectorRegistry()
        one = self.registry

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"portcullis_{name}", documentation, labels, registry=one)

        def histogram(name: str, documentation: str, bounds: tuple[float, ...]) -> _Histogram:
            made = _Histogram(f"portcullis_{name}", documentation, bounds)
            one.register(made)
            return made

        self._requests = counter("requests", "Requests answered.", "path", "route", "policy", "status")
        self._matches = counter("matches", "Matches reported.", "policy", "rule", "action", "channel")
        self._scanned = counter("scanned_chars", "Characters scanned.", "channel")
        self._forwarded = counter("forwarded_chars", "Characters forwarded as they were.", "channel")
        self._replaced = counter("replaced_chars", "Characters that a replacement stands for.", "channel")
        self._withheld = counter("withheld_chars", "Characters scanned and never sent.", "channel")
        self._uncovered = counter(
            "coverage_errors", "Texts whose scanned characters were not all forwarded, replaced or withheld.", "channel"
        )
        self._overflows = counter("overflows", "Starts that left the live text because max_hold was reached.", "policy")
        self._unknown = counter("unknown_events", "Events or fields of a shape that no dialect knows.", "path")
        self._upstream_errors = counter("upstream_errors", "Failed upstream calls.", "upstream", "kind")
        self._guard_failures = counter("guard_failures", "Answers that failed closed.", "policy")
        self._held = histogram("held_chars", "Characters held after a piece of text was taken.", held_bounds)
        self._hold = histogram("hold_seconds", "How long held text waited.", hold_bounds)
        self._overhead = histogram("overhead_seconds", "The gateway's own time on a read.", OVERHEAD_BOUNDS)
        self._ttft = histogram("ttft_seconds", "From the request to the first byte of a streamed answer.", TTFT_BOUNDS)
        self.streams_active = Gauge("portcullis_streams_active", "Requests in flight.", registry=one)
        self.upstream_up = Gauge(
            "portcullis_upstream_up", "Did the upstream answer its last probe?", ["upstream"], registry=one
        )

    def record(self, fact: Fact) -> None:
        match fact:
            case RequestFinished():
                self._finished(fact)
            case TextScanned():
                self._text(fact)
            case UpstreamFailed(upstream, kind):
                self._upstream_errors.labels(upstream, kind).inc()
            case GuardFailed(policy, _):
                self._guard_failures.labels(policy).inc()

    def _finished(self, fact: RequestFinished) -> None:
        self._requests.labels(fact.path, fact.route, fact.policy, str(fact.status)).inc()
        if fact.ttft is not None:
            counts = [0] * (len(TTFT_BOUNDS) + 1)
            counts[sum(bound < fact.ttft for bound in TTFT_BOUNDS)] = 1
            self._ttft.add(Distribution(TTFT_BOUNDS, tuple(counts), fact.ttft))
        if fact.overhead is not None:
            self._overhead.add(fact.overhead)
        for text in fact.scanned:
            if text.unknown_events:
                self._unknown.labels(fact.path).inc(text.unknown_events)

    def _text(self, fact: TextScanned) -> None:
        for count in fact.channels:
            self._scanned.labels(count.channel).inc(count.scanned)
            self._forwarded.labels(count.channel).inc(max(count.forwarded, 0))
            self._replaced.labels(count.channel).inc(count.replaced)
            self._withheld.labels(count.channel).inc(count.withheld)
            if count.missing:
                self._uncovered.labels(count.channel).inc()
        for match in fact.matches:
            self._matches.labels(fact.policy, match.rule, match.action, match.channel).inc(match.count)
        if fact.overflows:
            self._overflows.labels(fact.policy).inc(fact.overflows)
        if fact.held is not None:
            self._held.add(fact.held)
        if fact.hold is not None:
            self._hold.add(fact.hold)

    def exposition(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)
