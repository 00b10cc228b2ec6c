"""What the relay needs of ASGI and the event loop: a way to the server, work aside, word of a client that leaves."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.censor.compile import CompiledPolicy
from gateway.policy.model import Direction

SERVER_SEND = "portcullis.send"  # in an ASGI scope: the server's own `send`
ASIDE = 32 * 1024  # bytes; scanning them for words takes some 2 ms
# How much longer it may take for patterns and detectors, where text is full of what they want, and for constraints.
PATTERN_WEIGHT = 16

Result = TypeVar("Result")


class ServerSend:
    """ASGI middleware for the outside: lets a relay write to the server itself.

    The framework wraps `send` several times to learn whether a response has begun. A relay answers every failure by
    itself, and each wrapper costs a coroutine for every chunk.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SERVER_SEND] = send
        await self._app(scope, receive, send)


class BodyWriter:
    """Writes body to a chunked response that has begun, as long as the client keeps up.

    What `send` does for that is a coroutine, a message and a dozen questions a chunk; this is the one write they end
    in. It knows uvicorn from the inside; `of` finds out whether there is one.
    """

    __slots__ = ("_cycle", "_flow", "_write")

    def __init__(self, cycle: Any) -> None:
        self._cycle, self._flow, self._write = cycle, cycle.flow, cycle.transport.write

    @classmethod
    def of(cls, send: Send) -> BodyWriter | None:
        """None where the server is not uvicorn, or the response not chunked."""
        cycle = getattr(send, "__self__", None)
        return cls(cycle) if isinstance(cycle, RequestResponseCycle) and cycle.chunked_encoding else None

    @property
    def blocked(self) -> bool:
        """Has the client not taken what was written, so that only `send`, which waits for it, may be used?"""
        return bool(self._flow.write_paused)

    def write(self, body: bytes) -> None:
        """`body` must not be empty: that would end the response."""
        if not self._cycle.disconnected:
            self._write(b"%x\r\n%b\r\n" % (len(body), body))


def abort(send: Send) -> None:
    """Cut the client off, with all that it has not read.

    ASGI has no word for it, and a server that closes in order first waits until everything is read. uvicorn's `send` is
    a method of the object that has the connection.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is None or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Without this the kernel would keep what it has for the client for many minutes. The option belongs to the
        # connection, whichever descriptor it is set through; uvloop's own socket object may not take it.
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def weight(policy: CompiledPolicy, direction: Direction) -> int:
    """How many bytes each byte of such text counts for when it is asked whether to scan it aside."""
    programs = (program for (way, _), program in policy.programs.items() if way is direction)
    constrained = direction is Direction.OUTPUT and policy.policy.constrain is not None
    return PATTERN_WEIGHT if constrained or any(program.patterns for program in programs) else 1


async def aside(size: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """Do pure work on `size` bytes, weighed (`weight`); in a thread where it would keep every other stream waiting.

    Cancelled, it still waits for the thread to end: nobody else may touch the guard before.
    """
    if size <= ASIDE:
        return work(*arguments)
    done = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


_background: set[asyncio.Task[Any]] = set()  # the loop itself only holds tasks weakly


def in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Let something be done whoever waits for it or not. It must be bounded in time and not raise."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def departure(receive: Receive) -> None:
    """Returns when the client has left. The request's body was read before, so nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
