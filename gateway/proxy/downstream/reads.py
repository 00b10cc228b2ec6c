"""Reads from a client, and when they are parsed: in small slices before a key is known, in turn with other clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.flow_control import FlowControl

from gateway.proxy.downstream.cycle import SmallEvent
from gateway.proxy.downstream.turns import READING, turns_of

if TYPE_CHECKING:
    from gateway.proxy.downstream.protocol import BoundedProtocol

READ = 8 * 1024  # bytes of a client that may have no key: hundreds of them may have sent something in the same turn
_NOTHING = memoryview(b"")


class Reader(asyncio.BufferedProtocol):
    """The buffered protocol that the transport calls, which bounds the size of a read.

    While a slice waits for its turn nothing more is read, so that the system makes the client wait.
    """

    unparsed = _NOTHING
    _due = False  # does the next slice wait for its turn?
    _held = False  # is nothing read at present?

    def __init__(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self._transport = transport
        self._turns = turns_of(protocol.loop)
        self.flow = _Flow(self, transport)

    def feed(self, data: bytes | memoryview) -> None:
        """Parse the first slice, at once if no other client waits."""
        protocol = self._protocol
        if protocol.discards:
            protocol.drop(len(data))
            return
        if self.unparsed:  # of what was read before reading was paused
            self.unparsed = memoryview(b"".join((self.unparsed, data)))
            return
        self.unparsed, self._due = memoryview(bytes(data)), True
        if protocol.has_priority:
            self._parse()
        else:
            self._turns.run(self._parse)
        if self.unparsed:
            self.hold()

    def hurry(self) -> None:
        """Give the pending slices priority."""
        if self._due:
            self._protocol.loop.call_soon(self._parse)

    def hold(self) -> None:
        self._held = True
        self._transport.pause_reading()

    def continue_reading(self) -> None:
        """Parse what was read, each slice in a turn of its own; then read on."""
        if self._due or self.flow.read_paused or self._transport.is_closing():
            return
        if self.unparsed:
            self._due = True
            if self._protocol.has_priority:
                self._protocol.loop.call_soon(self._parse)
            else:
                self._turns.add(self._parse)
        elif self._held:
            self._held = False
            self._turns.charge(READING)
            self._transport.resume_reading()

    def _parse(self) -> None:
        if not self._due:
            return  # it was in a hurry
        self._due = False
        if self.unparsed and not (self.flow.read_paused or self._transport.is_closing()):
            # What is empty would keep the whole request for as long as its answer runs.
            self.unparsed = self._protocol.parse_slice(self.unparsed) or _NOTHING
            self.continue_reading()

    # -- what the transport calls --------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._turns.buffer if self._protocol.has_priority else self._turns.buffer[:READ]

    def buffer_updated(self, nbytes: int) -> None:
        self.feed(self._turns.buffer[:nbytes])

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        self.unparsed = _NOTHING


class _Flow(FlowControl):
    """Reading continues with what was read and is not yet parsed."""

    def __init__(self, reader: Reader, transport: asyncio.Transport) -> None:
        self._transport, self._reader = transport, reader
        self.read_paused = self.write_paused = False
        self._is_writable_event = SmallEvent()
        self._is_writable_event._value = True

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._reader.hold()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._reader.continue_reading()
