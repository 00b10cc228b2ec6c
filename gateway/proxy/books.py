"""The books of one request: what is said about it in metrics, log, trace and journal, and what its key has used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from gateway.guard.channels import Finding, Tally
from gateway.guard.chat import ChatGuard
from gateway.observe.facts import (
    TAKEN_BACK,
    Fact,
    GuardFailed,
    RequestFinished,
    Retried,
    RolledBack,
    TextScanned,
    UpstreamFailed,
)
from gateway.observe.log import outcome_of
from gateway.observe.metrics import OVERHEAD_BOUNDS
from gateway.observe.tracing import RequestSpan
from gateway.policy.model import Direction
from gateway.proxy.asgi import start_background_task
from gateway.proxy.forward import RoutedRequest
from gateway.proxy.journal import RequestJournal

CLIENT_LEFT = "client left"
CLIENT_IDLE = "client does not read"
SERVER_STOPS = "server stops"
NOT_JOURNALLED = "journal"
GUARD_DEFECT = "guard_failed"
_CANCELLED = (CLIENT_LEFT, CLIENT_IDLE, SERVER_STOPS)
_CLIENT_CLOSED_REQUEST = 499  # nginx's number for an answer that nobody waited for


class RequestRecord:
    """Opened with the request and closed once. `error` says why it did not end as it should; `upstream` is the one
    that was asked last, `guard` is None until there is one."""

    def __init__(
        self,
        forward: RoutedRequest,
        record: Callable[[Fact], None],
        span: RequestSpan | None,
        journal: RequestJournal | None,
    ) -> None:
        self._forward = forward
        self._record = record
        self._span = span
        self._journal = journal
        self._scanned = list(forward.scanned)
        self._findings = list(forward.findings)
        self._rollbacks = 0
        self.guard: ChatGuard | None = None
        self.upstream = forward.route.upstream
        self.overhead = Tally(OVERHEAD_BOUNDS)
        self.error: str | None = None
        self.ttft: float | None = None

    @property
    def on_finding(self) -> Callable[[Finding], None] | None:
        """Whom to tell of every match; None where nobody wants to know."""
        return None if self._journal is None else self._findings.append

    def note(self, fact: Fact) -> None:
        """Text that was scanned is counted when the books are closed, everything else now."""
        if isinstance(fact, TextScanned):
            self._scanned.append(fact)
            return
        self._record(fact)
        if isinstance(fact, GuardFailed):
            self.error = GUARD_DEFECT
        if isinstance(fact, RolledBack) and fact.outcome in TAKEN_BACK:
            self._rollbacks += 1

    def note_try(self, upstream: str) -> None:
        self.upstream = upstream
        if self._span is not None:
            forward = self._forward
            asked = forward.fleet.clients[upstream].upstream
            self._span.routed(forward.chat.model, forward.route.model, forward.policy.policy.name, asked)

    def note_retry(self, upstream: str, kind: str) -> None:
        self._record(UpstreamFailed(upstream, kind))
        self._record(Retried(upstream, kind))
        if self._span is not None:
            self._span.retried(upstream, kind)

    def note_failure(self, kind: str, error: str | None = None) -> None:
        """The upstream failed, and the request with it; `error` if the log is to say more than the kind."""
        self.error = error or kind
        self._record(UpstreamFailed(self.upstream, kind))

    def note_first_byte(self, arrived: float) -> None:
        """`arrived` is a time of `perf_counter`."""
        self.ttft = arrived - self._forward.started
        if self._span is not None:
            self._span.first_byte(self.ttft)

    # -- what an answer waits for --------------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """May anything be answered at all? False if the configuration requires a journal that cannot be written."""
        return self._journal is None or await self._journal.begin(self._unwritten())

    async def commit(self) -> bool:
        """May the answer end? Only what a configuration requires to be journalled has to wait."""
        return self._journal is None or await self._journal.commit(self._unwritten())

    def _unwritten(self) -> tuple[Finding, ...]:
        findings = tuple(self._findings)
        self._findings.clear()
        return findings

    async def settle(self) -> None:
        """Give back what the key has not used, before the client can ask again."""
        usage = self.guard.usage if self.guard is not None else None
        answers = (text for text in self._scanned if text.direction == Direction.OUTPUT)
        written = sum(count.scanned for text in answers for count in text.channels)
        settling = self._forward.allowance.settle(None if usage is None else sum(usage), written)
        # It is done to its end, also if the client leaves meanwhile.
        await asyncio.shield(start_background_task(settling))

    async def give_back(self) -> None:
        """What the key has used of its tokens is nothing: the upstream was not asked."""
        await asyncio.shield(start_background_task(self._forward.allowance.give_back()))

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, status: int) -> None:
        """`status` is what the client got, 0 if nothing."""
        forward = self._forward
        if not forward.allowance.settled:
            start_background_task(self.settle())
        for text in self._scanned:
            self._record(text)
        fact = self._finished(status)
        self._record(fact)
        if self._journal is not None:
            self._journal.close(fact, self._unwritten())
        if self._span is not None:
            usage, reasons = (None, ()) if self.guard is None else (self.guard.usage, self.guard.reasons)
            self._span.finish(fact, usage, reasons)

    def _finished(self, status: int) -> RequestFinished:
        forward = self._forward
        scanned = tuple(self._scanned)
        outcome = outcome_of(scanned)
        if self.error is not None:
            outcome = "cancelled" if self.error in _CANCELLED else "failed"
        return RequestFinished(
            request_id=forward.request_id,
            path=forward.path,
            route=forward.route.model,
            policy=forward.policy.policy.name,
            upstream=self.upstream,
            status=status or _CLIENT_CLOSED_REQUEST,
            outcome=outcome,
            stream=forward.chat.stream,
            duration=perf_counter() - forward.started,
            ttft=self.ttft,
            overhead=self.overhead.distribution(),
            scanned=scanned,
            error=self.error,
            key=forward.key,
            rollbacks=self._rollbacks,
        )
