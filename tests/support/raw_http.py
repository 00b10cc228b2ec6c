"""The server's protocol over a transport that only records, and an application that answers with what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.observe.facts import Fact, RequestFinished
from gateway.proxy.downstream.protocol import BoundedProtocol
from gateway.proxy.server import server_config

TURNS = 20  # of the event loop; more than any answer here takes


class RecordingTransport(asyncio.Transport):
    """`untaken`: bytes that are reported as not yet taken by the client."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.end = ""  # eof, closed or aborted
        self.untaken = 0
        self.pauses: list[bool] = []  # True for a pause of reading, False for its end

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.end = "eof"

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def is_closing(self) -> bool:
        return self.end in ("closed", "aborted")

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def pause_reading(self) -> None:
        self.pauses.append(True)

    def resume_reading(self) -> None:
        self.pauses.append(False)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class Connection:
    """One connection to the server. `asked` are the requests that reached the application."""

    transport: RecordingTransport = field(default_factory=RecordingTransport)
    facts: list[Fact] = field(default_factory=list)
    asked: list[Scope] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)  # answers wait for it

    def __post_init__(self) -> None:
        self.go.set()
        config = server_config(self._application, self.facts.append, "off")
        config.load()
        self.protocol = BoundedProtocol(config, ServerState(), {}, asyncio.get_running_loop())
        self.protocol.connection_made(self.transport)

    async def _application(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope)
        request = Request(scope, receive)
        await self.go.wait()
        try:
            body = b"" if scope["path"] == "/unread" else await request.body()
            seen = {
                "path": scope["path"],
                "headers": [name for name, _ in request.headers.items()],
                "body": body.decode(),
            }
            await JSONResponse(seen)(scope, receive, send)
        except ClientDisconnect:
            await JSONResponse({}, 400)(scope, receive, send)

    async def send(self, *reads: bytes) -> None:
        """Each of `reads` is what one read of the socket gives."""
        for data in reads:
            if not self.transport.is_closing():
                self.protocol.data_received(data)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def close(self) -> None:
        self.protocol.connection_lost(None)

    @property
    def answers(self) -> list[Answer]:
        return list(answers_in(bytes(self.transport.written)))

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]

    @property
    def refused(self) -> list[tuple[str, int]]:
        """Path and status of what was recorded without reaching the application."""
        return [(fact.path, fact.status) for fact in self.facts if isinstance(fact, RequestFinished)]


def answers_in(written: bytes) -> Iterable[Answer]:
    """Answers with a Content-Length, which all are here."""
    while written:
        head, _, written = written.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        size = int(headers["content-length"])
        yield Answer(int(status.split()[1]), headers, json.loads(written[:size]))
        written = written[size:]
