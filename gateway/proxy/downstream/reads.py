"""How much is read of a client at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.proxy.downstream.protocol import BoundedProtocol

READ = 16 * 1024  # bytes of a client that may have no key: hundreds of them may have sent something in the same turn


class BoundedReads(asyncio.BufferedProtocol):
    """What a transport calls in place of the protocol, which would be given as much as the system has."""

    def __init__(self, protocol: BoundedProtocol, buffer: memoryview) -> None:
        self._protocol = protocol
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer if self._protocol.takes_much else self._buffer[:READ]

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
