"""The HTTP servers of one process, public and admin: how they start, drain and stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from time import monotonic

import uvicorn

from gateway.app import Portcullis
from gateway.automata.machine import StateMachine
from gateway.proxy.downstream.protocol import BoundedProtocol
from gateway.proxy.server import server_config
from gateway.serving.logs import quiet_cancellations

FIRST_REQUEST_TIMEOUT = 1.0  # seconds at the end for a connection on which no request has begun
CONNECT_TIMEOUT = 5.0  # seconds at the end for connections that are being taken over
POLL_INTERVAL = 0.01  # seconds


class NotStarted(Exception):
    """A server did not come up."""


class StopSignals:
    """SIGTERM and SIGINT: the first one stops in order, a second one at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.at_once = asyncio.Event()
        self._first: asyncio.Future[signal.Signals] = loop.create_future()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._on_signal, name)

    async def wait(self) -> signal.Signals:
        """Which signal came first."""
        return await self._first

    def _on_signal(self, name: signal.Signals) -> None:
        if self._first.done():
            self.at_once.set()
        else:
            self._first.set_result(name)


class _Server(uvicorn.Server):
    """Leaves signals alone: a process may have several servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Servers:
    """The public server and, if it is configured, the admin's, on connections that are accepted elsewhere."""

    def __init__(self, portcullis: Portcullis) -> None:
        self._portcullis = portcullis
        self._gateway = gateway = portcullis.state
        self._public = _Server(server_config(portcullis.public, gateway.record))
        admin = portcullis.admin
        self._admin = None if admin is None else _Server(server_config(admin, gateway.record, "off"))
        self._running: list[asyncio.Task[None]] = []
        self._connecting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises `NotStarted`."""
        # What was loaded so far lives as long as the process; the collector need not go through it again and again.
        gc.collect()
        gc.freeze()
        StateMachine.on_growth = gc.freeze
        for server in filter(None, (self._public, self._admin)):
            task = asyncio.create_task(server.serve([]))
            self._running.append(task)
            while not server.started:
                if task.done():
                    raise NotStarted(f"the server did not start: {_reason(task)}")
                await asyncio.sleep(0.005)

    def serve(self, connection: socket.socket, *, admin: bool, on_lost: Callable[[], None] = lambda: None) -> None:
        """Serve an accepted connection, which is made non-blocking. `on_lost` is called once when it is gone."""
        connection.setblocking(False)
        server = self._admin if admin and self._admin is not None else self._public
        task = asyncio.create_task(_connect(server, connection, on_lost))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def drain(self, at_once: asyncio.Event) -> bool:
        """Refuse new requests; wait for the running ones, at most `drain_timeout` seconds or until `at_once`.

        Returns whether all of them came to their end.
        """
        gateway = self._gateway
        gateway.draining = True
        deadline = monotonic() + self._portcullis.drain_timeout
        while gateway.in_flight and not at_once.is_set() and (left := deadline - monotonic()) > 0:
            gateway.idle.clear()
            waits = [asyncio.ensure_future(gateway.idle.wait()), asyncio.ensure_future(at_once.wait())]
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        return not gateway.in_flight

    async def close(self, at_once: asyncio.Event) -> None:
        """Refuse requests on the connections that have come already, and end; cut off what still runs."""
        if self._connecting:
            await asyncio.wait(self._connecting, timeout=CONNECT_TIMEOUT)
        servers = [server for server in (self._public, self._admin) if server is not None]
        # Closing a connection whose request is on its way would reset it.
        deadline = monotonic() + FIRST_REQUEST_TIMEOUT
        while any(map(_awaits_request, servers)) and not at_once.is_set() and (left := deadline - monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(at_once.wait(), min(left, POLL_INTERVAL))
        for server in servers:
            server.should_exit = True
        with quiet_cancellations():
            await asyncio.gather(*self._running, return_exceptions=True)


def _awaits_request(server: _Server) -> bool:
    """Has it connections on which no request has begun?"""
    return any(getattr(connection, "cycle", None) is None for connection in server.server_state.connections)


async def _connect(server: _Server, connection: socket.socket, on_lost: Callable[[], None]) -> None:
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
