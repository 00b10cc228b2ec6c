"""What the endpoints of one process work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.censor.compile import CompiledPolicy
from gateway.censor.stream import Censor
from gateway.guard.answer import GUARD_FAILED, guard_failed
from gateway.guard.channels import OnFinding
from gateway.guard.chat import ChatGuard
from gateway.guard.prompt import GuardedPrompt, Guarding, guarding_prompt
from gateway.journal.writer import JournalWriter
from gateway.limits import Limiter
from gateway.observe.facts import Fact, JournalDropped, MaskJudged
from gateway.observe.metrics import Metrics
from gateway.observe.tracing import Tracer
from gateway.policy.model import Channel, ClientKey, Direction
from gateway.proxy.allowance import Unread
from gateway.proxy.errors import HTTPFailure, overloaded
from gateway.proxy.journal import RequestJournal
from gateway.proxy.snapshot import Generation
from gateway.proxy.steering.mask_probe import MaskProbe
from gateway.proxy.upstreams.models import ModelList
from gateway.wire.chat import Json
from gateway.wire.dialect import Dialect


@dataclass
class Gateway:
    """What the endpoints work with; made once by the composition root.

    `current` is replaced as a whole by a reload. `draining`: new requests are refused, running ones go on.
    `journal_required`: without the journal there are no answers.
    """

    metrics: Metrics
    record: Callable[[Fact], None]
    limiter: Limiter
    journal: JournalWriter | None = None
    journal_required: bool = False
    tracer: Tracer | None = None
    unread: Unread = field(default_factory=Unread)
    in_flight: int = 0
    draining: bool = False
    _dropped: int = 0
    _models: ModelList = field(default_factory=ModelList)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    current: Generation = field(init=False)  # set before the first request

    async def probe(self) -> dict[str, bool]:
        """Which upstreams answer, by probes that are cached; the gauge follows. Masks are looked after as well."""
        generation = self.current
        states, _ = await asyncio.gather(generation.fleet.states(), generation.masks.refresh())
        for name in states.keys() & self.current.config.upstreams.keys():  # a reload may have come between
            up = states[name]
            self.metrics.upstream_up.labels(name).set(up)
        return dict(states)

    def judged(self, canary: MaskProbe) -> None:
        """A canary has something new to say."""
        wanted, verdict = canary.mask, canary.status
        self.record(MaskJudged(wanted.upstream, wanted.entry, verdict.state, verdict.reason))

    async def models(self, key: ClientKey) -> list[dict[str, object]]:
        return await self._models.list(self.current, key, self._is_clean)

    def _is_clean(self, compiled: CompiledPolicy, text: str) -> bool:
        try:
            censor = Censor(compiled.program(Direction.OUTPUT, Channel.OTHER))
            return censor.feed(text) + censor.finish() == text
        except Exception as error:
            raise self._fail_closed(compiled, error) from None

    def guarding_prompt(
        self, body: Json, policy: CompiledPolicy, on_finding: OnFinding | None, dialect: Dialect
    ) -> Guarding[GuardedPrompt]:
        """`guard.prompt.guarding_prompt`, failing closed. Raises `HTTPFailure`."""
        try:
            return (yield from guarding_prompt(body, policy, on_finding, dialect))
        except Exception as error:
            raise self._fail_closed(policy, error) from None

    def _fail_closed(self, policy: CompiledPolicy, error: Exception) -> HTTPFailure:
        self.record(guard_failed(ChatGuard(policy), error))
        return HTTPFailure(500, GUARD_FAILED, "guard_failed")

    @property
    def journal_fails(self) -> bool:
        """Is there a journal that answers must wait for, and can it not be written?"""
        return self.journal_required and self.journal is not None and not self.journal.healthy

    def request_journal(self, request_id: str, key: str, route: str, policy: str) -> RequestJournal | None:
        if self.journal is None:
            return None
        return RequestJournal(self.journal, self.journal_required, request_id, key, route, policy)

    def count_dropped(self) -> None:
        """Bring the metric up to what the journal has dropped."""
        if self.journal is not None and (more := self.journal.dropped - self._dropped) > 0:
            self._dropped += more
            self.record(JournalDropped(more))

    def enter(self) -> None:
        """A request begins that `leave` will end. Raises `HTTPFailure` while there is no place for it."""
        if self.journal_fails:
            raise overloaded("The journal cannot be written.", retry_after=5)
        if self.draining:
            refused = overloaded("The gateway is stopping; another one will take the request.")
            refused.headers["connection"] = "close"
            raise refused
        most = self.current.config.limits.max_streams
        if self.in_flight >= most:
            raise overloaded(f"The gateway is at its limit of {most} streams.")
        self.in_flight += 1
        self.metrics.streams_active.set(self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1
        self.metrics.streams_active.set(self.in_flight)
        if not self.in_flight:
            self.idle.set()
        self.count_dropped()
