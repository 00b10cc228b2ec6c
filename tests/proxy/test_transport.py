"""What one exchange does: responses in every framing and cut, errors by cause, flow control, cancellation."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.http1 import HTTP1Transport, StreamLimits
from tests.support.scripted_server import CERTS, Conversation, Script, ScriptedServer, on_both_loops, serving

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024


@asynccontextmanager
async def talking(script: Script, transport: HTTP1Transport | None = None) -> AsyncIterator[tuple[HTTP1Transport, str]]:
    """A transport and the address of a server that runs `script`."""
    async with serving(script) as server, transport or HTTP1Transport() as client:
        yield client, server.url


def answering(response: bytes) -> Script:
    """A script that answers each request with `response`, then waits for the client."""

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.body()
            await conversation.send(response)

    return script


def answering_then_closing(response: bytes) -> Script:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(response)

    return script


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def request_to(url: str, method: str = "GET", **arguments: object) -> httpx.Request:
    return httpx.Request(method, url, **arguments)  # type: ignore[arg-type]


def with_timeout(url: str, **timeout: float) -> httpx.Request:
    return httpx.Request("GET", url, extensions={"timeout": timeout})


async def body_of(response: httpx.Response) -> bytes:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return b"".join([part async for part in response.stream])


# Framing: response bytes that keep the connection open → status, body. Each runs whole, byte by byte and joined.

LONG_BODY = b"0123456789" * 30
RESPONSES = {
    "content-length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello"),
    "content-length zero": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
    "chunked": (CHUNKED + chunks(b"he", b"llo") + b"0\r\n\r\n", 200, b"hello"),
    "chunked, extensions and trailers": (
        CHUNKED + b"5;name=value\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n",
        200,
        b"hello",
    ),
    "chunked in capitals after another coding": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n" + chunks(b"raw") + b"0\r\n\r\n",
        200,
        b"raw",
    ),
    "long": (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LONG_BODY) + LONG_BODY, 200, LONG_BODY),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
    "no reason phrase": (b"HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", 404, b"x"),
    "interim responses first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
        201,
        b"ok",
    ),
    "upgrade offered, not done": (
        b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "byte by byte"])
@on_both_loops
async def test_response_is_read_and_its_connection_reused(name: str, bytewise: bool) -> None:
    raw, status, body = RESPONSES[name]
    conversations = 0

    async def script(conversation: Conversation) -> None:
        nonlocal conversations
        conversations += 1
        while True:
            await conversation.request()
            await (conversation.send_bytewise(raw) if bytewise else conversation.send(raw))

    async with talking(script) as (transport, url):
        for _ in range(2):
            response = await transport.handle_async_request(request_to(url))
            assert (response.status_code, await body_of(response)) == (status, body)
    assert conversations == 1


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "byte by byte"])
@on_both_loops
async def test_body_without_framing_ends_with_the_connection(bytewise: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        raw = b"HTTP/1.1 200 OK\r\n\r\nto the end"
        await (conversation.send_bytewise(raw) if bytewise else conversation.send(raw))

    async with talking(script) as (transport, url):
        for _ in range(2):
            assert await body_of(await transport.handle_async_request(request_to(url))) == b"to the end"


@pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b""])
@on_both_loops
async def test_head_response_has_no_body(framing: bytes) -> None:
    async with talking(answering(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n")) as (transport, url):
        for _ in range(2):
            response = await transport.handle_async_request(request_to(url, "HEAD"))
            assert response.status_code == 200
            assert await body_of(response) == b""


@on_both_loops
async def test_body_sent_with_a_head_response_is_dropped_with_the_connection() -> None:
    async with serving(answering(RESPONSES["content-length"][0])) as server, HTTP1Transport() as transport:
        for _ in range(2):
            assert await body_of(await transport.handle_async_request(request_to(server.url, "HEAD"))) == b""
        assert len(server.conversations) == 2


@on_both_loops
async def test_head_of_the_response_is_handed_over_as_it_came() -> None:
    raw = b"HTTP/1.1 299 All Good \r\nX-Two: a\r\nx-two:  b \t\r\nContent-Length: 0\r\n\r\n"
    async with talking(answering(raw)) as (transport, url):
        response = await transport.handle_async_request(request_to(url))
    assert response.headers.raw == [(b"X-Two", b"a"), (b"x-two", b"b"), (b"Content-Length", b"0")]
    assert response.http_version == "HTTP/1.1"
    assert response.reason_phrase.strip() == "All Good"


@on_both_loops
async def test_bytes_behind_a_response_are_not_its_body_and_spoil_the_connection() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    async with talking(answering(raw)) as (transport, url):
        for _ in range(2):
            assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"


@on_both_loops
async def test_bytes_on_an_idle_connection_are_never_an_answer() -> None:
    forged = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        if not forged.is_set():
            await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
            await conversation.until_client_leaves()
            forged.set()

    async with talking(script) as (transport, url):
        assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"
        await forged.wait()
        assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"


@on_both_loops
async def test_one_read_is_one_item_however_many_chunks_it_holds() -> None:
    head_seen, queued = asyncio.Event(), asyncio.Event()
    tokens = [b"token %d " % n for n in range(50)]

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED)
        await head_seen.wait()
        await conversation.send(chunks(*tokens))
        await queued.wait()
        await conversation.send(b"0\r\n\r\n")
        await conversation.until_client_leaves()

    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(request_to(url))
        head_seen.set()
        items = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(items) == b"".join(tokens)
        queued.set()
        assert [item async for item in items] == []


@on_both_loops
async def test_reads_queued_behind_a_slow_consumer_become_one_item() -> None:
    all_sent = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.send(CHUNKED, *(chunks(b"%d " % n) for n in range(20)), b"0\r\n\r\n")
            all_sent.set()

    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(request_to(url))
        await all_sent.wait()
        await body_of(await transport.handle_async_request(request_to(url)))  # the loop has turned many times
        items = [item async for item in response.stream]  # type: ignore[union-attr]
        assert items == [b"".join(b"%d " % n for n in range(20))]


# Errors by cause: bytes of the response, then the server closes or resets → where it surfaces, as what, saying what.

FAULTS = {
    "nothing": (b"", "head", httpx.RemoteProtocolError, "connection closed before the response"),
    "half a head": (b"HTTP/1.1 200 OK\r\nX-A: ", "head", httpx.RemoteProtocolError, "closed inside the response head"),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n", "head", httpx.RemoteProtocolError, "malformed response"),
    "bare line feeds": (b"HTTP/1.1 200 OK\nA: b\n\n", "head", httpx.RemoteProtocolError, "malformed response"),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "head",
        httpx.RemoteProtocolError,
        "malformed response",
    ),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "head",
        httpx.RemoteProtocolError,
        "malformed response",
    ),
    "switching protocols": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nxyz",
        "head",
        httpx.RemoteProtocolError,
        "switch",
    ),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000, "head", httpx.RemoteProtocolError, "256 headers"),
    "endless header": (b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 90_000, "head", httpx.RemoteProtocolError, "65536 bytes"),
    "endless interims": (b"HTTP/1.1 102 Wait\r\n\r\n" * 9000, "head", httpx.RemoteProtocolError, "65536 bytes"),
    "short body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "body",
        httpx.RemoteProtocolError,
        "closed inside the response body",
    ),
    "unterminated chunks": (
        CHUNKED + chunks(b"hello"),
        "body",
        httpx.RemoteProtocolError,
        "closed inside the response body",
    ),
    "bad chunk size": (CHUNKED + chunks(b"hello") + b"zz\r\n", "body", httpx.RemoteProtocolError, "malformed response"),
    "endless trailer": (
        CHUNKED + chunks(b"hello") + b"0\r\nX: " + b"y" * 600_000,
        "body",
        httpx.RemoteProtocolError,
        "trailers larger than 65536",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@on_both_loops
async def test_fault_is_reported_by_its_cause(name: str) -> None:
    raw, place, error, message = FAULTS[name]
    async with talking(answering_then_closing(raw)) as (transport, url):
        request = request_to(url)
        with pytest.raises(error, match=message) as caught:
            response = await transport.handle_async_request(request)
            assert place == "body"
            items = aiter(response.stream)  # type: ignore[arg-type]
            assert await anext(items) == b"hello", "what came before the fault is delivered first"
            await anext(items)
        assert caught.value.request is request


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200", CHUNKED, CHUNKED + chunks(b"hello")])
@on_both_loops
async def test_reset_is_a_read_error(raw: bytes) -> None:
    received = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(raw)
        if raw.startswith(CHUNKED):
            await received.wait()
        conversation.reset()

    async with talking(script) as (transport, url):
        with pytest.raises(httpx.ReadError, match="connection lost"):
            response = await transport.handle_async_request(request_to(url))
            received.set()
            await body_of(response)


@on_both_loops
async def test_head_limit_is_exact() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    for limit, fits in ((len(head), True), (len(head) - 1, False)):
        transport = HTTP1Transport(limits=StreamLimits(head=limit))
        async with talking(answering(head + b"ok"), transport) as (_, url):
            if fits:
                assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"
            else:
                with pytest.raises(httpx.RemoteProtocolError, match=f"head larger than {limit} bytes"):
                    await transport.handle_async_request(request_to(url))


async def test_headers_are_bounded() -> None:
    limit = StreamLimits().headers
    for more, fits in ((0, True), (1, False)):
        lines = b"".join(b"X-%d: a\r\n" % number for number in range(limit - 1 + more))
        transport = HTTP1Transport()
        async with talking(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + lines + b"\r\nok"), transport) as (
            _,
            url,
        ):
            if fits:
                assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"
            else:
                with pytest.raises(httpx.RemoteProtocolError, match=f"more than {limit} headers"):
                    await transport.handle_async_request(request_to(url))


@on_both_loops
async def test_refused_connection_and_unknown_host_are_told_apart() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with HTTP1Transport() as transport:
            with pytest.raises(httpx.ConnectError, match=f"127.0.0.1:{port}: connection refused"):
                await transport.handle_async_request(request_to(f"http://user:pass@127.0.0.1:{port}/"))
            with pytest.raises(httpx.ConnectError, match="cannot be resolved") as caught:
                await transport.handle_async_request(request_to("http://user:secret@no-such-host.invalid/"))
    assert "secret" not in str(caught.value)


@on_both_loops
async def test_other_schemes_are_refused() -> None:
    async with HTTP1Transport() as transport:
        with pytest.raises(httpx.UnsupportedProtocol):
            await transport.handle_async_request(request_to("ftp://localhost/"))


# Timeouts. Whether one strikes is decided by what the server does, never by how fast the machine is.


@on_both_loops
async def test_connect_timeout() -> None:
    # A listener whose backlog is full leaves a further connection attempt unanswered.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        async with HTTP1Transport() as transport:
            with pytest.raises(httpx.ConnectTimeout, match=r"within 0\.1 seconds"):
                await transport.handle_async_request(with_timeout(f"http://127.0.0.1:{address[1]}/", connect=0.1))
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200", CHUNKED, CHUNKED + chunks(b"hello"), CHUNKED + b"5\r\nhe"])
@on_both_loops
async def test_read_timeout_wherever_the_response_stops(sent: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(sent)
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTP1Transport() as transport:
        with pytest.raises(httpx.ReadTimeout, match=r"sent nothing for 0\.1 seconds"):
            await body_of(await transport.handle_async_request(with_timeout(server.url, read=0.1)))
        await server.conversations[0].client_left.wait()


@on_both_loops
async def test_slow_consumer_is_no_read_timeout() -> None:
    resume = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED + chunks(b"first "))
        await resume.wait()
        await conversation.send(chunks(b"second") + b"0\r\n\r\n")
        await conversation.until_client_leaves()

    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(with_timeout(url, read=0.4))
        items = aiter(response.stream)  # type: ignore[arg-type]
        first = await anext(items)
        await asyncio.sleep(0.9)  # the consumer works; the timer fires meanwhile
        resume.set()
        assert first + b"".join([item async for item in items]) == b"first second"


@on_both_loops
async def test_first_byte_has_a_limit_of_its_own() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await asyncio.sleep(0.3)
        await conversation.send(CHUNKED + chunks(b"hello"))
        await conversation.until_client_leaves()

    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(with_timeout(url, read=0.1, first_byte=30))
        items = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(items) == b"hello"
        with pytest.raises(httpx.ReadTimeout, match=r"0\.1 seconds"):
            await anext(items)


async def not_reading(conversation: Conversation) -> None:
    await conversation.request()
    conversation.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


@pytest.mark.parametrize("streamed", [False, True])
@on_both_loops
async def test_write_timeout(streamed: bool) -> None:
    content = endless_blocks() if streamed else bytes(64 * MIB)
    async with talking(not_reading) as (transport, url):
        request = request_to(url, "POST", content=content, extensions={"timeout": {"write": 0.1, "read": 30}})
        with pytest.raises(httpx.WriteTimeout, match="took no bytes"):
            await transport.handle_async_request(request)


async def endless_blocks() -> AsyncIterator[bytes]:
    while True:
        yield bytes(65536)


@pytest.mark.parametrize("streamed", [False, True])
@on_both_loops
async def test_reset_while_sending_is_a_write_error(streamed: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.reader.readexactly(1000)
        conversation.reset()

    content = endless_blocks() if streamed else bytes(64 * MIB)
    async with talking(script) as (transport, url):
        with pytest.raises(httpx.WriteError, match="while the request was being sent"):
            await transport.handle_async_request(request_to(url, "POST", content=content))


# Flow control and giving up.


@on_both_loops
async def test_unread_body_stops_the_server() -> None:
    total, sent = 64 * MIB, 0
    block = bytes(64 * 1024)

    async def script(conversation: Conversation) -> None:
        nonlocal sent
        await conversation.request()
        await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            await conversation.send(block)
            sent += len(block)
        await conversation.until_client_leaves()

    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(request_to(url))
        seen = -1
        while seen != sent:  # until the server has made no progress for a while
            seen = sent
            await asyncio.sleep(0.2)
        assert sent < total
        sizes = [len(item) async for item in response.stream]  # type: ignore[union-attr]
        assert sum(sizes) == total
        # What was queued above the mark is at most one read, and an item is all that was queued.
        assert max(sizes) <= StreamLimits().unread + 256 * 1024


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200"])
@on_both_loops
async def test_cancel_before_the_head_closes_at_once(sent: bytes) -> None:
    asked = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(sent)
        asked.set()
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTP1Transport() as transport:
        task = asyncio.create_task(transport.handle_async_request(request_to(server.url)))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.conversations[0].client_left.wait()


@on_both_loops
async def test_cancel_while_the_request_is_being_sent() -> None:
    left = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.until_client_leaves()
        left.set()

    async with talking(script) as (transport, url):
        task = asyncio.create_task(transport.handle_async_request(request_to(url, "POST", content=endless_blocks())))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await left.wait()


@on_both_loops
async def test_aclose_in_mid_body_is_seen_by_the_server() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED + chunks(b"hello"))
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTP1Transport() as transport:
        response = await transport.handle_async_request(request_to(server.url))
        items = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(items) == b"hello"
        waiting = asyncio.ensure_future(anext(items))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await response.aclose()
        await server.conversations[0].client_left.wait()
        with pytest.raises(httpx.StreamClosed):
            await waiting
        with pytest.raises(httpx.StreamClosed):
            await anext(items)


@on_both_loops
async def test_closing_a_response_that_never_ends_frees_a_paused_socket() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED)
        while True:
            await conversation.send(chunks(bytes(65536)))

    async with serving(script) as server, HTTP1Transport() as transport:
        response = await transport.handle_async_request(request_to(server.url))
        await asyncio.sleep(0.05)
        await response.aclose()
        await server.conversations[0].until_client_leaves()


# Requests.


@on_both_loops
async def test_request_goes_out_as_httpx_built_it() -> None:
    bodies = []

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            bodies.append(await conversation.body())
            await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def slowly() -> AsyncIterator[bytes]:
        for part in (b"one ", b"", b"two"):
            yield part
            await asyncio.sleep(0)

    def plainly() -> Iterator[bytes]:
        yield from (b"one ", b"", b"two")

    async with serving(script) as server, HTTP1Transport() as transport:
        url = server.url + "/v1/x%20y?q=a%2Fb"
        for content, headers in [
            (b"", {}),
            (b"bytes", {"X-Name": "value"}),
            (bytes(5 * MIB), {}),
            (slowly(), {}),
            (plainly(), {}),
            (slowly(), {"Content-Length": "7"}),
        ]:
            request = request_to(url, "POST", content=content, headers=headers)
            await body_of(await transport.handle_async_request(request))
        headers = {"Host": f"localhost:{server.port}", "Transfer-Encoding": "chunked"}
        request = request_to(url, "POST", headers=headers, stream=httpx.ByteStream(b"bytes"))
        await body_of(await transport.handle_async_request(request))
        assert bodies == [b"", b"bytes", bytes(5 * MIB), b"one two", b"one two", b"one two", b"bytes"]
        assert len(server.conversations) == 1
        assert {(r.method, r.target) for r in server.requests} == {("POST", "/v1/x%20y?q=a%2Fb")}
        assert server.requests[1].headers["x-name"] == "value"
        assert server.requests[1].headers["host"] == f"localhost:{server.port}"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Key": "secret\r\nX-Forged: 1"},
        {"X-Key": "secret\n"},
        {"X-Key\r\nX-Forged": "secret"},
        {"X Key": "secret"},
        {"Content-Length": "3", "Transfer-Encoding": "chunked", "X-Key": "secret"},
        {"Content-Length": "999", "X-Key": "secret"},
        {"Content-Length": "-1", "X-Key": "secret"},
        {"Transfer-Encoding": "gzip", "X-Key": "secret"},
    ],
)
@on_both_loops
async def test_request_that_cannot_be_framed_safely_is_never_sent(headers: dict[str, str]) -> None:
    async with serving(answering(b"")) as server, HTTP1Transport() as transport:
        with pytest.raises(httpx.LocalProtocolError) as caught:
            await transport.handle_async_request(request_to(server.url, "POST", content=b"abc", headers=headers))
        assert "secret" not in str(caught.value)
        assert server.conversations == []


@pytest.mark.parametrize("declared", ["2", "4"])
@on_both_loops
async def test_streamed_body_of_another_length_is_not_completed(declared: str) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"abc"

    async with talking(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as (transport, url):
        request = request_to(url, "POST", content=body(), headers={"Content-Length": declared})
        with pytest.raises(httpx.LocalProtocolError, match=f"declared {declared} bytes"):
            await transport.handle_async_request(request)


@on_both_loops
async def test_failure_of_the_request_stream_reaches_the_caller() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"abc"
        raise ZeroDivisionError

    async with talking(answering(b"")) as (transport, url):
        with pytest.raises(ZeroDivisionError):
            await transport.handle_async_request(request_to(url, "POST", content=body()))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("closes", [False, True])
@on_both_loops
async def test_response_may_come_before_the_request_is_sent(streamed: bool, closes: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
        if not closes:
            await conversation.until_client_leaves()

    content = endless_blocks() if streamed else bytes(64 * MIB)
    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(request_to(url, "POST", content=content))
        assert (response.status_code, await body_of(response)) == (413, b"large")


# As httpx's transport, over TLS, over IPv6, in numbers.


@on_both_loops
async def test_httpx_client_reads_json_and_undoes_gzip() -> None:
    packed = gzip.compress(json.dumps({"text": "größer"}).encode())
    raw = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    async with serving(answering(raw)) as server, httpx.AsyncClient(transport=HTTP1Transport()) as client:
        for _ in range(2):
            response = await client.post(server.url, json={"q": 1})
            assert response.json() == {"text": "größer"}
        async with client.stream("GET", server.url) as streamed:
            assert b"".join([part async for part in streamed.aiter_raw()]) == packed
        assert len(server.conversations) == 1


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTS / f"{certificate}.pem")


async def sni_script(conversation: Conversation) -> None:
    while True:
        await conversation.request()
        chosen = conversation.writer.get_extra_info("ssl_object").version().encode()
        await conversation.send_bytewise(CHUNKED + chunks(b"over ", chosen) + b"0\r\n\r\n")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@on_both_loops
async def test_tls(host: str) -> None:
    async with serving(sni_script, certificate="localhost") as server:
        for verify in (trusting("localhost"), False):
            async with HTTP1Transport(verify=verify) as transport:
                for _ in range(2):
                    response = await transport.handle_async_request(request_to(f"https://{host}:{server.port}/"))
                    assert await body_of(response) == b"over TLSv1.3"
        assert len(server.conversations) == 2


@on_both_loops
async def test_tls_back_pressure_and_aclose() -> None:
    total = 8 * MIB

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total, bytes(total))

    verify = trusting("localhost")
    async with serving(script, certificate="localhost") as server, HTTP1Transport(verify=verify) as transport:
        response = await transport.handle_async_request(request_to(server.url))
        await asyncio.sleep(0.1)
        assert len(await body_of(response)) == total
        abandoned = await transport.handle_async_request(request_to(server.url))
        await abandoned.aclose()
        assert len(server.conversations) == 1


@pytest.mark.parametrize(
    ("certificate", "verify", "message"),
    [
        ("localhost", True, "certificate not accepted"),
        ("elsewhere", "elsewhere", "certificate not accepted: .*localhost"),
    ],
)
@on_both_loops
async def test_untrusted_certificate_is_refused(certificate: str, verify: bool | str, message: str) -> None:
    context = trusting(verify) if isinstance(verify, str) else verify
    async with serving(sni_script, certificate=certificate) as server, HTTP1Transport(verify=context) as transport:
        with pytest.raises(httpx.ConnectError, match=message):
            await transport.handle_async_request(request_to(server.url))


@on_both_loops
async def test_tls_to_a_plain_server_is_a_handshake_failure() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.reader.readexactly(5)
        await conversation.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(script) as server, HTTP1Transport() as transport:
        with pytest.raises(httpx.ConnectError, match="TLS handshake failed"):
            await transport.handle_async_request(request_to(f"https://localhost:{server.port}/"))


@on_both_loops
async def test_ipv6_literal() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    async with serving(answering(RESPONSES["chunked"][0]), host="::1") as server, HTTP1Transport() as transport:
        response = await transport.handle_async_request(request_to(f"http://[::1]:{server.port}/"))
        assert await body_of(response) == b"hello"
        assert server.requests[0].headers["host"] == f"[::1]:{server.port}"


@on_both_loops
async def test_four_hundred_streams_at_once() -> None:
    streams, everyone = 400, asyncio.Event()
    server: ScriptedServer

    async def script(conversation: Conversation) -> None:
        name = (await conversation.request()).target.encode()
        if len(server.requests) == streams:
            everyone.set()
        await everyone.wait()
        await conversation.send(CHUNKED, *(chunks(name + b" %d;" % n) for n in range(10)), b"0\r\n\r\n")

    async with serving(script) as server, HTTP1Transport() as transport:

        async def read(n: int) -> bytes:
            return await body_of(await transport.handle_async_request(request_to(f"{server.url}/{n}")))

        bodies = await asyncio.gather(*(read(n) for n in range(streams)))
    for n, body in enumerate(bodies):
        assert body == b"".join(b"/%d %d;" % (n, i) for i in range(10))
