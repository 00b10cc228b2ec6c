"""A worker's place under its supervisor, and the process that fills it at the moment."""

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
from gateway.serving.workers.ipc import Message, frame


@dataclass
class Slot:
    """`open` counts the connections that were handed to the worker and are not gone. It is `ready` while it is handed
    some, and `done` when it would rather not be: it answers nothing any more but that the gateway is stopping."""

    number: int
    process: asyncio.subprocess.Process | None = None  # None: there is none that was not found dead
    writer: asyncio.StreamWriter | None = None
    connections: socket.socket | None = None
    open: int = 0
    ready: bool = False
    done: bool = False
    started_at: float = 0.0
    deaths: int = 0
    config: Config | None = None  # what it was told last
    catching_up: bool = False
    heard_at: float = 0.0
    adopted: asyncio.Future[str] | None = None
    came_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, config: Config) -> asyncio.StreamReader:
        """A new process in this place, which will be told `config`; the reader is for what it has to say.

        Raises OSError.
        """
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
        self.connections, self.open, self.done = connections, 0, False
        self.started_at = self.heard_at = monotonic()
        self.config, self.catching_up = config, False
        return reader

    def send(self, message: Message) -> None:
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(frame(message))

    def hand(self, kind: bytes, connection: socket.socket) -> bool:
        """Hand a connection over; False if the worker does not take it now, or never will."""
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

    def let_go(self) -> None:
        """Hand it nothing more, and tell it so, behind the last connection."""
        self.ready = False
        if self.connections is not None:
            with contextlib.suppress(OSError):  # it may have ended already
                self.connections.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended just now
                self.process.kill()


async def _spawn(*sockets: socket.socket) -> asyncio.subprocess.Process:
    """A worker that inherits its ends of the two sockets. Raises OSError."""
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
