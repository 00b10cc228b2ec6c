"""Messages between the supervisor and its workers: length-prefixed pickles between processes of one program."""

from __future__ import annotations

import asyncio
import pickle
import struct
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gateway.policy.model import Config

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a worker. `number` is its own among the workers, `runtime_dir` the directory they share."""

    config: Config
    number: int
    runtime_dir: Path
    log_style: str


@dataclass(frozen=True, slots=True)
class Reload:
    """To a worker: put this configuration in force."""

    config: Config


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """From a worker: the last `Reload` is in force, or why it is not."""

    failure: str = ""


class Signal(Enum):
    """Messages of one word."""

    DRAIN = "to a worker: finish what runs and end; a second one: end now"
    PING = "to a worker, and back from it"
    READY = "from a worker: it serves"
    CONNECTION_CLOSED = "from a worker: one of the connections that were handed to it is gone"
    DRAINED = "from a worker: nothing runs any more; it exits once the supervisor closes the connection socket"


Message = Start | Reload | ReloadResult | Signal


def encode_message(message: Message) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None when the other side is gone."""
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        message: Message = pickle.loads(await reader.readexactly(size))  # noqa: S301 - our own process's
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message
