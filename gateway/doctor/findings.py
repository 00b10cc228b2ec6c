"""Findings from the answers of a gateway and its upstreams. Pure; `command` sends the requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from prometheus_client.samples import Sample

from gateway.config import warnings
from gateway.policy.listen import is_loopback
from gateway.policy.model import Config, Policy

MAX_SKEW = 5.0  # seconds between two clocks
# Characters of answers after which a rule without a match is told: some 15,000 answers of 60 tokens.
ENOUGH_TEXT = 5_000_000
NEAR_LIMIT = 0.5  # of max_hold
HELD_OFTEN = 0.01  # the share of pieces after which that much is held
FEW_LEFT = 0.8  # of the file descriptors


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """`subject` is a metric, a key of the configuration or an address."""

    subject: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}; {self.do}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observations. `ready` is the body of /readyz. `keyless`: the status of `GET /v1/models` without a key.
    `skew`: seconds that the gateway's clock is ahead of ours, and that of each upstream in `skews`. `problems`: of the
    upstreams that were queried, by name; None for one that answers as it should."""

    url: str
    ready: Mapping[str, object]
    samples: tuple[Sample, ...]
    metrics_url: str
    keyless: int | None = None
    skew: float | None = None
    skews: Mapping[str, float] = field(default_factory=dict)
    problems: Mapping[str, str | None] = field(default_factory=dict)
    config: Config | None = None


def findings(seen: Observed) -> Iterator[DoctorFinding]:
    """The problems, the gravest first."""
    metrics = _Metrics(seen.samples)
    yield from _broken_promises(metrics)
    yield from _readiness(seen, metrics)
    yield from _exposure(seen)
    yield from _clocks(seen)
    yield from _upstreams(seen)
    yield from _counts(metrics)
    yield from _holds(seen, metrics)
    if seen.config is not None:
        yield from _unmatched_rules(seen.config, metrics)
        for warning in warnings(seen.config):
            key, _, what = warning.partition(": ")
            yield DoctorFinding(key, what, f"see the warnings of portcullis check {seen.config.source}")


class _Metrics:
    def __init__(self, samples: tuple[Sample, ...]) -> None:
        self._samples: dict[str, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.name, []).append(sample)

    def of(self, name: str) -> list[Sample]:
        return self._samples.get(name, [])

    def total(self, name: str, **labels: str) -> float:
        return sum(each.value for each in self.of(name) if labels.items() <= each.labels.items())


def _broken_promises(metrics: _Metrics) -> Iterator[DoctorFinding]:
    """Counters that are a defect of the gateway unless they are 0."""
    report = "a defect of the gateway: keep its log and report it (SECURITY.md)"
    if count := metrics.total("portcullis_coverage_errors_total"):
        what = f"{count:.0f} texts had characters that were neither forwarded nor replaced nor withheld"
        yield DoctorFinding("portcullis_coverage_errors_total", what, report)
    if count := metrics.total("portcullis_guard_failures_total"):
        what = f"{count:.0f} answers were cut because the guard itself failed; nothing unscanned was sent"
        yield DoctorFinding("portcullis_guard_failures_total", what, report)
    if metrics.total("portcullis_streams_active"):
        return  # texts are entered when they end
    for sample in metrics.of("portcullis_scanned_chars_total"):
        channel = sample.labels["channel"]
        others = ("forwarded", "replaced", "withheld")
        entered = sum(metrics.total(f"portcullis_{each}_chars_total", channel=channel) for each in others)
        if entered != sample.value:
            what = f"{sample.value - entered:.0f} scanned characters of channel {channel} are accounted for nowhere"
            yield DoctorFinding("portcullis_scanned_chars_total", what, report)


def _readiness(seen: Observed, metrics: _Metrics) -> Iterator[DoctorFinding]:
    status = seen.ready.get("status")
    if status != "ready":
        reason = f" ({seen.ready['reason']})" if seen.ready.get("reason") else ""
        yield DoctorFinding(f"{seen.url}/readyz", f"not ready: {status}{reason}", "no traffic is sent here until it is")
    for sample in metrics.of("portcullis_upstream_up"):
        name = sample.labels["upstream"]
        if not sample.value and seen.problems.get(name) is None:
            do = "ask it by hand, and look at portcullis_upstream_errors_total for the kind of failure"
            yield DoctorFinding(f"upstreams.{name}", "does not answer, or is left out after failures", do)
    for sample in metrics.of("portcullis_mask_in_force"):
        if not sample.value:
            where = f"policies.{sample.labels['policy'].removesuffix('/exhausted')}"
            what = f"its mask is not in force at upstream {sample.labels['upstream']}"
            do = "start that vLLM with the file that `portcullis masks` writes (PORTCULLIS_MASKS) and the plugin"
            yield DoctorFinding(where, what, do)


