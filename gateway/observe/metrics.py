"""Facts as Prometheus metrics. Label values come from the configuration, never from a client's text."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.values import MultiProcessValue, MutexValue

from gateway.observe import facts

K = TypeVar("K")
V = TypeVar("V")
Add: TypeAlias = Callable[[float], None]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

UPSTREAM_UP, MASK_IN_FORCE = "portcullis_upstream_up", "portcullis_mask_in_force"
TOKEN_KINDS = ("prompt", "completion")
TTFT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_BOUNDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)

# Documentation and labels of each, all named portcullis_….
COUNTERS = {
    "requests": ("Requests answered.", "path", "route", "policy", "status"),
    "matches": ("Matches reported.", "policy", "rule", "action", "channel"),
    "tokens": ("Tokens that upstreams counted, of prompts and of answers.", "route", "kind"),
    "restored": ("Placeholders of a prompt's values restored.", "policy", "channel"),
    "constraints": ("Choices of answers under a constraint, by how they ended.", "policy", "outcome"),
    "scanned_chars": ("Characters scanned.", "channel"),
    "forwarded_chars": ("Characters forwarded as they were.", "channel"),
    "replaced_chars": ("Characters that a replacement stands for.", "channel"),
    "withheld_chars": ("Characters scanned and never sent.", "channel"),
    "coverage_errors": ("Texts whose scanned characters were not all forwarded, replaced or withheld.", "channel"),
    "overflows": ("Starts that left the live text because max_hold was reached.", "policy"),
    "unknown_events": ("Events or fields of a shape that no dialect knows.", "path"),
    "upstream_errors": ("Failed upstream calls.", "upstream", "kind"),
    "guard_failures": ("Answers that failed closed.", "policy"),
    "config_reloads": ("Attempts to take a changed configuration over.", "outcome"),
    "retries": ("Attempts before the first byte that failed and were followed by another.", "upstream"),
    "key_requests": ("Requests answered, by the name of the client's key.", "key", "status"),
    "limited": ("Requests refused by a key's limit.", "key", "reason"),
    "accept_failures": ("Attempts to accept a connection that failed.", "reason"),
    "journal_dropped": ("Journal entries that could not be written.",),
    "rollbacks": ("Matches to be taken back, by what it came to.", "policy", "outcome"),
}
HISTOGRAMS = {
    "held_chars": "Characters held after a piece of text was taken.",
    "hold_seconds": "How long held text waited.",
    "overhead_seconds": "The gateway's own time on a read.",
    "ttft_seconds": "From the request to the first byte of a streamed answer.",
}
BOUNDS = {"overhead_seconds": OVERHEAD_BOUNDS, "ttft_seconds": TTFT_BOUNDS}
# Documentation, labels, and how the values of several workers become one; in the order of the attributes of `Metrics`.
GAUGES: dict[str, tuple[str, tuple[str, ...], Literal["livesum", "livemin"]]] = {
    "portcullis_streams_active": ("Requests in flight.", (), "livesum"),
    UPSTREAM_UP: ("Does the upstream answer its probes, and is it not ejected?", ("upstream",), "livemin"),
    MASK_IN_FORCE: ("Has a probe found the policy's mask in force at the upstream?", ("upstream", "policy"), "livemin"),
}


def _add_to(value: Any) -> Add:
    """What adds to a value. Facts are recorded in the event loop alone, so that one of this process needs no lock."""
    if type(value) is not MutexValue:
        inc: Add = value.inc
        return inc

    def add(amount: float) -> None:
        value._value += amount

    return add


class _Histogram(Histogram):
    """A histogram without labels that adds many observations at once: streams count by themselves and report once,
    since an observation for every chunk would cost more than the censor."""

    _known: tuple[float, ...] | None = None  # bounds that were compared with its own
    _adding: list[Add] | None = None  # to its buckets and its sum

    def add(self, observed: facts.HistogramCounts) -> None:
        """Raises ValueError for other bounds than the histogram's."""
        if observed.bounds is not self._known and (*observed.bounds, float("inf")) != tuple(self._upper_bounds):
            raise ValueError(f"{self._name}: the distribution has other bounds")
        self._known = observed.bounds
        adding = self._adding = self._adding or [*map(_add_to, (*self._buckets, self._sum))]
        for add, count in compress(zip(adding, observed.counts, strict=False), observed.counts):
            add(count)
        if observed.total:
            adding[-1](observed.total)


