"""The two ends of an adversarial run: an upstream that answers with what it is given, a client that counts bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from loadtest.bounds.cases import Case, Shape

TIMEOUT = 300.0  # seconds for one exchange; seven detectors may take 25 us a character of 4 MiB
_OK = b"HTTP/1.1 200 OK\r\n"
_HEADS = {
    Shape.EVENT: _OK + b"content-type: text/event-stream\r\n",
    Shape.EVENT_PLAIN: _OK + b"content-type: text/event-stream\r\n",
    Shape.ANSWER: _OK + b"content-type: application/json\r\n",
    Shape.ANSWER_PLAIN: _OK + b"content-type: application/json\r\n",
    Shape.ERROR: b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n",
}
_HARMLESS = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}'
_STREAMED = frozenset({Shape.EVENT, Shape.ANSWER})


@dataclass(slots=True)
class Exchange:
    """What one case cost on the wire: bytes of content that the gateway read and wrote, and the answer's status."""

    status: int = 0
    read: int = 0
    written: int = 0
    complete: bool = False


class HostileUpstream:
    """Answers every request with the `case` in force."""

    def __init__(self) -> None:
        self.case: Case | None = None
        self.sent = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
            await self._write(writer, head.startswith(b"POST"))
        writer.close()

    async def _write(self, writer: asyncio.StreamWriter, asked: bool) -> None:
        case = self.case
        if case is None or case.shape is Shape.REQUEST or not asked:
            head, body, piece = _HEADS[Shape.ANSWER_PLAIN], _HARMLESS, 0
        else:
            head, body, piece = _HEADS[case.shape], _body(case), case.piece
        writer.write(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), piece or len(body)):
            part = body[start : start + (piece or len(body))]
            self.sent += len(part)
            writer.write(part)
            await writer.drain()


def _body(case: Case) -> bytes:
    text = case.json()
    if case.shape in (Shape.EVENT, Shape.EVENT_PLAIN):
        return (b"data: " + text + b"\n\n") * case.repeats + b"data: [DONE]\n\n"
    return text


def _request(case: Case) -> bytes:
    if case.shape is Shape.REQUEST:
        return case.json()
    streamed = case.shape in _STREAMED
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": streamed}).encode()


async def exchange(case: Case, port: int, upstream: HostileUpstream) -> Exchange:
    """One request through the gateway; `read` counts the hostile bytes only. Raises `TimeoutError`, `OSError`."""
    found = Exchange()
    upstream.case, before = case, upstream.sent
    body = _request(case)
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        with contextlib.suppress(ConnectionError):
            writer.write(head + b"connection: close\r\nx-policy: p\r\ncontent-length: %d\r\n\r\n" % len(body))
            for start in range(0, len(body), case.piece or len(body)):
                writer.write(body[start : start + (case.piece or len(body))])
                await writer.drain()
            line = await reader.readline()
            found.status = int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0
            while data := await reader.read(1 << 18):
                found.written += len(data)
            found.complete = True
        writer.close()
    found.read = len(body) if case.shape is Shape.REQUEST else upstream.sent - before
    return found
