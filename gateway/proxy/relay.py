"""The story of one request, and the performer of the guard's commands.

A relay is the ASGI response of a chat request: it calls the upstream, feeds what arrives to the guard and writes what
the guard says. It runs beside a watch on the client, so that one who leaves takes the upstream request along at once;
and under a clock for what the transport does not time: the whole answer. The server times a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.guard.answer import (
    GUARD_FAILED,
    BrokenAnswer,
    PlainAnswer,
    StreamAnswer,
    failure,
    guard_failed,
)
from gateway.guard.channels import Refused
from gateway.guard.chat import ChatGuard
from gateway.guard.commands import Command, Record
from gateway.guard.commands import Send as SendBytes
from gateway.observe.facts import Fact
from gateway.observe.tracing import RequestSpan
from gateway.policy.model import Direction, Limits
from gateway.proxy.asgi import ASIDE, SERVER_SEND, abort, aside, departure, limit_sending, stalled, weight
from gateway.proxy.books import CLIENT_IDLE, CLIENT_LEFT, NOT_JOURNALLED, SERVER_STOPS, Books
from gateway.proxy.errors import HTTPFailure, error_object, from_transport
from gateway.proxy.forward import Forward
from gateway.proxy.hotpath import Shortcut
from gateway.proxy.journal import JOURNAL_FAILED, RequestJournal, not_journalled
from gateway.proxy.reply import JSON_HEADERS, Headers, Reply
from gateway.proxy.steering.rollback_stream import ResumeClient, with_rollback
from gateway.proxy.upstreams.balancer import OpenResponse
from gateway.proxy.upstreams.client import forwarded_headers, inflated, is_uncompressed
from gateway.wire import json, sse

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
UPSTREAM_REFUSED_US = failure("The upstream refused the gateway's own credentials.", "upstream_auth")
UPSTREAM_BROKE = failure("The upstream's answer broke off.", "upstream_protocol_error")
TOO_LONG = failure("The answer took longer than the upstream's total timeout.", "upstream_timeout")
# bytes; an ordinary event fits. Where not even so much may be scanned at once, the hot path is not taken.
HOT_READ = 512
MAX_ERROR_TEXT = 4096  # characters of an error's plain text that are passed on
_TRACE_CONTEXT = ("traceparent", "tracestate")


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
        self._leave = leave
        self._finished = False
        self._span = span
        self._books = Books(forward, record, span, journal)
        self._timed_out = False
        # A short read can hold placeholders of long values.
        stretch = 1 if forward.pseudonyms is None else forward.pseudonyms.stretch
        self._weight = stretch * weight(forward.policy, Direction.OUTPUT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._reply = Reply(self._forward, scope.get(SERVER_SEND, send))
        limit_sending(self._reply.send, self._limits.send_timeout)
        work = asyncio.ensure_future(self._tell())
        gone = asyncio.ensure_future(departure(receive))
        clock = _Clock(self, work)
        reason = SERVER_STOPS
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            reason = CLIENT_LEFT
        finally:
            clock.stop()
            if not work.done():
                self._books.error = reason
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self._finish()  # for work that was cancelled before its first step
            if self._timed_out and work.cancelled():
                abort(self._reply.send)  # it would be served what it has not read for as long as it likes
        if not work.cancelled() and work.exception() is not None:
            raise work.exception() or RuntimeError

    def overdue(self, now: float) -> bool:
        """Has the answer newly taken too long at `now`?"""
        if self._timed_out or now - self._forward.started <= self._forward.timeouts.total:
            return False
        self._timed_out = True
        return True

    async def _tell(self) -> None:
        try:
            await self._answer()
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        if stalled(self._reply.send):
            self._books.error = CLIENT_IDLE
        try:
            self._books.close(self._reply.status)
        finally:
            self._leave()

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        books = self._books
        guard = books.guard = ChatGuard(
            self._forward.policy,
            self._forward.chat.choices,
            self._known_labels(),
            books.on_finding,
            self._forward.pseudonyms,
            self._forward.json_content,
        )
        try:
            # Before the upstream is asked: an answer that may not be given need not be paid for.
            if await books.begin():
                await self._ask(guard)
            else:
                await books.give_back()
                await self._refuse_unjournalled()
        except HTTPFailure as error:
            await self._send_upstream_failure(error)
        except (httpx.HTTPError, TimeoutError) as error:
            await self._send_upstream_failure(from_transport(error))
        except asyncio.CancelledError:
            guard.abandon()
            if self._timed_out and not self._reply.status:
                await self._send_upstream_failure(HTTPFailure(504, TOO_LONG, "timeout"))
                return
            if self._timed_out and books.error is None:
                books.note_failure("timeout")
            raise
        except Exception as error:
            await self._fail_closed(guard, error)

    def _known_labels(self) -> tuple[str, ...]:
        names = (self._forward.chat.model, self._forward.route.rename)
        return tuple(name for name in names if name is not None)

    async def _ask(self, guard: ChatGuard) -> None:
        """Raises `HTTPFailure` and httpx's errors for an upstream that fails before anything of it was sent on."""
        forward = self._forward
        opened = await forward.fleet.open(
            forward.route,
            forward.steering.request_for,
            self._headers_up(),
            on_retry=self._books.note_retry,
            on_attempt=self._books.note_try,
        )
        response = opened.response
        try:
            if response.status_code in (401, 403):
                raise HTTPFailure(502, UPSTREAM_REFUSED_US, "auth")
            if 200 <= response.status_code < 300:
                response = opened.response = self._with_rollback(opened)
            if not 200 <= response.status_code < 300:
                await self._pass_error(response, guard)
            elif forward.chat.stream:
                await self._stream(response, guard)
            else:
                await self._plain(response, guard)
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await opened.close()

    def _with_rollback(self, opened: OpenResponse) -> httpx.Response:
        """The answer as it is when it is rolled back where it must be."""
        upstream = opened.client.upstream
        rollback = self._forward.steering.rollback_for(upstream, self._books.on_finding)
        if rollback is None:
            return opened.response
        asker = ResumeClient(opened.client, self._forward.steering, self._headers_up())
        return with_rollback(opened.response, rollback, asker, self._books.note, self._limits.max_event, self._weight)

    async def _stream(self, response: httpx.Response, guard: ChatGuard) -> None:
        answer = StreamAnswer(
            guard,
            max_event=self._limits.max_event,
            max_whole=self._limits.max_body,
            dialect=self._forward.chat.dialect,
        )
        await self._reply.start(200, [*STREAM_HEADERS, *self._passed_headers(response, guard)])
        source: Any = response.stream if is_uncompressed(response) else inflated(response)
        at_once = ASIDE // self._weight
        shortcut = None
        if at_once >= HOT_READ:
            shortcut = Shortcut.of(source, answer, self._reply.send, self._perform, self._books.overhead, at_once)
        last = b""
        try:
            last = await self._pass_on(source, answer, shortcut)
            # An answer that came as JSON is only now scanned, all of it.
            ending = await aside(answer.unread * self._weight, answer.close, perf_counter())
        except httpx.HTTPError as error:
            ending = self._failed(answer, from_transport(error))
        except asyncio.CancelledError:
            if not self._timed_out or self._reply.waiting:
                self._perform(answer.cancel())
                raise
            if answer.done:  # in this very turn
                ending = []
                last = last or (shortcut.last if shortcut is not None else b"")
            else:
                ending = self._failed(answer, HTTPFailure(504, TOO_LONG, "timeout"))
        if answer.fault and self._books.error is None:
            self._books.note_failure(answer.fault)
        # The upstream is let go before the client gets its last bytes: a blocked answer must not cost another token.
        await response.aclose()
        last += self._perform(ending)
        await self._books.settle()
        if not await self._books.commit():
            self._books.error = NOT_JOURNALLED
            last = sse.encode(json.encode(JOURNAL_FAILED))
        await self._reply.write(last, more=False)

    async def _pass_on(self, source: Any, answer: StreamAnswer, shortcut: Shortcut | None) -> bytes:
        """Guard what comes and write it on, until the upstream or the answer ends; what is left to write at the end."""
        books, reply, at_once = self._books, self._reply, ASIDE // self._weight
        async for data in source:
            arrived = perf_counter()
            if len(data) <= at_once and answer.unread <= at_once:
                commands = answer.feed(data, arrived)
            else:
                size = (len(data) + answer.unread) * self._weight
                commands = await aside(size, answer.feed, data, arrived)
            body = self._perform(commands)
            books.overhead.observe(perf_counter() - arrived)
            if body and books.ttft is None:
                books.note_first_byte(arrived)
            if answer.done:
                return body
            if body:
                await reply.write(body)
            if shortcut is not None and books.ttft is not None:
                await shortcut.run()
                if shortcut.blocked:
                    await reply.write(b"")  # waits for the client
                if answer.done:
                    return shortcut.last
        return b""

    def _failed(self, answer: StreamAnswer, error: HTTPFailure) -> list[Command]:
        self._books.note_failure(error.kind)
        return answer.fail(error.body, perf_counter())

    async def _plain(self, response: httpx.Response, guard: ChatGuard) -> None:
        answer = PlainAnswer(
            guard,
            max_event=self._limits.max_event,
            max_whole=self._limits.max_body * self._forward.steering.expansion_factor,
            dialect=self._forward.chat.dialect,
        )
        books = self._books
        try:
            size = 0
            async for data in inflated(response):
                size += len(data)
                arrived = perf_counter()
                await aside((len(data) + answer.unread) * self._weight, answer.feed, data, arrived)
                books.overhead.observe(perf_counter() - arrived)
                if answer.done:
                    break
            await response.aclose()
            arrived = perf_counter()
            body = await aside(size * self._weight, answer.close, arrived)
            books.overhead.observe(perf_counter() - arrived)
        except BrokenAnswer as error:
            raise HTTPFailure(502, error.failure, "protocol") from None
        except BaseException:
            guard.abandon()
            raise
        finally:
            books.note(guard.ledger.fact())
        await self._send_journalled(200, self._passed_headers(response, guard), body)

    async def _pass_error(self, response: httpx.Response, guard: ChatGuard) -> None:
        """The upstream's own error: its status, and its body if that is JSON or plain text, every text scanned."""
        body = bytearray()
        async for data in inflated(response):
            body += data
            if len(body) > self._limits.max_body:
                raise HTTPFailure(502, UPSTREAM_BROKE, "too_large")
        status = response.status_code if 400 <= response.status_code < 600 else 502
        plain = response.headers.get("content-type", "").lower().startswith("text/plain")
        try:
            shown = await aside(len(body) * self._weight, _shown_error, bytes(body), plain, guard)
            headers = self._passed_headers(response, guard)
        except Refused as error:
            raise HTTPFailure(502, failure(f"{error}.", "upstream_protocol_error"), "protocol") from None
        self._books.note(guard.ledger.fact())
        self._books.note_failure("status", f"upstream status {response.status_code}")
        await self._send_journalled(status, headers, shown)

    def _perform(self, commands: list[Command]) -> bytes:
        """Record what is to be recorded; the bytes to send. `Stop` shows in the answer's `done`."""
        out = b""
        for command in commands:
            if isinstance(command, SendBytes):
                out += command.data
            elif isinstance(command, Record):
                self._books.note(command.fact)
        return out

    # -- whole answers -------------------------------------------------------------------------------------------------

    async def _send_journalled(self, status: int, headers: Headers, body: bytes) -> None:
        await self._books.settle()
        if await self._books.commit():
            await self._reply.write_whole(status, [*JSON_HEADERS, *headers], body)
        else:
            await self._refuse_unjournalled()

    async def _refuse_unjournalled(self) -> None:
        self._books.error = NOT_JOURNALLED
        await self._reply.fail(not_journalled())

    async def _send_upstream_failure(self, error: HTTPFailure) -> None:
        self._books.note_failure(error.kind)
        await self._books.settle()
        await self._reply.fail(error)

    async def _fail_closed(self, guard: ChatGuard, error: Exception) -> None:
        """A defect of ours: the client gets no more of the answer, and nobody the exception's text."""
        with contextlib.suppress(Exception):
            guard.abandon()
        self._books.note(guard_failed(guard, error))
        if not self._reply.status:
            await self._reply.fail(HTTPFailure(500, GUARD_FAILED, "guard_failed"))

    # -- headers -------------------------------------------------------------------------------------------------------

    def _headers_up(self) -> Mapping[str, str]:
        if self._span is None:
            return self._forward.headers
        # The client's own context was followed if it was sound; one that was not must not travel on beside ours.
        others = {name: text for name, text in self._forward.headers.items() if name not in _TRACE_CONTEXT}
        return {**others, **self._span.headers()}

    def _passed_headers(self, response: httpx.Response, guard: ChatGuard) -> Headers:
        """The upstream's headers that may pass; one that a rule wants changed, or blocks, is left out."""
        own = self._forward.allowance.headers
        return [
            (name.encode("ascii"), value.encode("latin-1"))
            for name, value in forwarded_headers(response)
            # A client with limits of its own is not told those of the key that it does not have.
            if not (own and name.startswith("x-ratelimit-"))
            and guard.labels.passes(name)
            and guard.labels.passes(value)
        ]


def _shown_error(body: bytes, plain: bool, guard: ChatGuard) -> bytes:
    """What the client gets of the body of an error, which may be plain text. Raises `Refused`."""
    try:
        received = json.decode(body)
    except json.JSONError:
        message = body[: 4 * MAX_ERROR_TEXT].decode("utf-8", "replace")[:MAX_ERROR_TEXT]
        received = {"message": message} if plain and message else None
    return json.encode(guard.error(error_object(received)))


class _Clock:
    """One timer for each request, instead of one for each chunk."""

    INTERVAL = 0.5  # seconds; the precision of total

    def __init__(self, relay: Relay, work: asyncio.Future[None]) -> None:
        self._relay = relay
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self.INTERVAL, self._tick)

    def _tick(self) -> None:
        if self._relay.overdue(perf_counter()):
            self._work.cancel()
        else:
            self._timer = self._loop.call_later(self.INTERVAL, self._tick)

    def stop(self) -> None:
        self._timer.cancel()