def metrics_problem() -> str | None:
    """Why values of the installed prometheus-client cannot be added to from the inside; None if they can."""
    try:
        metrics = Metrics((1.0,), (1.0,))
        metrics.set_streams(3)
        metrics.record(facts.Retried("u", ""))
        metrics.record(facts.TextScanned("p", "output", held=facts.HistogramCounts((1.0,), (2, 1), 4.0)))
        shown = metrics.exposition().decode().splitlines()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    missing = [line for line in _TRIED if line not in shown]
    return f"it does not show {missing[0]}" if missing else None


_TRIED = (
    "portcullis_streams_active 3.0",
    'portcullis_retries_total{upstream="u"} 1.0',
    'portcullis_held_chars_bucket{le="1.0"} 2.0',
    "portcullis_held_chars_count 3.0",
    "portcullis_held_chars_sum 4.0",
)


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """The directory in which the workers of one gateway keep their values, and this process's place among them.

    The files are named by `worker` and not by process: a worker that replaces a dead one counts on in its files, so no
    counter ever falls and no file is left behind.
    """

    directory: Path
    worker: str

    def use(self) -> None:
        """Make prometheus-client keep the values of metrics made from now on in these files."""
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self.directory)
        values.ValueClass = MultiProcessValue(lambda: self.worker)  # type: ignore[no-untyped-call]

    def forget_present(self) -> None:
        """Remove the gauges of a process that has died."""
        mark_process_dead(self.worker, str(self.directory))  # type: ignore[no-untyped-call]


class _AllWorkers(Collector):
    """The sums over all workers, without the gauges of upstreams and masks that a reload removed: their values cannot
    be removed from the files."""

    def __init__(self, directory: Path, present: Mapping[str, set[tuple[str, ...]]]) -> None:
        # Without a registry: it would be shown beside this one.
        self._files = MultiProcessCollector(None, str(directory))  # type: ignore[no-untyped-call]
        self._present = present

    def collect(self) -> Iterable[Metric]:
        for family in self._files.collect():  # type: ignore[no-untyped-call]
            if (present := self._present.get(family.name)) is not None:
                labels = GAUGES[family.name][1]
                family.samples = [s for s in family.samples if tuple(map(s.labels.get, labels)) in present]
            yield family


