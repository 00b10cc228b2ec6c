"""Our transport as one of httpx2, that talks to a scripted server, and what such servers answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from gateway.http1 import HeadStart, HTTP1Transport, origin_of
from tests.support.scripted_server import CERTS, Conversation, Script, serving

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024


class HTTPXTransport(httpx2.AsyncBaseTransport):
    """`HTTP1Transport` for requests as httpx2 has them."""

    def __init__(self, **options: Any) -> None:
        self.transport = HTTP1Transport(**options)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name.decode(): value.decode() for name, value in request.headers.raw}
        headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
        start = HeadStart(request.method, request.url.raw_path, headers)
        assert isinstance(request.stream, httpx2.ByteStream)
        timeouts, fresh = request.extensions.get("timeout", {}), request.extensions.get("fresh", False)
        body = b"".join(request.stream)
        response = await self.transport.send(origin_of(request.url), start, {}, body, timeouts, fresh=fresh)
        return httpx2.Response(response.status_code, headers=response.headers, stream=response.stream)

    async def aclose(self) -> None:
        await self.transport.aclose()


@asynccontextmanager
async def talking(script: Script, transport: HTTPXTransport | None = None) -> AsyncIterator[tuple[HTTPXTransport, str]]:
    """A transport and the address of a server that runs `script`."""
    async with serving(script) as server, transport or HTTPXTransport() as client:
        yield client, server.url


def answering(response: bytes) -> Script:
    """A script that answers each request with `response`, then waits for the client."""

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.body()
            await conversation.send(response)

    return script


def answering_then_closing(response: bytes) -> Script:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(response)

    return script


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def request_to(url: str, method: str = "GET", **arguments: object) -> httpx2.Request:
    return httpx2.Request(method, url, **arguments)  # type: ignore[arg-type]


def with_timeout(url: str, **timeout: float) -> httpx2.Request:
    return httpx2.Request("GET", url, extensions={"timeout": timeout})


async def body_of(response: httpx2.Response) -> bytes:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    return b"".join([part async for part in response.stream])


async def not_reading(conversation: Conversation) -> None:
    await conversation.request()
    conversation.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTS / f"{certificate}.pem")
