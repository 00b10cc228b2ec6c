"""One client connection: the socket, its flow control, its end. Its bytes belong to the exchange on it."""

from __future__ import annotations

import asyncio
import errno
import select
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from gateway.http1.exchange import Exchange
    from gateway.http1.pool import ConnectionPool


class Origin(NamedTuple):
    """The key of the pool. `host` is an IDNA-encoded name or an address without brackets."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(asyncio.Protocol):
    """A socket and the exchange on it, if any. `transport` is None until it is connected. Its `owner` is told once that
    it is closed.

    It has 18 methods: six are asyncio's callbacks, most others forward to the transport if it is still there.
    """

    def __init__(self, origin: Origin, owner: ConnectionPool) -> None:
        self.origin = origin
        self.loop = asyncio.get_running_loop()  # to ask for it takes a system call
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.closed = False
        self.reused = False
        self.idle_since = 0.0
        self.reading_paused = False
        self._owner = owner
        self._gone = False
        self._gone_waiter: asyncio.Future[None] | None = None
        self.write_blocked = False
        self._stalled_since = 0.0
        self._unwritten = 0
        self._poll: select.poll | None = None  # of its descriptor, once it was asked about

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        if self.closed:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.data_received(data)
        else:
            # No request is open: a late 408 at best, at worst an answer planted for the next request.
            self.abort()

    def eof_received(self) -> None:
        # Not left to connection_lost: that would wait until the rest of a request body has been written.
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._end(exc)
        if self._gone_waiter is not None and not self._gone_waiter.done():
            self._gone_waiter.set_result(None)

    def _end(self, error: Exception | None) -> None:
        if self.exchange is not None:
            self.exchange.connection_lost(error)
        self.abort()

    def abort(self) -> None:
        """Close at once, whatever is still unsent; the socket itself is closed in the loop's next turn."""
        if self.closed:
            return
        self.closed = True
        self.exchange = None
        if self.transport is not None:
            self.transport.abort()
        self._owner.discard(self)

    def shut(self) -> None:
        """Close at once from this side; an exchange in progress fails."""
        self._end(ConnectionAbortedError(errno.ECONNABORTED, "the transport was closed"))

    async def wait_gone(self) -> None:
        """Return when the socket of an aborted connection has been closed."""
        if self.transport is None or self._gone:
            return
        self._gone_waiter = self.loop.create_future()
        await self._gone_waiter

    def release(self) -> None:
        """Hand the connection back for the next exchange."""
        self.exchange = None
        self.resume_reading()
        self.reused = True
        self._owner.release(self)

    @property
    def quiet(self) -> bool:
        """Is there nothing to be read, not even the end? The kernel may know more than the loop has come to."""
        connected = None if self.transport is None else self.transport.get_extra_info("socket")
        descriptor = -1 if connected is None else connected.fileno()
        if self.closed or descriptor < 0:
            return False
        if not hasattr(select, "poll"):  # Windows
            return True
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)
        return not self._poll.poll(0)

    def pause_reading(self) -> None:
        if not self.reading_paused and self.transport is not None and not self.transport.is_closing():
            self.reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.reading_paused and self.transport is not None and not self.transport.is_closing():
            self.reading_paused = False
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.closed:
            self.transport.write(data)

    @property
    def all_written(self) -> bool:
        return self.transport is not None and self.transport.get_write_buffer_size() == 0

    def pause_writing(self) -> None:
        assert self.transport is not None
        self.write_blocked = True
        self._stalled_since = monotonic()
        self._unwritten = self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self.write_blocked = False
        if self.exchange is not None:
            self.exchange.waiting_since = monotonic()  # the response is waited for once the request is sent

    def write_stalled_since(self, now: float) -> float | None:
        """When the peer last accepted bytes, as of the last calls; None while writing is not blocked."""
        if not self.write_blocked or self.transport is None:
            return None
        unwritten = self.transport.get_write_buffer_size()
        if unwritten < self._unwritten:
            self._stalled_since = now
        self._unwritten = unwritten
        return self._stalled_since
