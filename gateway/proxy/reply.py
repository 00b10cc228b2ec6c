"""The response of one request, as it is sent to the client."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from starlette.types import Message, Send

from gateway.guard.answer_guard import AnswerGuard
from gateway.proxy.accounting import RequestRecord
from gateway.proxy.errors import HTTPFailure
from gateway.proxy.upstreams.client import RATE_LIMITS, UpstreamResponse, forwarded_headers
from gateway.wire import json
from gateway.wire.json import Json

Headers = list[tuple[bytes, bytes]]

JSON_HEADERS = [(b"content-type", b"application/json")]
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
WRITE_SIZE = 64 * 1024  # bytes of a whole answer that are written at once


class Reply:
    """One response. `status` is 0 until it has begun; `waiting` while a write waits for the client to read.

    `open` comes first. `error_body` is that of the client's dialect.
    """

    send: Send
    _cycle: Any = None
    _protocol: Any = None  # our own server's; None where another one runs the application
    _held: Headers | None = None  # of a head that is written with what follows

    def __init__(self, record: RequestRecord, error_body: Callable[[Json, int], Json]) -> None:
        self.status = 0
        self.waiting = False
        self._error_body = error_body
        self._limits = {} if record.quota is None else record.quota.headers
        self._own = _encoded({**record.headers, **self._limits} if self._limits else record.headers)

    def open(self, send: Send, timeout: float) -> None:
        """Write to `send`, the server's own, which cuts off a client that takes nothing for `timeout` seconds."""
        self.send = send
        self._cycle = getattr(send, "__self__", None)
        self._protocol = getattr(self._cycle, "protocol", None)
        if self._protocol is not None:
            self._protocol.send_timeout = timeout

    @property
    def stalled(self) -> bool:
        """Was the client cut off because it took nothing?"""
        return bool(getattr(self._protocol, "stalled", False))

    def abort(self) -> None:
        """Cut the client off, with all that it has not read, for which a server that closes in order waits. ASGI has no
        such message."""
        if self._protocol is not None:
            self._protocol.cut()

    async def start(self, status: int, headers: Headers) -> None:
        """The head, with the headers that every answer has before those given."""
        self.status, self._held = status, None
        await self.send({"type": "http.response.start", "status": status, "headers": [*self._own, *headers]})

    def hold(self, headers: Headers) -> bool:
        """`start` with status 200, written with the first piece of the body, which has come; `write` or `flush`
        follows, and nothing is waited for until then but what the last piece needs. False: not our own server."""
        if self._protocol is None:
            return False
        self.status, self._held = 200, headers
        return True

    async def flush(self) -> None:
        """Write the head that is held, if there is one."""
        if self._held is not None:
            await self.start(200, self._held)

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Write a piece of the body; the last one if not `more`."""
        if (headers := self._held) is not None:
            if (body or not more) and self._cycle.send_beginning(200, [*self._own, *headers], body, more=more):
                self._held = None
                return
            await self.start(200, headers)
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        self.waiting = True
        await self.send(message)
        self.waiting = False

    async def write_json(self, status: int, headers: Headers, body: bytes) -> None:
        """The complete answer."""
        headers = [*JSON_HEADERS, *headers, (b"content-length", b"%d" % len(body))]
        if self._protocol is not None and len(body) <= WRITE_SIZE:
            self.status = status
            if self._cycle.send_response(status, [*self._own, *headers], body):
                return
        await self.start(status, headers)
        # In pieces, so that a client that does not read is noticed and its answer is not kept for it.
        for start in range(0, max(len(body), 1), WRITE_SIZE):
            end = start + WRITE_SIZE
            await self.write(body[start:end], more=end < len(body))

    async def fail(self, error: HTTPFailure) -> None:
        """The failure as the complete answer."""
        body = json.encode(self._error_body(error.body, error.status))
        await self.write_json(error.status, _encoded(error.headers), body)

    def passed_headers(self, response: UpstreamResponse, guard: AnswerGuard) -> Headers:
        """The upstream's headers that may pass; one that a rule wants changed, or blocks, is left out."""
        forwarded = forwarded_headers(response)
        if self._limits:  # a client with limits of its own does not get those of the upstream's key
            forwarded = [(name, value) for name, value in forwarded if not name.startswith(RATE_LIMITS)]
        if not forwarded:
            return []
        if not guard.metadata.pass_unopened([*chain(*forwarded)]):
            passes = guard.metadata.passes
            forwarded = [(name, value) for name, value in forwarded if passes(name) and passes(value)]
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in forwarded]


def _encoded(headers: dict[str, str]) -> Headers:
    return [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in headers.items()]