class _Made(dict[K, V]):
    """What adds to counters, made when it is first asked for: to find a counter takes longer than to count, and its own
    method, for which the value is checked again, twice as long."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make

    def __missing__(self, key: K) -> V:
        made = self[key] = self._make(key)
        return made


class Metrics:
    """The metrics, in a registry of their own. `record` takes facts; the gauges are set by the code that owns the
    state. With `shared`, `exposition` shows the sums over all workers."""

    def __init__(
        self, held_bounds: tuple[float, ...], hold_bounds: tuple[float, ...], shared: SharedFiles | None = None
    ) -> None:
        if shared is not None:
            shared.use()
        self._shared = shared
        self._present: dict[str, set[tuple[str, ...]]] = {UPSTREAM_UP: set(), MASK_IN_FORCE: set()}
        self.registry = registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"portcullis_{name}", documentation, labels, registry=registry)
            for name, (documentation, *labels) in COUNTERS.items()
        }
        self._adding = _Made(self._add_to)  # by the counter's name and labels
        self._chars = _Made(self._add_chars)  # by channel
        self._tokens = _Made(self._add_tokens)  # by route
        self._requests = _Made(self._add_request)  # by the labels of a request
        bounds = {"held_chars": held_bounds, "hold_seconds": hold_bounds, **BOUNDS}
        self._histograms = {
            name: _Histogram(f"portcullis_{name}", documentation, buckets=bounds[name], registry=registry)
            for name, documentation in HISTOGRAMS.items()
        }
        streams, self.upstream_up, self.mask_in_force = (
            Gauge(name, documentation, labels, registry=registry, multiprocess_mode=mode)
            for name, (documentation, labels, mode) in GAUGES.items()
        )
        self._streams = streams._value

    def set_streams(self, count: float) -> None:
        """Of requests in flight."""
        if type(self._streams) is MutexValue:
            self._streams._value = count  # as `_add_to`
        else:
            self._streams.set(count)

    def set_upstreams(self, names: Iterable[str]) -> None:
        """Which upstreams are configured; gauges of others, which a reload removed, go."""
        self._drop_others(self.upstream_up, UPSTREAM_UP, {(name,) for name in names})

    def set_masks(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Set the configured masks, by upstream and policy; gauges of removed ones are dropped."""
        self._drop_others(self.mask_in_force, MASK_IN_FORCE, set(pairs))

    def _drop_others(self, gauge: Gauge, name: str, present: set[tuple[str, ...]]) -> None:
        gone, self._present[name] = self._present[name] - present, present
        for labels in gone if self._shared is None else ():
            with contextlib.suppress(KeyError):
                gauge.remove(*labels)

    def record(self, fact: facts.Fact) -> None:
        """Count a fact. Raises ValueError for a histogram with other bounds than this one's."""
        if isinstance(fact, facts.TextScanned):
            self._record_text(fact)
            return
        match fact:
            case facts.RequestFinished():
                self._record_request(fact)
            case facts.UpstreamFailed(upstream, kind):
                self._count("upstream_errors", upstream, kind)
            case facts.GuardFailed(policy, _):
                self._count("guard_failures", policy)
            case facts.Reloaded(outcome):
                self._count("config_reloads", outcome)
            case facts.Retried(upstream, _):
                self._count("retries", upstream)
            case facts.Limited(key, reason):
                self._count("limited", key, reason)
            case facts.RolledBack(policy, rule, outcome):
                self._count("rollbacks", policy, outcome)
                if rule is not None and outcome in facts.TAKEN_BACK:
                    self._count("matches", policy, rule, "rollback", "content")
            case facts.MaskJudged(upstream, policy, state):
                self.mask_in_force.labels(upstream, policy).set(state == "in force")
            case facts.AcceptFailed(reason):
                self._count("accept_failures", reason)
            case facts.JournalDropped(count):
                self._counters["journal_dropped"].inc(count)

    def _count(self, *series: str, by: int = 1) -> None:
        """Add to one of the counters, given by its name and its labels."""
        add = self._adding[series]  # shown from now on
        if by:
            add(by)

    def _record_request(self, fact: facts.RequestFinished) -> None:
        for add in self._requests[fact.path, fact.route, fact.policy, fact.status, fact.key]:
            add(1)
        if fact.tokens is not None:
            for add, count in zip(self._tokens[fact.route], fact.tokens, strict=True):
                add(count)
        if fact.ttft is not None:
            self._histograms["ttft_seconds"].observe(fact.ttft)
        if fact.overhead is not None:
            self._histograms["overhead_seconds"].add(fact.overhead)
        for text in fact.scanned:
            if text.unknown_events:
                self._count("unknown_events", fact.path, by=text.unknown_events)

    def _record_text(self, fact: facts.TextScanned) -> None:
        for count in fact.channels:
            scanned, forwarded, replaced, withheld = self._chars[count.channel]
            scanned(count.scanned)
            if count.forwarded > 0:
                forwarded(count.forwarded)
            if count.replaced > 0:
                replaced(count.replaced)
            if count.withheld > 0:
                withheld(count.withheld)
            if count.missing:
                self._count("coverage_errors", count.channel)
        for match in fact.matches:
            self._count("matches", fact.policy, match.rule, match.action, match.channel, by=match.count)
        if fact.restored or fact.constraints:
            for channel, placeholders in fact.restored.items():
                self._count("restored", fact.policy, channel, by=placeholders)
            for outcome, choices in fact.constraints.items():
                self._count("constraints", fact.policy, outcome, by=choices)
        if fact.overflows:
            self._count("overflows", fact.policy, by=fact.overflows)
        if fact.held is not None:
            self._histograms["held_chars"].add(fact.held)
        if fact.hold is not None:
            self._histograms["hold_seconds"].add(fact.hold)

    def _add_to(self, series: tuple[str, ...]) -> Add:
        name, *labels = series
        return _add_to(self._counters[name].labels(*labels)._value)

    def _add_request(self, labels: tuple[str, str, str, int, str | None]) -> list[Add]:
        path, route, policy, status, key = labels
        of_key = [] if key is None else [self._adding["key_requests", key, str(status)]]
        return [self._adding["requests", path, route, policy, str(status)], *of_key]

    def _add_tokens(self, route: str) -> list[Add]:
        return [self._adding["tokens", route, kind] for kind in TOKEN_KINDS]

    def _add_chars(self, channel: str) -> list[Add]:
        names = ("scanned_chars", "forwarded_chars", "replaced_chars", "withheld_chars")
        return [self._adding[name, channel] for name in names]

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        if self._shared is None:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        registry.register(_AllWorkers(self._shared.directory, self._present))
        return generate_latest(registry)
