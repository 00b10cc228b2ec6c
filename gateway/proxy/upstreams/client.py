"""Requests to one upstream: headers, timeouts, decompression, a cached health probe."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec import Struct

from gateway.http1 import HeadStart, HTTP1Transport, Origin, Response, ResponseStream, origin_of
from gateway.policy.model import Upstream
from gateway.policy.servers import DEPLOYMENTS, MODEL_PLACE, KeyHeader, provider_of
from gateway.proxy.asgi import offload
from gateway.proxy.cached import Cached
from gateway.proxy.upstreams.health import LOCAL_SHORTAGE
from gateway.wire import json

PROBE_TTL = 10.0  # seconds that a probe's answer holds
PROBE_TIMEOUT = 3.0
MAX_CONTEXT_LENGTHS = 1024  # models of one server
MAX_PLACES = 64  # paths of one server whose address is kept
MAX_INFLATED = 16 * 1024  # bytes that one step of decompression may yield
MAX_LISTED = 1024 * 1024  # bytes of the body of a request of our own, such as a list of models

# Request headers that are forwarded, by name or prefix. Cookies, authorization and forwarding headers never are.
FORWARDED_UP = frozenset({"traceparent", "tracestate", "x-request-id"})
FORWARDED_UP_PREFIXES = ("openai-", "anthropic-")
# Not forwarded with the operator's key: with a key goes the choice of who is billed.
BILLING_HEADERS = frozenset({"openai-organization", "openai-project"})
# Forwarded only where an upstream is to get the caller's own key.
CALLERS_KEY = frozenset({"authorization", "x-api-key", "api-key"})
# Response headers that are forwarded.
FORWARDED_DOWN = frozenset({"retry-after", "retry-after-ms", "request-id", "traceparent", "tracestate"})
RATE_LIMITS = ("x-ratelimit-", "anthropic-ratelimit-")
FORWARDED_DOWN_PREFIXES = (*RATE_LIMITS, "openai-")


class UpstreamRequest(Struct, frozen=True):
    """A request for `path`, which may have a query, below the upstream's base URL; `stream`: the answer is to be a
    stream of events. `model` is the one in the body, for base URLs that name it."""

    path: str
    body: bytes
    stream: bool
    model: str = ""
    method: str = "POST"


UpstreamResponse = Response | httpx2.Response  # httpx2's own behind an HTTP proxy, and where an answer is rolled back
# The request for one upstream: different upstreams may get different ones.
RequestFor = Callable[[Upstream], UpstreamRequest]


class UnknownEncoding(httpx2.DecodingError):
    """The upstream compressed its answer, unasked, in a way that is not supported."""


class UpstreamClient:
    """One upstream and its connections. `base_url` is without a trailing slash."""

    def __init__(self, upstream: Upstream, base_url: str, max_connections: int) -> None:
        self.upstream = upstream
        self.base_url = base_url
        self.max_connections = max_connections
        configured = dict(upstream.headers)
        self._defaults = {
            name: value for name, value in provider_of(base_url).headers if name not in configured
        }  # the client's go before these
        held_back = BILLING_HEADERS if upstream.api_key else frozenset()
        self._passed = (FORWARDED_UP | CALLERS_KEY if upstream.passes_key else FORWARDED_UP) - held_back
        self._held_back = held_back
        self._answer_timeouts = self._timeouts(upstream.timeouts.first_byte)
        self._transport = _transport_for(base_url.replace(MODEL_PLACE, ""), max_connections)
        self._probe = Cached(self._is_answering, PROBE_TTL, result=False)
        self._answered = False
        self._starts: dict[tuple[str, str, bool], tuple[Origin, HeadStart]] = {}  # by method, path, stream
        self._context_lengths: dict[str, int] = {}

    async def open(
        self, request: UpstreamRequest, client_headers: Mapping[str, str], fresh: bool = False
    ) -> UpstreamResponse:
        """Send a request, once; returns with the response's head, its body unread. Raises httpx2's transport errors.

        `fresh`: on a new connection, which the server has no reason to close.
        """
        origin, start = self._start(request)
        own, listed, held_back, headers = start.headers, self._passed, self._held_back, dict(self._defaults)
        for name, value in client_headers.items():
            passes = name in listed or (name.startswith(FORWARDED_UP_PREFIXES) and name not in held_back)
            if passes and name not in own and _is_visible_ascii(value):
                headers[name] = value
        return await self._transport.send(origin, start, headers, request.body, self._answer_timeouts, fresh=fresh)

    async def call(self, method: str, path: str, seconds: float, body: bytes = b"") -> tuple[int, bytes]:
        """A small JSON request of our own: status and body, all within `seconds`. Raises httpx2's errors."""
        origin, target, host = self._place(path, None)
        types = {"accept": "application/json", **({"content-type": "application/json"} if body else {})}
        start = HeadStart(method, target, {**self._defaults, **self._own_headers(host), **types})
        try:
            async with asyncio.timeout(seconds):
                timeouts = self._timeouts(seconds)
                response = await self._transport.send(origin, start, {}, body, timeouts, fresh=method != "GET")
                received = bytearray()
                try:
                    async for data in inflated(response):
                        received += data
                        if len(received) > MAX_LISTED:
                            raise httpx2.RemoteProtocolError("answer too large")
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx2.ReadTimeout("the answer did not end in time") from None
        return response.status_code, bytes(received)

    async def context_length(self, model: str) -> int | None:
        """The model's context length in tokens, if the server lists it; cached for good."""
        if model not in self._context_lengths and len(self._context_lengths) < MAX_CONTEXT_LENGTHS:
            with contextlib.suppress(httpx2.HTTPError, ValueError, KeyError, TypeError, AttributeError):
                _, body = await self.call("GET", "/models", PROBE_TIMEOUT)
                listed: Any = await offload(len(body), json.decode, body)
                for each in listed["data"]:
                    if each["id"] == model and type(each.get("max_model_len")) is int:
                        self._context_lengths[model] = each["max_model_len"]
        return self._context_lengths.get(model)

    async def up(self) -> bool:
        """Does the server answer at all? Cached for `PROBE_TTL` seconds; an error status below 500 is an answer."""
        return await self._probe.get()

    async def close(self) -> None:
        await self._probe.close()
        await self._transport.aclose()

    async def _is_answering(self) -> bool:
        try:
            status, _ = await self.call("GET", "/models", PROBE_TIMEOUT)
        except LOCAL_SHORTAGE:
            pass  # says nothing about the server
        except httpx2.HTTPError:
            self._answered = False
        else:
            self._answered = status < 500
        return self._answered

    def _start(self, request: UpstreamRequest) -> tuple[Origin, HeadStart]:
        """The target of a request, and the headers that do not depend on the client."""
        key = (request.method, request.path, request.stream)
        known = self._starts.get(key)
        if known is None:
            origin, target, host = self._place(request.path, request.model)
            headers = self._own_headers(host)
            headers["accept"] = "text/event-stream" if request.stream else "application/json"
            if request.method == "POST":
                headers["content-type"] = "application/json"
            known = origin, HeadStart(request.method, target, headers)
            if MODEL_PLACE not in self.base_url and len(self._starts) < MAX_PLACES:
                self._starts[key] = known
        return known

    def _own_headers(self, host: str) -> dict[str, str]:
        """Our own, which go before the client's; the client's go before `_defaults` and what `upstream` has not."""
        upstream = self.upstream
        # Compressed answers would have to be inflated and would arrive in blocks.
        headers = {"host": host, "user-agent": "portcullis", **dict(upstream.headers), "accept-encoding": "identity"}
        if upstream.api_key:
            bearer = upstream.auth is KeyHeader.BEARER
            headers["authorization" if bearer else upstream.auth] = f"{'Bearer ' * bearer}{upstream.api_key}"
        return headers

    def _url(self, path: str, model: str | None = None) -> str:
        """The address of `path`; a list of models is beside the deployments that a base URL is of."""
        base = self.base_url.partition(DEPLOYMENTS)[0] if model is None else self.base_url
        version = self.upstream.api_version
        query = f"{'&' if '?' in path else '?'}api-version={version}" if version else ""
        return base.replace(MODEL_PLACE, quote(model or "", safe="")) + path + query

    def _place(self, path: str, model: str | None) -> tuple[Origin, bytes, str]:
        """Where a request to `path` goes: the origin, the target and the Host header."""
        url = httpx2.URL(self._url(path, model))
        return origin_of(url), url.raw_path, url.netloc.decode("ascii")

    def _timeouts(self, first_byte: float) -> dict[str, float | None]:
        timeouts = self.upstream.timeouts
        connect = min(timeouts.connect, first_byte)
        limits = {"connect": connect, "pool": connect, "write": timeouts.idle, "read": timeouts.idle}
        return {**limits, "first_byte": first_byte}


