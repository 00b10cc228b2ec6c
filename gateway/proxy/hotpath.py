"""The hot path of a stream: a read is guarded and written on in its own callback, without a task or a queue."""

from __future__ import annotations

import asyncio
import logging
import sys
from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter
from typing import Any

from starlette.types import Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.guard.answer import StreamAnswer
from gateway.guard.bytes_path import READ_PATH, ReadPath
from gateway.guard.commands import Command
from gateway.guard.findings import Histogram
from gateway.http1 import ResponseStream
from gateway.proxy.asgi import ESCAPE_SIZE, SMALL_READ, UNREAD_SIZE, VALUE_SIZE, scan_size

# bytes; an ordinary event fits
HOT_READ = SMALL_READ


class BodyWriter:
    """Writes body to a chunked response that has begun, as long as the client keeps up.

    What `send` does for that is a coroutine, a message and a dozen branches a chunk; this is the one write they end
    in. It relies on uvicorn's internals, which `hot_path_problem` tries out.
    """

    __slots__ = ("cycle", "flow", "send")

    def __init__(self, cycle: Any) -> None:
        self.cycle, self.flow, self.send = cycle, cycle.flow, cycle.transport.write

    @classmethod
    def of(cls, send: Send) -> BodyWriter | None:
        """None where the server is not uvicorn, or the response not chunked."""
        cycle = getattr(send, "__self__", None)
        return cls(cycle) if isinstance(cycle, RequestResponseCycle) and cycle.chunked_encoding else None

    @property
    def blocked(self) -> bool:
        """Has the client not read what was written, so that only `send`, which waits for it, may be used?"""
        return bool(self.flow.write_paused)

    def write(self, body: bytes) -> None:
        """`body` must not be empty: that would end the response."""
        if not self.cycle.disconnected:
            self.send(b"%x\r\n%b\r\n" % (len(body), body))


class HotPath:
    """Guards what `source` reads and writes it on, in the callback of the read, while reads are small and the client
    keeps up; whatever else happens is left to the relay's own loop. Reads of more than `at_once` bytes are not taken,
    nor, where a usual event has more, contents of more than so many characters.
    """

    def __init__(
        self,
        source: ResponseStream,
        answer: StreamAnswer,
        writer: BodyWriter,
        perform: Callable[[list[Command]], bytes],
        overhead: Histogram,
        at_once: int,
    ) -> None:
        self._source = source
        self._answer = answer
        self._writer = writer
        self._perform = perform
        self._overhead = overhead
        self._at_once = at_once
        self._most = at_once if at_once < HOT_READ else sys.maxsize
        self.last = b""  # what ends the answer; the relay writes it, when everything else is done
        self._failure: Exception | None = None
        self._reads: ReadPath | None = None
        if READ_PATH is not None and at_once >= HOT_READ:
            cycle, flow, weights = writer.cycle, writer.flow, (HOT_READ, at_once, ESCAPE_SIZE, VALUE_SIZE)
            self._reads = READ_PATH(perf_counter, writer.send, cycle, flow, overhead, *weights)

    @property
    def blocked(self) -> bool:
        """Has the client stopped reading?"""
        return self._writer.blocked

    async def run(self) -> None:
        """Returns when the relay must continue by itself. Raises what performing the guard's commands raised."""
        if not self._writer.blocked:
            reads = self._reads
            if reads is not None:
                reads.events = self._answer.path
            await self._source.pump(self._on_data, None if reads is None else reads.feed)
        if self._failure is not None:
            raise self._failure

    def _on_data(self, data: bytes) -> bool:
        """Written without calls where there could be some: each costs what a tenth of the scan does."""
        answer, writer, reads = self._answer, self._writer, self._reads
        failure = None if reads is None else reads.failure
        if failure is None and (writer.flow.write_paused or (len(data) > HOT_READ and scan_size(data) > self._at_once)):
            return False
        try:
            arrived = perf_counter()
            taken = answer.repeat(data, arrived, self._most) if failure is None else answer.fail_closed(failure)
            if taken is None:
                if len(data) > self._at_once or answer.unread * UNREAD_SIZE > self._at_once:
                    return False
                taken = answer.feed_events(data, arrived)
            body = self._perform(taken) if isinstance(taken, list) else taken
            spent, overhead = perf_counter() - arrived, self._overhead
            overhead.counts[bisect_left(overhead.bounds, spent)] += 1
            overhead.total += spent
            if answer.done:
                self.last = body
            elif body and not writer.cycle.disconnected:
                writer.send(b"%x\r\n%b\r\n" % (len(body), body))
            if reads is not None:
                reads.events = answer.path
        except Exception as error:
            self._failure = error
        if answer.done or self._failure is not None or writer.flow.write_paused:
            self._source.halt()
        return True


class _Wire(asyncio.Transport):
    """Keeps the last write, and sends nothing."""

    written = b""

    def write(self, data: Any) -> None:
        self.written = bytes(data)

    def close(self) -> None:
        pass


def hot_path_problem() -> str | None:
    """Why this uvicorn cannot be written to directly; None if it can.

    A response is sent to no one: `BodyWriter` must write the same bytes as `send` does.
    """
    wire, problem = _Wire(), None

    async def answer(send: Any) -> None:
        nonlocal problem
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data", "more_body": True})
        expected, writer = wire.written, BodyWriter.of(send)
        if writer is None:
            problem = "its `send` is not the one that is known"
        else:
            wire.written = b""
            writer.write(b"data")
            if wire.written != expected or writer.blocked:
                problem = "it writes a chunk in another way"
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    try:
        cycle = RequestResponseCycle(
            scope={"type": "http", "method": "POST", "http_version": "1.1", "path": "/", "headers": []},  # type: ignore[typeddict-item]
            transport=wire,
            flow=FlowControl(wire),
            logger=logging.getLogger("uvicorn.error"),
            access_logger=logging.getLogger("uvicorn.access"),
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=lambda: None,
        )
        answer(cycle.send).send(None)
    except StopIteration:
        return problem
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "its `send` waits"
