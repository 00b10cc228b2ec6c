"""A worker process: serves the connections and configurations that its supervisor sends.

    python -m gateway.serving.workers.worker CONTROL CONNECTIONS

Both are file descriptors of sockets: messages come over the first, accepted connections over the second. When the
supervisor is gone the worker finishes what runs and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from functools import partial

import uvloop

from gateway.app import NotAdopted, Portcullis
from gateway.observe.log import RequestLog
from gateway.policy.model import Config
from gateway.serving.acceptor import ADMIN, RETRY_DELAY, AcceptFailureReporter
from gateway.serving.servers import Servers, redirect_server_logs
from gateway.serving.workers.ipc import (
    Message,
    Reload,
    ReloadResult,
    Signal,
    Start,
    encode_message,
    read_message,
)

NOT_DRAINED = 3  # exit status of a worker that cut off answers
RECEIVE_BATCH = 4  # connections received before anything else has its turn
HANDOVER_TIMEOUT = 5.0  # seconds for the supervisor to close the connection socket after `Drained`


class ServingWorker:
    """One process's servers under a supervisor, from `Start` to the end of both sockets."""

    def __init__(self, start: Start, log: RequestLog, writer: asyncio.StreamWriter, connections: socket.socket) -> None:
        self._portcullis = Portcullis(start.config, log, runtime_dir=start.runtime_dir, slot=start.number)
        self._servers = Servers(self._portcullis)
        self._connections = connections
        self._on_failure = AcceptFailureReporter(self._portcullis.state.record, log)
        self._drain_ordered = asyncio.Event()
        self._handover_ended = asyncio.Event()
        self._at_once = asyncio.Event()
        self._writer = writer
        self._on_lost = partial(self._send, Signal.CONNECTION_CLOSED)

    async def run(self, reader: asyncio.StreamReader) -> bool:
        """Serve until drained, or until the supervisor is gone; returns whether every answer came to its end."""
        loop = asyncio.get_running_loop()
        await self._servers.start()
        self._connections.setblocking(False)
        self._resume()
        # A terminal sends these to all processes of its group; the supervisor decides what they mean.
        for name in (signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(name, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, self._drain_ordered.set)
        self._send(Signal.READY)
        reading = asyncio.create_task(self._read_messages(reader))
        await self._drain_ordered.wait()
        complete = await self._servers.drain(self._at_once)
        self._send(Signal.DRAINED)
        await self._wait_for_last_connection()
        await self._servers.close(self._at_once)
        reading.cancel()
        return complete

    async def _wait_for_last_connection(self) -> None:
        """A connection may be on its way here, and no other worker has it."""
        waits = [asyncio.create_task(event.wait()) for event in (self._handover_ended, self._at_once)]
        await asyncio.wait(waits, timeout=HANDOVER_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self._handover_ended.set()
        self._pause()

    async def _read_messages(self, reader: asyncio.StreamReader) -> None:
        ordered_before = False
        while (message := await read_message(reader)) is not None:
            match message:
                case Reload(config):
                    self._send(ReloadResult(await self._reload(config)))
                case Signal.PING:
                    self._send(Signal.PING)
                case Signal.DRAIN:
                    # Counted here: a SIGTERM to all processes of the group is no second order.
                    if ordered_before:
                        self._at_once.set()
                    ordered_before = True
                    self._drain_ordered.set()
        self._drain_ordered.set()

    async def _reload(self, config: Config) -> str:
        """Why the configuration could not be put in force; "" if it was."""
        try:
            await self._portcullis.adopt(config)
        except NotAdopted as error:
            return str(error)
        except Exception as error:
            return f"internal error: {type(error).__name__}"
        return ""

    def _receive(self) -> None:
        for _ in range(RECEIVE_BATCH):
            try:
                # A connection received without a free descriptor is lost; on the socket, it waits.
                os.close(os.dup(self._connections.fileno()))
            except OSError as error:
                self._on_failure(error)
                self._pause()
                asyncio.get_running_loop().call_later(RETRY_DELAY, self._resume)
                return
            try:
                kind, descriptors, _, _ = socket.recv_fds(self._connections, 1, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                kind, descriptors = b"", []
            if not kind and not descriptors:
                self._handover_ended.set()
                self._pause()
                return
            if not descriptors:
                self._on_failure(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
                self._on_lost()
            for descriptor in descriptors:
                self._servers.serve(socket.socket(fileno=descriptor), admin=kind == ADMIN, on_lost=self._on_lost)

    def _pause(self) -> None:
        asyncio.get_running_loop().remove_reader(self._connections.fileno())

    def _resume(self) -> None:
        if not self._handover_ended.is_set():
            asyncio.get_running_loop().add_reader(self._connections.fileno(), self._receive)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(encode_message(message))


async def work(control: socket.socket, connections: socket.socket) -> int:
    """A worker from its first message to its end; returns its exit status."""
    reader, writer = await asyncio.open_connection(sock=control)
    start = await read_message(reader)
    if not isinstance(start, Start):
        return 1
    log = RequestLog(start.log_style)
    redirect_server_logs(log)
    return 0 if await ServingWorker(start, log, writer, connections).run(reader) else NOT_DRAINED


if __name__ == "__main__":
    sys.exit(uvloop.run(work(*(socket.socket(fileno=int(argument)) for argument in sys.argv[1:3]))))
