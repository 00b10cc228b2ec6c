"""Which connection a request gets: reuse, expiry, retry, limits, closing."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from gateway.http1 import DescriptorsExhausted, StaleConnection
from gateway.http1.connection import Connection, Origin
from gateway.http1.pool import ConnectionPool
from tests.support.descriptors import none_left
from tests.support.http1_scripts import HTTPXTransport
from tests.support.scripted_server import Conversation, Script, ScriptedServer, on_both_loops, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OPEN = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok"


async def answer_everything(conversation: Conversation) -> None:
    while True:
        await conversation.request()
        await conversation.body()
        await conversation.send(OK)


async def hold_open(conversation: Conversation) -> None:
    await conversation.request()
    await conversation.send(OPEN)
    await conversation.until_client_leaves()


def request_to(server: ScriptedServer, **arguments: object) -> httpx2.Request:
    return httpx2.Request("POST", server.url, **arguments)  # type: ignore[arg-type]


async def fetch(transport: HTTPXTransport, request: httpx2.Request) -> bytes:
    response = await transport.handle_async_request(request)
    return b"".join([part async for part in response.stream])  # type: ignore[union-attr]


@on_both_loops
async def test_last_used_connection_is_reused_first() -> None:
    async with serving(answer_everything) as server, HTTPXTransport() as transport:
        await asyncio.gather(*(fetch(transport, request_to(server)) for _ in range(3)))
        assert len(server.conversations) == 3
        for _ in range(4):
            await fetch(transport, request_to(server))
        assert len(server.conversations) == 3
        assert sorted(len(conversation.requests) for conversation in server.conversations) == [1, 1, 5]


@on_both_loops
async def test_body_left_unread_at_its_end_still_frees_the_connection() -> None:
    async with serving(answer_everything) as server, HTTPXTransport() as transport:
        for _ in range(3):
            response = await transport.handle_async_request(request_to(server))
            await response.aclose()  # head and body came in one read
        assert len(server.conversations) == 1


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["response says close", "HTTP/1.0"],
)
@on_both_loops
async def test_connection_is_closed_where_the_server_says_so(response: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(response)
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTPXTransport() as transport:
        for n in range(1, 3):
            assert await fetch(transport, request_to(server)) == b"ok"
            await server.conversations[-1].client_left.wait()
            assert len(server.conversations) == n


@on_both_loops
async def test_idle_connection_is_closed_when_it_expires() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OK)
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTPXTransport(idle_expiry=0.1) as transport:
        await asyncio.gather(*(fetch(transport, request_to(server)) for _ in range(2)))
        for conversation in server.conversations:
            await conversation.client_left.wait()


def stale(ending: str, answered_before_ending: bytes = b"") -> Script:
    """The first connection serves one request and ends on the second; later ones serve."""
    first = True

    async def script(conversation: Conversation) -> None:
        nonlocal first
        if not first:
            await answer_everything(conversation)
        first = False
        await conversation.request()
        await conversation.body()
        await conversation.send(OK)
        await conversation.request()
        await conversation.send(answered_before_ending)
        if ending == "reset":
            conversation.reset()

    return script


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@on_both_loops
async def test_what_may_be_done_twice_is_sent_again_on_a_new_connection(ending: str, method: str) -> None:
    async with serving(stale(ending)) as server, HTTPXTransport() as transport:
        await fetch(transport, request_to(server))
        assert await fetch(transport, httpx2.Request(method, server.url)) == (b"ok" if method == "GET" else b"")
        assert [len(conversation.requests) for conversation in server.conversations] == [2, 1]


@pytest.mark.parametrize("ending", ["close", "reset"])
@pytest.mark.parametrize("content", [b"", b"2", b"x" * 200_000])
@on_both_loops
async def test_d15_what_the_server_may_have_read_is_sent_once(ending: str, content: bytes) -> None:
    async with serving(stale(ending)) as server, HTTPXTransport() as transport:
        assert await fetch(transport, request_to(server, content=b"1")) == b"ok"
        with pytest.raises(StaleConnection, match=f"localhost:{server.port}: connection .*before|while"):
            await fetch(transport, request_to(server, content=content))
        assert [len(conversation.requests) for conversation in server.conversations] == [2]
        assert await fetch(transport, request_to(server, content=b"3")) == b"ok"


@on_both_loops
async def test_d15_a_fresh_connection_is_not_one_that_was_kept() -> None:
    async with serving(answer_everything) as server, HTTPXTransport() as transport:
        await fetch(transport, request_to(server))
        await fetch(transport, request_to(server, extensions={"fresh": True}))
        await fetch(transport, request_to(server, extensions={"fresh": False}))
        assert sorted(len(conversation.requests) for conversation in server.conversations) == [1, 2]


@pytest.mark.parametrize("ending", ["closed", "reset", "unasked"])
@on_both_loops
async def test_d15_a_connection_that_has_ended_unnoticed_is_not_used(ending: str) -> None:
    """The kernel knows; the loop has had no turn yet."""
    may_end, has_ended = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        first, _ = listener.accept()
        first.recv(65536)
        first.sendall(OK)
        may_end.wait(20)
        if ending == "unasked":
            first.sendall(OK)
        elif ending == "reset":
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if ending != "unasked":
            first.close()
        has_ended.set()
        second, _ = listener.accept()
        with first, second:
            second.recv(65536)
            second.sendall(OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        serving_it = asyncio.get_running_loop().run_in_executor(None, serve, listener)
        async with HTTPXTransport() as transport:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await fetch(transport, httpx2.Request("POST", url, content=b"1"))
            may_end.set()
            assert has_ended.wait(20)
            assert await fetch(transport, httpx2.Request("POST", url, content=b"2")) == b"ok"
            await serving_it


@on_both_loops
async def test_connection_closed_while_idle_is_not_used() -> None:
    closed = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OK)
        conversation.writer.close()
        await conversation.until_client_leaves()
        closed.set()

    async with serving(script) as server, HTTPXTransport() as transport:
        assert await fetch(transport, request_to(server)) == b"ok"
        await closed.wait()
        assert await fetch(transport, request_to(server)) == b"ok"
        assert [len(conversation.requests) for conversation in server.conversations] == [1, 1]


@on_both_loops
async def test_no_retry_after_a_byte_of_the_response() -> None:
    async with serving(stale("close", b"H")) as server, HTTPXTransport() as transport:
        await fetch(transport, request_to(server))
        with pytest.raises(httpx2.RemoteProtocolError, match="inside the response head"):
            await fetch(transport, request_to(server))
        assert len(server.conversations) == 1


@on_both_loops
async def test_no_retry_on_a_new_connection_nor_a_second_one() -> None:
    def request() -> httpx2.Request:
        return httpx2.Request("GET", server.url)

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        if len(server.conversations) == 1:
            await conversation.send(OK)
            await conversation.request()

    async with serving(script) as server, HTTPXTransport() as transport:
        await fetch(transport, request())
        with pytest.raises(httpx2.RemoteProtocolError, match="closed before the response"):
            await fetch(transport, request())
        assert [len(conversation.requests) for conversation in server.conversations] == [2, 1]
        with pytest.raises(httpx2.RemoteProtocolError, match="closed before the response"):
            await fetch(transport, request())
        assert len(server.conversations) == 3


@on_both_loops
async def test_no_retry_after_a_timeout() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OK)
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTPXTransport() as transport:
        await fetch(transport, request_to(server))
        with pytest.raises(httpx2.ReadTimeout):
            await fetch(transport, request_to(server, extensions={"timeout": {"read": 0.1}}))
        assert len(server.conversations) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@on_both_loops
async def test_d19_a_shortage_of_descriptors_is_no_failure_of_the_server(host: str) -> None:
    async with serving(answer_everything) as server, HTTPXTransport(max_connections=1) as transport:
        url = f"http://{host}:{server.port}"
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)  # the thread that looks names up
        with none_left():
            for _ in range(3):
                with pytest.raises(DescriptorsExhausted, match=f"{host}:{server.port}: no descriptor is left"):
                    await transport.handle_async_request(httpx2.Request("POST", url))
        assert await fetch(transport, httpx2.Request("POST", url)) == b"ok"
        with none_left():  # a kept connection needs none
            assert await fetch(transport, httpx2.Request("POST", url)) == b"ok"


# The limit.


@pytest.mark.parametrize("timeout", [{"pool": 0.1, "connect": 30}, {"connect": 0.1}, {"pool": None, "connect": 0.1}])
@on_both_loops
async def test_full_pool_times_out(timeout: dict[str, float | None]) -> None:
    async with serving(hold_open) as server, HTTPXTransport(max_connections=2) as transport:
        held = [await transport.handle_async_request(request_to(server)) for _ in range(2)]
        with pytest.raises(httpx2.PoolTimeout, match=r"all 2 connections stayed in use for 0\.1 seconds"):
            await transport.handle_async_request(request_to(server, extensions={"timeout": timeout}))
        for response in held:
            await response.aclose()
        await (await transport.handle_async_request(request_to(server))).aclose()


@on_both_loops
async def test_full_pool_serves_everyone_in_turn() -> None:
    async with serving(answer_everything) as server, HTTPXTransport(max_connections=3) as transport:
        bodies = await asyncio.gather(*(fetch(transport, request_to(server)) for _ in range(50)))
        assert bodies == [b"ok"] * 50
        assert len(server.conversations) == 3
        assert len(server.requests) == 50


@on_both_loops
async def test_place_of_another_origin_is_taken_over() -> None:
    async with (
        serving(answer_everything) as here,
        serving(answer_everything) as there,
        HTTPXTransport(max_connections=1) as transport,
    ):
        for _ in range(2):
            await fetch(transport, request_to(here))
            await fetch(transport, request_to(there))
        mixed = [fetch(transport, request_to(server)) for server in (here, there) * 5]
        assert await asyncio.gather(*mixed) == [b"ok"] * 10


@on_both_loops
async def test_waiter_that_is_cancelled_loses_no_place() -> None:
    async with serving(hold_open) as server, HTTPXTransport(max_connections=1) as transport:
        for granted_first in (False, True):
            held = await transport.handle_async_request(request_to(server))
            waiter = asyncio.create_task(transport.handle_async_request(request_to(server)))
            await asyncio.sleep(0.02)
            if granted_first:
                await held.aclose()
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            await held.aclose()
        timeout = {"timeout": {"pool": 20}}
        await (await transport.handle_async_request(request_to(server, extensions=timeout))).aclose()


@on_both_loops
async def test_failed_and_cancelled_connects_lose_no_place() -> None:
    async def mute(conversation: Conversation) -> None:
        await conversation.until_client_leaves()

    async with (
        serving(mute) as deaf,
        serving(answer_everything) as server,
        HTTPXTransport(max_connections=1) as transport,
    ):
        for _ in range(2):
            with pytest.raises(httpx2.ConnectError):
                await transport.handle_async_request(httpx2.Request("GET", "http://no-such-host.invalid/"))
            # A TLS handshake that the server never answers.
            secure = httpx2.Request("GET", f"https://127.0.0.1:{deaf.port}/", extensions={"timeout": {"connect": 0.1}})
            with pytest.raises(httpx2.ConnectTimeout):
                await transport.handle_async_request(secure)
            handshake = asyncio.create_task(
                transport.handle_async_request(httpx2.Request("GET", f"https://127.0.0.1:{deaf.port}/"))
            )
            await asyncio.sleep(0.05)
            handshake.cancel()
            with pytest.raises(asyncio.CancelledError):
                await handshake
        assert await fetch(transport, request_to(server)) == b"ok"
        for conversation in deaf.conversations:
            await conversation.client_left.wait()


@asynccontextmanager
async def pool_of_one(server: ScriptedServer) -> AsyncIterator[Callable[[], Awaitable[Connection]]]:
    """How to acquire a connection to `server` from a pool with one place."""
    pool = ConnectionPool(ssl.create_default_context(), max_connections=1, idle_expiry=30)
    origin = Origin("http", "127.0.0.1", server.port)
    yield lambda: pool.acquire(origin, {}, reuse=True)
    await pool.aclose()


@on_both_loops
async def test_connection_granted_to_a_waiter_cancelled_in_the_same_turn_is_kept() -> None:
    async with serving(answer_everything) as server, pool_of_one(server) as acquire:
        connection = await acquire()
        waiter = asyncio.create_task(acquire())
        await asyncio.sleep(0)
        connection.release()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert await acquire() is connection


@on_both_loops
async def test_connection_that_dies_between_grant_and_turn_is_replaced() -> None:
    async with serving(answer_everything) as server, pool_of_one(server) as acquire:
        connection = await acquire()
        waiter = asyncio.create_task(acquire())
        await asyncio.sleep(0)
        connection.release()
        connection.abort()
        replacement = await waiter
        assert replacement is not connection
        assert not replacement.closed


@on_both_loops
async def test_expired_connection_is_not_used_though_its_timer_is_late() -> None:
    async with serving(answer_everything) as server, pool_of_one(server) as acquire:
        connection = await acquire()
        connection.release()
        connection.idle_since -= 31
        assert await acquire() is not connection
        assert connection.closed


# Closing the transport.


@on_both_loops
async def test_aclose_closes_idle_busy_and_waiting() -> None:
    async with serving(hold_open) as busy, serving(answer_everything) as idle:
        transport = HTTPXTransport(max_connections=2)
        await fetch(transport, request_to(idle))
        response = await transport.handle_async_request(request_to(busy))
        other = await transport.handle_async_request(request_to(busy))
        waiting = asyncio.create_task(transport.handle_async_request(request_to(idle)))
        await asyncio.sleep(0.02)
        await transport.aclose()
        for stream in (response.stream, other.stream):
            with pytest.raises(httpx2.ReadError, match="the transport was closed"):
                [part async for part in stream]  # type: ignore[union-attr]
        with pytest.raises(httpx2.ConnectError, match="the transport is closed"):
            await waiting
        with pytest.raises(httpx2.ConnectError, match="the transport is closed"):
            await transport.handle_async_request(request_to(idle))
        for conversation in busy.conversations:
            await conversation.client_left.wait()
        await transport.aclose()


@on_both_loops
async def test_aclose_during_a_connect() -> None:
    async def mute(conversation: Conversation) -> None:
        await conversation.until_client_leaves()

    async with serving(mute) as server:
        transport = HTTPXTransport()
        secure = httpx2.Request("GET", f"https://127.0.0.1:{server.port}/")
        connecting = asyncio.create_task(transport.handle_async_request(secure))
        await asyncio.sleep(0.05)
        await transport.aclose()
        with pytest.raises(httpx2.ConnectError, match="the transport is closed"):
            await connecting


@on_both_loops
async def test_tls_connections_are_closed_too() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(OPEN)
        await conversation.until_client_leaves()

    async with serving(script, certificate="localhost") as server:
        transport = HTTPXTransport(verify=False)
        response = await transport.handle_async_request(request_to(server))
        await response.aclose()
        await server.conversations[0].client_left.wait()
        await transport.aclose()


@on_both_loops
async def test_d15_what_tls_sends_by_itself_is_no_reason_to_leave_a_connection() -> None:
    async with (
        serving(answer_everything, certificate="localhost") as server,
        HTTPXTransport(verify=False) as transport,
    ):
        for _ in range(5):
            assert await fetch(transport, request_to(server)) == b"ok"
        assert len(server.conversations) == 1
