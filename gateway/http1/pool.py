"""A bounded pool of keep-alive connections by origin."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

import httpx2

from gateway.http1.connection import Connection, Origin

# The process, or the system, is out of the resources for a connection.
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class DescriptorsExhausted(httpx2.ConnectError):
    """No descriptor or memory was left for a connection; it says nothing about the server."""


class HandshakeFailed(httpx2.ConnectError):
    """The peer hung up, or failed, while TLS was agreed on."""


@dataclass(slots=True, eq=False)
class _Waiter:
    origin: Origin
    reuse: bool
    granted: asyncio.Future[Connection]


class ConnectionPool:
    """At most `max_connections` open or being opened; an idle one is closed after `idle_expiry` seconds.

    Waiters are served in order: with the connection that was released if its origin fits, else with the place it
    leaves. So no connection is idle while there are waiters. `context` is called for each connection with TLS.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext], max_connections: int, idle_expiry: float) -> None:
        self._context = context
        self._max_connections = max_connections
        self._idle_expiry = idle_expiry
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # a set in order, oldest first
        self._waiters: deque[_Waiter] = deque()
        self._connecting: set[asyncio.Timeout] = set()
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def take_idle(self, origin: Origin) -> Connection | None:
        """What `acquire` gives where it need not wait, and without the coroutine that it is; None else."""
        return self._pop_idle(origin) if self._idle and not self._closed else None

    async def acquire(self, origin: Origin, timeouts: Mapping[str, float | None], *, reuse: bool) -> Connection:
        """A connected connection: where `reuse` allows, the idle one that was used last.

        Raises `httpx2.PoolTimeout`, `httpx2.ConnectTimeout`, `httpx2.ConnectError`, `DescriptorsExhausted`.
        """
        if self._closed:
            raise _closed_error(origin)
        connection = (self._pop_idle(origin) if reuse else None) or self._new_if_allowed(origin)
        if connection is None:
            connection = await self._wait(origin, timeouts, reuse=reuse)
        if connection.transport is None:
            try:
                await self._connect(connection, timeouts.get("connect"))
            except BaseException:
                connection.abort()
                raise
        return connection

    def release(self, connection: Connection) -> None:
        """The exchange is over and the connection may carry another."""
        waiter = self._first_waiter()
        if waiter is None:
            self._park(connection)
        elif waiter.reuse and waiter.origin == connection.origin:
            self._waiters.popleft()
            waiter.granted.set_result(connection)
        else:
            connection.abort()  # its place goes to the waiter

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        waiter = self._first_waiter()
        if waiter is not None:
            self._waiters.popleft()
            waiter.granted.set_result(self._new(waiter.origin))

    async def aclose(self) -> None:
        """Close every connection and return when their sockets are closed."""
        self._closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for connecting in self._connecting:
            if not connecting.expired():
                connecting.reschedule(asyncio.get_running_loop().time())
        connections = list(self._open)
        while self._open:
            # Closing one may grant its place to a waiter, who finds the pool closed: so until none is left.
            for connection in list(self._open):
                connection.shut()
        for connection in connections:
            await connection.wait_gone()

    def _new(self, origin: Origin) -> Connection:
        connection = Connection(origin, self)
        self._open.add(connection)
        return connection

    def _new_if_allowed(self, origin: Origin) -> Connection | None:
        """An unconnected connection; None where the bound is reached by connections in use."""
        if len(self._open) >= self._max_connections:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return None
            oldest.abort()
        return self._new(origin)

    async def _wait(self, origin: Origin, timeouts: Mapping[str, float | None], *, reuse: bool) -> Connection:
        limit = timeouts.get("pool")
        limit = timeouts.get("connect") if limit is None else limit
        waiter = _Waiter(origin, reuse, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(limit):
                connection = await waiter.granted
        except BaseException as error:
            self._withdraw(waiter)
            if not isinstance(error, TimeoutError):
                raise
            what = f"{origin}: all {self._max_connections} connections stayed in use for {limit:g} seconds"
            raise httpx2.PoolTimeout(what) from error
        if connection.transport is not None and not connection.quiet:
            connection.abort()
        if connection.closed:
            if self._closed:
                raise _closed_error(origin)
            # The peer closed it between the grant and this task's turn: its place is free again.
            return self._new_if_allowed(origin) or await self._wait(origin, timeouts, reuse=reuse)
        return connection

    async def _connect(self, connection: Connection, limit: float | None) -> None:
        """Connect, TLS included, within `limit` seconds."""
        host, secure = connection.origin.host, connection.origin.scheme == "https"
        connecting = asyncio.timeout(limit)
        self._connecting.add(connecting)
        try:
            async with connecting:
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    host,
                    connection.origin.port,
                    ssl=self._context() if secure else None,
                    server_hostname=host if secure else None,
                )
        except (OSError, UnicodeError) as error:
            if self._closed:
                raise _closed_error(connection.origin) from error
            raise _connect_error(error, connection.origin, limit) from error
        finally:
            self._connecting.discard(connecting)
        if self._closed:
            raise _closed_error(connection.origin)
        if connection.closed:
            raise httpx2.ConnectError(f"{connection.origin}: connection closed as soon as it was made")

    def _first_waiter(self) -> _Waiter | None:
        """The first that still waits; those that gave up are dropped."""
        while self._waiters and self._waiters[0].granted.done():
            self._waiters.popleft()
        return self._waiters[0] if self._waiters else None

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter.granted.cancelled():
            return
        # Granted in the same turn as the waiter was cancelled: pass it on.
        connection = waiter.granted.result()
        if connection.transport is None:
            connection.abort()
        elif not connection.closed:
            self.release(connection)

    def _pop_idle(self, origin: Origin) -> Connection | None:
        while True:
            for connection in reversed(self._idle):
                if connection.origin == origin:
                    break
            else:
                return None
            del self._idle[connection]
            if monotonic() - connection.idle_since < self._idle_expiry and connection.quiet:
                return connection
            connection.abort()

    def _park(self, connection: Connection) -> None:
        connection.idle_since = monotonic()
        self._idle[connection] = None
        if self._expiry_timer is None:
            self._arm_expiry(self._idle_expiry)

    def _arm_expiry(self, delay: float) -> None:
        self._expiry_timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._expiry_timer = None
        now = monotonic()
        for connection in list(self._idle):
            left = connection.idle_since + self._idle_expiry - now
            if left > 0:
                self._arm_expiry(max(left, 0.001))
                break
            connection.abort()


