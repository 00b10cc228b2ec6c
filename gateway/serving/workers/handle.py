"""The supervisor's handle on one of its workers: its process, its sockets and what it reported last."""

from __future__ import annotations

import asyncio
import contextlib
import os
import site
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import gateway
from gateway.policy.model import Config
from gateway.serving.workers.ipc import Message, encode_message


@dataclass
class WorkerHandle:
    """A worker by its number. The handle stays when the process dies and another one takes its place.

    `ready`: new connections are handed to it. `drained`: it serves nothing any more but refusals, so others are
    preferred. `catching_up`: it started with a configuration that a reload has replaced meanwhile.
    """

    number: int
    process: asyncio.subprocess.Process | None = None  # None before the start and after a death was noticed
    writer: asyncio.StreamWriter | None = None
    connections: socket.socket | None = None
    open: int = 0  # connections handed to it and not closed
    ready: bool = False
    drained: bool = False
    catching_up: bool = False
    started_at: float = 0.0
    last_message_at: float = 0.0
    deaths: int = 0
    config: Config | None = None  # what it was sent last
    reload_result: asyncio.Future[str] | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)  # set when it first serves, or first dies

    async def start(self, config: Config) -> asyncio.StreamReader:
        """Start a new process, which `config` is meant for; returns the reader of its messages. Raises OSError."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            control, their_control = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(their_control)
            connections, their_connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(connections)
            theirs.enter_context(their_connections)
            self.process = await _spawn(their_control, their_connections)
            ours.pop_all()
        connections.setblocking(False)
        reader, self.writer = await asyncio.open_connection(sock=control)
        self.connections, self.open, self.drained = connections, 0, False
        self.started_at = self.last_message_at = monotonic()
        self.config, self.catching_up = config, False
        return reader

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def send(self, message: Message) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(encode_message(message))

    def hand_over(self, kind: bytes, connection: socket.socket) -> bool:
        """Whether the worker takes the connection; if not, it has too many to take over now, or is gone."""
        assert self.connections is not None
        try:
            socket.send_fds(self.connections, [kind], [connection.fileno()])
        except BlockingIOError:
            return False  # it has not taken those before
        except OSError:
            self.ready = False
            return False
        self.open += 1
        return True

    def end_handover(self) -> None:
        """Hand over no more connections; the worker sees the end of the socket behind the last one."""
        self.ready = False
        if self.connections is not None:
            with contextlib.suppress(OSError):  # it may have ended already
                self.connections.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):  # it has ended just now
                self.process.kill()


async def _spawn(*sockets: socket.socket) -> asyncio.subprocess.Process:
    """A worker process that inherits its ends of the two sockets. Raises OSError."""
    descriptors = [end.fileno() for end in sockets]
    # -P: nothing is imported from the working directory.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.serving.workers.worker", *map(str, descriptors)),
        pass_fds=descriptors,
        stdin=asyncio.subprocess.DEVNULL,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """This process's environment; a worker finds the same `gateway` package in it, installed or not."""
    here = str(Path(gateway.__file__).parent.parent)
    if here in (*site.getsitepackages(), site.getusersitepackages()):
        # Found anyway; and in front, packages that are installed there would take the place of Python's own modules.
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
