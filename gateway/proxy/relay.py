"""The story of one request, and the performer of the guard's commands.

A relay is the ASGI response of a chat request: it calls the upstream, feeds what arrives to the guard and writes what
the guard says. It runs beside a watch on the client, so that one who leaves takes the upstream request along at once;
and under a clock for what the transport does not time: the whole answer, and a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import httpx
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.censor.compile import CompiledPolicy
from gateway.guard.answer import (
    GUARD_FAILED,
    BrokenAnswer,
    PlainAnswer,
    StreamAnswer,
    failure,
    guard_failed,
)
from gateway.guard.chat import ChatGuard
from gateway.guard.commands import Command, Record
from gateway.guard.commands import Send as SendBytes
from gateway.guard.prompt import ChatRequest
from gateway.guard.texts import Finding, Tally
from gateway.observe.facts import Fact, GuardFailed, RequestFinished, Retried, TextScanned, UpstreamFailed
from gateway.observe.log import outcome_of
from gateway.observe.metrics import OVERHEAD_BOUNDS
from gateway.observe.tracing import RequestSpan
from gateway.policy.model import Direction, Limits, Route, Timeouts
from gateway.proxy.allowance import Allowance
from gateway.proxy.asgi import ASIDE, SERVER_SEND, abort, aside, departure, in_background
from gateway.proxy.errors import HTTPFailure, error_object, from_transport
from gateway.proxy.fleet import Fleet
from gateway.proxy.journal import RequestJournal
from gateway.proxy.shortcut import Shortcut
from gateway.proxy.upstream import headers_down, inflated, is_plain
from gateway.wire import json, sse

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
UPSTREAM_REFUSED_US = failure("The upstream refused the gateway's own credentials.", "upstream_auth")
UPSTREAM_BROKE = failure("The upstream's answer broke off.", "upstream_protocol_error")
_TRACE_CONTEXT = ("traceparent", "tracestate")
WRITE_SIZE = 64 * 1024  # bytes of a whole answer that are written at once
MAX_ERROR_TEXT = 4096  # characters of an error's plain text that are passed on
CLIENT_LEFT = "client left"
CLIENT_IDLE = "client does not read"
SERVER_STOPS = "server stops"
NOT_JOURNALLED = "journal"
JOURNAL_FAILED = failure("The journal cannot be written; the answer was stopped.", "journal_failed", "server_error")
TOO_LONG = failure("The answer took longer than the upstream's total timeout.", "upstream_timeout")


@dataclass(frozen=True, slots=True)
class Forward:
    """A request that was read, routed and censored, ready to go. `headers` are the client's, lower-case names."""

    request_id: str
    path: str
    chat: ChatRequest
    body: bytes
    headers: Mapping[str, str]
    route: Route
    policy: CompiledPolicy
    fleet: Fleet
    timeouts: Timeouts
    key: str
    allowance: Allowance
    started: float
    scanned: tuple[TextScanned, ...] = ()
    findings: tuple[Finding, ...] = ()


def not_journalled() -> HTTPFailure:
    """A configuration requires a journal, and it could not be written."""
    return HTTPFailure(503, JOURNAL_FAILED, "journal", {"retry-after": "5"})


