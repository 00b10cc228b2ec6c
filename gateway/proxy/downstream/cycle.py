"""One request and its response, as uvicorn runs them, with what the gateway's protocol has to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.proxy.asgi import SERVER_SEND
from gateway.proxy.context import failure_response, record_of
from gateway.proxy.errors import internal_error

if TYPE_CHECKING:
    from gateway.proxy.downstream.protocol import BoundedProtocol


def _nothing() -> None:
    pass


class SmallEvent(asyncio.Event):
    """One that few wait for: asyncio's own has a deque, which takes 0.7 kB."""

    def __init__(self) -> None:
        self._waiters = []  # type: ignore[assignment]
        self._value = False


class RequestCycle(RequestResponseCycle):
    """One request and its response.

    `broken`: the rest of its body does not come, `defect`: because of one of ours. `last`: it is complete and no other
    response follows on the connection, which the protocol closes. `is_read`: the application reads what has not come
    yet of the body.
    """

    # What the base's constructor would set on each.
    access_log = False
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    broken = False
    defect: Exception | None = None
    last = False
    _asked_for = False
    ahead = 0  # bytes that it counts for while it waits for its turn
    on_leave: Callable[[], None] | None = None  # called when the client has left

    def __init__(self, protocol: BoundedProtocol, *, keep_alive: bool) -> None:
        self.protocol = protocol
        self.scope, self.transport, self.flow = protocol.scope, protocol.transport, protocol.flow
        self.logger, self.default_headers = protocol.logger, protocol.server_state.default_headers
        self.message_event = SmallEvent()
        self.on_response: Callable[[], None] = protocol.on_response_complete
        self.keep_alive, self.waiting_for_100_continue = keep_alive, protocol.expect_100_continue
        self.body = bytearray()

    async def run_asgi(self, app: Any) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            self.logger.error("Exception in ASGI application", exc_info=error)
            if not self.response_started:
                await self.send_500_response()
            elif not self.response_complete or not isinstance(error, Exception):
                self.transport.close()
        else:
            if not self.response_complete and not self.disconnected:
                self.logger.error("The ASGI application returned before its response was complete.")
                if self.response_started:
                    self.transport.close()
                else:
                    await self.send_500_response()
        finally:
            self.on_response = _nothing  # no cycle of references is left
            self.scope.pop(SERVER_SEND, None)  # type: ignore[misc]
        if not self.response_complete:
            self.protocol.watch_client()  # the connection is closed when the client has taken what was written

    @property
    def is_read(self) -> bool:
        return self._asked_for and self.more_body

    def break_off(self, defect: Exception | None) -> None:
        """The rest of the body does not come; for a defect of ours `receive` raises it."""
        self.broken, self.defect = True, defect
        self.message_event.set()

    def release_headers(self) -> None:
        """Nobody reads them any more; an answer may take long."""
        headers, self.scope["headers"] = self.scope["headers"], []
        if self.protocol.headers is headers:
            self.protocol.headers = []

    def leave(self) -> None:
        """The client is gone."""
        self.disconnected = True
        self.message_event.set()
        if self.on_leave is not None:
            self.on_leave()

    async def receive(self) -> Any:
        if self.defect is not None:
            raise self.defect
        if self.broken:
            return {"type": "http.disconnect"}
        if not self._asked_for:
            self._asked_for = True
            self.protocol.reader.hurry()
        return await super().receive()

    def send(self, message: Any) -> Coroutine[Any, Any, None]:
        if not self.response_started:
            if self.more_body:
                self.keep_alive = False  # nobody will read the rest
        elif not self.keep_alive and not message.get("more_body", False):
            # uvicorn would close at once; with bytes unread that resets the connection and may take the answer along.
            self.keep_alive, self.last = True, True
        return super().send(message)

    def send_response(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """`send` for a complete response, in one write and without checking headers again, which must be sound and have
        the body's length. False, and nothing is done, where only `send` can do it."""
        if self.disconnected or self.flow.write_paused or self.response_started or self.scope["method"] == "HEAD":
            return False
        self.transport.write(b"".join([*self._begin_response(status, headers), b"\r\n", body]))
        self._complete_response()
        return True

    def send_beginning(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, more: bool) -> bool:
        """`send_response` for a response in pieces: its head and the first of them, which is the last if not `more`."""
        if self.disconnected or self.flow.write_paused or self.response_started or self.scope["method"] == "HEAD":
            return False
        self.chunked_encoding = True
        piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        head = [*self._begin_response(status, headers), b"transfer-encoding: chunked\r\n\r\n", piece]
        self.transport.write(b"".join(head if more else [*head, b"0\r\n\r\n"]))
        if not more:
            self._complete_response()
        return True

    def _begin_response(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        self.response_started, self.waiting_for_100_continue = True, False
        if self.more_body:
            self.keep_alive = False  # nobody will read the rest
        lines = b"\r\n".join(map(b": ".join, (*self.default_headers, *headers)))
        return [STATUS_LINE[status], lines, b"\r\n" if self.keep_alive else b"\r\nconnection: close\r\n"]

    def _complete_response(self) -> None:
        if not self.keep_alive:
            self.keep_alive, self.last = True, True
        self.response_complete = True
        self.message_event.set()
        self.on_response()

    async def send_500_response(self) -> None:
        if self.flow.write_paused:
            self.protocol.cut()  # a cancelled task would wait for the client
            return
        answer = failure_response(record_of(Request(self.scope)), internal_error())  # type: ignore[arg-type]
        answer.headers["connection"] = "close"
        await answer(self.scope, self.receive, self.send)  # type: ignore[arg-type]
