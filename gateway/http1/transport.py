"""Requests: encoded here, sent over pooled connections; exceptions are httpx2's own."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from functools import cache, lru_cache, partial

import httpx2

from gateway.http1.connection import Origin
from gateway.http1.exchange import Exchange
from gateway.http1.pool import ConnectionPool
from gateway.http1.response import StreamLimits
from gateway.http1.stream import Response, ResponseStream

DEFAULT_MAX_CONNECTIONS = 4096
DEFAULT_IDLE_EXPIRY = 30.0  # seconds; servers commonly keep idle connections for 60 or more
_ONE_WRITE = 64 * 1024  # bytes; a larger body is not copied behind the head
_SAFE = ("GET", "HEAD")  # may be sent twice without effect

_TOKEN = re.compile("[!#$%&'*+\\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_FIELD_VALUE = re.compile(r"[^\x00\r\n]*")


class StaleConnection(httpx2.ReadError):
    """A reused connection was lost before the response began: closed because it was idle, or with the request read."""


class HTTP1Transport:
    """Sends requests over pooled HTTP/1.1 connections.

    Proxies from the environment (`HTTPS_PROXY` …) are ignored: where one applies, use httpx2's own transport.
    One instance belongs to one event loop. A given `ssl.SSLContext` is set to ALPN http/1.1; the system's certificates
    are read for the first connection that needs them, which takes 20 ms.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | bool = True,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
        idle_expiry: float = DEFAULT_IDLE_EXPIRY,
        limits: StreamLimits | None = None,
    ) -> None:
        self._limits = StreamLimits() if limits is None else limits
        self._pool = ConnectionPool(cache(partial(_ssl_context, verify)), max_connections, idle_expiry)

    async def send(
        self,
        origin: Origin,
        start: HeadStart,
        headers: Mapping[str, str],
        body: bytes,
        timeouts: Mapping[str, float | None],
        *,
        fresh: bool = False,
    ) -> Response:
        """The response, its head read. `headers` are those that `start` has not, in ASCII, but for the length of the
        body, which is written here. One item of `response.stream` is everything that arrived since the last.

        `timeouts` holds seconds or None under `connect`, `read`, `write`, `pool`, and `first_byte`, which stands in for
        `read` until the first body byte. Where `pool` is None, a full pool is waited for `connect` seconds.

        A GET or HEAD that loses a reused connection before any byte of the response is sent once more on a new one. Any
        other request is sent once and raises `StaleConnection` then: the server may or may not have processed it.
        `fresh` requires a new connection. Raises `httpx2.PoolTimeout`, `ConnectTimeout`, `ConnectError`, `ReadTimeout`,
        `ReadError`, `WriteTimeout`, `WriteError`, `RemoteProtocolError` and `LocalProtocolError`, by true cause;
        messages name host and port, never a URL or a header's value.
        """
        length = b"content-length: %d\r\n" % len(body) if body or start.method not in _SAFE else b""
        head = b"%b%b%b\r\n" % (start.encoded, _encode_lines(headers), length)
        connection = None if fresh else self._pool.take_idle(origin)
        if connection is None:
            connection = await self._pool.acquire(origin, timeouts, reuse=not fresh)
        exchange = Exchange(connection, self._limits, timeouts, head_only=start.method == "HEAD")
        try:
            if len(body) <= _ONE_WRITE:
                connection.write(head + body)  # the response is read meanwhile
            else:
                exchange.send((head, body))
            return Response(await exchange.read_head(), ResponseStream(exchange))
        except httpx2.TransportError as error:
            if not exchange.stale:
                raise
            if fresh or start.method not in _SAFE:
                raise StaleConnection(str(error)) from error
        except BaseException:
            exchange.fail(httpx2.StreamClosed())
            raise
        return await self.send(origin, start, headers, body, timeouts, fresh=True)

    async def aclose(self) -> None:
        """Close every connection; exchanges in progress fail."""
        await self._pool.aclose()


def origin_of(url: httpx2.URL) -> Origin:
    """Raises `httpx2.UnsupportedProtocol` for a URL that is not for this transport."""
    if url.scheme not in ("http", "https") or not url.host:
        message = f"this transport speaks http:// and https:// with a host, not {url.scheme!r} to {url.host!r}"
        raise httpx2.UnsupportedProtocol(message)
    port = url.port if url.port is not None else {"http": 80, "https": 443}[url.scheme]
    return Origin(url.scheme, url.raw_host.decode("ascii"), port)


def _ssl_context(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    context = verify if isinstance(verify, ssl.SSLContext) else ssl.create_default_context()
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class HeadStart:
    """The part of a head that many requests have in common, encoded once: method, target, and headers in ASCII.

    Raises `httpx2.LocalProtocolError` for what would end a line early.
    """

    __slots__ = ("encoded", "headers", "method", "target")

    def __init__(self, method: str, target: bytes, headers: Mapping[str, str]) -> None:
        if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
            raise httpx2.LocalProtocolError("the request's method or target holds characters not allowed")
        self.method = method
        self.target = target
        self.headers = headers
        self.encoded = b"%b %b HTTP/1.1\r\n%b" % (method.encode("ascii"), target, _encode_lines(headers))


@lru_cache(256)
def _is_token(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _encode_lines(headers: Mapping[str, str]) -> bytes:
    """Refuses what would end a line early: a header must not be able to smuggle in another."""
    lines = ""
    for name, value in headers.items():
        if not _is_token(name) or not _FIELD_VALUE.fullmatch(value):
            message = f"the request's header {name[:64]!r} holds characters not allowed (line break, NUL)"
            raise httpx2.LocalProtocolError(message)
        lines += f"{name}: {value}\r\n"
    return lines.encode("ascii")
