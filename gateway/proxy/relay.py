"""The course of one answer: call the upstream, feed what it sends to the guard, perform the guard's commands.

A relay is the ASGI response of a chat request. It runs under a watch on the client, so that the request to the upstream
ends with the client's; and under a deadline for what the transport does not time: the complete answer. The server times
a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter
from typing import Any

import httpx2
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.guard.annotating import AnnotatingEncoder, annotation_of
from gateway.guard.answer import BrokenAnswer, PlainAnswer, StreamAnswer
from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.channels import InvalidAnswer
from gateway.guard.commands import GUARD_FAILED, Command, RecordFact, SendBytes, failure
from gateway.guard.open import open_guard
from gateway.http1 import ResponseStream
from gateway.observe.facts import GuardFailed
from gateway.policy.model import Direction
from gateway.proxy.accounting import (
    CLIENT_IDLE,
    CLIENT_LEFT,
    JOURNAL_FAILED,
    NOT_JOURNALLED,
    SERVER_STOPS,
    RequestRecord,
    not_journalled,
)
from gateway.proxy.asgi import (
    MAX_INLINE,
    PATTERN_COST,
    SERVER_SEND,
    UNREAD_SIZE,
    DisconnectWatch,
    offload,
    scan_cost,
    scan_size,
)
from gateway.proxy.context import RoutedRequest
from gateway.proxy.errors import HTTPFailure, from_transport, shown_error
from gateway.proxy.hotpath import HOT_READ, BodyWriter, HotPath
from gateway.proxy.reply import STREAM_HEADERS, Headers, Reply
from gateway.proxy.steering.rollback_stream import ResumeClient, with_rollback
from gateway.proxy.timer import Deadline
from gateway.proxy.upstreams.balancer import OpenResponse
from gateway.proxy.upstreams.client import UpstreamResponse, inflated, is_uncompressed
from gateway.wire import json
from gateway.wire.dialect import AnswerEncoder, Dialect

UPSTREAM_REFUSED_US = failure("The upstream refused the gateway's own credentials.", "upstream_auth")
UPSTREAM_BROKE = failure("The upstream's answer broke off.", "upstream_protocol_error")
TOO_LONG = failure("The answer took longer than the upstream's total timeout.", "upstream_timeout")
_OUTPUT = Direction.OUTPUT  # to look up a member of an enumeration takes as long as a call


class Relay(Response):
    """See the module. `record` is closed in the same turn of the loop in which the last bytes are written, so that a
    client that has read them and sends another request finds itself counted and its place free."""

    def __init__(self, request: RoutedRequest, record: RequestRecord) -> None:
        # The base's constructor would make a response. Where the framework has the endpoint, it looks at these.
        self.status_code, self.body, self.background = 200, b"", None
        self.raw_headers = []
        self._request = request
        self._record = record
        self._limits = request.limits
        self._reply = Reply(record, request.chat.dialect.error_body)
        self._deadline = Deadline(record.started + request.timeouts.total)
        self._left = False  # has the client?
        self._encoder: AnswerEncoder | None = None  # of a stream that has begun
        self._hot_path: HotPath | None = None  # of one whose first bytes were written
        record.stream, record.upstream = request.chat.stream, request.route.upstream
        # A short read can hold placeholders of long values.
        self._expansion = 1 if request.pseudonyms is None else request.pseudonyms.stretch
        self._scan_cost = self._expansion * scan_cost(request.policy, _OUTPUT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Cancels its own task when the client has left or the time is over; from outside only the server does."""
        task = asyncio.current_task()
        assert task is not None
        self._reply.open(scope.get(SERVER_SEND, send), self._limits.send_timeout)
        self._task = task
        watch = DisconnectWatch(receive, self._client_left)
        self._deadline.start(task)
        try:
            await self._answer()
        except asyncio.CancelledError:
            if self._deadline.passed:
                self._reply.abort()  # it would be served what it has not read for as long as it likes
            if not self._ends_itself:
                raise
        finally:
            self._deadline.stop()
            watch.stop()
            self._hot_path = None  # no cycle of references is left
            self._close()
            while self._ends_itself and task.uncancel():
                pass

    @property
    def _ends_itself(self) -> bool:
        return self._left or self._deadline.passed

    def _client_left(self) -> None:
        self._left = True
        self._record.error = CLIENT_LEFT
        self._task.cancel()

    def _close(self) -> None:
        if self._reply.stalled:
            self._record.error = CLIENT_IDLE
        self._record.close(self._reply.status)

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        record = self._record
        try:
            # Before the upstream is called: an answer that may not be given need not be paid for.
            if record.journal is None or await record.begin_journal():
                await self._call_upstream()
            else:
                await record.correct_quota(0)
                record.error = NOT_JOURNALLED
                await self._reply.fail(not_journalled())
        except HTTPFailure as error:
            await self._fail(error)
        except (httpx2.HTTPError, TimeoutError) as error:
            await self._fail(from_transport(error))
        except asyncio.CancelledError:
            if not self._ends_itself:
                record.error = SERVER_STOPS
            if record.guard is not None:
                record.guard.abandon()
            if self._deadline.passed and not self._reply.status:
                await self._fail(HTTPFailure(504, TOO_LONG, "timeout"))
                return
            if self._deadline.passed and record.error is None:
                record.note_failure("timeout")
            raise
        except Exception as error:
            await self._fail_closed(error)
        finally:
            self._close()

    async def _call_upstream(self) -> None:
        """Raises `HTTPFailure` and httpx2's errors for an upstream that fails before anything of it was sent on."""
        request, record = self._request, self._record
        opened = await request.fleet.open(
            request.route,
            request.rewriter.request_for,
            request.headers_up(record),
            on_retry=record.note_retry,
            on_attempt=self._note_attempt,
        )
        response = opened.response
        try:
            spoken, encoder = request.rewriter.spoken(opened.client.upstream)
            guard = record.guard = self._open_guard(spoken)
            if response.status_code in (401, 403) and not opened.client.upstream.passes_key:
                raise HTTPFailure(502, UPSTREAM_REFUSED_US, "auth")
            if 200 <= response.status_code < 300:
                response = opened.response = self._with_rollback(opened)
            if not 200 <= response.status_code < 300:
                await self._pass_error(response, guard)
            elif request.chat.stream:
                await self._stream(response, guard, spoken, encoder)
            else:
                await self._plain(response, guard, spoken, encoder)
        finally:
            await opened.close()

    def _open_guard(self, spoken: Dialect) -> AnswerGuard:
        request = self._request
        model, rename = request.chat.model, request.route.rename
        return open_guard(
            spoken,
            request.policy,
            request.chat.choices,
            (model,) if rename is None else (model, rename),
            self._record.on_finding,
            request.pseudonyms,
            request.json_content,
        )

    def _annotating(self, encoder: AnswerEncoder, guard: AnswerGuard) -> AnswerEncoder:
        if not self._request.annotates:
            return encoder
        prompt = tuple(self._record.scanned)
        return AnnotatingEncoder(
            encoder, self._request.chat.dialect, lambda: annotation_of((*prompt, guard.counts.fact()))
        )

    def _note_attempt(self, upstream: str) -> None:
        request, record = self._request, self._record
        record.upstream = upstream
        if record.span is not None:
            called = request.fleet.clients[upstream].upstream
            record.span.routed(request.chat.model, record.route, record.policy, called)

    def _with_rollback(self, opened: OpenResponse) -> UpstreamResponse:
        """The answer, rolled back where a rule demands it."""
        request, record, client = self._request, self._record, opened.client
        rollback = request.rewriter.rollback_for(client.upstream, record.on_finding)
        if rollback is None:
            return opened.response
        asker = ResumeClient(client, request.rewriter, request.headers_up(record))
        return with_rollback(opened.response, rollback, asker, record.note, self._limits.max_event, self._scan_cost)

    async def _stream(
        self, response: UpstreamResponse, guard: AnswerGuard, spoken: Dialect, encoder: AnswerEncoder | None
    ) -> None:
        answer = StreamAnswer(
            guard, max_event=self._limits.max_event, max_whole=self._limits.max_body, dialect=spoken, encoder=encoder
        )
        answer.encoder = self._encoder = self._annotating(answer.encoder, guard)
        source = _body_of(response)
        headers = [*STREAM_HEADERS, *self._reply.passed_headers(response, guard)]
        if not (isinstance(source, ResponseStream) and source.has_come and self._reply.hold(headers)):
            await self._reply.start(200, headers)
        last = b""
        ending: list[Command] = []
        failed: HTTPFailure | None = None
        try:
            last = await self._pass_on(source, answer)
            if not answer.done:
                # An answer that came as JSON is only now scanned, all of it.
                size = UNREAD_SIZE * answer.unread * self._scan_cost
                ending = await offload(size, answer.close, perf_counter())
        except httpx2.HTTPError as error:
            failed = from_transport(error)
        except asyncio.CancelledError:
            if not self._deadline.passed or self._reply.waiting:
                self._perform(answer.cancel())
                raise
            if answer.done:  # in this very turn
                last = last or (b"" if self._hot_path is None else self._hot_path.last)
            else:
                failed = HTTPFailure(504, TOO_LONG, "timeout")
        if failed is not None:
            self._record.note_failure(failed.kind)
            ending = answer.fail(failed.body, perf_counter())
        if answer.fault and self._record.error is None:
            self._record.note_failure(answer.fault)
        # The upstream is let go before the client gets its last bytes: a blocked answer must not cost another token.
        await response.aclose()
        last += self._perform(ending)
        if self._record.quota is not None:
            await self._record.correct_quota()
        if self._record.journal is not None and not await self._record.commit_findings():
            self._record.error = NOT_JOURNALLED
            last = answer.encoder.error(JOURNAL_FAILED)
        await self._reply.write(last, more=False)

    def _open_hot_path(self, source: Any, answer: StreamAnswer) -> HotPath | None:
        """None where only the loop of the caller will do."""
        # A compressed answer, and one that httpx2's transport reads behind an HTTP proxy, are no `ResponseStream`.
        # A placeholder may come in pieces, and only the last one of them shows how much there is to scan.
        hot = PATTERN_COST * HOT_READ * self._expansion <= MAX_INLINE or self._expansion == 1
        if not hot or not isinstance(source, ResponseStream) or (writer := BodyWriter.of(self._reply.send)) is None:
            return None
        at_once = MAX_INLINE // self._scan_cost
        self._hot_path = HotPath(source, answer, writer, self._perform, self._record.overhead, at_once)
        return self._hot_path

    async def _pass_on(self, source: Any, answer: StreamAnswer) -> bytes:
        """Guard what arrives and write it on, until upstream or answer ends. Returns what is left to write."""
        record, reply, at_once = self._record, self._reply, MAX_INLINE // self._scan_cost
        async for data in source:
            arrived = perf_counter()
            size = scan_size(data) + UNREAD_SIZE * answer.unread
            if size <= at_once:
                commands = answer.feed(data, arrived)
            else:
                await reply.flush()
                commands = await offload(size * self._scan_cost, answer.feed, data, arrived)
            body = self._perform(commands)
            record.overhead.observe(perf_counter() - arrived)
            if body and record.ttft is None:
                record.note_first_byte(arrived)
            if answer.done:
                return body
            if body:
                await reply.write(body)
            else:
                await reply.flush()
            if record.ttft is not None and (hot_path := self._hot_path or self._open_hot_path(source, answer)):
                await hot_path.run()
                if hot_path.blocked:
                    await reply.write(b"")  # waits for the client
                if answer.done:
                    return hot_path.last
        return b""

    async def _plain(
        self, response: UpstreamResponse, guard: AnswerGuard, spoken: Dialect, encoder: AnswerEncoder | None
    ) -> None:
        most = self._limits.max_body * self._request.rewriter.expansion_factor
        answer = PlainAnswer(guard, max_event=self._limits.max_event, max_whole=most, dialect=spoken, encoder=encoder)
        answer.encoder = self._annotating(answer.encoder, guard)
        record = self._record
        try:
            size = 0
            async for data in _body_of(response):
                weighed = scan_size(data)
                size += weighed
                arrived = perf_counter()
                weighed += UNREAD_SIZE * answer.unread
                if weighed * self._scan_cost <= MAX_INLINE:
                    answer.feed(data, arrived)  # without the coroutine that `offload` is
                else:
                    await offload(weighed * self._scan_cost, answer.feed, data, arrived)
                record.overhead.observe(perf_counter() - arrived)
                if answer.done:
                    break
            await response.aclose()
            arrived = perf_counter()
            if size * self._scan_cost <= MAX_INLINE:
                body = answer.close(arrived)
            else:
                body = await offload(size * self._scan_cost, answer.close, arrived)
            record.overhead.observe(perf_counter() - arrived)
        except BrokenAnswer as error:
            raise HTTPFailure(502, error.failure, "protocol") from None
        except BaseException as error:
            guard.counts.failed = isinstance(error, Exception)
            guard.abandon()
            raise
        finally:
            record.note(guard.counts.fact())
        await self._send_json(200, self._reply.passed_headers(response, guard), body)

    async def _pass_error(self, response: UpstreamResponse, guard: AnswerGuard) -> None:
        """The upstream's own error: its status, and its body if that is JSON or plain text, every text scanned."""
        body = bytearray()
        async for data in inflated(response):
            body += data
            if len(body) > self._limits.max_body:
                raise HTTPFailure(502, UPSTREAM_BROKE, "too_large")
        status = response.status_code if 400 <= response.status_code < 600 else 502
        plain = response.headers.get("content-type", "").lower().startswith("text/plain")
        try:
            shown = await offload(len(body) * self._scan_cost, shown_error, bytes(body), plain, guard)
            headers = self._reply.passed_headers(response, guard)
        except InvalidAnswer as error:
            raise HTTPFailure(502, failure(f"{error}.", "upstream_protocol_error"), "protocol") from None
        self._record.note(guard.counts.fact())
        self._record.note_failure("status", f"upstream status {response.status_code}")
        await self._send_json(status, headers, json.encode(self._request.chat.dialect.error_body(shown, status)))

    def _perform(self, commands: list[Command]) -> bytes:
        """Record the facts; the bytes to send. `Stop` shows in the answer's `done`."""
        out = b""
        for command in commands:
            if isinstance(command, SendBytes):
                out += command.data
            elif isinstance(command, RecordFact):
                self._record.note(command.fact)
        return out

    # -- complete answers ----------------------------------------------------------------------------------------------

    async def _send_json(self, status: int, headers: Headers, body: bytes) -> None:
        if self._record.quota is not None and not self._record.quota.corrected:
            await self._record.correct_quota()
        if self._record.journal is None or await self._record.commit_findings():
            await self._reply.write_json(status, headers, body)
        else:
            self._record.error = NOT_JOURNALLED
            await self._reply.fail(not_journalled())

    async def _fail(self, error: HTTPFailure) -> None:
        self._record.note_failure(error.kind)
        await self._record.correct_quota()
        await self._reply.fail(error)

    async def _fail_closed(self, error: Exception) -> None:
        """A defect of ours: the client gets no more of the answer; the exception's text is shown nowhere."""
        with contextlib.suppress(Exception):
            if self._record.guard is not None:
                self._record.guard.abandon()
        self._record.note(GuardFailed.of(self._request.policy.policy.name, error))
        if not self._reply.status:
            await self._reply.fail(HTTPFailure(500, GUARD_FAILED, "guard_failed"))
        elif self._encoder is not None:
            with contextlib.suppress(Exception):  # it may be what failed: then the connection ends within the answer
                await self._reply.write(self._encoder.error(GUARD_FAILED), more=False)


def _body_of(response: UpstreamResponse) -> Any:
    return response.stream if is_uncompressed(response) else inflated(response)
