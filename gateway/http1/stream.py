"""The consumer's side of a response body."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Self

import httpx2

from gateway.http1.exchange import Exchange
from gateway.http1.response import ResponseHead


class ResponseStream(httpx2.AsyncByteStream):
    """The body of one response, as it comes off the wire (content-encoding undecoded), for one consumer.

    Iterating gives everything that has arrived since the last item as one `bytes`, never empty. Raises
    `httpx2.ReadTimeout`, `httpx2.WriteTimeout`, `httpx2.ReadError`, `httpx2.WriteError`, `httpx2.RemoteProtocolError`
    after everything that arrived before the failure, `httpx2.StreamClosed` after `aclose`.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._queue = exchange.queue
        self._parts = exchange.queue.parts
        self._connection = exchange.connection
        self._create_future = exchange.connection.loop.create_future

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        queue, exchange, parts = self._queue, self._exchange, self._parts
        while not parts:
            if queue.ended:
                if queue.failure is not None:
                    raise queue.failure
                raise StopAsyncIteration
            exchange.waiting_since = monotonic()
            queue.waiter = waiter = self._create_future()
            await waiter
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        exchange.limit = exchange.read_limit
        queue.size = 0
        # An item is everything queued, so the low-water mark is the empty queue.
        if self._connection.reading_paused and not queue.ended:
            self._connection.resume_reading()
        return data

    @property
    def has_come(self) -> bool:
        """Is there an item that need not be waited for?"""
        return bool(self._parts)

    def unread(self, item: bytes) -> None:
        """Put back the item just returned, before anything else is awaited; the next one starts with it."""
        self._queue.parts.append(item)

    async def pump(
        self, consumer: Callable[[bytes], bool], taker: Callable[[bytes], bytes | None] | None = None
    ) -> None:
        """Call `consumer` with every item in the very turn of the loop in which it arrives, without waking a task.

        Returns at the end of the response or its failure, after `halt`, or when `consumer` has returned False for an
        item; iterating continues from there, with that item. `consumer` must not raise, nor wait.

        `taker` gets reads of a chunked body that begin with the line of a chunk, framing and all, where nothing that
        came before is unread. It returns what is left of them, from the line of a chunk on, None for nothing. It must
        not raise either, nor take the last chunk.
        """
        queue = self._queue
        if queue.parts or queue.ended:
            return
        queue.consumer, queue.taker = consumer, taker
        self._exchange.waiting_since = monotonic()
        queue.waiter = waiter = self._create_future()
        try:
            await waiter
        finally:
            queue.consumer = queue.taker = None

    def halt(self) -> None:
        """End `pump`; further items are queued."""
        self._queue.consumer = self._queue.taker = None
        self._queue.wake()

    async def aclose(self) -> None:
        """Close the response: before its end the socket is closed at once, later only the queue is dropped."""
        self.abort()

    def abort(self) -> None:
        """Like `aclose`, without being awaited."""
        self._queue.parts.clear()
        if not self._queue.ended:
            self._exchange.fail(httpx2.StreamClosed())


@lru_cache(256)
def _name(raw: bytes) -> str:
    return raw.decode("latin-1").lower()


class Response:
    """A response whose head has been read: what the gateway needs of `httpx2.Response`, at a tenth of its cost.

    `headers` have names in lower case; the values of one that came several times are joined by commas.
    """

    __slots__ = ("headers", "status_code", "stream")

    def __init__(self, head: ResponseHead, stream: ResponseStream) -> None:
        self.status_code = head.status
        self.stream = stream
        headers: dict[str, str] = {}
        for raw_name, raw_value in head.headers:
            name, value = _name(raw_name), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.headers = headers

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    def abort(self) -> None:
        """`aclose` without being awaited."""
        self.stream.abort()

    async def aclose(self) -> None:
        self.stream.abort()
