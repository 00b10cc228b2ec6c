"""A bare byte copy on uvloop: accept, connect, write whatever arrives to the other side. Nothing is looked at.

    python -m loadtest.bytecopy --port 8081 --upstream-port 8000

It is the cheapest thing a Python process can do between two sockets: the floor that the bench shows beside nginx.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One of the two connections of a pair; what arrives before the other one is up waits in `early`."""

    def __init__(self, other: Side | None = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other:
            self.transport.writelines(self.other.early)
            self.other.early.clear()

    def data_received(self, data: bytes) -> None:
        if self.other and self.other.transport:
            self.other.transport.write(data)
        else:
            self.early.append(data)

    def pause_writing(self) -> None:
        if self.other and self.other.transport:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other and self.other.transport:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other and self.other.transport:
            self.other.transport.close()


class Accepted(Side):
    """The client's side, which opens the upstream's."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__()
        self._upstream_port = upstream_port
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.ensure_future(self._connect(cast(asyncio.Transport, transport)))

    async def _connect(self, transport: asyncio.Transport) -> None:
        self.other = other = Side(self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self._upstream_port)
        except OSError:
            transport.close()


async def serve(port: int, upstream_port: int) -> None:
    """Copy between `port` and `upstream_port` until cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Accepted(upstream_port), "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bytecopy", description="Copy between two local ports.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream-port", type=int, required=True)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.upstream_port))


if __name__ == "__main__":
    main()