class _ProxiedTransport:
    """httpx2's transport, with the interface of our own."""

    def __init__(self, proxy: str, max_connections: int) -> None:
        self._transport = httpx2.AsyncHTTPTransport(proxy=proxy, limits=httpx2.Limits(max_connections=max_connections))

    async def send(
        self,
        origin: Origin,
        start: HeadStart,
        headers: Mapping[str, str],
        body: bytes,
        timeouts: Mapping[str, float | None],
        *,
        fresh: bool = False,
    ) -> httpx2.Response:
        url = httpx2.URL(scheme=origin.scheme, host=origin.host, port=origin.port, raw_path=start.target)
        extensions = {"timeout": timeouts, "fresh": fresh}
        both = {**start.headers, **headers}
        request = httpx2.Request(start.method, url, headers=both, content=body, extensions=extensions)
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _transport_for(base_url: str, max_connections: int) -> HTTP1Transport | _ProxiedTransport:
    """Our own transport, or httpx2's where the environment names an HTTP proxy for the URL."""
    url = httpx2.URL(base_url)
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(url.host):
        return _ProxiedTransport(proxy, max_connections)
    return HTTP1Transport(max_connections=max_connections)


async def wait_for_body(response: UpstreamResponse) -> None:
    """Wait for the first bytes of the body, or its end, and leave them unread. Raises what reading them would.

    Behind an HTTP proxy, where httpx2's transport reads, it returns at once.
    """
    source = response.stream
    if isinstance(source, ResponseStream):
        with contextlib.suppress(StopAsyncIteration):
            source.unread(await anext(source))


