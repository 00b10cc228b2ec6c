"""An HTTP server on a real socket whose every byte a test decides, and a way to run a test on both event loops.

A script is a coroutine function that gets a `Conversation`, one for each accepted connection. What it does not catch of
a connection that ends under it counts as the end of the script; any other exception fails the test.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

CERTS = Path(__file__).parent / "certs"
TEST_DEADLINE = 60  # seconds, generous: it ends a test that hangs


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    raw_head: bytes


class Conversation:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[Received] = []
        self.client_left = asyncio.Event()

    async def request(self) -> Received:
        """The next request's head; `asyncio.IncompleteReadError` where the client closes instead."""
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        self.requests.append(Received(method, target, headers, raw))
        return self.requests[-1]

    async def body(self) -> bytes:
        """The body of the request whose head was read last."""
        headers = self.requests[-1].headers
        if "transfer-encoding" not in headers:
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return body

    async def send(self, *pieces: bytes) -> None:
        """Write each piece by itself, the loop turning in between."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def send_bytewise(self, data: bytes) -> None:
        await self.send(*(data[i : i + 1] for i in range(len(data))))

    async def until_client_leaves(self) -> None:
        """Read on until the client closes or resets."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.client_left.set()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Conversation], Awaitable[None]]


class ScriptedServer:
    def __init__(self, script: Script, scheme: str) -> None:
        self.conversations: list[Conversation] = []
        self.failures: list[Exception] = []
        self.port = 0
        self.scheme = scheme
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"

    @property
    def requests(self) -> list[Received]:
        return [request for conversation in self.conversations for request in conversation.requests]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        conversation = Conversation(reader, writer)
        self.conversations.append(conversation)
        try:
            await self._script(conversation)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception as error:
            self.failures.append(error)
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def stop(self) -> None:
        for conversation in self.conversations:
            conversation.writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    script: Script, *, host: str = "127.0.0.1", certificate: str | None = None
) -> AsyncIterator[ScriptedServer]:
    """A server that runs `script` for each connection; `certificate` names a pair in `certs/`."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTS / f"{certificate}.pem", CERTS / f"{certificate}.key")
    server = ScriptedServer(script, "http" if context is None else "https")
    listener = await asyncio.start_server(server.accept, host, 0, ssl=context, backlog=1024)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await server.stop()
    assert not server.failures, server.failures


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test under asyncio and under uvloop; it must leave no complaint with the loop and no open socket."""

    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **arguments: Any) -> None:
        complaints: list[dict[str, Any]] = []
        gc.collect()
        gc.freeze()  # what other tests have left behind need not be gone through by each of the collections below
        sockets_before = _open_sockets()
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
            runner.run(asyncio.wait_for(test(**arguments), TEST_DEADLINE))
            gc.collect()
        gc.collect()
        # In debug mode asyncio also reports a handshake that the listening side saw fail, which tests provoke.
        complaints = [context for context in complaints if "incoming connection" not in context["message"]]
        assert not complaints, complaints
        assert _open_sockets() == sockets_before

    functools.update_wrapper(run, test)
    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would take the signature from there
    own = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([own, *inspect.signature(test).parameters.values()])  # type: ignore[attr-defined]
    factories = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("loop_factory", factories, ids=["asyncio", "uvloop"])(run)


def _open_sockets() -> set[str]:
    """The sockets this process has open, where the system lists them."""
    descriptors = Path("/proc/self/fd")
    links = set()
    for descriptor in descriptors.iterdir() if descriptors.exists() else ():
        with suppress(OSError):  # the listing's own descriptor is gone by now
            links.add(str(descriptor.readlink()))
    return {link for link in links if link.startswith("socket:")}