def _exposure(seen: Observed) -> Iterator[DoctorFinding]:
    """Who may use the gateway and read its metrics."""
    if seen.keyless == 200 and not is_loopback(seen.config.listen.host if seen.config else _host(seen.url)):
        what = "answers without a key, and not on the loopback interface alone"
        yield DoctorFinding(seen.url, what, "write keys under auth.keys, or bind it to 127.0.0.1")
    if seen.metrics_url == seen.url and not is_loopback(_host(seen.url)):
        what = "shows the names of keys, rules and upstreams to whoever reaches it"
        yield DoctorFinding(f"{seen.url}/metrics", what, "move it with listen.admin")


def _clocks(seen: Observed) -> Iterator[DoctorFinding]:
    for where, skew in (("the gateway", seen.skew), *((f"upstream {name}", skew) for name, skew in seen.skews.items())):
        if skew is not None and abs(skew) > MAX_SKEW:
            what = f"its clock is {abs(skew):.0f} seconds {'ahead of' if skew > 0 else 'behind'} this machine's"
            yield DoctorFinding(where, what, "synchronise both (NTP): log, journal and limits go by the clock")


def _upstreams(seen: Observed) -> Iterator[DoctorFinding]:
    for name, problem in seen.problems.items():
        if problem is not None:
            yield DoctorFinding(f"upstreams.{name}", problem, "portcullis check --online asks it again")


# Metric, the label that says where, what it means that it is not 0, and what to do.
_COUNTED = (
    (
        "config_reloads",
        "failed",
        "attempts to reload failed",
        "run portcullis check on the file; the old one is in force",
    ),
    ("journal_dropped", "", "entries could not be written", "look at the disk of journal.path"),
    (
        "accept_failures",
        "reason",
        "connections could not be accepted",
        "raise the limit of file descriptors (LimitNOFILE)",
    ),
    ("overflows", "policy", "times text left before it was decided", "raise max_hold, or set on_overflow: block"),
    (
        "unknown_events",
        "path",
        "fields or events of an unknown shape",
        "look at the log, and at `unknown` of the policy",
    ),
)


def _counts(metrics: _Metrics) -> Iterator[DoctorFinding]:
    for short, label, what, do in _COUNTED:
        name = f"portcullis_{short}_total"
        for sample in metrics.of(name):
            if sample.value and (label != "failed" or sample.labels["outcome"] == "failed"):
                where = f"{{{label}={sample.labels[label]}}}" if label in sample.labels else ""
                yield DoctorFinding(f"{name}{where}", f"{sample.value:.0f} {what} since the start", do)
    for sample in metrics.of("portcullis_upstream_errors_total"):
        if sample.value and sample.labels["kind"] in ("auth", "dns", "tls"):
            what = f"{sample.value:.0f} calls failed of kind {sample.labels['kind']}"
            do = "portcullis check --online says what to change, if it still is so"
            yield DoctorFinding(f"upstreams.{sample.labels['upstream']}", what, do)
    is_open, limit = metrics.total("process_open_fds"), metrics.total("process_max_fds")
    if limit and is_open > FEW_LEFT * limit:
        what = f"{is_open:.0f} of {limit:.0f} file descriptors are open"
        yield DoctorFinding("process_open_fds", what, "raise the limit (LimitNOFILE, ulimit -n)")


def _holds(seen: Observed, metrics: _Metrics) -> Iterator[DoctorFinding]:
    """Is more than half of the largest hold held more than now and then?"""
    policies: tuple[Policy, ...] = tuple(seen.config.policies.values()) if seen.config is not None else ()
    limit = min((policy.max_hold for policy in policies), default=1024)
    name = "portcullis_held_chars"
    pieces = metrics.total(f"{name}_count")
    below = [each.value for each in metrics.of(f"{name}_bucket") if float(each.labels["le"]) <= limit * NEAR_LIMIT]
    share = 1 - max(below) / pieces if pieces and below else 0.0
    if share > HELD_OFTEN:
        what = f"after {share:.1%} of the pieces more than {limit * NEAR_LIMIT:.0f} characters are held"
        do = "portcullis check shows the typical hold of each rule: narrow the pattern, or lower max_hold"
        yield DoctorFinding(name, what, do)


def _unmatched_rules(config: Config, metrics: _Metrics) -> Iterator[DoctorFinding]:
    scanned = metrics.total("portcullis_scanned_chars_total")
    if scanned < ENOUGH_TEXT:
        return
    routed = {route.policy for route in config.routes}
    for policy in config.policies.values():
        for i, rule in enumerate(policy.rules) if policy.name in routed else ():
            if not metrics.total("portcullis_matches_total", policy=policy.name, rule=rule.id):
                what = f"rule {rule.id} has matched nothing in {scanned / 1e6:.0f} million characters"
                do = "try what it should find with portcullis scan; a rule that nothing needs costs time"
                yield DoctorFinding(f"policies.{policy.name}.rules[{i}]", what, do)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
