"""The listening socket of a supervisor: nobody who was accepted is lost, while nobody can take them or at the end."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import resource
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.observe.facts import AcceptFailed
from gateway.observe.log import RequestLog
from gateway.serving import acceptor as module
from gateway.serving.acceptor import ACCEPT_BATCH, AcceptFailureReporter, Acceptor
from tests.support.gateway import TIMEOUT

CLIENTS = 3 * ACCEPT_BATCH


class Taking:
    """Takes connections over when it is `willing`, as a worker does: a descriptor of its own for each."""

    def __init__(self) -> None:
        self.willing = True
        self.taken: list[socket.socket] = []
        self._log = io.StringIO()
        self.facts: list[AcceptFailed] = []
        self.failed = AcceptFailureReporter(self.facts.append, RequestLog("json", self._log))

    @property
    def problems(self) -> list[str]:
        return [json.loads(line)["message"] for line in self._log.getvalue().splitlines()]

    def take(self, connection: socket.socket) -> bool:
        if self.willing:
            self.taken.append(connection.dup())
        return self.willing

    async def until(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT):
            while len(self.taken) < count:
                await asyncio.sleep(0.005)
        assert len(self.taken) == count

    def names(self) -> list[str]:
        return [connection.getpeername() for connection in self.taken]


@pytest.fixture
async def clients() -> AsyncIterator[list[socket.socket]]:
    made: list[socket.socket] = []
    yield made
    for client in made:
        client.close()


@pytest.fixture
def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=CLIENTS)


def come(listener: socket.socket, clients: list[socket.socket], count: int) -> list[str]:
    """Clients connect; their names as the other side sees them."""
    new = [socket.create_connection(listener.getsockname(), TIMEOUT) for _ in range(count)]
    clients += new
    return [client.getsockname() for client in new]


async def test_everybody_is_given_away_in_order(listener: socket.socket, clients: list[socket.socket]) -> None:
    taking = Taking()
    acceptor = Acceptor(listener, taking.take, taking.failed)
    names = come(listener, clients, CLIENTS)
    await taking.until(CLIENTS)
    assert taking.names() == names
    acceptor.abort()
    assert taking.problems == []


async def test_who_cannot_be_given_away_waits(listener: socket.socket, clients: list[socket.socket]) -> None:
    taking = Taking()
    offered = asyncio.Event()

    def refuse_at_first(connection: socket.socket) -> bool:
        offered.set()
        return taking.take(connection)

    taking.willing = False
    acceptor = Acceptor(listener, refuse_at_first, taking.failed)
    names = come(listener, clients, 3)
    await asyncio.wait_for(offered.wait(), TIMEOUT)
    taking.willing = True
    await taking.until(3)
    assert taking.names() == names
    acceptor.abort()


async def test_a_shortage_of_descriptors_is_said_once_and_survived(
    listener: socket.socket, clients: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    try_again = Acceptor._try_again

    def counting(self: Acceptor) -> None:
        nonlocal tries
        tries += 1
        try_again(self)

    monkeypatch.setattr(Acceptor, "_try_again", counting)
    monkeypatch.setattr(module, "REPORT_INTERVAL", 2 * TIMEOUT)
    taking = Taking()
    names = come(listener, clients, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    acceptor = Acceptor(listener, taking.take, taking.failed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        async with asyncio.timeout(TIMEOUT):
            while tries < 4:
                await asyncio.sleep(0.005)
        assert taking.problems == [f"accept: {os.strerror(errno.EMFILE)}"]
        assert taking.facts == [AcceptFailed("EMFILE")] * len(taking.facts) != []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await taking.until(1)
    assert taking.names() == names
    await acceptor.close()


async def test_closing_gives_away_what_has_come(listener: socket.socket, clients: list[socket.socket]) -> None:
    taking = Taking()
    taking.willing = False
    place = listener.getsockname()
    acceptor = Acceptor(listener, taking.take, taking.failed)
    names = come(listener, clients, 1)
    await asyncio.sleep(0)  # the first is accepted and waits, or all do in the system; both must be given away
    names += come(listener, clients, CLIENTS - 1)
    taking.willing = True
    await acceptor.close()
    assert taking.names() == names
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, TIMEOUT)


async def test_closing_does_not_wait_for_ever(
    listener: socket.socket, clients: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.serving.acceptor.CLOSE_TIMEOUT", 0.1)
    taking = Taking()
    taking.willing = False
    acceptor = Acceptor(listener, taking.take, taking.failed)
    come(listener, clients, 2)
    await asyncio.wait_for(acceptor.close(), TIMEOUT)
    assert listener.fileno() < 0
    for client in clients:
        with pytest.raises((ConnectionResetError, EOFError)):
            if not client.recv(1):
                raise EOFError
