"""The httpx2 transport interface: requests are encoded here, responses and exceptions are httpx2's own."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping
from functools import cache, partial
from typing import NamedTuple

import httpx2

from gateway.http1.connection import Origin
from gateway.http1.exchange import Exchange
from gateway.http1.pool import ConnectionPool
from gateway.http1.response import ResponseHead, StreamLimits
from gateway.http1.stream import Response, ResponseStream

DEFAULT_MAX_CONNECTIONS = 4096
DEFAULT_IDLE_EXPIRY = 30.0  # seconds; servers commonly keep idle connections for 60 or more
_ONE_WRITE = 64 * 1024  # bytes; a larger body is not copied behind the head
_SAFE = ("GET", "HEAD")  # may be sent twice without effect

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_FIELD_VALUE = re.compile(rb"[^\x00\r\n]*")


class StaleConnection(httpx2.ReadError):
    """A reused connection was lost before the response began: closed because it was idle, or with the request read."""


class HTTP1Transport(httpx2.AsyncBaseTransport):
    """Sends requests over pooled HTTP/1.1 connections; for `httpx2.AsyncClient(transport=…)` or to be called directly.

    `response.stream` gives the raw body, content-encoding not undone; one item is everything that arrived since the
    last. `request.extensions["timeout"]` holds seconds or None under `connect`, `read`, `write`, `pool`, as httpx2
    fills it in, and optionally `first_byte`, which stands in for `read` until the first body byte. Where `pool` is
    None, a full pool is waited for `connect` seconds.

    A GET or HEAD that loses a reused connection before any byte of the response is sent once more on a new one. Any
    other request is sent once and raises `StaleConnection` then: the server may or may not have processed it.
    `request.extensions["fresh"]` requires a new connection. Raises `httpx2.PoolTimeout`, `ConnectTimeout`,
    `ConnectError`, `ReadTimeout`, `ReadError`, `WriteTimeout`, `WriteError`, `RemoteProtocolError`,
    `LocalProtocolError` and `UnsupportedProtocol`, by true cause; messages name host and port, never a URL or a
    header's value.

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

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        timeouts, fresh = request.extensions.get("timeout", {}), request.extensions.get("fresh", False)
        origin, outgoing = origin_of(request.url, request), _encode(request)
        head, stream = await self._send(request.method, origin, outgoing, timeouts, fresh=fresh, request=request)
        extensions = {"http_version": head.http_version, "reason_phrase": head.reason}
        return httpx2.Response(head.status, headers=head.headers, stream=stream, extensions=extensions)

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
        """The same without httpx2's objects. `headers` are those that `start` has not, in ASCII, but for the length of
        the body, which is written here."""
        length = b"content-length: %d\r\n" % len(body) if body or start.method not in _SAFE else b""
        head = b"%b%b%b\r\n" % (start.encoded, _encode_lines(_ascii(headers)), length)
        pieces = (head + body,) if len(body) <= _ONE_WRITE else (head, body)
        return Response(*await self._send(start.method, origin, _Outgoing(pieces, None, True), timeouts, fresh=fresh))

    async def _send(
        self,
        method: str,
        origin: Origin,
        outgoing: _Outgoing,
        timeouts: Mapping[str, float | None],
        *,
        fresh: bool,
        request: httpx2.Request | None = None,
    ) -> tuple[ResponseHead, ResponseStream]:
        """The response, its head read."""
        connection = await self._pool.acquire(request, origin, timeouts, reuse=not fresh)
        exchange = Exchange(connection, self._limits, timeouts, head_only=method == "HEAD", request=request)
        try:
            exchange.send(outgoing.pieces, outgoing.rest, keep_alive=outgoing.keep_alive)
            return await exchange.read_head(), ResponseStream(exchange)
        except httpx2.TransportError as error:
            if not exchange.stale or outgoing.rest is not None:
                raise
            if fresh or method not in _SAFE:
                raise StaleConnection(str(error), request=request) from error
        except BaseException:
            exchange.fail(httpx2.StreamClosed())
            raise
        return await self._send(method, origin, outgoing, timeouts, fresh=True, request=request)

    async def aclose(self) -> None:
        """Close every connection; exchanges in progress fail."""
        await self._pool.aclose()


