"""uvicorn's HTTP protocol with bounds on what comes before a request: without them a client without a key could fill
the memory with a head that never ends, or keep connections open by never sending one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024  # bytes of request line and headers
HEAD_PATIENCE = 30.0  # seconds in which a head must be complete, from the connection or from its first byte on

_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")


class BoundedProtocol(HttpToolsProtocol):
    """Aborts a connection whose request head is too large or too slow; nothing is answered, nothing was asked yet."""

    _head_bytes = 0
    _in_head = True
    _in_body = False
    _head_timer: asyncio.TimerHandle | None = None
    on_lost: Callable[[], None] | None = None  # told once when the connection is gone

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_begins()

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            # No protocol is changed to here, and a server may ignore the offer; the parser would stop before the body.
            # Java's client offers HTTP/2 with every request.
            head, separator, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"\r\nx-upgrade-ignored:", head) + separator + rest
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:
            self._head_begins()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def _head_begins(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._head_timer = self.loop.call_later(HEAD_PATIENCE, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
