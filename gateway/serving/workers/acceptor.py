"""A listening socket whose connections are given away: to other processes, or to this one's servers.

uvloop's own listeners, where there is no descriptor left, accept connections and close them without a word.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from time import monotonic

from gateway.observe.facts import AcceptFailed

AT_ONCE = 16  # connections accepted before anything else has its turn
RETRY = 0.05  # seconds until a connection that nobody took is offered again, or after an accept that failed
NOTE_EVERY = 10.0  # seconds at least between two reports that no connection could be accepted
CLOSING = 2.0  # seconds for giving away what has come when the address is closed


class NotAccepted:
    """Every failure to accept a connection is recorded, and one in `NOTE_EVERY` seconds reported as well: it is tried
    again many times a second."""

    def __init__(self, record: Callable[[AcceptFailed], None], report: Callable[[str], None]) -> None:
        self._record = record
        self._report = report
        self._reported_at = -NOTE_EVERY

    def __call__(self, error: OSError) -> None:
        self._record(AcceptFailed(errno.errorcode.get(error.errno or 0, "other")))
        if monotonic() - self._reported_at >= NOTE_EVERY:
            self._reported_at = monotonic()
            self._report(f"accept: {error.strerror}")


class Address:
    """Accepts connections and gives each one away at once; its own descriptor of it is closed then.

    `give` returns whether somebody took the connection. While nobody does, one connection waits here and the others in
    the system, in order. There is no task that could be cancelled in the middle of an accept, and lose a connection.
    """

    def __init__(
        self, listener: socket.socket, give: Callable[[socket.socket], bool], on_failure: Callable[[OSError], None]
    ) -> None:
        self._listener = listener
        self._give = give
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._waiting: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._open()

    async def close(self) -> None:
        """Listen no more, when everything that has come is given away, or after `CLOSING` seconds."""
        self._pause()
        deadline = monotonic() + CLOSING
        try:
            while monotonic() < deadline:
                try:
                    given = self._give_next()
                except BlockingIOError:
                    return  # nothing else has come
                except OSError:
                    given = False
                await asyncio.sleep(0 if given else RETRY)
        finally:
            self.abort()

    def abort(self) -> None:
        """Listen no more. Who has not been given away is cut off."""
        if self._listener.fileno() < 0:
            return
        self._pause()
        self._listener.close()
        if self._waiting is not None:
            self._waiting.close()

    def _open(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _try_again(self) -> None:
        self._retry = None
        self._open()
        self._accept()  # one that waits here does not make the listener readable

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _accept(self) -> None:
        try:
            if all(self._give_next() for _ in range(AT_ONCE)):
                return  # called again if more have come
        except BlockingIOError:
            return  # nothing else has come
        except OSError as error:
            # Out of descriptors, or the client has left already.
            self._on_failure(error)
        self._pause()
        self._retry = self._loop.call_later(RETRY, self._try_again)

    def _give_next(self) -> bool:
        """Was the connection that waits, or else the next that has come, taken? Raises OSError where there is none."""
        if self._waiting is None:
            self._waiting, _ = self._listener.accept()
        if not self._give(self._waiting):
            return False
        self._waiting.close()
        self._waiting = None
        return True
