"""The shared state of the endpoints of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.censor.compile import CompiledPolicy
from gateway.censor.stream import Censor
from gateway.guard.commands import GUARD_FAILED
from gateway.journal.writer import JournalWriter
from gateway.limits import Limiter
from gateway.observe.facts import Fact, GuardFailed, JournalDropped, MaskJudged
from gateway.observe.metrics import Metrics
from gateway.observe.tracing import Tracer
from gateway.policy.model import Channel, ClientKey, Direction
from gateway.proxy.errors import HTTPFailure, overloaded, rate_limited
from gateway.proxy.snapshot import Snapshot
from gateway.proxy.steering.mask_probe import MaskProbe
from gateway.proxy.stored import StoredAnswers
from gateway.proxy.upstreams.models import ModelList

# Of the gateway's slots (`limits.max_streams`), one part in so many may be taken by the unfinished bodies of one key.
PENDING_BODIES_SHARE = 2
PENDING_BODIES_RETRY_AFTER = 1  # seconds; a body may end at any time


class PendingBodies:
    """The requests of each key whose bodies are still arriving, in this process.

    The limiter counts a request when its body is complete, so that one that is refused costs nothing. Until then a key
    has no more of them than it may have streams, nor than its share of the gateway's slots. Limits a minute are left to
    the limiter, which computes when to retry.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # by the name of the key; names come from the configuration only

    def refusal(self, key: ClientKey, slots: int) -> HTTPFailure | None:
        """429 where `key` has as many as it may; `slots` are all that the gateway has."""
        most = _most_pending(key, slots)
        if self._counts.get(key.name, 0) < most:
            return None
        message = f"This key is at its limit of {most} requests whose bodies are still arriving."
        return rate_limited(message, "streams", {"retry-after": str(PENDING_BODIES_RETRY_AFTER)})

    @contextmanager
    def one_more(self, key: ClientKey) -> Iterator[None]:
        """A request of `key` while its body is read."""
        self._counts[key.name] = self._counts.get(key.name, 0) + 1
        try:
            yield
        finally:
            self._counts[key.name] -= 1
            if not self._counts[key.name]:
                del self._counts[key.name]


def _most_pending(key: ClientKey, slots: int) -> int:
    if not key.digest:  # no keys: there are no others to keep a part for
        return slots
    share = max(slots // PENDING_BODIES_SHARE, 1)
    return share if key.max_streams is None else min(key.max_streams, share)


@dataclass
class AppState:
    """Made once by the composition root.

    `current` is replaced in one assignment by a reload. `draining`: new requests are refused, running ones continue.
    `journal_required`: without the journal there are no answers. `idle` is set when the last request has ended.
    """

    metrics: Metrics
    record: Callable[[Fact], None]
    limiter: Limiter
    journal: JournalWriter | None = None
    journal_required: bool = False
    tracer: Tracer | None = None
    stored: StoredAnswers | None = None
    pending_bodies: PendingBodies = field(default_factory=PendingBodies)
    in_flight: int = 0
    draining: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    current: Snapshot = field(init=False)  # set before the first request
    _dropped: int = 0
    _models: ModelList = field(default_factory=ModelList)

    async def probe(self) -> dict[str, bool]:
        """Which upstreams answer, by cached probes; the gauge follows. MaskProbes are probed as well."""
        snapshot = self.current
        states, _ = await asyncio.gather(snapshot.fleet.states(), snapshot.masks.refresh())
        for name in states.keys() & self.current.config.upstreams.keys():  # a reload may have come between
            self.metrics.upstream_up.labels(name).set(states[name])
        return dict(states)

    def record_mask_verdict(self, probe: MaskProbe) -> None:
        mask, status = probe.mask, probe.status
        self.record(MaskJudged(mask.upstream, mask.entry, status.state, status.reason))

    async def models(self, key: ClientKey) -> list[dict[str, object]]:
        return await self._models.list(self.current, key, self._is_clean)

    def _is_clean(self, compiled: CompiledPolicy, text: str) -> bool:
        try:
            censor = Censor(compiled.program(Direction.OUTPUT, Channel.OTHER))
            return censor.feed(text) + censor.finish() == text
        except Exception as error:
            raise self.guard_failure(compiled, error) from None

    def guard_failure(self, policy: CompiledPolicy, error: Exception) -> HTTPFailure:
        """The answer to a request whose scan raised `error`, a defect of ours, which is recorded."""
        self.record(GuardFailed.of(policy.policy.name, error))
        return HTTPFailure(500, GUARD_FAILED, "guard_failed")

    @property
    def journal_fails(self) -> bool:
        """Is there a journal that answers must wait for, and can it not be written?"""
        return self.journal_required and self.journal is not None and not self.journal.healthy

    def count_dropped(self) -> None:
        """Bring the metric up to what the journal has dropped."""
        if self.journal is not None and (more := self.journal.dropped - self._dropped) > 0:
            self._dropped += more
            self.record(JournalDropped(more))

    def acquire_slot(self) -> None:
        """Count a request until `release_slot`. Raises `HTTPFailure` while there is no slot for it."""
        if self.journal_fails:
            raise overloaded("The journal cannot be written.", retry_after=5)
        if self.draining:
            refusal = overloaded("The gateway is stopping; another one will take the request.")
            refusal.headers["connection"] = "close"
            raise refusal
        most = self.current.config.limits.max_streams
        if self.in_flight >= most:
            raise overloaded(f"The gateway is at its limit of {most} streams.")
        self.in_flight += 1
        self.metrics.set_streams(self.in_flight)

    def release_slot(self) -> None:
        self.in_flight -= 1
        self.metrics.set_streams(self.in_flight)
        if not self.in_flight:
            self.idle.set()
        self.count_dropped()
