"""Streams beside an attack: how long a chunk takes through the gateway, from the upstream's write to the client's read.

Upstream and client are in one process, so that one clock times both ends; each chunk carries the time of its write.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from time import perf_counter

STREAMS = 5
PACE = 0.02  # seconds between two chunks of a stream
_STAMP = re.compile(rb"@([0-9.]+)@")
_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@contextlib.asynccontextmanager
async def paced_upstream(seconds: float) -> AsyncIterator[int]:
    """An upstream whose answers are streams of that length; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asked = (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            end = perf_counter() + seconds
            while asked and (now := perf_counter()) < end:
                chunk = {"id": "a", "choices": [{"index": 0, "delta": {"content": f"@{now:.6f}@ "}}]}
                writer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                await writer.drain()
                await asyncio.sleep(PACE)
            writer.write(_END)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def percentile(port: int, key: str) -> float:
    """The 99th percentile, in seconds, over all chunks of `STREAMS` streams side by side. Raises `RuntimeError` where
    one of them did not end in order."""
    delays = [delay for each in await asyncio.gather(*(_stream(port, key) for _ in range(STREAMS))) for delay in each]
    return sorted(delays)[len(delays) * 99 // 100]


async def _stream(port: int, key: str) -> list[float]:
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"a"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\n" % key.encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"content-type: application/json\r\nconnection: close\r\n")
    writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
    delays: list[float] = []
    ended = False
    async for line in reader:
        if stamp := _STAMP.search(line):
            delays.append(perf_counter() - float(stamp[1]))
        ended = ended or b"[DONE]" in line
    writer.close()
    if not (ended and delays):
        raise RuntimeError("a stream beside the attack did not end in order")
    return delays
