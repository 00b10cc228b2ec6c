"""A real worker, under a supervisor that the test plays."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.app import LIMITS, METRICS
from gateway.config import load
from gateway.serving.acceptor import CLIENT
from gateway.serving.workers.ipc import (
    Message,
    Signal,
    Start,
    encode_message,
    read_message,
)
from tests.support.gateway import TIMEOUT
from tests.support.pages import ROOT
from tests.support.served import KEY, configuration, write

REQUEST = (
    f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n"
    "content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
).encode()


@dataclass
class Playing:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connections: socket.socket

    def tell(self, message: Message) -> None:
        self.writer.write(encode_message(message))

    async def hear(self, wanted: Signal) -> None:
        async with asyncio.timeout(TIMEOUT):
            while (message := await read_message(self.reader)) is not wanted:
                assert message is not None, "the worker has ended"

    def hand_over(self) -> socket.socket:
        """The client's end of a new connection."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname(), TIMEOUT)
            with listener.accept()[0] as accepted:
                socket.send_fds(self.connections, [CLIENT], [accepted.fileno()])
        return client


@asynccontextmanager
async def supervising(path: Path) -> AsyncIterator[Playing]:
    write(path, configuration("http://127.0.0.1:9/v1"))
    runtime_dir = path.parent / "runtime_dir"
    for name in (METRICS, LIMITS):
        (runtime_dir / name).mkdir(parents=True)
    control, theirs = socket.socketpair()
    connections, their_connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, their_connections:
        descriptors = theirs.fileno(), their_connections.fileno()
        command = [sys.executable, "-m", "gateway.serving.workers.worker", *map(str, descriptors)]
        process = await asyncio.create_subprocess_exec(*command, pass_fds=descriptors, cwd=ROOT)
    reader, writer = await asyncio.open_connection(sock=control)
    playing = Playing(process, reader, writer, connections)
    try:
        playing.tell(Start(load(path), 0, runtime_dir, "json"))
        await playing.hear(Signal.READY)
        yield playing
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        connections.close()
        writer.close()


async def answer_to(client: socket.socket) -> bytes:
    """Everything until the connection is closed."""
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        return await asyncio.wait_for(reader.read(), TIMEOUT)
    finally:
        writer.close()


async def test_who_is_handed_over_after_the_last_answer_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    async with supervising(tmp_path / "portcullis.yaml") as playing:
        playing.tell(Signal.DRAIN)
        await playing.hear(Signal.DRAINED)
        # As when it was on its way while the worker said so.
        with playing.hand_over() as client:
            client.sendall(REQUEST)
            # Its request may come even later than the end of the hand-overs; it has begun by then.
            with playing.hand_over() as slow:
                slow.sendall(REQUEST[:40])
                playing.connections.shutdown(socket.SHUT_WR)
                answer = await answer_to(client)
                slow.sendall(REQUEST[40:])
                late = await answer_to(slow)
        for refused in (answer, late):
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in refused
            assert b'"overloaded"' in refused
        await playing.hear(Signal.CONNECTION_CLOSED)
        assert await asyncio.wait_for(playing.process.wait(), TIMEOUT) == 0


async def test_a_body_that_comes_later_than_the_refusal_does_not_reset_the_connection(tmp_path: Path) -> None:
    async with supervising(tmp_path / "portcullis.yaml") as playing:
        playing.tell(Signal.DRAIN)
        await playing.hear(Signal.DRAINED)
        head = REQUEST.removesuffix(b"2\r\n\r\n{}") + b"3000000\r\n\r\n"
        with playing.hand_over() as client:
            sending = asyncio.to_thread(client.sendall, head + b" " * 3_000_000)
            await asyncio.wait_for(sending, TIMEOUT)
            assert (await answer_to(client)).startswith(b"HTTP/1.1 503 ")


async def test_a_worker_does_not_wait_for_a_supervisor_that_says_no_more(tmp_path: Path) -> None:
    async with supervising(tmp_path / "portcullis.yaml") as playing:
        playing.tell(Signal.DRAIN)
        await playing.hear(Signal.DRAINED)
        assert await asyncio.wait_for(playing.process.wait(), TIMEOUT) == 0
