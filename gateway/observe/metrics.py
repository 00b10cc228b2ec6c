"""Facts → Prometheus. Label values come from the configuration; a client's text never becomes one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.values import MultiProcessValue

from gateway.observe.facts import (
    TAKEN_BACK,
    AcceptFailed,
    Distribution,
    Fact,
    GuardFailed,
    JournalDropped,
    Limited,
    MaskJudged,
    Reloaded,
    RequestFinished,
    Retried,
    RolledBack,
    TextScanned,
    UpstreamFailed,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

UPSTREAM_UP, MASK_IN_FORCE = "portcullis_upstream_up", "portcullis_mask_in_force"
TTFT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_BOUNDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)


class _Histogram(Histogram):
    """A histogram without labels that takes whole distributions: streams count by themselves and report once, since an
    observation for every chunk would cost more than the censor."""

    def add(self, distribution: Distribution) -> None:
        if (*distribution.bounds, float("inf")) != tuple(self._upper_bounds):
            raise ValueError(f"{self._name}: the distribution has other bounds")
        for bucket, count in zip(self._buckets, distribution.counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(distribution.total)


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """Where the workers of one gateway keep their numbers, and which of them this process is.

    The files are named by `slot` and not by process: a worker that takes a dead one's place counts on in its files, so
    no counter ever falls and no file is left behind.
    """

    directory: Path
    slot: str

    def use(self) -> None:
        """Make prometheus-client keep the values of metrics made from now on in these files."""
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self.directory)
        values.ValueClass = MultiProcessValue(lambda: self.slot)  # type: ignore[no-untyped-call]

    def forget_present(self) -> None:
        """Remove what was only true of the process that has died: its gauges."""
        mark_process_dead(self.slot, str(self.directory))  # type: ignore[no-untyped-call]


class _Everybody(Collector):
    """The sums over all workers; without upstreams and masks that are no more, whose numbers cannot be taken out of the
    files."""

    def __init__(self, directory: Path, upstreams: set[str], masks: set[tuple[str, str]]) -> None:
        # Without a registry: it would be shown beside this one.
        self._files = MultiProcessCollector(None, str(directory))  # type: ignore[no-untyped-call]
        self._upstreams = upstreams
        self._masks = masks

    def collect(self) -> Iterable[Metric]:
        for family in self._files.collect():  # type: ignore[no-untyped-call]
            if family.name == UPSTREAM_UP:
                family.samples = [s for s in family.samples if s.labels.get("upstream") in self._upstreams]
            elif family.name == MASK_IN_FORCE:
                family.samples = [
                    s for s in family.samples if (s.labels.get("upstream"), s.labels.get("policy")) in self._masks
                ]
            yield family


class Metrics:
    """The metrics, in a registry of their own. `record` takes facts; the gauges are set by whoever knows.

    With `shared`, what `exposition` shows are the sums over all workers.
    """

    def __init__(
        self, held_bounds: tuple[float, ...], hold_bounds: tuple[float, ...], shared: SharedFiles | None = None
    ) -> None:
        if shared is not None:
            shared.use()
        self._shared = shared
        self._upstreams: set[str] = set()
        self._masks: set[tuple[str, str]] = set()
        self.registry = CollectorRegistry()
        one = self.registry

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"portcullis_{name}", documentation, labels, registry=one)

        def histogram(name: str, documentation: str, bounds: tuple[float, ...]) -> _Histogram:
            return _Histogram(f"portcullis_{name}", documentation, buckets=bounds, registry=one)

        self._requests = counter("requests", "Requests answered.", "path", "route", "policy", "status")
        self._matches = counter("matches", "Matches reported.", "policy", "rule", "action", "channel")
        self._restored = counter("restored", "Placeholders of a prompt's values restored.", "policy", "channel")
        self._constraints = counter(
            "constraints", "Choices of answers under a constraint, by how they ended.", "policy", "outcome"
        )
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
        self._reloads = counter("config_reloads", "Attempts to take a changed configuration over.", "outcome")
        self._retries = counter(
            "retries", "Attempts before the first byte that failed and were followed by another.", "upstream"
        )
        self._key_requests = counter(
            "key_requests", "Requests answered, by the name of the client's key.", "key", "status"
        )
        self._limited = counter("limited", "Requests refused by a key's limit.", "key", "reason")
        self._accept_failures = counter("accept_failures", "Attempts to accept a connection that failed.", "reason")
        self._journal_dropped = counter("journal_dropped", "Journal entries that could not be written.")
        self._rollbacks = counter("rollbacks", "Matches to be taken back, by what it came to.", "policy", "outcome")
        self.streams_active = Gauge(
            "portcullis_streams_active", "Requests in flight.", registry=one, multiprocess_mode="livesum"
        )
        self.upstream_up = Gauge(
            UPSTREAM_UP,
            "Does the upstream answer its probes, and is it not ejected?",
            ["upstream"],
            registry=one,
            multiprocess_mode="livemin",
        )
        self.mask_in_force = Gauge(
            MASK_IN_FORCE,
            "Has a canary found the policy's mask in force at the upstream?",
            ["upstream", "policy"],
            registry=one,
            multiprocess_mode="livemin",
        )

    def know_upstreams(self, names: Iterable[str]) -> None:
        """Which upstreams there are; a reload may remove some."""
        gone, self._upstreams = self._upstreams - set(names), set(names)
        for name in gone if self._shared is None else ():
            with contextlib.suppress(KeyError):
                self.upstream_up.remove(name)

    def know_masks(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Which masks there are, by upstream and policy; a reload may remove some."""
        gone, self._masks = self._masks - set(pairs), set(pairs)
        for pair in gone if self._shared is None else ():
            with contextlib.suppress(KeyError):
                self.mask_in_force.remove(*pair)

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
            case Reloaded(outcome):
                self._reloads.labels(outcome).inc()
            case Retried(upstream, _):
                self._retries.labels(upstream).inc()
            case Limited(key, reason):
                self._limited.labels(key, reason).inc()
            case RolledBack(policy, rule, outcome):
                self._rollbacks.labels(policy, outcome).inc()
                if rule is not None and outcome in TAKEN_BACK:
                    self._matches.labels(policy, rule, "rollback", "content").inc()
            case MaskJudged(upstream, policy, state):
                self.mask_in_force.labels(upstream, policy).set(state == "in force")
            case AcceptFailed(reason):
                self._accept_failures.labels(reason).inc()
            case JournalDropped(count):
                self._journal_dropped.inc(count)

    def _finished(self, fact: RequestFinished) -> None:
        self._requests.labels(fact.path, fact.route, fact.policy, str(fact.status)).inc()
        if fact.key is not None:
            self._key_requests.labels(fact.key, str(fact.status)).inc()
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
        for restored in fact.restored:
            self._restored.labels(fact.policy, restored.channel).inc(restored.count)
        for constraint in fact.constraints:
            self._constraints.labels(fact.policy, constraint.outcome).inc(constraint.count)
        if fact.overflows:
            self._overflows.labels(fact.policy).inc(fact.overflows)
        if fact.held is not None:
            self._held.add(fact.held)
        if fact.hold is not None:
            self._hold.add(fact.hold)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        if self._shared is None:
            return generate_latest(self.registry)
        everybody = CollectorRegistry()
        everybody.register(_Everybody(self._shared.directory, self._upstreams, self._masks))
        return generate_latest(everybody)
