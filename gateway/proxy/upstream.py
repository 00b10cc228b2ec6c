"""The servers behind: how a request is made for one, how its bytes are read, whether it is up."""

from __future__ import annotations

import asyncio
import time
import urllib.request
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from gateway.policy.model import Upstream
from gateway.proxy.transport import FastTransport

PROBE_TTL = 10.0  # seconds that a probe's answer holds
PROBE_TIMEOUT = 3.0
MAX_INFLATED = 16 * 1024  # bytes that one step of decompression may yield
MAX_LISTED = 1024 * 1024  # bytes of a list of models

# Request headers that travel on, by name or beginning. Cookies, authorization and forwarding headers never do.
FORWARDED_UP = frozenset({"traceparent", "tracestate", "x-request-id"})
FORWARDED_UP_PREFIXES = ("openai-",)
# Response headers that travel back.
FORWARDED_DOWN = frozenset({"retry-after", "retry-after-ms", "traceparent", "tracestate"})
FORWARDED_DOWN_PREFIXES = ("x-ratelimit-", "openai-")


class UnknownEncoding(httpx.DecodingError):
    """The upstream compressed its answer, unasked, in a way that is not understood here."""


class UpstreamClient:
    """One upstream: its connections and what it is told. `base_url` is without a trailing slash."""

    def __init__(self, upstream: Upstream, base_url: str, max_connections: int) -> None:
        self.upstream = upstream
        self.base_url = base_url
        self._transport = _transport_for(base_url, max_connections)
        self._probed_at = float("-inf")
        self._up = True

    async def open(self, path: str, body: bytes, client_headers: Mapping[str, str], *, stream: bool) -> httpx.Response:
        """Send a request; the response's head has arrived, its body has not. Raises httpx's transport errors."""
        headers = self._headers()
        for name, value in client_headers.items():
            if (name in FORWARDED_UP or name.startswith(FORWARDED_UP_PREFIXES)) and _travels(value):
                headers[name] = value
        headers["accept"] = "text/event-stream" if stream else "application/json"
        headers["content-type"] = "application/json"
        return await self._send("POST", path, headers, body, self.upstream.timeouts.first_byte)

    async def get_json(self, path: str, patience: float) -> tuple[int, bytes]:
        """A small plain call of our own: status and body, all within `patience` seconds. Raises httpx's errors."""
        headers = self._headers()
        headers["accept"] = "application/json"
        try:
            async with asyncio.timeout(patience):
                response = await self._send("GET", path, headers, b"", patience)
                body = bytearray()
                try:
                    async for data in inflated(response):
                        body += data
                        if len(body) > MAX_LISTED:
                            raise httpx.RemoteProtocolError("answer too large")
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx.ReadTimeout("the answer did not end in time") from None
        return response.status_code, bytes(body)

    async def up(self) -> bool:
        """Does the server answer at all? Cached for `PROBE_TTL` seconds; an error status below 500 is an answer."""
        if time.monotonic() - self._probed_at > PROBE_TTL:
            self._probed_at = time.monotonic()
            try:
                status, _ = await self.get_json("/models", PROBE_TIMEOUT)
                self._up = status < 500
            except httpx.HTTPError:
                self._up = False
        return self._up

    async def close(self) -> None:
        await self._transport.aclose()

    def _headers(self) -> dict[str, str]:
        # Compressed answers would have to be inflated and would arrive in blocks.
        headers = {"accept-encoding": "identity", "user-agent": "portcullis"}
        if self.upstream.api_key:
            headers["authorization"] = f"Bearer {self.upstream.api_key}"
        return headers

    async def _send(
        self, method: str, path: str, headers: dict[str, str], body: bytes, first_byte: float
    ) -> httpx.Response:
        timeouts = self.upstream.timeouts
        patience = {
            "connect": min(timeouts.connect, first_byte),
            "pool": min(timeouts.connect, first_byte),
            "write": timeouts.idle,
            "read": timeouts.idle,
            "first_byte": first_byte,
        }
        request = httpx.Request(
            method, self.base_url + path, headers=headers, content=body, extensions={"timeout": patience}
        )
        return await self._transport.handle_async_request(request)


def _transport_for(base_url: str, max_connections: int) -> httpx.AsyncBaseTransport:
    """Our own transport, or httpx's where an HTTP proxy from the environment stands between."""
    url = httpx.URL(base_url)
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(url.host):
        return httpx.AsyncHTTPTransport(proxy=proxy, limits=httpx.Limits(max_connections=max_connections))
    return FastTransport(max_connections=max_connections)


async def inflated(response: httpx.Response) -> AsyncIterator[bytes]:
    """The response's body, decompressed if an upstream compressed it although it was asked not to.

    Yields pieces of at most `MAX_INFLATED` bytes, so that a small body cannot become a large buffer. Raises
    `UnknownEncoding`.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    stream: Any = response.stream
    if encoding in ("", "identity"):
        async for data in stream:
            yield data
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnknownEncoding("content-encoding")
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # finds gzip's or zlib's header by itself
    async for data in stream:
        while data:
            try:
                piece = inflater.decompress(data, MAX_INFLATED)
            except zlib.error:
                raise httpx.RemoteProtocolError("broken compression") from None
            if piece:
                yield piece
                await asyncio.sleep(0)  # a small read may hold a great many of these: the others get their turn
            data = inflater.unconsumed_tail


def is_plain(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "identity").strip().lower() in ("", "identity")


def headers_down(response: httpx.Response) -> list[tuple[str, str]]:
    """The response headers that may travel back, not yet scanned."""
    return [
        (name, value)
        for name, value in response.headers.items()
        if (name in FORWARDED_DOWN or name.startswith(FORWARDED_DOWN_PREFIXES)) and _travels(value)
    ]


def _travels(value: str) -> bool:
    """Visible ASCII: of other bytes sender, gateway and reader might each make something else."""
    return value.isascii() and value.isprintable()
