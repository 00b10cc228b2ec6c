"""Performs the rollback of a streamed answer: applies `RollbackStream` to its body and sends the requests it needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import httpx2

from gateway.observe.facts import Fact
from gateway.proxy.asgi import offload
from gateway.proxy.steering.request import RequestRewriter
from gateway.proxy.steering.rollback import Resume, RollbackStream, UnreadableAnswer
from gateway.proxy.upstreams.client import UpstreamClient, UpstreamResponse, inflated
from gateway.wire import json, sse
from gateway.wire.json import Json

_EVENTS = "text/event-stream"
# Headers that do not hold for the rewritten body.
_GONE = ("content-encoding", "content-length", "transfer-encoding")


class ResumeClient:
    """Sends one request's further requests to one upstream."""

    def __init__(self, client: UpstreamClient, rewriter: RequestRewriter, headers: Mapping[str, str]) -> None:
        self._client = client
        self._rewriter = rewriter
        self._headers = headers
        self._sent = 0

    async def context_length(self) -> int | None:
        """Tokens of prompt and answer together; None if the server does not list it."""
        return await self._client.context_length(self._rewriter.model)

    async def resume(self, resume: Resume) -> UpstreamResponse:
        """The head of the resumed answer. Raises httpx2's errors, also where the server refuses."""
        self._sent += 1
        # vLLM derives its own request id from this one, and may still know the request that was closed.
        headers = {**self._headers, "x-request-id": f"{self._headers['x-request-id']}-{self._sent}"}
        request = self._rewriter.resume_request(self._client.upstream, resume)
        response = await self._client.open(request, headers, fresh=True)  # a stale connection would not be retried
        if response.is_success:
            return response
        await response.aclose()
        raise httpx2.RemoteProtocolError(
            f"the upstream answered {response.status_code} to the request that resumes the answer"
        )


def with_rollback(
    response: UpstreamResponse,
    rollback: RollbackStream,
    client: ResumeClient,
    record: Callable[[Fact], None],
    max_event: int,
    weight: int,
) -> UpstreamResponse:
    """The response with a body that is rolled back and resumed. One that is not a stream of events is returned as is.

    `weight`: the cost of scanning a byte (`gateway.proxy.asgi.scan_cost`).
    """
    if not response.headers.get("content-type", "").lower().startswith(_EVENTS):
        return response
    headers = [(name, value) for name, value in response.headers.items() if name not in _GONE]
    body = _RollbackBody(response, rollback, client, record, max_event, weight)
    return httpx2.Response(response.status_code, headers=headers, stream=body)


class _RollbackBody(httpx2.AsyncByteStream):
    """Iterating raises what the upstream's own stream raises, and what `ResumeClient.resume` does."""

    def __init__(
        self,
        response: UpstreamResponse,
        rollback: RollbackStream,
        client: ResumeClient,
        record: Callable[[Fact], None],
        max_event: int,
        weight: int,
    ) -> None:
        self._response = response
        self._rollback = rollback
        self._client = client
        self._record = record
        self._max_event = max_event
        self._weight = weight
        self._ended = False  # the upstream has sent [DONE]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rollback = self._rollback
        if rollback.needs_context_length:
            rollback.context_length = await self._client.context_length()
        try:
            async for data in self._events():
                yield data
            while rollback.resume is not None:
                resume, rollback.resume = rollback.resume, None
                # Closed first, so that the model does not generate two answers at once.
                await self._response.aclose()
                self._response = await self._client.resume(resume)
                async for data in self._events():
                    yield data
        except httpx2.HTTPError:
            if rest := self._finish():
                yield rest
            raise
        if rest := self._finish() + (sse.DONE if self._ended or rollback.done else b""):
            yield rest

    def _finish(self) -> bytes:
        rest = _encoded(self._rollback.finish())
        self._record_facts()
        return rest

    def _record_facts(self) -> None:
        for fact in self._rollback.facts:
            self._record(fact)
        self._rollback.facts.clear()

    async def _events(self) -> AsyncIterator[bytes]:
        """What to send for the reads of one response, up to its end or to where the rest is not needed."""
        decoder = sse.Decoder(self._max_event)
        comments = 0
        try:
            async with contextlib.aclosing(inflated(self._response)) as source:  # type: ignore[type-var]
                async for data in source:
                    size = (len(data) + decoder.unread) * self._weight
                    sent = await offload(size, lambda data=data: self._rewrite(decoder.feed(data)))
                    self._record_facts()
                    if sent:
                        yield sent
                    elif decoder.comments != comments:
                        yield sse.KEEP_ALIVE
                    comments = decoder.comments
                    if self._ended or self._rollback.resume is not None or self._rollback.done:
                        return
            if sent := await offload(decoder.unread * self._weight, lambda: self._rewrite(decoder.close())):
                yield sent
        except (sse.EventTooLarge, UnreadableAnswer) as error:
            raise httpx2.RemoteProtocolError(str(error)) from None

    def _rewrite(self, events: list[sse.Event]) -> bytes:
        rollback, sent = self._rollback, b""
        for event in events:
            if event.data.strip() == b"[DONE]":
                self._ended = True
                break
            try:
                received = json.decode(event.data)
            except json.JSONError:
                received = None
            if not isinstance(received, dict):
                # The guard behind handles it.
                sent += b"".join(b"data: " + line + b"\n" for line in event.data.split(b"\n")) + b"\n"
                continue
            sent += _encoded(rollback.feed(received))
            if rollback.resume is not None or rollback.done:
                break
        return sent

    async def aclose(self) -> None:
        await self._response.aclose()


def _encoded(events: list[Json]) -> bytes:
    return b"".join([sse.encode(json.encode(event)) for event in events])
