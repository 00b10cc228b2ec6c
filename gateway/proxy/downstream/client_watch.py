"""A client that does not read: how much it has not taken, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Callable

POLL_INTERVAL = 0.5  # seconds; the precision of the timeout


class ClientWatch:
    """Calls `on_stall` when the client takes nothing for `timeout()` seconds while something waits for it.

    It is judged while nothing `is_writing()`, so that what is not taken can only become less.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        timeout: Callable[[], float],
        is_writing: Callable[[], bool],
        on_stall: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._timeout = timeout
        self._is_writing = is_writing
        self._on_stall = on_stall
        self._timer: asyncio.TimerHandle | None = None
        self._untaken = sys.maxsize  # bytes, as it was seen last
        self._took_at = 0.0  # when it became less, in the loop's time

    def start(self) -> None:
        """Begin again: the client has its whole time from now on."""
        self._untaken = sys.maxsize
        if self._timer is None and self._transport.get_write_buffer_size():
            self._timer = self._loop.call_later(POLL_INTERVAL, self._poll)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _poll(self) -> None:
        self._timer = None
        if self._is_writing() or not self._transport.get_write_buffer_size():
            return
        untaken, now = self.untaken(), self._loop.time()
        if untaken < self._untaken:
            self._untaken, self._took_at = untaken, now
        if now - self._took_at >= self._timeout():
            self._on_stall()
        else:
            self._timer = self._loop.call_later(POLL_INTERVAL, self._poll)

    def untaken(self) -> int:
        """Bytes that the client's system has not acknowledged."""
        kernel = bytearray(4)
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            with contextlib.suppress(OSError):  # no TCP, or a system that does not tell
                fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, kernel)
        return self._transport.get_write_buffer_size() + int(struct.unpack("i", kernel)[0])


def set_option(transport: asyncio.Transport, level: int, name: int, value: int | bytes) -> None:
    """Set an option of the transport's socket, if it has one that takes it."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return
    # uvloop's own socket object may not take options. They belong to the connection, whichever object sets them.
    # `SocketType` is the class in C: of a descriptor it neither asks nor says what kind it is.
    same = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, connection.fileno())
    try:
        with contextlib.suppress(OSError):
            same.setsockopt(level, name, value)
    finally:
        same.detach()
