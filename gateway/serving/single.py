"""The gateway in one process: signals, reload and drain around its servers."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial

from gateway.app import Portcullis
from gateway.observe.log import RequestLog
from gateway.policy.model import Config
from gateway.serving.acceptor import ADMIN, AcceptFailureReporter, Acceptor
from gateway.serving.logs import redirect_server_logs
from gateway.serving.reload import ConfigSource, start_reloading
from gateway.serving.servers import Servers, StopSignals


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

    def serve_here(kind: bytes, accepted: socket.socket) -> bool:
        servers.serve(socket.socket(fileno=accepted.detach()), admin=kind == ADMIN)
        return True

    on_failure = AcceptFailureReporter(record, log)
    acceptors = [Acceptor(listener, partial(serve_here, kind), on_failure) for kind, listener in listeners]
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
