"""The load generator: opens the streams and keeps what arrives, each piece with the moment it arrived.

Nothing is parsed while the clock runs: on two cores the load generator must cost little, and every microsecond it
spends on one piece is a delay it would measure on the next. `answer.py` reads the pieces afterwards.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import cast

from loadtest.dialects import DIALECTS, MODEL, Dialect

Piece = tuple[int, bytes]  # nanoseconds of the monotonic clock, bytes of the answer


class StreamClient(asyncio.Protocol):
    """One request and the pieces of its answer."""

    def __init__(self, request: bytes, finished: Callable[[], None]) -> None:
        self.pieces: list[Piece] = []
        self.transport: asyncio.Transport | None = None
        self._request = request
        self._finished = finished

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((perf_counter_ns(), data))
        # The end of the chunked body, or the marker before it; an end cut in two is noticed by the deadline instead.
        if data.endswith(b"\r\n0\r\n\r\n") or data == b"0\r\n\r\n":
            self._done()

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()

    def _done(self) -> None:
        if self.transport:
            self.transport.close()
            self.transport = None
            self._finished()


async def drive(
    port: int,
    streams: Sequence[int],
    *,
    ramp: float,
    deadline: float,
    dialect: Dialect = DIALECTS["chat"],
    probes: Sequence[tuple[float, Callable[[], None]]] = (),
) -> list[list[Piece]]:
    """Open these streams over `ramp` seconds; return the pieces of each when all have ended or at the deadline.

    `probes`: functions to call so many seconds after the first stream was opened. Times are in seconds.
    Raises `OSError` if the target refuses a connection.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    ended = asyncio.Event()
    left = len(streams)

    def finished() -> None:
        nonlocal left
        left -= 1
        if not left:
            ended.set()

    for delay, probe in probes:
        loop.call_at(began + delay, probe)
    clients = [StreamClient(request(stream, dialect), finished) for stream in streams]
    for number, client in enumerate(clients):
        await asyncio.sleep(began + ramp * number / len(clients) - loop.time())
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    try:
        async with asyncio.timeout_at(began + deadline):
            await ended.wait()
    except TimeoutError:
        for client in clients:
            if client.transport:
                client.transport.abort()
    return [client.pieces for client in clients]


def request(stream: int, dialect: Dialect) -> bytes:
    """A request for a stream; the number in the prompt tells the upstream which script to send."""
    body = json.dumps({"model": MODEL, "stream": True, **dialect.prompt(f"stream {stream}")}).encode()
    return (
        b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (dialect.path.encode(), len(body), body)
    )
