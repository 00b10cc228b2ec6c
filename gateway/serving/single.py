"""The gateway in one process: signals, reload and drain around its servers."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable
from functools import partial

import uvloop

from gateway.app import Portcullis
from gateway.observe.log import RequestLog
from gateway.policy.model import Config
from gateway.serving.logs import log_servers_to
from gateway.serving.reload import Reloader, Source
from gateway.serving.servers import Servers, Stop
from gateway.serving.watch import watch
from gateway.serving.workers.acceptor import Address, NotAccepted


async def serve(
    config: Config,
    source: Source | None,
    log: RequestLog,
    listener: socket.socket,
    admin_listener: socket.socket | None,
    on_ready: Callable[[], None],
) -> signal.Signals:
    """Serve until SIGTERM or SIGINT; returns which. SIGHUP and changes of the source's files reload.

    Raises `NotStarted`.
    """
    loop = asyncio.get_running_loop()
    stop = Stop(loop)
    portcullis = Portcullis(config, log)
    servers = Servers(portcullis.state, portcullis.public, portcullis.admin)
    # What was loaded so far lives as long as the process; the collector need not go through it again and again.
    gc.collect()
    gc.freeze()
    await servers.start()
    taking: set[asyncio.Task[None]] = set()

    def take(accepted: socket.socket, *, admin: bool) -> bool:
        connection = socket.socket(fileno=accepted.detach())
        connection.setblocking(False)
        task = servers.take(connection, admin=admin, on_lost=lambda: None)
        taking.add(task)
        task.add_done_callback(taking.discard)
        return True

    not_accepted = NotAccepted(portcullis.state.record, lambda text: log.event("server", level="warning", message=text))
    addresses = [
        Address(listening, partial(take, admin=listening is admin_listener), not_accepted)
        for listening in (listener, admin_listener)
        if listening is not None
    ]
    watching: asyncio.Task[None] | None = None
    if source is not None:
        reloader = Reloader(source, portcullis.adopt, portcullis.state.record)
        loop.add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(reloader.reload()))
        if source.watched:
            watching = asyncio.create_task(watch(reloader, lambda text: log.event("watch", problem=text)))
    on_ready()
    name = await stop.wait()
    if watching is not None:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    drained = await servers.drain(portcullis.drain_timeout, stop.at_once)
    await asyncio.gather(*(address.close() for address in addresses))
    if taking:
        await asyncio.wait(taking)
    await servers.close(stop.at_once)
    log.event("stopped", drained=drained)
    return name


def run(
    config: Config,
    source: Source | None,
    log: RequestLog,
    listener: socket.socket,
    admin_listener: socket.socket | None,
    on_ready: Callable[[], None],
) -> signal.Signals:
    """`serve` in an event loop of its own."""
    log_servers_to(log)
    return uvloop.run(serve(config, source, log, listener, admin_listener, on_ready))