async def inflated(response: UpstreamResponse) -> AsyncIterator[bytes]:
    """The response's body, decompressed if an upstream compressed it although it was asked not to.

    Yields pieces of at most `MAX_INFLATED` bytes, so that a small body cannot become a large buffer. Raises
    `UnknownEncoding`, and `httpx2.RemoteProtocolError` for data that is not compressed as declared, or cut short.
    """
    encoding = _encoding(response)
    stream: Any = response.stream
    if encoding in ("", "identity"):
        async for data in stream:
            yield data
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnknownEncoding("content-encoding")
    inflater: Any = zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects gzip's or zlib's header
    any_data = False
    async for data in stream:
        left, more, any_data = data, True, True
        while more:
            if inflater.eof:
                # Another member may follow one of gzip (RFC 1952, 2.2), and nothing else.
                if encoding == "deflate":
                    raise httpx2.RemoteProtocolError("data after the compressed answer")
                inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                piece = inflater.decompress(left, MAX_INFLATED)
            except zlib.error:
                raise httpx2.RemoteProtocolError("broken compression") from None
            if piece:
                yield piece
            # With all of the input consumed there may be more output than one piece.
            left = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            more = bool(left) or (len(piece) == MAX_INFLATED and not inflater.eof)
            await asyncio.sleep(0)  # a small read may inflate to a great many pieces: other tasks run in between
    if any_data and not inflater.eof:
        raise httpx2.RemoteProtocolError("compression that ends too early")


def is_uncompressed(response: UpstreamResponse) -> bool:
    return _encoding(response) in ("", "identity")


def _encoding(response: UpstreamResponse) -> str:
    given = response.headers.get("content-encoding")
    return "" if given is None else str(given).strip().lower()


def forwarded_headers(response: UpstreamResponse) -> list[tuple[str, str]]:
    """The response headers that may be forwarded, not yet scanned."""
    return [(name, value) for name, value in response.headers.items() if _goes_down(name) and _is_visible_ascii(value)]


@lru_cache(256)
def _goes_down(name: str) -> bool:
    return name in FORWARDED_DOWN or name.startswith(FORWARDED_DOWN_PREFIXES)


def _is_visible_ascii(value: str) -> bool:
    """Sender, gateway and reader might each decode other bytes differently."""
    return value.isascii() and value.isprintable()
