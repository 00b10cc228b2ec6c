"""The servers behind: how a request is made for one, how its bytes are read, whether it is up and worth asking."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx

from gateway.http1.pool import NoDescriptor
from gateway.http1.response import ResponseStream
from gateway.http1.transport import FastTransport, StaleConnection
from gateway.policy.model import Health, Upstream
from gateway.proxy.asgi import offload
from gateway.proxy.cached import Cached
from gateway.proxy.errors import from_transport
from gateway.wire import json

PROBE_TTL = 10.0  # seconds that a probe's answer holds
PROBE_TIMEOUT = 3.0
MAX_ROOMS = 1024  # models of one server
MAX_INFLATED = 16 * 1024  # bytes that one step of decompression may yield
MAX_LISTED = 1024 * 1024  # bytes of a list of models, or of what else a small call is answered

# Request headers that travel on, by name or beginning. Cookies, authorization and forwarding headers never do.
FORWARDED_UP = frozenset({"traceparent", "tracestate", "x-request-id"})
FORWARDED_UP_PREFIXES = ("openai-",)
# Who pays for a request is up to whoever has the key: where that is the operator's, the client's choice stays here.
PAYERS = frozenset({"openai-organization", "openai-project"})
# Response headers that travel back.
FORWARDED_DOWN = frozenset({"retry-after", "retry-after-ms", "traceparent", "tracestate"})
FORWARDED_DOWN_PREFIXES = ("x-ratelimit-", "openai-")

# Statuses that say the server is not well, not that the request is wrong.
_UNWELL = frozenset({500, 502, 503, 504})
_ASK_AGAIN = frozenset({429, 503})  # the server says that it did nothing
_OUR_OWN = (httpx.PoolTimeout, NoDescriptor)  # our connections ran out, or what they are made of
# What can go wrong before an answer that is not the request's own fault.
FAILURES = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.ProxyError)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is posted to an upstream: to which path below its base URL, and whether a stream is asked for."""

    path: str
    body: bytes
    stream: bool


# One request may be put differently to different upstreams.
Asking = Callable[[Upstream], Asked]


class UnknownEncoding(httpx.DecodingError):
    """The upstream compressed its answer, unasked, in a way that is not understood here."""


