"""Clients that may have no key share a part of each turn of the event loop, and wait for one another."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import weakref
from collections.abc import Callable
from typing import cast

import httpx2
import pytest
import uvloop
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.proxy.downstream import turns
from gateway.proxy.downstream.cycle import RequestCycle
from gateway.proxy.downstream.protocol import BODY_SLICE, MAX_AHEAD, BoundedProtocol
from gateway.proxy.downstream.reads import READ, Reader
from gateway.proxy.downstream.turns import BUFFER, STARTING, TURN, Turns, turns_of
from gateway.proxy.routes import add_admin_routes, add_routes
from gateway.proxy.server import Application, server_config
from gateway.proxy.state import AppState
from tests.support.gateway import before
from tests.support.raw_http import Connection
from tests.support.scripted_server import on_both_loops
from tests.support.upstream import sending

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST /unread HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
CLIENTS = 60
PIECE = 0.0004  # seconds of a piece of work; three of them fill a turn


class Clock:
    """Stands still while nobody works."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Worker:
    """Has pieces of work, each known by its name, and notes which of them were done in each turn of the loop."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = Turns(asyncio.get_running_loop(), self.clock)
        self.done: list[str] = []

    def piece(self, name: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
        def work() -> None:
            self.clock.now += PIECE
            self.done.append(name)
            then()

        return work

    async def turn(self) -> str:
        """What was done since the last call, and in the next turn of the loop."""
        await asyncio.sleep(0)
        done, self.done = "".join(self.done), []
        return done


async def test_work_has_its_turn_in_order_and_a_turn_is_bounded() -> None:
    worker = Worker()
    for name in "abcdefg":
        worker.turns.add(worker.piece(name))
    assert [await worker.turn() for _ in range(4)] == ["abc", "def", "g", ""]


async def test_work_is_done_at_once_where_nobody_waits() -> None:
    worker = Worker()
    for name in "abcde":
        worker.turns.run(worker.piece(name))
    assert worker.done == ["a", "b", "c"]  # the turn's time is over
    worker.done = []
    assert await worker.turn() == "de"
    worker.turns.add(worker.piece("f"))
    worker.turns.run(worker.piece("g"))
    assert worker.done == []
    assert await worker.turn() == "fg"


async def test_what_work_adds_has_a_later_turn() -> None:
    worker = Worker()
    begun = worker.piece("t")
    worker.turns.add(worker.piece("a", lambda: worker.turns.add(worker.piece("b"))))
    worker.turns.add(worker.piece("c", lambda: asyncio.get_running_loop().call_soon(begun) and None))
    assert [await worker.turn() for _ in range(3)] == ["ac", "tb", ""]


async def test_what_work_costs_later_is_counted() -> None:
    worker = Worker()
    for name in "abc":
        worker.turns.add(worker.piece(name, lambda: worker.turns.charge(TURN)))
    assert [await worker.turn() for _ in range(3)] == ["a", "b", "c"]


async def test_a_defect_stops_nobody_else() -> None:
    worker = Worker()
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def broken() -> None:
        raise MemoryError

    for work in (broken, worker.piece("a"), broken, worker.piece("b")):
        worker.turns.add(work)
    assert [await worker.turn() for _ in range(4)] == ["", "a", "b", ""]
    assert len(complaints) == 2


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_has_one_queue_which_does_not_keep_it(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    loop, other = factory(), factory()
    assert turns_of(loop) is turns_of(loop) is not turns_of(other)
    gone = weakref.ref(loop)
    loop.close()
    other.close()
    del loop
    gc.collect()
    assert gone() is None


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def parsed(monkeypatch: pytest.MonkeyPatch) -> list[BoundedProtocol]:
    """Whose slices were parsed; each of them took `PIECE` seconds."""
    seen: list[BoundedProtocol] = []
    clock, parse = Clock(), BoundedProtocol._parse

    def counted(self: BoundedProtocol, data: bytes | memoryview) -> int:
        clock.now += PIECE
        seen.append(self)
        return parse(self, data)

    monkeypatch.setattr(turns_of(asyncio.get_running_loop()), "_clock", clock)
    monkeypatch.setattr(BoundedProtocol, "_parse", counted)
    return seen


ATTACKS = {
    "heads without an end": GET[:-2] + b"x: " + b"a" * 60_000,
    "a body before the answer": POST % (b"unread", 10**6) + b"a" * 60_000,
    "chunks": CHUNKED + b"1\r\na\r\n" * 10_000,
    "pipelined requests": GET * 100,
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_d1_no_turn_of_the_loop_belongs_to_clients_without_a_key(
    parsed: list[BoundedProtocol], attack: str
) -> None:
    clients = [Connection() for _ in range(CLIENTS)]
    for client in clients:
        client.protocol.data_received(ATTACKS[attack])
    for turn in range(2 * CLIENTS):
        begun = sum(len(client.asked) for client in clients)
        assert len(parsed) <= 1 + TURN / PIECE, turn
        parsed.clear()
        await asyncio.sleep(0)
        assert sum(len(client.asked) for client in clients) - begun <= 1 + TURN / STARTING, turn


async def test_d1_requests_that_wait_for_their_turn_are_all_answered(parsed: list[BoundedProtocol]) -> None:
    clients = [Connection() for _ in range(CLIENTS)]
    for client in clients:
        client.protocol.data_received(GET * (1 + MAX_AHEAD))
    while not all(len(client.answers) == 1 + MAX_AHEAD for client in clients):
        await asyncio.sleep(0)
    assert len(set(parsed[:CLIENTS])) == CLIENTS  # nobody had a second turn before all had a first one


async def test_d1_nothing_is_read_of_a_client_that_waits(parsed: list[BoundedProtocol]) -> None:
    clients = [Connection() for _ in range(CLIENTS)]
    for client in clients:
        client.protocol.data_received(GET)
    waiting = [client for client in clients if not client.asked and client.protocol not in parsed]
    assert len(waiting) >= CLIENTS - 3
    assert [client.transport.pauses for client in waiting] == [[True]] * len(waiting)
    while not all(client.answers for client in clients):
        await asyncio.sleep(0)
    assert [client.transport.pauses for client in waiting] == [[True, False]] * len(waiting)


async def test_d1_a_client_that_leaves_gives_its_turn_away(parsed: list[BoundedProtocol]) -> None:
    clients = [Connection() for _ in range(CLIENTS)]
    for client in clients:
        client.protocol.data_received(GET * 2)
    gone = [client for client in clients if client.protocol not in parsed]
    for client in gone:
        client.transport.abort()
        client.close()
    for _ in range(CLIENTS):
        await asyncio.sleep(0)
    assert not {client.protocol for client in gone} & set(parsed)


async def test_d1_a_body_that_is_read_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted, other, unread = Connection(), Connection(), Connection()
    size = 3 * BODY_SLICE
    await accepted.send(POST % (b"a", size))
    await unread.send(POST % (b"unread", size))
    monkeypatch.setattr(turns, "TURN", 0)
    await other.send(GET)
    await accepted.send(b"x" * size)
    assert len(accepted.answers[0].body["body"]) == size
    await accepted.send(GET)  # the next request on the connection waits as any other one
    assert (len(accepted.answers), len(other.answers)) == (1, 0)
    monkeypatch.undo()
    await other.settle()
    await accepted.settle()
    assert (len(accepted.answers), len(other.answers)) == (2, 1)


async def test_d1_what_waits_of_a_body_is_parsed_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection()
    connection.go.clear()
    size = 3 * BODY_SLICE
    await connection.send(POST % (b"a", size))
    monkeypatch.setattr(turns, "TURN", 0)
    await connection.send(b"x" * size)
    assert len(connection.protocol.reader.unparsed) == size
    connection.go.set()
    await connection.settle()
    assert len(connection.answers[0].body["body"]) == size


async def test_d1_nothing_asks_for_a_body_before_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has priority is told by that."""
    asked, receive = [], RequestCycle.receive

    async def noted(self: RequestCycle) -> object:
        asked.append((self.scope["method"], self.scope["path"]))
        return await receive(self)

    monkeypatch.setattr(RequestCycle, "receive", noted)
    known, nobody = Application(), cast(AppState, None)
    add_routes(known, nobody)
    add_admin_routes(known, nobody)
    routes = [route for route in known.routes if isinstance(route, Route)]
    paths = [(method, route.path) for route in routes for method in route.methods or ()]
    assert ("POST", "/v1/chat/completions") in paths
    async with before(sending(b""), keys=("sk-of-a-client",)) as (gateway, _):
        for method, path in [*paths, ("POST", "/nowhere"), ("PUT", "/v1/chat/completions")]:
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
            head = POST % (re.sub(r"{.*?}", "m", path[1:]).encode(), 10**6)
            writer.write(head.replace(b"POST", method.encode()) + b"x")
            assert await reader.readline(), path
            writer.close()
    assert asked == []


@on_both_loops
async def test_little_is_read_of_a_client_at_once_until_its_body_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    go, sizes, take = asyncio.Event(), list[int](), Reader.feed

    def counted(self: Reader, data: bytes | memoryview) -> None:
        sizes.append(len(data))
        take(self, data)

    monkeypatch.setattr(Reader, "feed", counted)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    loop = asyncio.get_running_loop()
    config = server_config(application, lambda _: None, "off")
    config.load()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, _ = await loop.connect_accepted_socket(lambda: BoundedProtocol(config, ServerState(), {}, loop), ours)
    await loop.sock_sendall(theirs, POST % (b"a", 1 << 20) + b"x" * 3 * READ)
    while sum(sizes) < 2 * READ:
        await asyncio.sleep(0)
    assert max(sizes) == READ
    go.set()
    sent = asyncio.create_task(loop.sock_sendall(theirs, b"x" * ((1 << 20) - 3 * READ)))
    assert b" 204 " in await loop.sock_recv(theirs, 1000)
    await sent
    assert READ < max(sizes) <= BUFFER
    transport.close()
    theirs.close()
    await asyncio.sleep(0.01)
