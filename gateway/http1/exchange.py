"""One request and its response on a connection, from the socket's side: sending, queueing, timeouts, failures, reuse.

A socket read goes `Connection.data_received` → `Exchange.data_received` → the httptools parser, whose body callback
appends to the queue; then the consumer is woken, or its function (`ResponseStream.pump`) is called. An `Exchange` ends
once: in `_finish`, which returns the connection to the pool where it may be reused, or in `fail`, which closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from time import monotonic

import httpx2

from gateway.http1.connection import Connection
from gateway.http1.response import PARSE_ERRORS, ResponseHead, ResponseParser, StreamLimits


@lru_cache(64)
def _interval(*limits: float | None) -> float:
    """Seconds between two looks at waits that have these limits; 0 if none has one."""
    given = [limit for limit in limits if limit is not None]
    return max(min(given), 0.001) if given else 0.0


class BodyQueue:
    """The body that has arrived and was not consumed, and its one consumer: a future, or a function. `taker`: what may
    take reads in its place before they are parsed."""

    __slots__ = ("consumer", "ended", "failure", "parts", "size", "taker", "waiter")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0  # bytes read from the socket since the queue was empty
        self.ended = False
        self.failure: Exception | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.consumer: Callable[[bytes], bool] | None = None
        self.taker: Callable[[bytes], bytes | None] | None = None

    def wake(self) -> None:
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    @property
    def awaited(self) -> bool:
        return self.waiter is not None and not self.waiter.done()


class Exchange:
    """Started by `send`; then `read_head`, and the body from `queue`. `stale`: lost before the response's first byte on
    a connection that had been idle. `head_only` as in `ResponseParser`. `limit` bounds, in seconds, the present wait
    for the response, which has lasted since `waiting_since`; behind its first bytes it is `read_limit`.

    One timer an exchange, not one a read: every `_interval` seconds it checks how long the present wait has lasted.
    """

    def __init__(
        self, connection: Connection, limits: StreamLimits, timeouts: Mapping[str, float | None], *, head_only: bool
    ) -> None:
        loop = connection.loop
        self.connection = connection
        self.queue = BodyQueue()
        self.read_limit = timeouts.get("read")
        self.limit = timeouts.get("first_byte", self.read_limit)
        self.waiting_since = monotonic()
        self._write_limit = timeouts.get("write")
        self._interval = _interval(self.read_limit, self._write_limit, self.limit)
        self.stale = False
        self._limits = limits
        self._head_only = head_only
        self._parser = ResponseParser(limits, self.queue.parts, head_only=head_only)
        # Bytes since the last body byte that were no body: chunk headers, trailers. None until the head is read.
        self._framing_size: int | None = None
        self._between_chunks = False  # and everything before has been consumed
        self._keep_alive = True
        self._call_later = loop.call_later
        self._timer = loop.call_later(self._interval, self._check_timeouts) if self._interval else None
        connection.exchange = self

    def send(self, pieces: Iterable[bytes]) -> None:
        """Write the request; the response is read meanwhile."""
        for piece in pieces:
            self.connection.write(piece)

    async def read_head(self) -> ResponseHead:
        """Wait for the final response head; raises what iterating the `ResponseStream` raises."""
        while self._parser.head is None:
            if self.queue.failure is not None:
                raise self.queue.failure
            self.queue.waiter = waiter = self.connection.loop.create_future()
            await waiter
        return self._parser.head

    def fail(self, failure: Exception) -> None:
        """End with this error, unless it has ended, and close the connection."""
        if self.queue.ended:
            return
        self.queue.failure = failure
        self._end()
        self.connection.abort()
        self.queue.wake()

    # The connection's callbacks.

    def data_received(self, data: bytes) -> None:
        parser, queue = self._parser, self.queue
        if self._between_chunks:
            if queue.taker is not None:
                self.waiting_since = monotonic()
                rest = queue.taker(data)
                if rest is None:
                    return
                data = rest
            self._between_chunks = False
        feed = parser.feed
        try:
            feed(data)
        except PARSE_ERRORS as error:
            if parser.complete:
                parser.keep_alive = False  # data behind a complete response does not spoil it
            else:
                self.fail(self._remote_error(parser.describe(error)))
        if parser.complete:
            self._finish()
        elif queue.parts:
            self._framing_size = 0
            consumer = queue.consumer
            if consumer is not None:
                parts = queue.parts
                item = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
                if consumer(item):
                    self.waiting_since = monotonic()
                    self._between_chunks = parser.is_between_chunks(data)
                    return
                parts.append(item)
            queue.size += len(data)
            if queue.size > self._limits.unread:
                self.connection.pause_reading()
        else:
            self.waiting_since = monotonic()
            if self._framing_size is not None:
                self._framing_size += len(data)
                if self._framing_size > self._limits.head:
                    self.fail(self._remote_error(f"chunk header or trailers larger than {self._limits.head} bytes"))
            elif parser.head is not None:
                self._framing_size = 0
        waiter = queue.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The peer closed (`error` None) or the socket failed; nothing more comes."""
        if error is None and self._parser.head is not None and self._parser.ends_at_eof:
            self._keep_alive = False
            self._finish()
            self.queue.wake()
            return
        self.stale = self.connection.reused and self._parser.head_size == 0
        self.fail(self._loss(error))

    def _loss(self, error: Exception | None) -> httpx2.TransportError:
        unanswered = self._parser.head_size == 0
        where = "inside the response body" if self._parser.head else "inside the response head"
        if unanswered:
            where = "before the response"
        if error is None:
            return self._remote_error(f"connection closed {where}")
        reason = getattr(error, "strerror", None) or type(error).__name__
        if unanswered and (self.connection.write_blocked or isinstance(error, BrokenPipeError)):
            what = f"{self.connection.origin}: connection lost while the request was being sent: {reason}"
            return httpx2.WriteError(what)
        return httpx2.ReadError(f"{self.connection.origin}: connection lost {where}: {reason}")

    def _remote_error(self, what: str) -> httpx2.RemoteProtocolError:
        return httpx2.RemoteProtocolError(f"{self.connection.origin}: {what}")

    def _finish(self) -> None:
        if self._head_only and self.queue.parts:
            self.queue.parts.clear()
            self._keep_alive = False
        reusable = self._keep_alive and self._parser.keep_alive and self.connection.all_written
        self._end()
        if reusable:
            self.connection.release()
        else:
            self.connection.abort()

    def _end(self) -> None:
        self.queue.ended = True
        self._parser.close()
        if self._timer is not None:
            self._timer.cancel()

    def _check_timeouts(self) -> None:
        now = monotonic()
        stalled_since = self.connection.write_stalled_since(now)
        if stalled_since is not None:
            limit, since = self._write_limit, stalled_since
        else:
            limit, since = self.limit if self.queue.awaited else None, self.waiting_since
        left = self._interval if limit is None else since + limit - now
        origin = self.connection.origin
        if left > 0:
            self._timer = self._call_later(min(left, self._interval), self._check_timeouts)
        elif stalled_since is not None:
            self.fail(httpx2.WriteTimeout(f"{origin}: took no bytes of the request for {limit:g} seconds"))
        else:
            self.fail(httpx2.ReadTimeout(f"{origin}: sent nothing for {limit:g} seconds"))
