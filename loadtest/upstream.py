"""A scripted upstream: chunks of the endpoints of `dialects`, sent at a steady pace.

Every stream sends a chunk that begins the answer, then one token each 1/rate seconds, and a chunk that ends it. Its
phase is random (seeded by its number), so that streams do not fall into step. Those of chat are stamped with the moment
they left. The stamp is `created`: microseconds of the system's monotonic clock, which all processes of one machine
share. It is an integer below 2^53, as any JSON library keeps it, and it is part of the format, so a proxy passes it on
whether it copies bytes or writes every event again. Events of the other endpoints have no such field.

This is a loop over epoll and not an asyncio server for one reason: an event loop's timers tick in milliseconds, and
20,000 tokens a second would leave in bursts of twenty. `select` waits in microseconds.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import re
import select
import socket
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter_ns

from loadtest.dialects import MODEL, Chunk, Dialect, of_path
from loadtest.scenario import Scenario
from loadtest.script import tokens

SENT, LATE = 0, 1  # places in the shared counters: chunks sent; of them, later than LATE_US
LATE_US = 5_000
COUNTERS = 2

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_MODEL_LIST = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
_MODELS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_MODEL_LIST) + _MODEL_LIST
)
_BODY_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_STREAM_NUMBER = re.compile(rb"stream (\d+)")
_RETRY_US = 1_000
_MAX_REQUEST = 1 << 20


@dataclass(slots=True, eq=False)
class Connection:
    """One accepted socket and, while it answers, its place in the script."""

    socket: socket.socket
    request: bytes = b""
    script: list[Chunk] = field(default_factory=list)
    place: int = 0
    due: int = 0
    backlog: bytes = b""
    closed: bool = False


def serve(listener: socket.socket, scenario: Scenario, counters: MutableSequence[int], cores: frozenset[int]) -> None:
    """Answer on `listener` until the parent process is gone; count what is sent in `counters`."""
    if cores:
        os.sched_setaffinity(0, cores)
    Upstream(listener, scenario, counters).run(os.getppid())


class Upstream:
    """All connections and the heap of what is due next, in microseconds."""

    def __init__(self, listener: socket.socket, scenario: Scenario, counters: MutableSequence[int]) -> None:
        self._listener = listener
        self._scenario = scenario
        self._counters = counters
        self._period = 1_000_000 // scenario.rate
        self._scripts: dict[tuple[str, tuple[str, ...]], list[Chunk]] = {}
        self._connections: dict[int, Connection] = {}
        self._heap: list[tuple[int, int, Connection]] = []
        self._epoll = select.epoll()
        listener.setblocking(False)
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def run(self, parent: int) -> None:
        """Send what is due, then wait for the next due time or for a request."""
        next_check = monotonic() + 1
        while True:
            self._send_due()
            wait = max(0.0, (self._heap[0][0] - perf_counter_ns() // 1000) / 1e6) if self._heap else 1.0
            # An epoll waits in milliseconds, but is itself a file that select can wait for in microseconds.
            if select.select([self._epoll], [], [], min(wait, 1.0))[0]:
                for descriptor, _ in self._epoll.poll(0):
                    self._ready(descriptor)
            if monotonic() > next_check:
                if os.getppid() != parent:
                    return
                next_check = monotonic() + 1

    def _ready(self, descriptor: int) -> None:
        if descriptor != self._listener.fileno():
            self._read(self._connections[descriptor])
            return
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[accepted.fileno()] = Connection(accepted)
        self._epoll.register(accepted.fileno(), select.EPOLLIN)

    def _read(self, connection: Connection) -> None:
        try:
            received = connection.socket.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            received = b""
        if not received or len(connection.request) > _MAX_REQUEST:
            self._close(connection)
            return
        connection.request += received
        head, separator, body = connection.request.partition(b"\r\n\r\n")
        length = _BODY_LENGTH.search(head)
        if not separator or (length and len(body) < int(length[1])):
            return
        connection.request = b""
        if head.startswith(b"GET "):
            self._write(connection, _MODELS)
            return
        stream = _STREAM_NUMBER.search(body)
        dialect = of_path(head.split(b" ", 2)[1].decode())
        self._start_stream(connection, dialect, int(stream[1]) if stream else 0)

    def _start_stream(self, connection: Connection, dialect: Dialect, stream: int) -> None:
        deltas = tokens(self._scenario, stream)
        if (dialect.path, deltas) not in self._scripts:
            self._scripts[dialect.path, deltas] = dialect.script(deltas)
        connection.script = self._scripts[dialect.path, deltas]
        connection.place = 0
        phase = random.Random(stream).randrange(self._period)
        connection.due = perf_counter_ns() // 1000 + phase
        self._write(connection, _HEAD)
        heapq.heappush(self._heap, (connection.due, id(connection), connection))

    def _send_due(self) -> None:
        heap = self._heap
        # One pass at most over what was open: a pacer that is late must still read requests.
        for _ in range(len(heap)):
            now = perf_counter_ns() // 1000
            if heap[0][0] > now:
                return
            due, _, connection = heapq.heappop(heap)
            following = self._send_chunk(connection, now, due)
            if following:
                heapq.heappush(heap, (following, id(connection), connection))
            elif not heap:
                return

    def _send_chunk(self, connection: Connection, now: int, due: int) -> int:
        """Send the next chunk and return when the one after it is due, or 0 if the answer is complete or broken."""
        if connection.closed:
            return 0
        if connection.place == len(connection.script):
            self._write(connection, b"")
            return now + _RETRY_US if connection.backlog else 0
        before, after = connection.script[connection.place]
        payload = before if after is None else b"%s%d%s" % (before, now, after)
        connection.place += 1
        last = connection.place == len(connection.script)
        self._write(connection, b"%x\r\n%s\r\n%s" % (len(payload), payload, b"0\r\n\r\n" if last else b""))
        self._counters[SENT] += 1
        self._counters[LATE] += now - due > LATE_US
        if last:
            return now + _RETRY_US if connection.backlog else 0
        # From the first due time on, not from now: the pace does not drift.
        connection.due += self._period
        return connection.due

    def _write(self, connection: Connection, data: bytes) -> None:
        data = connection.backlog + data
        try:
            connection.backlog = data[connection.socket.send(data) :] if data else b""
        except BlockingIOError:
            connection.backlog = data
        except ConnectionError:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        if not connection.closed:
            connection.closed = True
            self._epoll.unregister(connection.socket.fileno())
            del self._connections[connection.socket.fileno()]
            connection.socket.close()
