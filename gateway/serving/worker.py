"""One of several worker processes: takes connections and configurations from its supervisor.

    python -m gateway.serving.worker CONTROL CONNECTIONS

Both are file descriptors of sockets: messages come over the first, accepted connections over the second. When the
supervisor is gone the worker finishes what runs and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys

import uvloop

from gateway.app import NotAdopted, Portcullis
from gateway.observe.log import RequestLog
from gateway.serving.channel import (
    ADMIN,
    Adopt,
    Adopted,
    Closed,
    Drain,
    Ping,
    Ready,
    Start,
    frame,
    receive,
    receive_blocking,
)
from gateway.serving.logs import log_servers_to
from gateway.serving.servers import Servers

CUT_OFF = 3  # exit status of a worker that could not wait for all its answers
TAKEN_AT_ONCE = 16  # connections taken over before anything else has its turn


class Worker:
    def __init__(self, start: Start, control: socket.socket, connections: socket.socket) -> None:
        self._portcullis = Portcullis(start.config, RequestLog(start.log_style), scratch=start.scratch, slot=start.slot)
        self._servers = Servers(self._portcullis.gateway, self._portcullis.public, self._portcullis.admin)
        self._control = control
        self._connections = connections
        self._taking: set[asyncio.Task[None]] = set()
        self._at_once = asyncio.Event()

    async def run(self) -> bool:
        """Serve until told to drain, or until the supervisor is gone; did every answer come to its end?"""
        loop = asyncio.get_running_loop()
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        await self._servers.start([], [])
        self._connections.setblocking(False)
        loop.add_reader(self._connections.fileno(), self._take)
        drained = asyncio.Event()
        # A terminal sends these to all processes of its group; the supervisor decides what they mean.
        for name in (signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(name, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, drained.set)
        self._send(Ready())
        listening = asyncio.create_task(self._listen(reader, drained))
        await drained.wait()
        whole = await self._servers.stop(self._portcullis.drain_timeout, self._at_once)
        loop.remove_reader(self._connections.fileno())
        listening.cancel()
        return whole

    async def _listen(self, reader: asyncio.StreamReader, drained: asyncio.Event) -> None:
        orders = 0
        while True:
            message = await receive(reader)
            if isinstance(message, Adopt):
                try:
                    await self._portcullis.adopt(message.config)
                    self._send(Adopted())
                except NotAdopted as error:
                    self._send(Adopted(str(error)))
                except Exception as error:
                    self._send(Adopted(f"internal error: {type(error).__name__}"))
            elif isinstance(message, Ping):
                self._send(Ping())
            elif message is None or isinstance(message, Drain):
                # A SIGTERM to all processes of the group is no second order.
                orders += message is not None
                if orders > 1:
                    self._at_once.set()
                drained.set()
                if message is None:
                    return

    def _take(self) -> None:
        for _ in range(TAKEN_AT_ONCE):
            try:
                kind, descriptors, _, _ = socket.recv_fds(self._connections, 1, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                kind, descriptors = b"", []
            if not kind and not descriptors:
                asyncio.get_running_loop().remove_reader(self._connections.fileno())
                return
            if not descriptors:
                self._lost()  # the system had no descriptor left for it
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                task = self._servers.take(connection, admin=kind == ADMIN, on_lost=self._lost)
                self._taking.add(task)
                task.add_done_callback(self._taking.discard)

    def _lost(self) -> None:
        self._send(Closed())

    def _send(self, message: Ready | Adopted | Closed | Ping) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(frame(message))


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    connections = socket.socket(fileno=int(sys.argv[2]))
    start = receive_blocking(control)
    if not isinstance(start, Start):
        return 1
    log_servers_to(RequestLog(start.log_style))

    async def work() -> bool:
        worker = Worker(start, control, connections)
        # What was loaded so far lives as long as the process; the collector need not go through it again and again.
        gc.collect()
        gc.freeze()
        return await worker.run()

    return 0 if uvloop.run(work()) else CUT_OFF


if __name__ == "__main__":
    sys.exit(main())
