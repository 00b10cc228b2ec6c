"""A response is written as uvicorn writes it, byte for byte, whichever of its messages take the shorter way."""

from __future__ import annotations

from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.proxy.downstream.cycle import RequestCycle
from tests.support.raw_http import Connection

REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
TYPE = (b"content-type", b"application/json")


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def outcome(messages: list[dict[str, Any]], way: type[RequestResponseCycle], request: bytes) -> tuple[Any, ...]:
    """What is written, what is raised, and whether the response is complete."""
    connection = Connection()
    connection.go.clear()
    connection.protocol.data_received(request)
    cycle, error = connection.protocol.cycle, ""
    cycle.on_response = lambda: None
    for message in messages:
        try:
            await way.send(cycle, message)  # type: ignore[arg-type]
        except RuntimeError as raised:
            error = str(raised)
    return bytes(connection.transport.written), error, cycle.response_complete


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
@pytest.mark.parametrize(
    "messages",
    [
        [start(TYPE, (b"content-length", b"4")), body(b"data", False)],
        [start(TYPE, (b"content-length", b"4")), body(b"da"), body(b"ta", False)],
        [start(TYPE, (b"content-length", b"0")), body(b"", False)],
        [start(TYPE), body(b"data"), body(b""), body(b"more"), body(b"", False)],
        [start(TYPE), body(b"data", False)],
        [start(TYPE), body(b"", False)],
        [start((b"connection", b"close")), body(b"data", False)],
        [start((b"transfer-encoding", b"chunked")), body(b"data", False)],
        [start(status=204), body(b"", False)],
        [start(TYPE, status=503), body(b"data", False)],
        [start((b"x", b"a\r\nb: c"))],
        [start((b"x", b"a\0b"))],
        [start((b"x", b"a\nb"))],
        [start(TYPE, (b"content-length", b"2")), body(b"data", False)],
        [start(TYPE, (b"content-length", b"6")), body(b"data", False)],
        [body(b"data", False)],
        [start(TYPE), start(TYPE)],
        [start(TYPE), body(b"data", False), body(b"more", False)],
    ],
)
async def test_it_writes_what_uvicorn_writes(messages: list[dict[str, Any]], method: bytes) -> None:
    request = REQUEST.replace(b"POST", method)
    assert await outcome(messages, RequestCycle, request) == await outcome(messages, RequestResponseCycle, request)


async def test_nothing_is_written_past_a_client_that_does_not_keep_up() -> None:
    connection = Connection()
    connection.go.clear()
    connection.protocol.data_received(REQUEST)
    connection.protocol.pause_writing()
    sending = connection.protocol.cycle.send(start(TYPE)).__await__()
    next(sending)
    assert not connection.transport.written
    connection.protocol.resume_writing()
    with pytest.raises(StopIteration):
        next(sending)
    assert connection.transport.written
