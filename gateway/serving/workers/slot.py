"""A worker's place under its supervisor, and the process that fills it at the moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from time import monotonic

from gateway.policy.model import Config
from gateway.serving.workers.ipc import Message, frame
from gateway.serving.workers.spawn import Births, Child


@dataclass
class Slot:
    """`open` counts the connections that were handed to the worker and are not gone. It is `ready` while it is handed
    some, and `done` when it would rather not be: it answers nothing any more but that the gateway is stopping."""

    number: int
    process: Child | None = None  # None: there is none that was not found dead
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

    async def start(self, config: Config, births: Births) -> asyncio.StreamReader:
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
            self.process = await births.worker(their_control, their_connections)
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
        if self.process is not None:
            self.process.kill()
