"""One request and its response, as uvicorn runs them, with what the gateway's protocol has to know."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.proxy.context import failure_response, record_of
from gateway.proxy.errors import internal_error

if TYPE_CHECKING:
    from gateway.proxy.downstream.protocol import BoundedProtocol


_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LEFT_TO_UVICORN = frozenset({b"connection", b"transfer-encoding"})


class _Sent:
    """A `send` that has been done."""

    def __await__(self) -> Iterator[None]:
        return iter(())


_SENT: Any = _Sent()


class RequestCycle(RequestResponseCycle):
    """One request and its response.

    `broken`: the rest of its body does not come. `last`: it is complete and no other response follows on the
    connection, which the protocol closes. `is_read`: the application reads what has not come yet of the body.
    """

    broken = False
    last = False
    _asked_for = False
    ahead = 0  # bytes that it counts for while it waits for its turn
    on_leave: Callable[[], None] | None = None  # called when the client has left

    def __init__(self, protocol: BoundedProtocol, **parts: Any) -> None:
        super().__init__(**parts)
        self.protocol = protocol

    async def run_asgi(self, app: Any) -> None:
        async def answered(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:
                if not self.response_complete:
                    raise  # uvicorn logs it and closes the connection
                self.logger.error("Exception in ASGI application", exc_info=error)

        await super().run_asgi(answered)
        if not self.response_complete:
            self.protocol.watch_client()  # the connection is closed when the client has taken what was written

    @property
    def is_read(self) -> bool:
        return self._asked_for and self.more_body

    def leave(self) -> None:
        """The client is gone."""
        self.disconnected = True
        self.message_event.set()
        if self.on_leave is not None:
            self.on_leave()

    async def receive(self) -> Any:
        if self.broken:
            return {"type": "http.disconnect"}
        if not self._asked_for:
            self._asked_for = True
            self.protocol.reader.hurry()
        return await super().receive()

    def send(self, message: Any) -> Awaitable[None]:  # type: ignore[override]
        if not self.response_started:
            if self.more_body:
                self.keep_alive = False  # nobody will read the rest
        elif not self.keep_alive and not message.get("more_body", False):
            # uvicorn would close at once; with bytes unread that resets the connection and may take the answer along.
            self.keep_alive, self.last = True, True
        return _SENT if self._writes(message) else super().send(message)

    def _writes(self, message: Any) -> bool:
        """What uvicorn's `send` does with the messages that are usual, without a coroutine and with one check for all
        headers. False, and nothing is done, for any other message, and for a client that does not keep up."""
        if self.flow.write_paused or self.disconnected or self.response_complete or self.scope["method"] == "HEAD":
            return False
        if message["type"] == "http.response.body" and self.response_started:
            return self._writes_body(message.get("body", b""), more=message.get("more_body", False))
        if message["type"] != "http.response.start" or self.response_started or not self.keep_alive:
            return False
        head, length = _head(message["status"], [*self.default_headers, *message["headers"]])
        if head is not None:
            self.response_started, self.waiting_for_100_continue = True, False
            self.chunked_encoding, self.expected_content_length = length is None, length or 0
            self.transport.write(head)
        return head is not None

    def _writes_body(self, body: bytes, *, more: bool) -> bool:
        if self.chunked_encoding:
            end = b"" if more else b"0\r\n\r\n"
            self.transport.write(b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end)
        elif len(body) > self.expected_content_length or (not more and len(body) < self.expected_content_length):
            return False
        else:
            self.expected_content_length -= len(body)
            self.transport.write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            self.on_response()
        return True

    async def send_500_response(self) -> None:
        if self.flow.write_paused:
            self.protocol.cut()  # a cancelled task would wait for the client
            return
        answer = failure_response(record_of(Request(self.scope)), internal_error())  # type: ignore[arg-type]
        answer.headers["connection"] = "close"
        await answer(self.scope, self.receive, self.send)  # type: ignore[arg-type]


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> tuple[bytes | None, int | None]:
    """The head of a response, and the length of its body where a header declares it; no head for one that uvicorn has
    to look at."""
    length: int | None = None
    lines: list[bytes] = []
    for name, value in headers:
        if name in _LEFT_TO_UVICORN:
            return None, None
        if name == b"content-length":
            length = int(value)
        lines.append(b"%b: %b\r\n" % (name, value))
    if length is None:
        lines.append(b"transfer-encoding: chunked\r\n")
    text = b"".join(lines)
    if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines) or _CONTROL.search(text) or status < 200:
        return None, None
    return (None, None) if status in (204, 304) else (b"%b%b\r\n" % (STATUS_LINE[status], text), length)
