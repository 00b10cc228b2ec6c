"""uvicorn's HTTP protocol with bounds on what a client can make it keep, and with the framing that RFC 9112 requires.

Everything here happens before a key is looked at. A connection costs at most a head and what the endpoint takes of a
body: requests that are sent ahead of their turn are bounded in count and bytes, trailers are dropped, and once a
request is refused or answered unread nothing more of the connection is parsed. All connections together get a share
of each turn of the event loop (`turns`); only what the application reads, which it does behind the key, does not wait.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial

import httptools

from gateway.proxy.asgi import REFUSAL
from gateway.proxy.downstream.client_watch import ClientWatch, set_option
from gateway.proxy.downstream.cycle import RequestCycle
from gateway.proxy.downstream.framing import fault_of, invalid, target_of
from gateway.proxy.downstream.lean import LeanProtocol
from gateway.proxy.downstream.reads import Reader
from gateway.proxy.downstream.repeated import MAX_REPEATED, RepeatedHead, RepeatedHeads
from gateway.proxy.downstream.turns import STARTING, turns_of
from gateway.proxy.errors import HTTPFailure, client_error, internal_error

MAX_HEAD = 64 * 1024  # bytes of request line and headers; also of trailers, and of what else is between two body bytes
MAX_HEADERS = 100  # lines
MAX_AHEAD = 4  # requests that wait for their turn on one connection
MAX_AHEAD_BYTES = 64 * 1024  # of these requests
HEAD_TIMEOUT = 30.0  # seconds in which a head must be complete, from the connection or from its first byte on
SEND_TIMEOUT = 30.0  # seconds in which a client must take something of an answer, where no `send_timeout` is set
LEFTOVER = 16 * 1024 * 1024  # bytes that are read and dropped behind the last request that is answered
LINGER = 5.0  # seconds for them, after the answer
DROP_EVERY = 0.025  # seconds between two reads of them: whoever floods the connection must not keep others waiting
# bytes in the kernel that are not yet sent. It would take some 3 MB for each client that does not read.
UNSENT = 64 * 1024
# Bytes that are parsed in one turn of the loop. The first ones are few: a request that is refused by its head costs no
# more. So much may be counted too little where one thing follows another.
HEAD_SLICE = 4 * 1024
CHUNKED_SLICE = 16 * 1024  # may hold thousands of chunks
BODY_SLICE = 64 * 1024  # of a body with a length, which costs next to nothing to parse

_NOTED = frozenset({b"expect", b"transfer-encoding"})  # headers that change how the rest is read
_NOTSENT_LOWAT = 25  # TCP_NOTSENT_LOWAT, which Python's socket module does not name before 3.12


class _Stop(Exception):
    """Raised through the parser; why is in the protocol's `_fault`."""


