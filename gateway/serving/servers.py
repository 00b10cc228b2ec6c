"""The HTTP servers of one process, public and admin: how they start, drain and stop; their warnings and errors as lines
of our log; and the gateway in one process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic

from gateway.app import Portcullis, QuietServer
from gateway.automata.machine import StateMachine
from gateway.observe.log import RequestLog
from gateway.policy.model import Config
from gateway.proxy.downstream.protocol import BoundedProtocol
from gateway.proxy.server import server_config
from gateway.serving.acceptor import ADMIN, AcceptFailureReporter, Acceptor
from gateway.serving.reload import ConfigSource, start_reloading

FIRST_REQUEST_TIMEOUT = 1.0  # seconds at the end for a connection on which no request has begun
CONNECT_TIMEOUT = 5.0  # seconds at the end for connections that are being taken over
POLL_INTERVAL = 0.01  # seconds
# Objects that are made and not freed between two looks for garbage: Python's 700 are those of a few streams that run.
COLLECT_AFTER = 5000


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


class Servers:
    """The public server and, if it is configured, the admin's, on connections that are accepted elsewhere."""

    def __init__(self, portcullis: Portcullis) -> None:
        self._portcullis = portcullis
        self._gateway = gateway = portcullis.state
        self._public = QuietServer(server_config(portcullis.public, gateway.record))
        admin = portcullis.admin
        self._admin = None if admin is None else QuietServer(server_config(admin, gateway.record, "off"))
        self._running: list[asyncio.Task[None]] = []
        self._connecting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises `NotStarted`."""
        # What was loaded so far lives as long as the process; the collector need not go through it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
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


def _awaits_request(server: QuietServer) -> bool:
    """Has it connections on which no request has begun?"""
    return any(getattr(connection, "cycle", None) is None for connection in server.server_state.connections)


async def _connect(server: QuietServer, connection: socket.socket, on_lost: Callable[[], None]) -> None:
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


# -- their logs --------------------------------------------------------------------------------------------------------


class _ServerLog(logging.Handler):
    """Of an exception only its type and place: its text may quote what was scanned."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        where = None
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            where = type(error).__name__ + (f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else "")
        message = record.getMessage().strip().partition("\n")[0]
        self._log.event("server", level=record.levelname.lower(), message=message, error=where)


def redirect_server_logs(log: RequestLog) -> None:
    """Send their warnings and errors to `log`, and nowhere else."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [_ServerLog(log)]
        logger.propagate = False


@contextlib.contextmanager
def quiet_cancellations() -> Iterator[None]:
    """While servers end: cut-off requests are logged as such, so uvicorn need not log each as an exception."""
    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(_is_no_cancellation)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


# -- one process -------------------------------------------------------------------------------------------------------


async def serve(
    config: Config,
    source: ConfigSource | None,
    log: RequestLog,
    listeners: Sequence[tuple[bytes, socket.socket]],
    on_ready: Callable[[], None],
) -> signal.Signals:
    """Serve until SIGTERM or SIGINT; returns which. SIGHUP and changes of the source's files reload.

    Raises `NotStarted`.
    """
    redirect_server_logs(log)
    stop = StopSignals(asyncio.get_running_loop())
    portcullis = Portcullis(config, log)
    record = portcullis.state.record
    servers = Servers(portcullis)
    await servers.start()

    def serve_here(kind: bytes, family: int, accepted: socket.socket) -> bool:
        servers.serve(socket.socket(family, socket.SOCK_STREAM, 0, accepted.detach()), admin=kind == ADMIN)
        return True

    on_failure = AcceptFailureReporter(record, log)
    acceptors = [
        Acceptor(listener, partial(serve_here, kind, listener.family), on_failure) for kind, listener in listeners
    ]
    watching = [] if source is None else start_reloading(source, portcullis.adopt, record, log)
    on_ready()
    name = await stop.wait()
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    drained = await servers.drain(stop.at_once)
    await asyncio.gather(*(acceptor.close() for acceptor in acceptors))
    await servers.close(stop.at_once)
    log.event("stopped", drained=drained)
    return name
