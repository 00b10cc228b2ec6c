"""Accept loop of a listening socket: each connection is handed to another process, or to this one's servers.

uvloop's own listeners close accepted connections without an error when the process is out of descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from time import monotonic

from gateway.observe.facts import AcceptFailed
from gateway.observe.log import RequestLog

CLIENT, ADMIN = b"c", b"a"  # the server that a listener's connections belong to
ACCEPT_BATCH = 4  # connections accepted before anything else has its turn
RETRY_DELAY = 0.05  # seconds until a connection that was not taken is offered again, or after a failed accept
REPORT_INTERVAL = 10.0  # seconds at least between two log lines about failed accepts
CLOSE_TIMEOUT = 2.0  # seconds for handing over what has already come when the listener is closed


class AcceptFailureReporter:
    """Counts every failed accept, and logs at most one in `REPORT_INTERVAL` seconds: it is retried many times a
    second."""

    def __init__(self, record: Callable[[AcceptFailed], None], log: RequestLog) -> None:
        self._record = record
        self._log = log
        self._reported_at = -REPORT_INTERVAL

    def __call__(self, error: OSError) -> None:
        self._record(AcceptFailed(errno.errorcode.get(error.errno or 0, "other")))
        if monotonic() - self._reported_at >= REPORT_INTERVAL:
            self._reported_at = monotonic()
            self._log.event("server", level="warning", message=f"accept: {error.strerror}")


class Acceptor:
    """Accepts connections and hands each one over at once; its own descriptor of it is closed then.

    `hand_over` returns whether the connection was taken. While none is, one connection waits here and the others in
    the system, in order. There is no task that could be cancelled in the middle of an accept and lose a connection.
    """

    def __init__(
        self, listener: socket.socket, hand_over: Callable[[socket.socket], bool], on_failure: Callable[[OSError], None]
    ) -> None:
        self._listener = listener
        self._hand_over = hand_over
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._pending: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    async def close(self) -> None:
        """Stop listening once everything that has come is handed over, or after `CLOSE_TIMEOUT` seconds."""
        self._pause()
        deadline = monotonic() + CLOSE_TIMEOUT
        try:
            while monotonic() < deadline:
                try:
                    taken = self._hand_over_next()
                except BlockingIOError:
                    return  # nothing else has come
                except OSError:
                    taken = False
                await asyncio.sleep(0 if taken else RETRY_DELAY)
        finally:
            self.abort()

    def abort(self) -> None:
        """Stop listening at once; connections that were not handed over are cut off."""
        if self._listener.fileno() < 0:
            return
        self._pause()
        self._listener.close()
        if self._pending is not None:
            self._pending.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _try_again(self) -> None:
        self._retry = None
        self._resume()
        self._accept()  # a pending connection does not make the listener readable

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _accept(self) -> None:
        try:
            if all(self._hand_over_next() for _ in range(ACCEPT_BATCH)):
                return  # called again if more have come
        except BlockingIOError:
            return  # nothing else has come
        except OSError as error:
            # Out of descriptors, or the client has left already.
            self._on_failure(error)
        self._pause()
        self._retry = self._loop.call_later(RETRY_DELAY, self._try_again)

    def _hand_over_next(self) -> bool:
        """Whether the pending connection, or else the next one, was taken. Raises OSError where there is none."""
        if self._pending is None:
            self._pending, _ = self._listener.accept()
        if not self._hand_over(self._pending):
            return False
        self._pending.close()
        self._pending = None
        return True