def _connect_error(error: Exception, origin: Origin, limit: float | None) -> httpx2.TransportError:
    """The cause by name. The order matters: all of these are `OSError`s."""
    if isinstance(error, TimeoutError):
        within = "" if limit is None else f" within {limit:g} seconds"
        return httpx2.ConnectTimeout(f"{origin}: not connected{within}")
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if getattr(error, "errno", None) in _SHORTAGE or (isinstance(error, socket.gaierror) and not _descriptors_left()):
        return DescriptorsExhausted(f"{origin}: no descriptor is left for a connection")
    if isinstance(error, socket.gaierror | UnicodeError):
        return httpx2.ConnectError(f"{origin}: the host's name cannot be resolved: {reason}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return httpx2.ConnectError(f"{origin}: TLS certificate not accepted: {error.verify_message}")
    # create_connection reports a peer that hangs up during the handshake as a reset or an abort.
    in_handshake = isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError)
    if in_handshake and origin.scheme == "https":
        return HandshakeFailed(f"{origin}: TLS handshake failed: {reason}")
    if isinstance(error, ConnectionRefusedError):
        return httpx2.ConnectError(f"{origin}: connection refused")
    return httpx2.ConnectError(f"{origin}: cannot connect: {reason}")


def _descriptors_left() -> bool:
    """A name look-up that runs out of descriptors reports that the name does not exist."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _SHORTAGE
    return True


def _closed_error(origin: Origin) -> httpx2.ConnectError:
    return httpx2.ConnectError(f"{origin}: the transport is closed; make a new one")