class UpstreamClient:
    """One upstream: its connections and what it is told. `base_url` is without a trailing slash."""

    def __init__(self, upstream: Upstream, base_url: str, max_connections: int) -> None:
        self.upstream = upstream
        self.base_url = base_url
        self.max_connections = max_connections
        self._transport = _transport_for(base_url, max_connections)
        self._probe = Cached(self._answers, PROBE_TTL, result=False)
        self._answered = False
        self._rooms: dict[str, int] = {}

    async def open(self, asked: Asked, client_headers: Mapping[str, str], *, fresh: bool = False) -> httpx.Response:
        """Send a request, once; the response's head has arrived, its body has not. Raises httpx's transport errors.

        `fresh`: on a new connection, which the server has no reason to close.
        """
        headers = self._headers()
        kept = PAYERS if self.upstream.api_key else ()
        for name, value in client_headers.items():
            listed = name in FORWARDED_UP or name.startswith(FORWARDED_UP_PREFIXES)
            if listed and name not in kept and _travels(value):
                headers[name] = value
        headers["accept"] = "text/event-stream" if asked.stream else "application/json"
        headers["content-type"] = "application/json"
        return await self._send("POST", asked.path, headers, asked.body, self.upstream.timeouts.first_byte, fresh=fresh)

    async def get_json(self, path: str, patience: float) -> tuple[int, bytes]:
        """A small plain call of our own: status and body, all within `patience` seconds. Raises httpx's errors."""
        return await self._call("GET", path, b"", patience)

    async def post_json(self, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
        """The same with a body."""
        return await self._call("POST", path, body, patience)

    async def _call(self, method: str, path: str, body: bytes, patience: float) -> tuple[int, bytes]:
        headers = self._headers()
        headers["accept"] = "application/json"
        if body:
            headers["content-type"] = "application/json"
        try:
            async with asyncio.timeout(patience):
                response = await self._send(method, path, headers, body, patience, fresh=method != "GET")
                received = bytearray()
                try:
                    async for data in inflated(response):
                        received += data
                        if len(received) > MAX_LISTED:
                            raise httpx.RemoteProtocolError("answer too large")
                finally:
                    await response.aclose()
        except TimeoutError:
            raise httpx.ReadTimeout("the answer did not end in time") from None
        return response.status_code, bytes(received)

    async def room(self, model: str) -> int | None:
        """How many tokens prompt and answer of a model may have together, if the server says so; asked once."""
        if model not in self._rooms and len(self._rooms) < MAX_ROOMS:
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
                _, body = await self.get_json("/models", PROBE_TIMEOUT)
                listed: Any = await offload(len(body), json.decode, body)
                for each in listed["data"]:
                    if each["id"] == model and type(each.get("max_model_len")) is int:
                        self._rooms[model] = each["max_model_len"]
        return self._rooms.get(model)

    async def up(self) -> bool:
        """Does the server answer at all? Cached for `PROBE_TTL` seconds; an error status below 500 is an answer."""
        return await self._probe.get()

    async def close(self) -> None:
        await self._probe.close()
        await self._transport.aclose()

    async def _answers(self) -> bool:
        try:
            status, _ = await self.get_json("/models", PROBE_TIMEOUT)
        except _OUR_OWN:
            pass  # what was known of the server still holds
        except httpx.HTTPError:
            self._answered = False
        else:
            self._answered = status < 500
        return self._answered

    def _headers(self) -> dict[str, str]:
        # Compressed answers would have to be inflated and would arrive in blocks.
        headers = {"accept-encoding": "identity", "user-agent": "portcullis"}
        if self.upstream.api_key:
            headers["authorization"] = f"Bearer {self.upstream.api_key}"
        return headers

    async def _send(
        self, method: str, path: str, headers: dict[str, str], body: bytes, first_byte: float, *, fresh: bool
    ) -> httpx.Response:
        timeouts = self.upstream.timeouts
        patience = {
            "connect": min(timeouts.connect, first_byte),
            "pool": min(timeouts.connect, first_byte),
            "write": timeouts.idle,
            "read": timeouts.idle,
            "first_byte": first_byte,
        }
        extensions = {"timeout": patience, "fresh": fresh}
        request = httpx.Request(method, self.base_url + path, headers=headers, content=body, extensions=extensions)
        return await self._transport.handle_async_request(request)


def _transport_for(base_url: str, max_connections: int) -> httpx.AsyncBaseTransport:
    """Our own transport, or httpx's where an HTTP proxy from the environment stands between."""
    url = httpx.URL(base_url)
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(url.host):
        return httpx.AsyncHTTPTransport(proxy=proxy, limits=httpx.Limits(max_connections=max_connections))
    return FastTransport(max_connections=max_connections)


async def begun(response: httpx.Response) -> None:
    """Wait for the first bytes of the body, or its end, and leave them unread. Raises what reading them would.

    Behind an HTTP proxy, where httpx's transport reads, it returns at once.
    """
    source = response.stream
    if isinstance(source, ResponseStream):
        with contextlib.suppress(StopAsyncIteration):
            source.on_body(await anext(source))  # back into its queue: nothing can have come in between


async def inflated(response: httpx.Response) -> AsyncIterator[bytes]:
    """The response's body, decompressed if an upstream compressed it although it was asked not to.

    Yields pieces of at most `MAX_INFLATED` bytes, so that a small body cannot become a large buffer. Raises
    `UnknownEncoding`, and `httpx.RemoteProtocolError` for what is not compressed as it says, or not to its end.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    stream: Any = response.stream
    if encoding in ("", "identity"):
        async for data in stream:
            yield data
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UnknownEncoding("content-encoding")
    inflater: Any = zlib.decompressobj(zlib.MAX_WBITS | 32)  # finds gzip's or zlib's header by itself
    begun = False
    async for data in stream:
        left, more, begun = data, True, True
        while more:
            if inflater.eof:
                # Another member may follow one of gzip (RFC 1952, 2.2), and nothing else.
                if encoding == "deflate":
                    raise httpx.RemoteProtocolError("data behind the compressed answer")
                inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                piece = inflater.decompress(left, MAX_INFLATED)
            except zlib.error:
                raise httpx.RemoteProtocolError("broken compression") from None
            if piece:
                yield piece
            # With all of the input taken there may be more output than one piece.
            left = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            more = bool(left) or (len(piece) == MAX_INFLATED and not inflater.eof)
            await asyncio.sleep(0)  # a small read may hold a great many of these: the others get their turn
    if begun and not inflater.eof:
        raise httpx.RemoteProtocolError("compression that ends too early")


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


# -- health ------------------------------------------------------------------------------------------------------------


class State(StrEnum):
    """Of a breaker: all requests pass, none does, one at a time does."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Whether an upstream is worth asking. Times are seconds of one monotonic clock."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._failures = 0  # in a row
        self._opened_at: float | None = None
        self._trial: object | None = None

    def state(self, now: float) -> State:
        if self._opened_at is None:
            return State.CLOSED
        return State.OPEN if now - self._opened_at < self._health.eject_for else State.HALF_OPEN

    def admits(self, now: float) -> bool:
        state = self.state(now)
        return state is State.CLOSED or (state is State.HALF_OPEN and self._trial is None)

    def begin(self, now: float) -> object | None:
        """A request is sent; if it is the trial of a half-open breaker, what to give to `abandon`.

        A request that is sent although it is not admitted is no trial, but its outcome counts.
        """
        if self.state(now) is not State.HALF_OPEN or self._trial is not None:
            return None
        self._trial = object()
        return self._trial

    def abandon(self, trial: object | None) -> None:
        """A request ended without an outcome; if it was the trial, another may be."""
        if trial is self._trial:
            self._trial = None

    def success(self, now: float) -> None:
        self._failures = 0
        self._opened_at = self._trial = None

    def failure(self, now: float) -> None:
        self._failures += 1
        state = self.state(now)
        # Requests from before the ejection that fail late do not prolong it.
        if state is State.HALF_OPEN or (state is State.CLOSED and self._failures >= self._health.eject_after):
            self._opened_at, self._trial = now, None


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds. Infinite where the header is there but holds no number of seconds: a date means a longer wait."""
    milliseconds, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    if milliseconds is None and seconds is None:
        return None
    try:
        value = float(seconds or "") if milliseconds is None else float(milliseconds) / 1000
    except ValueError:
        return float("inf")
    return value if value >= 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why another attempt may be made. `healthy`: what it says about the upstream, None if nothing; `again`: the same
    upstream may be asked, because it has certainly not begun to work on the request; `stale`: it may be asked at once,
    on a new connection, because the one that was lost had been idle."""

    kind: str
    healthy: bool | None
    again: bool
    retry_after: float | None = None
    stale: bool = False


def fault_of_answer(response: httpx.Response) -> Fault | None:
    status = response.status_code
    if status not in _UNWELL | _ASK_AGAIN:
        return None
    return Fault("status", status not in _UNWELL, status in _ASK_AGAIN, retry_after_of(response.headers))


def fault_of_error(error: httpx.TransportError) -> Fault:
    kind = from_transport(error).kind
    if isinstance(error, _OUR_OWN):
        return Fault(kind, None, again=False)
    if isinstance(error, StaleConnection):
        return Fault(kind, None, again=True, stale=True)
    return Fault(kind, False, again=isinstance(error, httpx.ConnectError | httpx.ConnectTimeout))
