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
from gateway.guard.texts import Tally
from gateway.observe.facts import Fact, GuardFailed, RequestFinished, TextScanned, UpstreamFailed
from gateway.observe.log import outcome_of
from gateway.observe.metrics import OVERHEAD_BOUNDS
from gateway.policy.model import Limits, Route
from gateway.proxy.asgi import ASIDE, SERVER_SEND, BodyWriter, abort, aside, departure
from gateway.proxy.errors import HTTPFailure, error_object, from_transport
from gateway.proxy.exchange import ResponseStream
from gateway.proxy.upstream import UpstreamClient, headers_down, inflated, is_plain
from gateway.wire import json

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
UPSTREAM_REFUSED_US = failure("The upstream refused the gateway's own credentials.", "upstream_auth")
UPSTREAM_BROKE = failure("The upstream's answer broke off.", "upstream_protocol_error")
WRITE_SIZE = 64 * 1024  # bytes of a whole answer that are written at once
MAX_ERROR_TEXT = 4096  # characters of an error's plain text that are passed on
CLIENT_LEFT = "client left"
CLIENT_IDLE = "client does not read"
SERVER_STOPS = "server stops"
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
    upstream: UpstreamClient
    started: float
    scanned: tuple[TextScanned, ...] = ()


class Relay(Response):
    """See the module. `limits` bound buffers and waiting, `record` takes the facts, `leave` is called once at the end.

    The books are closed in the same turn of the loop in which the last bytes are written, so that a client who has
    read them and asks again finds itself counted and its place free.
    """

    def __init__(
        self, forward: Forward, limits: Limits, record: Callable[[Fact], None], leave: Callable[[], None]
    ) -> None:
        super().__init__()
        self._forward = forward
        self._limits = limits
        self._record = record
        self._leave = leave
        self._finished = False
        self._overhead = Tally(OVERHEAD_BOUNDS)
        self._scanned = list(forward.scanned)
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
        elif not self._timed_out and now - self._forward.started > self._forward.upstream.upstream.timeouts.total:
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
        guard = ChatGuard(forward.policy, forward.chat.choices, self._known_labels())
        try:
            response = await forward.upstream.open(
                "/chat/completions", forward.body, forward.headers, stream=forward.chat.stream
            )
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
                    await response.aclose()
        except HTTPFailure as error:
            await self._send_upstream_failure(error, send)
        except (httpx.HTTPError, TimeoutError) as error:
            await self._send_upstream_failure(from_transport(error), send)
        except asyncio.CancelledError:
            guard.abandon()
            if self._timed_out and not self._status:
                await self._send_upstream_failure(HTTPFailure(504, TOO_LONG, "timeout"), send)
                return
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
                if body:
                    if self._ttft is None:
                        self._ttft = arrived - self._forward.started
                    await self._send_body(send, body)
                if shortcut is not None and self._ttft is not None and not answer.done:
                    await shortcut.run()
                    if shortcut.blocked:
                        await self._send_body(send, b"")  # waits for the client
                if answer.done:
                    break
            # An answer that came as JSON is only now scanned, all of it.
            ending = await aside(answer.unread, answer.close, perf_counter())
        except httpx.HTTPError as error:
            ending = self._failed(answer, from_transport(error))
        except asyncio.CancelledError:
            if not self._timed_out or self._sending_since is not None:
                self._perform(answer.cancel())
                raise
            ending = self._failed(answer, HTTPFailure(504, TOO_LONG, "timeout"))
        if answer.fault and self._error is None:
            self._note_upstream(answer.fault)
        # The upstream is let go before the client gets its last bytes: a blocked answer must not cost another token.
        await response.aclose()
        await self._send_body(send, self._perform(ending), more=False)

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
        self._record(UpstreamFailed(self._forward.upstream.upstream.name, "status"))
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
        return [
            (name.encode("ascii"), value.encode("latin-1"))
            for name, value in headers_down(response)
            if guard.labels.show(name) == name and guard.labels.show(value) == value
        ]

    async def _start(self, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status
        own = [
            (b"x-request-id", self._forward.request_id.encode("ascii")),
            (b"x-portcullis-policy", self._forward.policy.policy.name.encode("latin-1", "replace")),
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
        self._record(UpstreamFailed(self._forward.upstream.upstream.name, kind))

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._leave()
        forward = self._forward
        for text in self._scanned:
            self._record(text)
        scanned = tuple(self._scanned)
        outcome = outcome_of(scanned)
        if self._error is not None:
            outcome = "cancelled" if self._error in (CLIENT_LEFT, CLIENT_IDLE, SERVER_STOPS) else "failed"
        self._record(
            RequestFinished(
                request_id=forward.request_id,
                path=forward.path,
                route=forward.route.model,
                policy=forward.policy.policy.name,
                upstream=forward.upstream.upstream.name,
                status=self._status or 499,
                outcome=outcome,
                stream=forward.chat.stream,
                duration=perf_counter() - forward.started,
                ttft=self._ttft,
                overhead=self._overhead.distribution(),
                scanned=scanned,
                error=self._error,
            )
        )


class Shortcut:
    """The hot path: what the upstream sends is guarded and written on in the callback of the read it came with.

    No task is woken and nothing is queued, while events are small and the client keeps up; whatever else happens is
    left to the relay's own loop.
    """

    def __init__(
        self,
        source: ResponseStream,
        answer: StreamAnswer,
        writer: BodyWriter,
        perform: Callable[[list[Command]], bytes],
        overhead: Tally,
    ) -> None:
        self._source = source
        self._answer = answer
        self._writer = writer
        self._perform = perform
        self._observe = overhead.observe
        self._failure: Exception | None = None

    @classmethod
    def of(
        cls,
        source: object,
        answer: StreamAnswer,
        send: Send,
        perform: Callable[[list[Command]], bytes],
        overhead: Tally,
    ) -> Shortcut | None:
        """None where there is none: a compressed answer, another transport or server."""
        writer = BodyWriter.of(send)
        if writer is None or not isinstance(source, ResponseStream):
            return None
        return cls(source, answer, writer, perform, overhead)

    @property
    def blocked(self) -> bool:
        """Does the client not keep up?"""
        return self._writer.blocked

    async def run(self) -> None:
        """Returns when the relay must look itself. Raises what performing the guard's commands raised."""
        if not self._writer.blocked:
            await self._source.pump(self._take)
        if self._failure is not None:
            raise self._failure

    def _take(self, data: bytes) -> bool:
        answer = self._answer
        if len(data) > ASIDE or answer.unread > ASIDE:
            return False
        try:
            arrived = perf_counter()
            body = self._perform(answer.feed(data, arrived))
            self._observe(perf_counter() - arrived)
            if body:
                self._writer.write(body)
        except Exception as error:
            self._failure = error
        if answer.done or self._failure is not None or self._writer.blocked:
            self._source.halt()
        return True


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
