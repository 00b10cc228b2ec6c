"""What a supervisor and its workers say to each other: length-prefixed pickles between processes of one program."""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from gateway.policy.model import Config

_LENGTH = struct.Struct("!I")
CLIENT, ADMIN = b"c", b"a"  # beside a connection that is handed over: to which server it belongs


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a worker. `slot` is its place among the workers, `scratch` the directory they share."""

    config: Config
    slot: int
    scratch: Path
    log_style: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """To a worker: put this configuration in force."""

    config: Config


@dataclass(frozen=True, slots=True)
class Drain:
    """To a worker: finish what runs and end. A second one: end now."""


@dataclass(frozen=True, slots=True)
class Ping:
    """To a worker, and from it: still there."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker: it serves."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """From a worker: the last `Adopt` is in force, or why it is not."""

    failure: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """From a worker: one of the connections that were handed to it is gone."""


@dataclass(frozen=True, slots=True)
class Done:
    """From a worker: nothing runs any more. It ends when it has been told, by the end of the socket over which
    connections come, that it has been handed the last one."""


Message = Start | Adopt | Drain | Ping | Ready | Adopted | Closed | Done


def frame(message: Message) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None when the other side is gone."""
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        message: Message = pickle.loads(await reader.readexactly(size))  # noqa: S301 - our own process's
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message


def receive_blocking(connection: socket.socket) -> Message | None:
    """Like `receive`, before there is an event loop."""
    with connection.makefile("rb", buffering=0) as file:
        header = _read(file.read, _LENGTH.size)
        if header is None or (data := _read(file.read, _LENGTH.unpack(header)[0])) is None:
            return None
    message: Message = pickle.loads(data)  # noqa: S301 - our own process's
    return message


def _read(read, size: int) -> bytes | None:  # type: ignore[no-untyped-def]
    data = b""
    while len(data) < size:
        more = read(size - len(data))
        if not more:
            return None
        data += more
    return data
