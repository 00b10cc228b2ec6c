"""The servers of one process: the public one and, if there is one, the admin's. They start, drain and stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from time import monotonic

import uvicorn
from fastapi import FastAPI

from gateway.proxy.downstream.protocol import BoundedProtocol
from gateway.proxy.server import server_config
from gateway.proxy.state import AppState
from gateway.serving.logs import cuts_unsaid

HEARING = 1.0  # seconds for a connection on which nothing was asked yet; its client has just come
LOOK_EVERY = 0.01  # seconds


class NotStarted(Exception):
    """A server did not come up."""


class Stop:
    """SIGTERM and SIGINT: the first one stops in order, a second one at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.at_once = asyncio.Event()
        self._first: asyncio.Future[signal.Signals] = loop.create_future()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._came, name)

    async def wait(self) -> signal.Signals:
        """Which signal came first."""
        return await self._first

    def _came(self, name: signal.Signals) -> None:
        if self._first.done():
            self.at_once.set()
        else:
            self._first.set_result(name)


class _Server(uvicorn.Server):
    """Signals are not a server's business here: a process may have several servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Servers:
    """Serves `public`, and `admin` if it is given, on connections that are accepted elsewhere."""

    def __init__(self, gateway: AppState, public: FastAPI, admin: FastAPI | None) -> None:
        self._gateway = gateway
        self._public = _Server(server_config(public, gateway.record))
        self._admin = None if admin is None else _Server(server_config(admin, gateway.record, "off"))
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises `NotStarted`."""
        await self._start(self._public)
        if self._admin is not None:
            await self._start(self._admin)

    async def _start(self, server: _Server) -> None:
        task = asyncio.create_task(server.serve([]))
        self._running.append(task)
        while not server.started:
            if task.done():
                raise NotStarted(f"the server did not start: {_reason(task)}")
            await asyncio.sleep(0.005)

    def take(self, connection: socket.socket, *, admin: bool, on_lost: Callable[[], None]) -> asyncio.Task[None]:
        """Serve a connection that was accepted elsewhere. `on_lost` is called once when it is gone."""
        server = self._admin if admin and self._admin is not None else self._public
        return asyncio.create_task(_take(server, connection, on_lost))

    async def drain(self, patience: float, at_once: asyncio.Event) -> bool:
        """Refuse new requests, and give the running ones `patience` seconds or until `at_once`.

        Returns whether all of them came to their end.
        """
        gateway = self._gateway
        gateway.draining = True
        deadline = monotonic() + patience
        while gateway.in_flight and not at_once.is_set() and (left := deadline - monotonic()) > 0:
            gateway.idle.clear()
            waits = [asyncio.ensure_future(gateway.idle.wait()), asyncio.ensure_future(at_once.wait())]
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        return not gateway.in_flight

    async def close(self, at_once: asyncio.Event) -> None:
        """Refuse what is asked by those who have come already, and end; cut off what still runs."""
        servers = [server for server in (self._public, self._admin) if server is not None]
        # Closing a connection whose request is on its way would reset it.
        deadline = monotonic() + HEARING
        while any(map(_is_expecting, servers)) and not at_once.is_set() and (left := deadline - monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(at_once.wait(), min(left, LOOK_EVERY))
        for server in servers:
            server.should_exit = True
        with cuts_unsaid():
            await asyncio.gather(*self._running, return_exceptions=True)


def _is_expecting(server: _Server) -> bool:
    """Has it connections on which nothing was asked yet?"""
    return any(getattr(connection, "cycle", None) is None for connection in server.server_state.connections)


async def _take(server: _Server, connection: socket.socket, on_lost: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def protocol() -> BoundedProtocol:
        made = BoundedProtocol(
            config=server.config, server_state=server.server_state, app_state=server.lifespan.state, _loop=loop
        )
        made.on_lost = on_lost
        return made

    try:
        await loop.connect_accepted_socket(protocol, connection)
    except OSError:
        connection.close()
        on_lost()


def _reason(task: asyncio.Task[None]) -> str:
    error = None if task.cancelled() else task.exception()
    return "it ended" if error is None else type(error).__name__