class Relay(Response):
    """See the module. `limits` bound buffers and waiting, `record` takes the facts, `leave` is called once at the end.

    The books are closed in the same turn of the loop in which the last bytes are written, so that a client who has
    read them and asks again finds itself counted and its place free.
    """

    def __init__(
        self,
        forward: Forward,
        limits: Limits,
        record: Callable[[Fact], None],
        leave: Callable[[], None],
        span: RequestSpan | None = None,
        journal: RequestJournal | None = None,
    ) -> None:
        super().__init__()
        self._forward = forward
        self._limits = limits
        self._record = record
        self._leave = leave
        self._finished = False
        self._overhead = Tally(OVERHEAD_BOUNDS)
        self._scanned = list(forward.scanned)
        self._upstream = forward.route.upstream  # or the one that answered in its place
        self._guard: ChatGuard | None = None
        self._span = span
        self._journal = journal
        self._findings = list(forward.findings)
        self._status = 0  # sent to the client; 0: nothing yet
        self._ttft: float | None = None
        self._error: str | None = None
        self._sending_since: float | None = None
        self._timed_out = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = scope.get(SERVER_SEND, send)
        work = asyncio.ensure_future(self._tell(send))
        gone = asyncio.ensure_future(departure(receive))
        clock = _Clock(self, work)
        reason = SERVER_STOPS
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            reason = CLIENT_LEFT
        finally:
            clock.stop()
            if not work.done():
                self._error = reason
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self._finish()  # for work that was cancelled before its first step
            if self._error == CLIENT_IDLE:
                abort(send)
        if not work.cancelled() and work.exception() is not None:
            raise work.exception() or RuntimeError

    def overdue(self, now: float) -> bool:
        """Must the request end at `now`? If so, the reason is noted."""
        if self._sending_since is not None and now - self._sending_since > self._limits.send_timeout:
            self._error = CLIENT_IDLE
        elif not self._timed_out and now - self._forward.started > self._forward.timeouts.total:
            self._timed_out = True
        else:
            return False
        return True

    async def _tell(self, send: Send) -> None:
        try:
            await self._answer(send)
        finally:
            self._finish()

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(self, send: Send) -> None:
        forward = self._forward
        on_finding = None if self._journal is None else self._findings.append
        guard = self._guard = ChatGuard(forward.policy, forward.chat.choices, self._known_labels(), on_finding)
        try:
            opened = await forward.fleet.open(
                forward.route,
                "/chat/completions",
                forward.body,
                self._headers_up(),
                stream=forward.chat.stream,
                on_retry=self._note_retry,
                on_try=self._note_try,
            )
            response = opened.response
            try:
                if response.status_code in (401, 403):
                    raise HTTPFailure(502, UPSTREAM_REFUSED_US, "auth")
                if not 200 <= response.status_code < 300:
                    await self._pass_error(response, guard, send)
                elif forward.chat.stream:
                    await self._stream(response, guard, send)
                else:
                    await self._plain(response, guard, send)
            finally:
                with contextlib.suppress(httpx.HTTPError):
                    await opened.close()
        except HTTPFailure as error:
            await self._send_upstream_failure(error, send)
        except (httpx.HTTPError, TimeoutError) as error:
            await self._send_upstream_failure(from_transport(error), send)
        except asyncio.CancelledError:
            guard.abandon()
            if self._timed_out and not self._status:
                await self._send_upstream_failure(HTTPFailure(504, TOO_LONG, "timeout"), send)
                return
            if self._timed_out and self._error is None:
                self._note_upstream("timeout")
            raise
        except Exception as error:
            await self._fail_closed(guard, error, send)

    def _known_labels(self) -> tuple[str, ...]:
        names = (self._forward.chat.model, self._forward.route.rename)
        return tuple(name for name in names if name is not None)

    async def _stream(self, response: httpx.Response, guard: ChatGuard, send: Send) -> None:
        answer = StreamAnswer(guard, max_event=self._limits.max_event, max_whole=self._limits.max_body)
        await self._start(send, 200, [*STREAM_HEADERS, *self._passed_headers(response, guard)])
        source: Any = response.stream if is_plain(response) else inflated(response)
        last = b""
        shortcut = Shortcut.of(source, answer, send, self._perform, self._overhead)
        try:
            async for data in source:
                arrived = perf_counter()
                if len(data) <= ASIDE and answer.unread <= ASIDE:
                    commands = answer.feed(data, arrived)
                else:
                    commands = await aside(len(data) + answer.unread, answer.feed, data, arrived)
                body = self._perform(commands)
                self._overhead.observe(perf_counter() - arrived)
                if body and self._ttft is None:
                    self._ttft = arrived - self._forward.started
                    if self._span is not None:
                        self._span.first_byte(self._ttft)
                if answer.done:
                    last = body
                    break
                if body:
                    await self._send_body(send, body)
                if shortcut is not None and self._ttft is not None:
                    await shortcut.run()
                    if shortcut.blocked:
                        await self._send_body(send, b"")  # waits for the client
                if answer.done:
                    last = shortcut.last if shortcut is not None else b""
                    break
            # An answer that came as JSON is only now scanned, all of it.
            ending = await aside(answer.unread, answer.close, perf_counter())
        except httpx.HTTPError as error:
            ending = self._failed(answer, from_transport(error))
        except asyncio.CancelledError:
            if not self._timed_out or self._sending_since is not None:
                self._perform(answer.cancel())
                raise
            if answer.done:  # in this very turn
                ending, last = [], shortcut.last if shortcut is not None else last
            else:
                ending = self._failed(answer, HTTPFailure(504, TOO_LONG, "timeout"))
        if answer.fault and self._error is None:
            self._note_upstream(answer.fault)
        # The upstream is let go before the client gets its last bytes: a blocked answer must not cost another token.
        await response.aclose()
        last += self._perform(ending)
        await self._settle()
        if not await self._is_journalled():
            self._error = NOT_JOURNALLED
            last = sse.encode(json.encode(JOURNAL_FAILED))
        await self._send_body(send, last, more=False)

    def _failed(self, answer: StreamAnswer, error: HTTPFailure) -> list[Command]:
        self._note_failure(error)
        return answer.fail(error.body, perf_counter())

    async def _plain(self, response: httpx.Response, guard: ChatGuard, send: Send) -> None:
        answer = PlainAnswer(guard, max_event=self._limits.max_event, max_whole=self._limits.max_body)
        try:
            size = 0
            async for data in inflated(response):
                size += len(data)
                arrived = perf_counter()
                answer.feed(data, arrived)
                self._overhead.observe(perf_counter() - arrived)
                if answer.done:
                    break
            await response.aclose()
            arrived = perf_counter()
            body = await aside(size, answer.close, arrived)
            self._overhead.observe(perf_counter() - arrived)
        except BrokenAnswer as error:
            raise HTTPFailure(502, error.failure, "protocol") from None
        except BaseException:
            guard.abandon()
            raise
        finally:
            self._scanned.append(guard.ledger.fact())
        headers = [(b"content-type", b"application/json"), *self._passed_headers(response, guard)]
        await self._settle()
        if not await self._is_journalled():
            await self._refuse_unjournalled(send)
            return
        await self._send_whole(send, 200, headers, body)

    async def _pass_error(self, response: httpx.Response, guard: ChatGuard, send: Send) -> None:
        """The upstream's own error: its status, and its body if that is JSON or plain text, every text scanned."""
        body = bytearray()
        async for data in inflated(response):
            body += data
            if len(body) > self._limits.max_body:
                raise HTTPFailure(502, UPSTREAM_BROKE, "too_large")
        status = response.status_code if 400 <= response.status_code < 600 else 502
        try:
            received = json.decode(bytes(body))
        except json.JSONError:
            plain = response.headers.get("content-type", "").lower().startswith("text/plain")
            received = {"message": body.decode("utf-8", "replace")[:MAX_ERROR_TEXT]} if plain and body else None
        shown = await aside(len(body), guard.error, error_object(received))
        headers = self._passed_headers(response, guard)
        self._scanned.append(guard.ledger.fact())
        self._error = f"upstream status {response.status_code}"
        self._record(UpstreamFailed(self._upstream, "status"))
        await self._settle()
        if not await self._is_journalled():
            await self._refuse_unjournalled(send)
            return
        await self._send_whole(send, status, [(b"content-type", b"application/json"), *headers], json.encode(shown))

    def _perform(self, commands: list[Command]) -> bytes:
        """Record what is to be recorded; the bytes to send. `Stop` shows in the answer's `done`."""
        out = b""
        for command in commands:
            if isinstance(command, SendBytes):
                out += command.data
            elif isinstance(command, Record):
                if isinstance(command.fact, TextScanned):
                    self._scanned.append(command.fact)
                else:
                    self._record(command.fact)
                    if isinstance(command.fact, GuardFailed):
                        self._error = "guard_failed"
        return out

    # -- writing -------------------------------------------------------------------------------------------------------

    def _passed_headers(self, response: httpx.Response, guard: ChatGuard) -> list[tuple[bytes, bytes]]:
        """The upstream's headers that may pass; one that a rule wants changed is dropped."""
        own = self._forward.allowance.headers
        return [
            (name.encode("ascii"), value.encode("latin-1"))
            for name, value in headers_down(response)
            # A client with limits of its own is not told those of the key that it does not have.
            if not (own and name.startswith("x-ratelimit-"))
            and guard.labels.show(name) == name
            and guard.labels.show(value) == value
        ]

    async def _start(self, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        own = [
            (b"x-request-id", self._forward.request_id.encode("ascii")),
            (b"x-portcullis-policy", self._forward.policy.policy.name.encode("latin-1", "replace")),
            *((name.encode(), value.encode()) for name, value in self._forward.allowance.headers.items()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})

    async def _send_body(self, send: Send, body: bytes, *, more: bool = True) -> None:
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        self._sending_since = perf_counter()
        await send(message)
        self._sending_since = None

    async def _send_whole(self, send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        await self._start(send, status, [*headers, (b"content-length", str(len(body)).encode())])
        # In pieces, so that a client that does not read is noticed and its answer is not kept for it.
        for start in range(0, max(len(body), 1), WRITE_SIZE):
            end = start + WRITE_SIZE
            await self._send_body(send, body[start:end], more=end < len(body))

    async def _send_upstream_failure(self, error: HTTPFailure, send: Send) -> None:
        self._note_failure(error)
        await self._settle()
        await self._send_failure(error, send)

    async def _fail_closed(self, guard: ChatGuard, error: Exception, send: Send) -> None:
        """A defect of ours: the client gets no more of the answer, and nobody the exception's text."""
        with contextlib.suppress(Exception):
            guard.abandon()
        self._record(guard_failed(guard, error))
        self._error = "guard_failed"
        if not self._status:
            await self._send_failure(HTTPFailure(500, GUARD_FAILED, "guard_failed"), send)

    async def _send_failure(self, error: HTTPFailure, send: Send) -> None:
        headers = [(b"content-type", b"application/json")]
        headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await self._send_whole(send, error.status, headers, json.encode(error.body))

    def _note_failure(self, error: HTTPFailure) -> None:
        self._note_upstream(error.kind)

    def _note_upstream(self, kind: str) -> None:
        self._error = kind
        self._record(UpstreamFailed(self._upstream, kind))

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        try:
            self._close_books()
        finally:
            self._leave()

    def _close_books(self) -> None:
        if not self._forward.allowance.settled:
            in_background(self._settle())
        forward = self._forward
        for text in self._scanned:
            self._record(text)
        scanned = tuple(self._scanned)
        outcome = outcome_of(scanned)
        if self._error is not None:
            outcome = "cancelled" if self._error in (CLIENT_LEFT, CLIENT_IDLE, SERVER_STOPS) else "failed"
        self._close(
            RequestFinished(
                request_id=forward.request_id,
                path=forward.path,
                route=forward.route.model,
                policy=forward.policy.policy.name,
                upstream=self._upstream,
                status=self._status or 499,
                outcome=outcome,
                stream=forward.chat.stream,
                duration=perf_counter() - forward.started,
                ttft=self._ttft,
                overhead=self._overhead.distribution(),
                scanned=scanned,
                error=self._error,
                key=forward.key,
            )
        )

    def _close(self, fact: RequestFinished) -> None:
        self._record(fact)
        if self._journal is not None:
            self._journal.close(fact, self._findings)
        if self._span is not None:
            usage, reasons = (None, ()) if self._guard is None else (self._guard.usage, self._guard.reasons)
            self._span.finish(fact, usage, reasons)

    async def _refuse_unjournalled(self, send: Send) -> None:
        self._error = NOT_JOURNALLED
        await self._send_failure(not_journalled(), send)

    async def _is_journalled(self) -> bool:
        """May the answer end? Only what a configuration requires to be journalled has to wait."""
        if self._journal is None:
            return True
        findings, self._findings = self._findings, []
        return await self._journal.commit(findings)

    async def _settle(self) -> None:
        """Give back what the key has not used, before the client can ask again."""
        usage = self._guard.usage if self._guard is not None else None
        answers = (text for text in self._scanned if text.direction == Direction.OUTPUT)
        written = sum(count.scanned for text in answers for count in text.channels)
        settling = self._forward.allowance.settle(None if usage is None else sum(usage), written)
        # It is done to its end, also if the client leaves meanwhile.
        await asyncio.shield(in_background(settling))

    def _headers_up(self) -> Mapping[str, str]:
        if self._span is None:
            return self._forward.headers
        # The client's own context was followed if it was sound; one that was not must not travel on beside ours.
        others = {name: text for name, text in self._forward.headers.items() if name not in _TRACE_CONTEXT}
        return {**others, **self._span.headers()}

    def _note_try(self, upstream: str) -> None:
        self._upstream = upstream
        if self._span is not None:
            forward = self._forward
            asked = forward.fleet.clients[upstream].upstream
            self._span.routed(forward.chat.model, forward.route.model, forward.policy.policy.name, asked)

    def _note_retry(self, upstream: str, kind: str) -> None:
        self._record(UpstreamFailed(upstream, kind))
        self._record(Retried(upstream, kind))
        if self._span is not None:
            self._span.retried(upstream, kind)


class _Clock:
    """One timer for each request, instead of one for each chunk."""

    INTERVAL = 0.5  # seconds; the precision of send_timeout and total

    def __init__(self, relay: Relay, work: asyncio.Future[None]) -> None:
        self._relay = relay
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self.INTERVAL, self._tick)

    def _tick(self) -> None:
        if self._relay.overdue(perf_counter()):
            self._work.cancel()
        # Goes on after a cancellation: the client must take its last bytes in time, too.
        self._timer = self._loop.call_later(self.INTERVAL, self._tick)

    def stop(self) -> None:
        self._timer.cancel()
