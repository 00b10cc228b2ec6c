"""A transport that talks to a scripted server, and what such servers answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from gateway.http1 import HTTP1Transport
from tests.support.scripted_server import CERTS, Conversation, Script, serving

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024


@asynccontextmanager
async def talking(script: Script, transport: HTTP1Transport | None = None) -> AsyncIterator[tuple[HTTP1Transport, str]]:
    """A transport and the address of a server that runs `script`."""
    async with serving(script) as server, transport or HTTP1Transport() as client:
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


async def endless_blocks() -> AsyncIterator[bytes]:
    while True:
        yield bytes(65536)


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTS / f"{certificate}.pem")