def origin_of(url: httpx2.URL, request: httpx2.Request | None = None) -> Origin:
    """Raises `httpx2.UnsupportedProtocol` for a URL that is not for this transport."""
    if url.scheme not in ("http", "https") or not url.host:
        message = f"this transport speaks http:// and https:// with a host, not {url.scheme!r} to {url.host!r}"
        raise httpx2.UnsupportedProtocol(message, request=request)
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
        self.method = method
        self.target = target
        self.headers = headers
        self.encoded = _request_line(method, target) + _encode_lines(_ascii(headers))


class _Outgoing(NamedTuple):
    """A request as bytes to write: `pieces` at once, then `rest`, which can be had only once."""

    pieces: tuple[bytes, ...]
    rest: AsyncGenerator[bytes, None] | None
    keep_alive: bool


def _encode(request: httpx2.Request) -> _Outgoing:
    head = _encode_head(request.method, request.url.raw_path, request.headers.raw, request)
    length, chunked = _body_framing(request)
    keep_alive = "close" not in request.headers.get("connection", "").lower()
    if not isinstance(request.stream, httpx2.ByteStream):
        return _Outgoing((head,), _framed(request, length, chunked), keep_alive)
    body = b"".join(request.stream)
    if not chunked and len(body) != length:
        raise _length_error(request, length)
    if chunked:
        body = _chunk(body) + b"0\r\n\r\n"
    return _Outgoing((head + body,) if len(body) <= _ONE_WRITE else (head, body), None, keep_alive)


def _encode_head(
    method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], request: httpx2.Request | None = None
) -> bytes:
    return b"%b%b\r\n" % (_request_line(method, target, request), _encode_lines(headers, request))


def _request_line(method: str, target: bytes, request: httpx2.Request | None = None) -> bytes:
    verb = method.encode("ascii")
    if not _TOKEN.fullmatch(verb) or not _TARGET.fullmatch(target):
        raise httpx2.LocalProtocolError("the request's method or target holds characters not allowed", request=request)
    return b"%b %b HTTP/1.1\r\n" % (verb, target)


def _ascii(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


def _encode_lines(headers: Iterable[tuple[bytes, bytes]], request: httpx2.Request | None = None) -> bytes:
    """Encode header lines. Line ends in values are refused: one header must not smuggle in another."""
    lines: list[bytes] = []
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
            message = f"the request's header {name[:64]!r} holds characters not allowed (line break, NUL)"
            raise httpx2.LocalProtocolError(message, request=request)
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def _body_framing(request: httpx2.Request) -> tuple[int, bool]:
    """The declared length (0 where none is) and whether the body is chunked."""
    declared = request.headers.get("content-length")
    codings = request.headers.get("transfer-encoding")
    if codings is None and declared is None:
        return 0, False
    if codings is not None and declared is None and codings.strip().lower() == "chunked":
        return 0, True
    if codings is None and declared is not None and declared.isdecimal():
        return int(declared), False
    message = "the request needs one Content-Length in digits, or Transfer-Encoding: chunked, not both"
    raise httpx2.LocalProtocolError(message, request=request)


async def _framed(request: httpx2.Request, length: int, chunked: bool) -> AsyncGenerator[bytes, None]:
    """The streamed body with its framing, of exactly the declared length."""
    left = length
    async for part in _parts(request):
        if not part:
            continue
        if not chunked and len(part) > left:
            raise _length_error(request, length)
        left -= len(part)
        yield _chunk(part) if chunked else part
    if chunked:
        yield b"0\r\n\r\n"
    elif left:
        raise _length_error(request, length)


async def _parts(request: httpx2.Request) -> AsyncIterator[bytes]:
    if isinstance(request.stream, AsyncIterable):
        async for part in request.stream:
            yield part
    else:
        for part in request.stream:
            yield part


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part) if part else b""


def _length_error(request: httpx2.Request, length: int) -> httpx2.LocalProtocolError:
    return httpx2.LocalProtocolError(f"the request's body is not of the declared {length} bytes", request=request)
