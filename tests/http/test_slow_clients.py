"""`send_timeout`: how long a client may take nothing, and what is kept for it meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.proxy.downstream.client_watch import POLL_INTERVAL
from gateway.proxy.downstream.protocol import UNSENT, BoundedProtocol
from gateway.proxy.server import server_config
from tests.support.gateway import TIMEOUT
from tests.support.raw_http import Connection

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
SEND_TIMEOUT = 5.0
LOOKS = int(SEND_TIMEOUT / POLL_INTERVAL) + 1  # the first one only sees how much there is


class Clock:
    """A loop's clock that a test moves; timers are called when their time has come."""

    def __init__(self, connection: Connection) -> None:
        self._real = connection.protocol.loop
        self._now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []
        connection.protocol.loop = self  # type: ignore[assignment]
        connection.protocol.send_timeout = SEND_TIMEOUT

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self._timers.append((self._now + delay, call))
        return asyncio.TimerHandle(0, call, (), self._real)

    def create_task(self, work: Any) -> Any:
        return self._real.create_task(work)

    def look(self) -> None:
        self._now += POLL_INTERVAL
        due = [call for at, call in self._timers if at <= self._now]
        self._timers = [(at, call) for at, call in self._timers if at > self._now]
        for call in due:
            call()


async def answering() -> tuple[Connection, Clock]:
    """A connection whose answer has begun and is not taken."""
    connection = Connection()
    connection.go.clear()
    await connection.send(GET)
    clock = Clock(connection)
    connection.transport.untaken = 100_000
    connection.protocol.pause_writing()
    return connection, clock


async def test_d20_a_client_that_takes_nothing_is_cut_off_after_send_timeout() -> None:
    connection, clock = await answering()
    for _ in range(LOOKS - 1):
        clock.look()
        assert connection.transport.end == ""
    clock.look()
    assert connection.transport.end == "aborted"
    assert connection.protocol.stalled


@pytest.mark.parametrize("every", [1, LOOKS - 1])
async def test_d20_a_client_that_takes_something_is_kept(every: int) -> None:
    connection, clock = await answering()
    for number in range(20 * LOOKS):
        if number % every == 0:
            connection.transport.untaken -= 1
        clock.look()
        assert connection.transport.end == ""


async def test_d20_what_is_written_after_it_has_room_is_no_standstill() -> None:
    connection, clock = await answering()
    for _ in range(20 * LOOKS):
        clock.look()
        connection.protocol.resume_writing()
        connection.protocol.pause_writing()  # as much as was taken has been written again
        assert connection.transport.end == ""


async def test_d20_a_steady_stream_is_not_judged_while_there_is_room() -> None:
    connection, clock = await answering()
    connection.protocol.resume_writing()
    for _ in range(20 * LOOKS):
        clock.look()
    assert connection.transport.end == ""


async def test_d20_the_end_of_an_answer_must_be_taken_too() -> None:
    connection, clock = await answering()
    connection.protocol.resume_writing()
    connection.go.set()
    await connection.settle()
    assert connection.statuses == [200]
    for _ in range(LOOKS + 1):
        clock.look()
    assert connection.transport.end == "aborted"


async def test_d20_the_system_keeps_little_for_a_client_that_does_not_read() -> None:
    written = 0

    async def application(_: Scope, receive: Receive, send: Send) -> None:
        nonlocal written
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not made[0].stalled:
            await send({"type": "http.response.body", "body": b"x" * UNSENT, "more_body": True})
            written += 1

    loop = asyncio.get_running_loop()
    config = server_config(application, lambda _: None, "off")
    config.load()
    made: list[BoundedProtocol] = []

    def make() -> BoundedProtocol:
        made.append(BoundedProtocol(config, ServerState(), {}, loop))
        return made[-1]

    server = await loop.create_server(make, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.sendall(GET)
    before, tries_left = -1, TIMEOUT / 0.2
    while before < written or not written:
        before = written
        await asyncio.sleep(0.2)
        tries_left -= 1
        assert tries_left
    taken_by_kernel = made[0]._client_watch.untaken() - made[0].transport.get_write_buffer_size()
    assert 0 < taken_by_kernel <= 4 * UNSENT
    made[0].stalled = True
    made[0].cut()
    client.close()
    server.close()
    await asyncio.wait(set(made[0].tasks), timeout=TIMEOUT)
