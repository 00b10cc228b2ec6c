"""One HTTP/1.1 request and the response being read from a connection.

A socket read goes `Connection.data_received` → `ResponseStream.data_received` → the httptools parser, whose body
callback appends to a list; then one future wakes the consumer, who takes everything queued as one item, or the consumer
has lent a function (`pump`) that takes it on the spot. No read has a task, timer or lock of its own: that is what keeps
it cheap. A `ResponseStream` lives for one exchange, a `Connection`
for as many as keep-alive allows; whatever goes wrong ends in `ResponseStream._fail`, which closes the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Self

import httptools
import httpx

from gateway.http1.connection import Connection


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bytes. `head` bounds the response heads of one exchange, interim ones included, and what frames the body between
    two of its bytes, `headers` their lines; above `unread` bytes of queued body the socket is not read."""

    head: int = 64 * 1024
    headers: int = 256
    unread: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """`headers` as they came, in order; `http_version` is like `b"HTTP/1.1"`."""

    status: int
    reason: bytes
    http_version: bytes
    headers: list[tuple[bytes, bytes]]


class _SurplusData(Exception):
    """Bytes behind the end of the response; stops the parser."""


class _TooManyHeaders(Exception):
    """Stops the parser: each header costs many times its own length."""


class ResponseStream(httpx.AsyncByteStream):
    """The body of one response, as it comes off the wire (content-encoding undecoded), for one consumer.

    Iterating gives everything that has arrived since the last item as one `bytes`, never empty. Raises
    `httpx.ReadTimeout`, `httpx.WriteTimeout`, `httpx.ReadError`, `httpx.WriteError`, `httpx.RemoteProtocolError` after
    what arrived before the failure has been taken, `httpx.StreamClosed` after `aclose`.
    """

    def __init__(
        self, connection: Connection, request: httpx.Request, limits: StreamLimits, timeouts: Mapping[str, float | None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.head: ResponseHead | None = None
        self.stale = False  # lost before the response's first byte on a connection that had been idle
        self._connection = connection
        self._request = request
        self._limits = limits
        self._create_future = loop.create_future
        self._call_later = loop.call_later

        self._parts: list[bytes] = []
        # The parser calls list.append itself: no Python frame for a chunk.
        self.on_body = self._parts.append
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._framing_size = 0  # bytes since the last body byte that were no body: chunk headers, trailers
        self._unread_size = 0
        self._ends_at_eof = False
        self._keep_alive = True
        self._complete = False
        self._ended = False
        self._failure: Exception | None = None

        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], bool] | None = None
        self._waiting_since = monotonic()
        self._sender: asyncio.Task[None] | None = None
        self._read_timeout = timeouts.get("read")
        self._write_timeout = timeouts.get("write")
        self._read_limit = timeouts.get("first_byte", self._read_timeout)
        intervals = [t for t in (self._read_timeout, self._write_timeout, self._read_limit) if t is not None]
        # One timer a stream, not one a read: it looks how long the present wait has lasted, and arms itself again.
        self._interval = max(min(intervals), 0.001) if intervals else None
        self._timer = None if self._interval is None else self._call_later(self._interval, self._check_timeouts)
        connection.exchange = self

    # The request goes out.

    def send(self, pieces: Iterable[bytes], rest: AsyncGenerator[bytes, None] | None, *, keep_alive: bool) -> None:
        """Write `pieces` now, and `rest` as it comes, beside the reading of the response."""
        self._keep_alive = keep_alive
        for piece in pieces:
            self._connection.write(piece)
        if rest is not None and not self._ended:
            self._sender = asyncio.create_task(self._send_rest(rest))

    async def _send_rest(self, rest: AsyncGenerator[bytes, None]) -> None:
        try:
            async with contextlib.aclosing(rest):
                async for piece in rest:
                    self._connection.write(piece)
                    await self._connection.drain()
        except Exception as error:
            # The caller's own stream failed: whoever waits for the response gets that error.
            self._sender = None
            self._fail(error)
        else:
            self._sender = None
            self.write_resumed()

    def write_resumed(self) -> None:
        self._waiting_since = monotonic()  # the wait for the response begins when the request has gone out

    # The parser's callbacks; `on_body` is set in the constructor.

    def on_message_begin(self) -> None:
        if self._complete:
            raise _SurplusData
        self._reason = b""
        self._headers = []

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # else a trailer, of which nobody may make a header
            self._headers.append((name, value.rstrip(b" \t")))
            if len(self._headers) > self._limits.headers:
                raise _TooManyHeaders

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        if status < 200:
            return
        self._keep_alive = self._keep_alive and parser.should_keep_alive()
        version = b"HTTP/" + parser.get_http_version().encode("ascii")
        self.head = ResponseHead(status, self._reason, version, self._headers)
        # The parser does not know the request's method; every other response without a body it completes by itself.
        self._complete = self._request.method == "HEAD"
        self._ends_at_eof = not _is_framed(self._headers)

    def on_message_complete(self) -> None:
        self._complete = self.head is not None

    # The socket's side.

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        assert parser is not None
        in_body = self.head is not None
        try:
            if in_body:
                parser.feed_data(data)
            else:
                self._feed_head(parser, data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._on_malformed(error)
        if self._complete:
            self._finish()
        elif self._parts:
            self._framing_size = 0
            if self._take is not None and self._taken(self._take):
                return
            self._unread_size += len(data)
            if self._unread_size > self._limits.unread:
                self._connection.pause_reading()
        else:
            self._on_framing(len(data) if in_body else 0)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _taken(self, take: Callable[[bytes], bool]) -> bool:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if take(data):
            self._waiting_since = monotonic()
            return True
        parts.append(data)
        return False

    def _feed_head(self, parser: httptools.HttpResponseParser, data: bytes) -> None:
        room = self._limits.head - self._head_size
        self._head_size += len(data)
        parser.feed_data(data[:room])
        if len(data) <= room:
            return
        if self.head is not None:
            parser.feed_data(data[room:])
        else:
            self._fail(self._remote_error(f"response head larger than {self._limits.head} bytes"))

    def _on_framing(self, size: int) -> None:
        self._waiting_since = monotonic()
        self._framing_size += size
        if self._framing_size > self._limits.head:
            self._fail(self._remote_error(f"chunk header or trailers larger than {self._limits.head} bytes"))

    def _on_malformed(self, error: Exception) -> None:
        if self._complete:
            self._keep_alive = False  # what follows a whole response is not this one's fault
        elif isinstance(error, httptools.HttpParserUpgrade):
            self._fail(self._remote_error("response switches protocols, which was not asked for"))
        elif isinstance(error.__context__, _TooManyHeaders):
            self._fail(self._remote_error(f"response head of more than {self._limits.headers} headers"))
        else:
            self._fail(self._remote_error(f"malformed response ({error})"))

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self.head is not None and self._ends_at_eof:
            self._keep_alive = False
            self._finish()
            self._wake()
            return
        self.stale = self._connection.reused and self._head_size == 0
        self._fail(self._loss(error))

    def _loss(self, error: Exception | None) -> httpx.TransportError:
        where = "inside the response body" if self.head else "inside the response head"
        if self._head_size == 0:
            where = "before the response"
        if error is None:
            return self._remote_error(f"connection closed {where}")
        reason = getattr(error, "strerror", None) or type(error).__name__
        unsent = self._sender is not None or self._connection.write_blocked
        if self._head_size == 0 and (unsent or isinstance(error, BrokenPipeError)):
            what = f"{self._connection.origin}: connection lost while the request was being sent: {reason}"
            return httpx.WriteError(what, request=self._request)
        return httpx.ReadError(f"{self._connection.origin}: connection lost {where}: {reason}", request=self._request)

    def _remote_error(self, what: str) -> httpx.RemoteProtocolError:
        return httpx.RemoteProtocolError(f"{self._connection.origin}: {what}", request=self._request)

    def _finish(self) -> None:
        if self._request.method == "HEAD" and self._parts:
            self._parts.clear()
            self._keep_alive = False
        reusable = self._keep_alive and self._sender is None and self._connection.all_written
        self._end()
        if reusable:
            self._connection.release()
        else:
            self._connection.abort()

    def _fail(self, failure: Exception) -> None:
        if self._ended:
            return
        self._failure = failure
        self._end()
        self._connection.abort()
        self._wake()

    def _end(self) -> None:
        self._ended = True
        self._parser = None  # parser and stream refer to each other
        if self._timer is not None:
            self._timer.cancel()
        if self._sender is not None:
            self._sender.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_timeouts(self) -> None:
        assert self._interval is not None
        now = monotonic()
        stalled_since = self._connection.write_stalled_since(now)
        waiting = self._sender is None and self._waiter is not None and not self._waiter.done()
        if stalled_since is not None:
            limit, since = self._write_timeout, stalled_since
        else:
            limit, since = self._read_limit if waiting else None, self._waiting_since
        left = self._interval if limit is None else since + limit - now
        if left > 0:
            self._timer = self._call_later(min(left, self._interval), self._check_timeouts)
        elif stalled_since is not None:
            what = f"{self._connection.origin}: took no bytes of the request for {limit:g} seconds"
            self._fail(httpx.WriteTimeout(what, request=self._request))
        else:
            what = f"{self._connection.origin}: sent nothing for {limit:g} seconds"
            self._fail(httpx.ReadTimeout(what, request=self._request))

    # The consumer's side.

    async def read_head(self) -> ResponseHead:
        """Wait for the final response head; raises what iterating raises."""
        while self.head is None:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._create_future()
            await self._waiter
        return self.head

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        parts = self._parts
        while not parts:
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            self._waiting_since = monotonic()
            self._waiter = waiter = self._create_future()
            await waiter
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._read_limit = self._read_timeout
        self._unread_size = 0
        # An item takes everything queued, so the low-water mark is the empty queue.
        if self._connection.reading_paused and not self._ended:
            self._connection.resume_reading()
        return data

    async def pump(self, take: Callable[[bytes], bool]) -> None:
        """Give every item to `take` in the very turn of the loop in which it arrives, without waking anybody.

        Returns at the end of the response, however it came, after `halt`, or when `take` has returned False for an
        item; iterating goes on from there, with that item. `take` must not raise, nor wait.
        """
        if self._parts or self._ended:
            return
        self._take = take
        self._waiting_since = monotonic()
        self._waiter = waiter = self._create_future()
        try:
            await waiter
        finally:
            self._take = None

    def halt(self) -> None:
        """No more items for the function that `pump` was given."""
        self._take = None
        self._wake()

    async def aclose(self) -> None:
        """Give the response up: before its end the socket is closed at once, later only what is queued is dropped."""
        self.abort()

    def abort(self) -> None:
        """What `aclose` does, without being awaited."""
        self._parts.clear()
        self._fail(httpx.StreamClosed())


def _is_framed(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the end of the body can be told from the end of the connection."""
    codings = b""
    for name, value in headers:
        name = name.lower()
        if name == b"content-length":
            return True
        if name == b"transfer-encoding":
            codings = value
    return codings.rpartition(b",")[2].strip().lower() == b"chunked"
