"""One of several worker processes: takes connections and configurations from its supervisor.

    python -m gateway.serving.workers.worker CONTROL CONNECTIONS

Both are file descriptors of sockets: messages come over the first, accepted connections over the second. When the
supervisor is gone the worker finishes what runs and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys

import uvloop

from gateway.app import NotAdopted, Portcullis
from gateway.observe.log import RequestLog
from gateway.serving.logs import log_servers_to
from gateway.serving.servers import Servers
from gateway.serving.workers.acceptor import RETRY, NotAccepted
from gateway.serving.workers.ipc import (
    ADMIN,
    Adopt,
    Adopted,
    Closed,
    Done,
    Drain,
    Ping,
    Ready,
    Start,
    frame,
    receive,
    receive_blocking,
)

CUT_OFF = 3  # exit status of a worker that could not wait for all its answers
TAKEN_AT_ONCE = 16  # connections taken over before anything else has its turn
LAST_CONNECTION = 5.0  # seconds in which the supervisor says that it has handed over the last one


class Worker:
    def __init__(self, start: Start, control: socket.socket, connections: socket.socket) -> None:
        log = RequestLog(start.log_style)
        self._portcullis = Portcullis(start.config, log, scratch=start.scratch, slot=start.slot)
        self._servers = Servers(self._portcullis.state, self._portcullis.public, self._portcullis.admin)
        self._control = control
        self._connections = connections
        self._not_accepted = NotAccepted(
            self._portcullis.state.record, lambda text: log.event("server", level="warning", message=text)
        )
        self._taking: set[asyncio.Task[None]] = set()
        self._took_last = asyncio.Event()
        self._at_once = asyncio.Event()

    async def run(self) -> bool:
        """Serve until told to drain, or until the supervisor is gone; did every answer come to its end?"""
        loop = asyncio.get_running_loop()
        reader, self._writer = await asyncio.open_connection(sock=self._control)
        await self._servers.start()
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
        whole = await self._servers.drain(self._portcullis.drain_timeout, self._at_once)
        self._send(Done())
        await self._take_the_last()
        await self._servers.close(self._at_once)
        listening.cancel()
        return whole

    async def _take_the_last(self) -> None:
        """Until then a connection may be on its way here, and has nobody else."""
        waits = [asyncio.create_task(event.wait()) for event in (self._took_last, self._at_once)]
        await asyncio.wait(waits, timeout=LAST_CONNECTION, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._took_last.set()
        asyncio.get_running_loop().remove_reader(self._connections.fileno())
        if self._taking:
            await asyncio.wait(self._taking, timeout=LAST_CONNECTION)

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
                # One that comes without room for its descriptor is lost; there, it waits.
                os.close(os.dup(self._connections.fileno()))
            except OSError as error:
                self._not_accepted(error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._connections.fileno())
                loop.call_later(RETRY, self._take_again)
                return
            try:
                kind, descriptors, _, _ = socket.recv_fds(self._connections, 1, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                kind, descriptors = b"", []
            if not kind and not descriptors:
                asyncio.get_running_loop().remove_reader(self._connections.fileno())
                self._took_last.set()
                return
            if not descriptors:
                self._not_accepted(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
                self._lost()
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                task = self._servers.take(connection, admin=kind == ADMIN, on_lost=self._lost)
                self._taking.add(task)
                task.add_done_callback(self._taking.discard)

    def _take_again(self) -> None:
        if not self._took_last.is_set():
            asyncio.get_running_loop().add_reader(self._connections.fileno(), self._take)

    def _lost(self) -> None:
        self._send(Closed())

    def _send(self, message: Ready | Adopted | Closed | Done | Ping) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(frame(message))


def main(control_descriptor: int, connections_descriptor: int) -> int:
    """A worker from its first message to its end; returns the status to exit with."""
    control = socket.socket(fileno=control_descriptor)
    connections = socket.socket(fileno=connections_descriptor)
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
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
