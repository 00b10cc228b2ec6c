"""The hot path of a stream, in one place and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from starlette.types import Send

from gateway.guard.answer import StreamAnswer
from gateway.guard.channels import Tally
from gateway.guard.commands import Command
from gateway.http1 import ResponseStream
from gateway.proxy.asgi import BodyWriter


class Shortcut:
    """The hot path: what the upstream sends is guarded and written on in the callback of the read it came with.

    No task is woken and nothing is queued, while events are small and the client keeps up; whatever else happens is
    left to the relay's own loop.
    """

    def __init__(
        self,
        source: ResponseStream,
        answer: StreamAnswer,
        writer: BodyWriter,
        perform: Callable[[list[Command]], bytes],
        overhead: Tally,
        at_once: int,
    ) -> None:
        self._source = source
        self._answer = answer
        self._writer = writer
        self._perform = perform
        self._observe = overhead.observe
        self._at_once = at_once
        self.last = b""  # what ends the answer; the relay writes it, when everything else is done
        self._failure: Exception | None = None

    @classmethod
    def of(
        cls,
        source: object,
        answer: StreamAnswer,
        send: Send,
        perform: Callable[[list[Command]], bytes],
        overhead: Tally,
        at_once: int,
    ) -> Shortcut | None:
        """`at_once`: the most bytes that are scanned here. None where there is no such path: a compressed answer,
        another transport or server."""
        writer = BodyWriter.of(send)
        if writer is None or not isinstance(source, ResponseStream):
            return None
        return cls(source, answer, writer, perform, overhead, at_once)

    @property
    def blocked(self) -> bool:
        """Does the client not keep up?"""
        return self._writer.blocked

    async def run(self) -> None:
        """Returns when the relay must look itself. Raises what performing the guard's commands raised."""
        if not self._writer.blocked:
            await self._source.pump(self._take)
        if self._failure is not None:
            raise self._failure

    def _take(self, data: bytes) -> bool:
        answer = self._answer
        if len(data) > self._at_once or answer.unread > self._at_once:
            return False
        try:
            arrived = perf_counter()
            body = self._perform(answer.feed(data, arrived))
            self._observe(perf_counter() - arrived)
            if answer.done:
                self.last = body
            elif body:
                self._writer.write(body)
        except Exception as error:
            self._failure = error
        if answer.done or self._failure is not None or self._writer.blocked:
            self._source.halt()
        return True
