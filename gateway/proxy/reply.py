"""What the client of one request is sent."""

from __future__ import annotations

from starlette.types import Message, Send

from gateway.proxy.errors import HTTPFailure
from gateway.proxy.forward import RoutedRequest
from gateway.wire import json

Headers = list[tuple[bytes, bytes]]

JSON_HEADERS = [(b"content-type", b"application/json")]
WRITE_SIZE = 64 * 1024  # bytes of a whole answer that are written at once


class Reply:
    """One response. `status` is 0 until it has begun; `waiting` while the client has not yet made room for a piece."""

    def __init__(self, forward: RoutedRequest, send: Send) -> None:
        self.send = send
        self.status = 0
        self.waiting = False
        self._own = [
            (b"x-request-id", forward.request_id.encode("ascii")),
            (b"x-portcullis-policy", forward.policy.policy.name.encode("latin-1", "replace")),
            *((name.encode(), value.encode()) for name, value in forward.allowance.headers.items()),
        ]

    async def start(self, status: int, headers: Headers) -> None:
        """The head, with the headers that every answer has before those given."""
        self.status = status
        await self.send({"type": "http.response.start", "status": status, "headers": [*self._own, *headers]})

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """A piece of the body; the last one if there is no more."""
        message: Message = {"type": "http.response.body", "body": body, "more_body": more}
        self.waiting = True
        await self.send(message)
        self.waiting = False

    async def write_whole(self, status: int, headers: Headers, body: bytes) -> None:
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        # In pieces, so that a client that does not read is noticed and its answer is not kept for it.
        for start in range(0, max(len(body), 1), WRITE_SIZE):
            end = start + WRITE_SIZE
            await self.write(body[start:end], more=end < len(body))

    async def fail(self, error: HTTPFailure) -> None:
        """The failure as the whole answer."""
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await self.write_whole(error.status, [*JSON_HEADERS, *headers], json.encode(error.body))
