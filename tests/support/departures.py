"""A client that reads little, and an answer without end."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx2

from tests.support.gateway import RunningGateway
from tests.support.upstream import (
    Call,
    chunk,
    delta,
    event,
    stream_head,
)


async def sent(gateway: RunningGateway, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request on a connection of its own, in a socket that takes little before it is read."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", httpx2.URL(gateway.url).port or 0))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    payload = json.dumps(body).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(payload) + payload
    )
    await writer.drain()
    return reader, writer


class Torrent:
    """An endless answer that counts the bytes it could get rid of."""

    def __init__(self) -> None:
        self.written = 0
        self.stalled = asyncio.Event()

    async def play(self, call: Call) -> None:
        writer = call.conversation.writer
        writer.transport.set_write_buffer_limits(high=1024)
        piece = chunk(event(delta("x" * 8000)))
        writer.write(stream_head())
        while True:
            writer.write(piece)
            self.written += len(piece)
            try:
                await asyncio.wait_for(writer.drain(), 1)
            except TimeoutError:
                self.stalled.set()
                await writer.drain()