class BoundedProtocol(LeanProtocol):
    """See the module. A head that never ends or never comes is cut off without an answer."""

    send_timeout = SEND_TIMEOUT
    stalled = False  # was the client cut off because it took nothing?
    on_lost: Callable[[], None] | None = None  # called once when the connection is gone

    heads = RepeatedHeads()  # of all connections
    discards = False  # what comes is read and dropped, not parsed
    _running: RequestCycle | None = None  # what is being answered
    _in_head = True
    _in_body = False
    _head_again = False  # the parser is fed a head whose request has begun
    _since = 0  # bytes since the last head, body byte or message ended
    _ahead = 0  # bytes that came while an earlier request was being answered
    _ahead_counted = 0  # of these, bytes of requests that are complete
    _fault: HTTPFailure | None = None
    _body_slice = BODY_SLICE
    _leftover = LEFTOVER
    _lingers = False
    _client_watch: ClientWatch | None = None  # made when something waits for the client
    _head_timer: asyncio.TimerHandle | None = None
    _end_timer: asyncio.TimerHandle | None = None

    # -- bytes in ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.connections.add(self)
        self.transport = transport
        self._turns = turns_of(self.loop)
        self.reader = Reader(self, transport)
        self.flow = self.reader.flow
        transport.set_protocol(self.reader)
        self._waiting: list[RequestCycle] = []  # requests that came ahead of their turn; few, and almost always none
        set_option(transport, socket.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT)
        self._head_begins()

    def data_received(self, data: bytes | memoryview) -> None:
        self.reader.feed(data)

    @property
    def has_priority(self) -> bool:
        """Is the data now dropped, or read by the application, which is after the key was checked?"""
        return self.discards or (self._running is not None and self._running.is_read)

    def parse_slice(self, data: bytes | memoryview) -> memoryview:
        """Parse the beginning of `data`, which is not empty; what is left of it."""
        if self.discards:
            self.drop(len(data))
            return memoryview(b"")
        fresh = self._running is None and not (self._in_body or self._since)  # nothing of a request has come
        if fresh and (request := self.heads.find(bytes(data))) is not None:
            self._repeat(*request)
            return memoryview(b"")
        end = min(len(data), HEAD_SLICE if self._in_head else self._body_slice, MAX_HEAD - self._since)
        if end == 0:
            self._refuse(client_error(431, f"The head is larger than {MAX_HEAD} bytes.", "head_too_large"))
            return memoryview(data)
        self._since += end
        if self._running is not None and not self._running.more_body:
            self._ahead += end
        taken = self._parse(data if end == len(data) else memoryview(data)[:end])
        if self._ahead > MAX_AHEAD_BYTES:
            self._refuse()
        if fresh and taken == len(data) <= MAX_REPEATED:
            self._learn(bytes(data))
        return memoryview(data)[taken:]

    def _learn(self, data: bytes) -> None:
        """Note the head of a request, of which nothing but it has come, and all of it."""
        cycle = self._running
        if cycle is None or cycle is not self.cycle or cycle.more_body or self._in_head or not cycle.keep_alive:
            return
        if not (cycle.waiting_for_100_continue or self.parser.should_upgrade() or self.discards):
            self.heads.learn(data, bytes(cycle.body), self.scope)

    def _repeat(self, head: RepeatedHead, length: bytes, body: bytes) -> None:
        """Handle a complete request as the parser's callbacks do."""
        self._unset_keepalive_if_required()
        self._stop_head_timer()
        self._in_head = False
        self.open_scope(head.headers_with(length))
        self.scope.update(head.fields)
        self.cycle = cycle = RequestCycle(self, keep_alive=True)
        cycle.body, cycle.more_body = bytearray(body), False
        cycle.message_event.set()
        self._start(cycle)

    def drop(self, size: int) -> None:
        self._leftover -= size
        if self._leftover < 0:
            self.cut()
            return
        self.flow.pause_reading()
        self.loop.call_later(DROP_EVERY, self._turns.run, self.flow.resume_reading)

    def _parse(self, data: bytes | memoryview) -> int:
        """How many bytes were taken."""
        try:
            (self.parser or self.open_parser()).feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._ignore_offer()
            return int(offer.args[0])
        except httptools.HttpParserError as error:
            if not isinstance(error, httptools.HttpParserCallbackError) or isinstance(error.__context__, _Stop):
                self._refuse(self._fault or invalid("This is no HTTP/1.1 request."))
                return len(data)
            self.logger.error("A callback of the parser failed", exc_info=error)
            self._refuse(internal_error(), error)
        return len(data)

    def _ignore_offer(self) -> None:
        """No protocol is changed to here, and a server may ignore the offer: Java's client offers HTTP/2 with every
        request. The parser stops behind such a head; one without the offer makes it read the body."""
        framing = [pair for pair in self.headers if pair[0] in (b"content-length", b"transfer-encoding")]
        lines = b"".join(b"%b: %b\r\n" % pair for pair in framing)
        self._head_again = True
        self._parse(b"POST / HTTP/1.1\r\n%b\r\n" % lines)

    def _should_upgrade(self) -> bool:
        return False

    def on_message_begin(self) -> None:
        if self._head_again:
            return
        self._unset_keepalive_if_required()
        if self._running is not None and (not self.cycle.keep_alive or len(self._waiting) == MAX_AHEAD):
            raise _Stop
        self.url = b""
        self.open_scope([])
        self._body_slice = BODY_SLICE
        if not self._in_head:
            self._head_begins()

    def on_url(self, url: bytes) -> None:
        if not self._head_again:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer, or a head that is parsed again
        if len(self.headers) == MAX_HEADERS:
            self._fault = client_error(431, f"The head has more than {MAX_HEADERS} headers.", "head_too_large")
            raise _Stop
        name = name.lower()
        if name in _NOTED:
            self._note(name, value)
        self.headers.append((name, value))

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"transfer-encoding":
            self._body_slice = CHUNKED_SLICE
        elif value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        if self._head_again:
            self._head_again = False
            return
        version, method = self.parser.get_http_version(), self.parser.get_method()
        target = target_of(self.url)
        self._fault = fault_of(version, method, self.headers)
        if self._fault is not None or target is None:
            self._fault = self._fault or invalid("The request target is no path.")
            raise _Stop
        self.scope["path"], self.scope["raw_path"], self.scope["query_string"] = target
        self._in_head, self._in_body, self._since = False, True, 0
        self._stop_head_timer()
        self.scope["method"] = method.decode("ascii")
        self.scope["http_version"] = version
        self.cycle = RequestCycle(self, keep_alive=version != "1.0" and self.parser.should_keep_alive())
        if self._running is None:
            self._start(self.cycle)
        else:
            self._waiting.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._since = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the body comes after all
        self._in_body, self._since = False, 0
        super().on_message_complete()
        if self.cycle is not self._running:
            self.cycle.ahead = self._ahead - self._ahead_counted
            self._ahead_counted = self._ahead

    # -- requests in their order ---------------------------------------------------------------------------------------

    def _start(self, cycle: RequestCycle) -> None:
        if self.transport.is_closing():
            return
        self._running = cycle
        self._turns.charge(STARTING)
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        cycle, self._running = self._running, None
        assert cycle is not None
        cycle.body = bytearray()
        if self.transport.is_closing():
            return
        self.watch_client()
        if cycle.last:
            self._end()
            return
        self.flow.resume_reading()
        if self._waiting:
            following = self._waiting.pop(0)
            self._ahead -= following.ahead
            self._ahead_counted -= following.ahead
            self._running = following
            self._turns.run(partial(self._start, following))
            return
        self._ahead = self._ahead_counted = 0
        if not self._in_head:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _refuse(self, failure: HTTPFailure | None = None, defect: Exception | None = None) -> None:
        """Parse nothing more. What is complete is still answered; `failure` is the answer where nothing is, `defect`
        what reading the rest of a body raises."""
        self.discards = True
        self._stop_head_timer()
        self.flow.resume_reading()
        if self._running is None:
            if failure is None or not self._in_head:
                self._end()
            else:
                self._answer_with(failure)
            return
        if self.cycle is not self._running and self.cycle.more_body:
            self._waiting.pop()  # its client repeats what is not answered
            self.cycle = self._waiting[-1] if self._waiting else self._running
        self.cycle.keep_alive = False
        if self.cycle.more_body:
            self.cycle.break_off(defect)

    def _answer_with(self, failure: HTTPFailure) -> None:
        if self.scope is None or (self.cycle is not None and self.scope is self.cycle.scope):
            self.open_scope([])
        for name, value in {"method": "GET", "path": "", "raw_path": b"", "query_string": b""}.items():
            self.scope.setdefault(name, value)
        self.scope[REFUSAL] = failure
        self.cycle = RequestCycle(self, keep_alive=False)
        self._start(self.cycle)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Close, when the client has seen its answers: with bytes unread the system would reset the connection."""
        unread = self.discards or self._in_head or self._in_body or self._waiting or self.reader.unparsed
        self.discards = True
        self._waiting.clear()
        self._stop_head_timer()
        if not unread:
            self.transport.close()
            return
        self._lingers = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self._end_timer = self.loop.call_later(LINGER, self._turns.add, self.cut)

    def cut(self) -> None:
        """Cut the client off, with all that it has not read."""
        if self._running is not None:
            self._running.disconnected = True
        # Without this the kernel would keep what it has for the client for many minutes.
        set_option(self.transport, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        if self._client_watch is not None:
            self._client_watch.stop()
        self._unset_keepalive_if_required()
        self._waiting.clear()
        if self._running is not None:
            self._running.leave()
        super().connection_lost(exc)
        self.cycle = self._running = None  # type: ignore[assignment]
        if self.on_lost is not None:
            self.on_lost()

    def shutdown(self) -> None:
        if not self._lingers:
            super().shutdown()

    def _head_begins(self) -> None:
        self._in_head = True
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._running is None:
            self.transport.abort()
        else:
            self._refuse()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # -- a client that does not read -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch_client()

    def watch_client(self) -> None:
        """Cut the client off when it takes nothing of what waits for it for `send_timeout` seconds."""
        if self._client_watch is None:
            if not self.transport.get_write_buffer_size():
                return  # as it is for almost all
            self._client_watch = ClientWatch(
                self.loop, self.transport, lambda: self.send_timeout, self._is_writing, self._client_stalls
            )
        self._client_watch.start()

    def _is_writing(self) -> bool:
        return self._running is not None and not self.flow.write_paused and not self.transport.is_closing()

    def _client_stalls(self) -> None:
        self.stalled = True
        self.cut()
