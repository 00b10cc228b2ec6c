"""Performs the rollback of a streamed answer: applies `RollbackStream` to its body and sends the requests it needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import httpx

from gateway.observe.facts import Fact
from gateway.proxy.asgi import aside
from gateway.proxy.steering.request import Steering
from gateway.proxy.steering.rollback import Resume, RollbackStream, UnreadableAnswer
from gateway.proxy.upstreams.client import UpstreamClient, inflated
from gateway.wire import json, sse
from gateway.wire.chat import Json

_EVENTS = "text/event-stream"
# What the wrapped response no longer is.
_GONE = ("content-encoding", "content-length", "transfer-encoding")


class ResumeClient:
    """Asks one upstream further for one request."""

    def __init__(self, client: UpstreamClient, steering: Steering, headers: Mapping[str, str]) -> None:
        self._client = client
        self._steering = steering
        self._headers = headers
        self._asked = 0

    async def context_length(self) -> int | None:
        """How many tokens prompt and answer may have together; None if the server does not say."""
        return await self._client.context_length(self._steering.model)

    async def ask(self, resume: Resume) -> httpx.Response:
        """The answer taken up again, its head. Raises httpx's errors, also where the server refuses."""
        self._asked += 1
        # vLLM makes its own name for a request of this one, and it may still know the request that was let go.
        headers = {**self._headers, "x-request-id": f"{self._headers['x-request-id']}-{self._asked}"}
        asked = self._steering.again(self._client.upstream, resume)
        response = await self._client.open(asked, headers, fresh=True)  # nobody would ask once more
        if response.is_success:
            return response
        await response.aclose()
        raise httpx.RemoteProtocolError(f"the upstream answered {response.status_code} when it was asked to go on")


def with_rollback(
    response: httpx.Response,
    retelling: RollbackStream,
    asker: ResumeClient,
    record: Callable[[Fact], None],
    max_event: int,
    weight: int,
) -> httpx.Response:
    """The response with another body: one that is told again where it must be. What is no stream of events stays.
    `weight`: how costly a byte is to scan (`gateway.proxy.asgi.weight`)."""
    if not response.headers.get("content-type", "").lower().startswith(_EVENTS):
        return response
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _GONE]
    body = _Body(response, retelling, asker, record, max_event, weight)
    return httpx.Response(response.status_code, headers=headers, stream=body)


class _Body(httpx.AsyncByteStream):
    """Iterating raises what the upstream's own stream raises, and what asking it again does."""

    def __init__(
        self,
        response: httpx.Response,
        retelling: RollbackStream,
        asker: ResumeClient,
        record: Callable[[Fact], None],
        max_event: int,
        weight: int,
    ) -> None:
        self._response = response
        self._retelling = retelling
        self._asker = asker
        self._record = record
        self._max_event = max_event
        self._weight = weight
        self._told = False  # has the upstream said that it is over?

    async def __aiter__(self) -> AsyncIterator[bytes]:
        retelling = self._retelling
        if retelling.needs_context_length:
            retelling.context_length = await self._asker.context_length()
        try:
            async for data in self._events():
                yield data
            while retelling.resume is not None:
                resume, retelling.resume = retelling.resume, None
                # It must not go on while it is asked again: what it says now nobody will read.
                await self._response.aclose()
                self._response = await self._asker.ask(resume)
                async for data in self._events():
                    yield data
        except httpx.HTTPError:
            if rest := self._rest():
                yield rest
            raise
        if rest := self._rest() + (sse.DONE if self._told or retelling.done else b""):
            yield rest

    def _rest(self) -> bytes:
        rest = _encoded(self._retelling.end())
        self._tell()
        return rest

    def _tell(self) -> None:
        for fact in self._retelling.facts:
            self._record(fact)
        self._retelling.facts.clear()

    async def _events(self) -> AsyncIterator[bytes]:
        """What to send for the reads of one response, up to its end or to where it is not wanted any more."""
        decoder = sse.Decoder(self._max_event)
        comments = 0
        try:
            async with contextlib.aclosing(inflated(self._response)) as source:  # type: ignore[type-var]
                async for data in source:
                    sent = await aside((len(data) + decoder.unread) * self._weight, self._read, decoder, data)
                    self._tell()
                    if sent:
                        yield sent
                    elif decoder.comments != comments:
                        yield sse.KEEP_ALIVE
                    comments = decoder.comments
                    if self._told or self._retelling.resume is not None or self._retelling.done:
                        return
            if sent := await aside(decoder.unread * self._weight, self._close, decoder):
                yield sent
        except (sse.EventTooLarge, UnreadableAnswer) as error:
            raise httpx.RemoteProtocolError(str(error)) from None

    def _read(self, decoder: sse.Decoder, data: bytes) -> bytes:
        return self._take(decoder.feed(data))

    def _close(self, decoder: sse.Decoder) -> bytes:
        return self._take(decoder.close())

    def _take(self, events: list[sse.Event]) -> bytes:
        retelling, sent = self._retelling, b""
        for event in events:
            if event.data.strip() == b"[DONE]":
                self._told = True
                break
            try:
                received = json.decode(event.data)
            except json.JSONError:
                received = None
            if not isinstance(received, dict):
                # The guard behind knows what to do about it.
                sent += b"".join(b"data: " + line + b"\n" for line in event.data.split(b"\n")) + b"\n"
                continue
            sent += _encoded(retelling.take(received))
            if retelling.resume is not None or retelling.done:
                break
        return sent

    async def aclose(self) -> None:
        await self._response.aclose()


def _encoded(events: list[Json]) -> bytes:
    return b"".join([sse.encode(json.encode(event)) for event in events])
