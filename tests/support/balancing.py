"""Load balancers over scripted servers, with a clock that stands still."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx2

from gateway.policy.model import Balance, Health, Retries, Route, Timeouts, Upstream
from gateway.proxy.upstreams.balancer import (
    LoadBalancer,
    OpenResponse,
)
from gateway.proxy.upstreams.client import UpstreamClient, UpstreamRequest
from tests.support.scripted_server import Conversation, Script, serving

TIMEOUT = 20  # seconds; only ends a hang
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = b"5\r\nfirst\r\n"


def asking(upstream: Upstream) -> UpstreamRequest:
    return UpstreamRequest("/x", b"{}", stream=True)


def status(code: int, *lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 %d Because" % code, *lines, b"Content-Length: 4", b"", b"body"])


def answering(*answers: bytes) -> Script:
    """One answer for each request, on whatever connection; the last one for all further ones."""
    left = list(answers)

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.body()
            await conversation.send(left.pop(0) if len(left) > 1 else left[0])

    return script


def holding(*pieces: bytes) -> Script:
    """Sends these and then nothing, until the client leaves."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.body()
        await conversation.send(*pieces)
        await conversation.until_client_leaves()

    return script


def closing(*pieces: bytes) -> Script:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.body()
        await conversation.send(*pieces)

    return script


def refusing() -> str:
    """The address of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@dataclass
class Bench:
    """A fleet with a clock that stands still, pauses that are only written down, and what the callbacks heard.

    While `awake` is not set, a pause lasts.
    """

    now: float = 1000.0
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    pauses: list[float] = field(default_factory=list)
    retried: list[tuple[str, str]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    fleet: LoadBalancer = field(init=False)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)
            await self.awake.wait()

    async def ask(self, *names: str, balance: Balance = Balance.FIRST) -> OpenResponse:
        route = Route(model="*", upstream=names[0], policy="p", others=names[1:], balance=balance)
        return await self.fleet.open(
            route,
            asking,
            {},
            on_retry=lambda *why: self.retried.append(why),
            on_attempt=self.tried.append,
        )

    async def body(self, *names: str, balance: Balance = Balance.FIRST) -> tuple[str, int, bytes]:
        """Of the answer to a request: whose it is, status and whole body."""
        opened = await self.ask(*names, balance=balance)
        try:
            return opened.client.upstream.name, opened.response.status_code, await read(opened)
        finally:
            await opened.close()


async def read(opened: OpenResponse) -> bytes:
    stream = opened.response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    return b"".join([part async for part in stream])


@asynccontextmanager
async def bench(
    *scripts: Script | str, max_connections: int = 10, **settings: Health | Retries | Timeouts
) -> AsyncIterator[Bench]:
    """Upstreams `a`, `b`, …, one for each script or address, all with the same settings."""
    made = Bench()
    made.awake.set()
    async with AsyncExitStack() as stack:
        clients = {}
        for name, script in zip("abc", scripts, strict=False):
            url = script if isinstance(script, str) else (await stack.enter_async_context(serving(script))).url
            upstream = Upstream(name=name, base_url=url, **settings)  # type: ignore[arg-type]
            clients[name] = UpstreamClient(upstream, url, max_connections)
        made.fleet = LoadBalancer(clients, lambda: made.now, lambda: 0.5, made.sleep)
        try:
            yield made
        finally:
            await made.fleet.close()
        assert not any(made.fleet.busy.values()), made.fleet.busy


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0.001)
