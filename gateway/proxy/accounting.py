"""The account of one request: what metrics, log, trace and journal report of it, and its part of its key's quota."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from time import perf_counter
from types import MappingProxyType

from msgspec import Struct

from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.commands import failure
from gateway.guard.findings import Finding, Histogram, OnFinding
from gateway.journal.entries import BeginEntry, MatchEntry, RequestEntry
from gateway.journal.writer import JournalWriter
from gateway.limits import Decision, Limiter, headers
from gateway.observe.facts import (
    TAKEN_BACK,
    Fact,
    GuardFailed,
    Limited,
    RequestFinished,
    Retried,
    RolledBack,
    TextScanned,
    UpstreamFailed,
)
from gateway.observe.log import outcome_of
from gateway.observe.metrics import OVERHEAD_BOUNDS
from gateway.observe.tracing import RequestSpan
from gateway.policy.model import ClientKey, Direction
from gateway.proxy.asgi import start_background_task
from gateway.proxy.errors import HTTPFailure, rate_limited

CHARS_A_TOKEN = 4  # an estimate, until the upstream has reported how many tokens it counted
JOURNAL_FAILED = failure("The journal cannot be written; the answer was stopped.", "journal_failed", "server_error")

# Values of `RequestRecord.error` beside the kinds of `HTTPFailure` and `UpstreamFailed`.
CLIENT_LEFT = "client left"
CLIENT_IDLE = "client does not read"
SERVER_STOPS = "server stops"
NOT_JOURNALLED = "journal"
GUARD_DEFECT = "guard_failed"
BLOCKED = "content_filter"  # a rule blocked the prompt, so that the outcome is that of its text
_CANCELLED = (CLIENT_LEFT, CLIENT_IDLE, SERVER_STOPS)
_CLIENT_CLOSED_REQUEST = 499  # nginx's number for a request whose client left before the answer
_UNITS = {"requests": "requests a minute", "tokens": "tokens a minute", "streams": "requests at the same time"}


def not_journalled() -> HTTPFailure:
    """The configuration requires a journal, and it could not be written."""
    return HTTPFailure(503, JOURNAL_FAILED, NOT_JOURNALLED, {"retry-after": "5"})


class QuotaReservation(Struct, eq=False):
    """The tokens that a request has reserved of its key's limits, until its use is known.

    `headers` show the client its limits; they are empty for a key without limits.
    """

    limiter: Limiter
    key: ClientKey
    tokens: int
    headers: dict[str, str]
    corrected: bool = False

    @classmethod
    async def reserve(
        cls, limiter: Limiter, key: ClientKey, body_bytes: int, emit: Callable[[Fact], None]
    ) -> QuotaReservation:
        """Count a request, with as many tokens as its body makes probable.

        Raises `HTTPFailure` (429), which is counted, where the key is at one of its limits.
        """
        if key.rpm is None and key.tpm is None and key.max_streams is None:
            return cls(limiter, key, 0, {}, corrected=True)
        tokens = max(body_bytes // CHARS_A_TOKEN, 1)
        decision = await limiter.reserve(key, tokens)
        if not decision.admitted:
            refusal = _over_limit(key, decision)
            emit(Limited(key.name, refusal.kind))
            raise refusal
        return cls(limiter, key, tokens, headers(decision))

    async def correct(self, used: int) -> None:
        """Count the tokens that were `used` in place of those reserved, once, even if the caller is cancelled."""
        if not self.corrected:
            self.corrected = True
            await asyncio.shield(start_background_task(self.limiter.release(self.key, self.tokens, used)))


class RequestRecord:
    """Opened with the request and closed once, whether it is refused or answered.

    `emit` takes the facts. `started` is a time of `perf_counter`, `ttft` in seconds. `error` is why the request did not
    end as it should; `upstream` is the one that was called last; `model` is None for a name that no log may show;
    `guard` is None until the answer begins, `span` where there are no traces. `on_finding` takes matches for the
    journal. `journal` is None until the prompt was scanned, or where there is none; with `journal_required` nothing is
    answered, and no answer ends, without it. `release_slot` is called once at the end.
    """

    # What is not known from the beginning is set where it becomes known: a struct's fields are written in ten times the
    # time of these.
    origin_headers: Mapping[str, str] = MappingProxyType({})
    key: str | None = None
    route = "none"
    policy = "none"
    upstream = "none"
    model: str | None = None
    stream = False
    error: str | None = None
    ttft: float | None = None
    quota: QuotaReservation | None = None
    span: RequestSpan | None = None
    journal: JournalWriter | None = None
    journal_required = False
    release_slot: Callable[[], None] | None = None
    guard: AnswerGuard | None = None
    on_finding: OnFinding | None = None
    _rollbacks = 0
    _closed = False

    def __init__(self, request_id: str, path: str, emit: Callable[[Fact], None]) -> None:
        self.request_id = request_id
        self.path = path
        self.emit = emit
        self.started = perf_counter()
        self.overhead = Histogram(OVERHEAD_BOUNDS)
        self.scanned: list[TextScanned] = []
        self.findings: list[Finding] = []  # not yet journalled

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every answer to the request."""
        return {"x-request-id": self.request_id, "x-portcullis-policy": self.policy, **self.origin_headers}

    # -- while it is answered ------------------------------------------------------------------------------------------

    def note(self, fact: Fact) -> None:
        """Scanned text is counted when the record is closed, everything else now."""
        if isinstance(fact, TextScanned):
            self.scanned.append(fact)
            return
        self.emit(fact)
        if isinstance(fact, GuardFailed):
            self.error = GUARD_DEFECT
        if isinstance(fact, RolledBack) and fact.outcome in TAKEN_BACK:
            self._rollbacks += 1

    def note_retry(self, upstream: str, kind: str) -> None:
        self.emit(UpstreamFailed(upstream, kind))
        self.emit(Retried(upstream, kind))
        if self.span is not None:
            self.span.retried(upstream, kind)

    def note_failure(self, kind: str, error: str | None = None) -> None:
        """The upstream failed, and the request with it; `error` where the log shows more than the kind."""
        self.error = error or kind
        self.emit(UpstreamFailed(self.upstream, kind))

    def note_first_byte(self, arrived: float) -> None:
        """`arrived` is a time of `perf_counter`."""
        self.ttft = arrived - self.started
        if self.span is not None:
            self.span.first_byte(self.ttft)

    # -- what an answer waits for --------------------------------------------------------------------------------------

    async def begin_journal(self) -> bool:
        """Before anything is answered: write what was found in the prompt, and, if the journal is required, that an
        answer follows. False where it is required and could not be written.

        A journal that has worked until now may fail at the next line, and only a line of this request shows it.
        """
        if self.journal is None or not self.journal_required:
            return await self.commit_findings()
        beginning = BeginEntry(time.time(), self.request_id, str(self.key), self.route, self.policy)
        return await self.journal.committed([beginning, *self._entries()])

    async def commit_findings(self) -> bool:
        """Write the findings since the last call; False where the journal is required and could not be written."""
        if self.journal is None:
            return True
        entries = self._entries()
        if self.journal_required:
            return await self.journal.committed(entries)
        if entries:
            self.journal.write(entries)
        return True

    def _entries(self) -> list[MatchEntry]:
        """Takes the findings that are not yet journalled."""
        now, found = time.time(), self.findings.copy()
        self.findings.clear()
        return [
            MatchEntry(now, self.request_id, str(self.key), self.route, self.policy, **each._asdict()) for each in found
        ]

    async def correct_quota(self, used: int | None = None) -> None:
        """Give back what the key has not used, before its client can send another request. `used` is in tokens; None:
        as many as the upstream counted, or an estimate."""
        if self.quota is not None and not self.quota.corrected:
            await self.quota.correct(self._used_tokens(self.quota) if used is None else used)

    def _used_tokens(self, quota: QuotaReservation) -> int:
        if self.guard is not None and self.guard.usage is not None:
            return sum(self.guard.usage)
        answers = (text for text in self.scanned if text.direction == Direction.OUTPUT)
        return quota.tokens + sum(count.scanned for text in answers for count in text.channels) // CHARS_A_TOKEN

    # -- the end -------------------------------------------------------------------------------------------------------

    async def refuse(self, failure: HTTPFailure) -> HTTPFailure:
        """Close the record of a request that no upstream is called for. Returns what to answer: `failure`, or that the
        journal, which is required, cannot be written."""
        await self.correct_quota(0)
        if not await self.begin_journal():
            failure = not_journalled()
            self.scanned, self.journal = [], None
        self.error = failure.kind
        self.close(failure.status)
        return failure

    async def abandon(self) -> None:
        """A request that was cancelled or met a defect of ours before it was answered holds nothing any more."""
        self.scanned, self.journal = [], None
        self._release()
        await self.correct_quota(0)

    def close(self, status: int) -> None:
        """Report the request, the first time. `status` is what the client got, 0 if nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.quota is not None and not self.quota.corrected:
                start_background_task(self.quota.correct(self._used_tokens(self.quota)))
            for text in self.scanned:
                self.emit(text)
            fact = self._finished(status)
            self.emit(fact)
            if self.journal is not None:
                self.journal.write([*self._entries(), _request_entry(fact)])
            if self.span is not None:
                usage, reasons = (None, ()) if self.guard is None else (self.guard.usage, self.guard.reasons)
                self.span.finish(fact, usage, reasons)
        finally:
            self._release()
            self.guard, self.scanned = None, []  # a connection keeps the record until its next request

    def _release(self) -> None:
        release, self.release_slot = self.release_slot, None
        if release is not None:
            release()

    def _finished(self, status: int) -> RequestFinished:
        outcome = outcome_of(tuple(self.scanned))
        if self.error is not None and self.error != BLOCKED:
            outcome = "cancelled" if self.error in _CANCELLED else "failed"
        return RequestFinished(
            request_id=self.request_id,
            path=self.path,
            route=self.route,
            policy=self.policy,
            upstream=self.upstream,
            status=status or _CLIENT_CLOSED_REQUEST,
            outcome=outcome,
            stream=self.stream,
            duration=perf_counter() - self.started,
            ttft=self.ttft,
            overhead=None if self.guard is None else self.overhead.distribution(),
            scanned=tuple(self.scanned),
            error=self.error,
            key=self.key,
            model=self.model,
            tokens=None if self.guard is None else self.guard.usage,
            rollbacks=self._rollbacks,
        )


def _request_entry(fact: RequestFinished) -> RequestEntry:
    return RequestEntry(
        time=time.time(),
        request_id=fact.request_id,
        key_name=str(fact.key),
        route=fact.route,
        policy=fact.policy,
        upstream=fact.upstream,
        status=fact.status,
        outcome=fact.outcome,
        stream=fact.stream,
        duration=fact.duration,
    )


def _over_limit(key: ClientKey, decision: Decision) -> HTTPFailure:
    limit = {"requests": key.rpm, "tokens": key.tpm, "streams": key.max_streams}[decision.reason]
    message = f"This key is at its limit of {limit} {_UNITS[decision.reason]}."
    if decision.too_large:
        message = f"The request is larger than this key's limit of {limit} tokens a minute; make it smaller."
    return rate_limited(message, decision.reason, headers(decision))
