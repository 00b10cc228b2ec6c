"""What one exchange does: responses in every framing and cut, errors by cause, time limits, flow control."""

from __future__ import annotations

import asyncio
import socket

import httpx2
import pytest

from gateway.http1 import StreamLimits
from tests.support.http1_scripts import (
    CHUNKED,
    MIB,
    HTTPXTransport,
    answering,
    answering_then_closing,
    body_of,
    chunks,
    not_reading,
    request_to,
    talking,
    with_timeout,
)
from tests.support.scripted_server import Conversation, on_both_loops, serving

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
    async with serving(answering(RESPONSES["content-length"][0])) as server, HTTPXTransport() as transport:
        for _ in range(2):
            assert await body_of(await transport.handle_async_request(request_to(server.url, "HEAD"))) == b""
        assert len(server.conversations) == 2


@on_both_loops
async def test_head_of_the_response_is_handed_over() -> None:
    raw = b"HTTP/1.1 299 All Good \r\nX-Two: a\r\nx-two:  b \t\r\nContent-Length: 0\r\n\r\n"
    async with talking(answering(raw)) as (transport, url):
        response = await transport.handle_async_request(request_to(url))
    assert response.status_code == 299
    assert response.headers.raw == [(b"x-two", b"a, b"), (b"content-length", b"0")]


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
    "nothing": (b"", "head", httpx2.RemoteProtocolError, "connection closed before the response"),
    "half a head": (b"HTTP/1.1 200 OK\r\nX-A: ", "head", httpx2.RemoteProtocolError, "closed inside the response head"),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n", "head", httpx2.RemoteProtocolError, "malformed response"),
    "bare line feeds": (b"HTTP/1.1 200 OK\nA: b\n\n", "head", httpx2.RemoteProtocolError, "malformed response"),
    "two lengths": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "head",
        httpx2.RemoteProtocolError,
        "malformed response",
    ),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "head",
        httpx2.RemoteProtocolError,
        "malformed response",
    ),
    "switching protocols": (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nxyz",
        "head",
        httpx2.RemoteProtocolError,
        "switch",
    ),
    "endless head": (
        b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000,
        "head",
        httpx2.RemoteProtocolError,
        "256 headers",
    ),
    "endless header": (b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 90_000, "head", httpx2.RemoteProtocolError, "65536 bytes"),
    "endless interims": (b"HTTP/1.1 102 Wait\r\n\r\n" * 9000, "head", httpx2.RemoteProtocolError, "65536 bytes"),
    "short body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "body",
        httpx2.RemoteProtocolError,
        "closed inside the response body",
    ),
    "unterminated chunks": (
        CHUNKED + chunks(b"hello"),
        "body",
        httpx2.RemoteProtocolError,
        "closed inside the response body",
    ),
    "bad chunk size": (
        CHUNKED + chunks(b"hello") + b"zz\r\n",
        "body",
        httpx2.RemoteProtocolError,
        "malformed response",
    ),
    "endless trailer": (
        CHUNKED + chunks(b"hello") + b"0\r\nX: " + b"y" * 600_000,
        "body",
        httpx2.RemoteProtocolError,
        "trailers larger than 65536",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@on_both_loops
async def test_fault_is_reported_by_its_cause(name: str) -> None:
    raw, place, error, message = FAULTS[name]
    async with talking(answering_then_closing(raw)) as (transport, url):
        with pytest.raises(error, match=message):
            response = await transport.handle_async_request(request_to(url))
            assert place == "body"
            items = aiter(response.stream)  # type: ignore[arg-type]
            assert await anext(items) == b"hello", "what came before the fault is delivered first"
            await anext(items)


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
        with pytest.raises(httpx2.ReadError, match="connection lost"):
            response = await transport.handle_async_request(request_to(url))
            received.set()
            await body_of(response)


@on_both_loops
async def test_head_limit_is_exact() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    for limit, fits in ((len(head), True), (len(head) - 1, False)):
        transport = HTTPXTransport(limits=StreamLimits(head=limit))
        async with talking(answering(head + b"ok"), transport) as (_, url):
            if fits:
                assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"
            else:
                with pytest.raises(httpx2.RemoteProtocolError, match=f"head larger than {limit} bytes"):
                    await transport.handle_async_request(request_to(url))


async def test_headers_are_bounded() -> None:
    limit = StreamLimits().headers
    for more, fits in ((0, True), (1, False)):
        lines = b"".join(b"X-%d: a\r\n" % number for number in range(limit - 1 + more))
        transport = HTTPXTransport()
        async with talking(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + lines + b"\r\nok"), transport) as (
            _,
            url,
        ):
            if fits:
                assert await body_of(await transport.handle_async_request(request_to(url))) == b"ok"
            else:
                with pytest.raises(httpx2.RemoteProtocolError, match=f"more than {limit} headers"):
                    await transport.handle_async_request(request_to(url))


@on_both_loops
async def test_refused_connection_and_unknown_host_are_told_apart() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with HTTPXTransport() as transport:
            with pytest.raises(httpx2.ConnectError, match=f"127.0.0.1:{port}: connection refused"):
                await transport.handle_async_request(request_to(f"http://user:pass@127.0.0.1:{port}/"))
            with pytest.raises(httpx2.ConnectError, match="cannot be resolved") as caught:
                await transport.handle_async_request(request_to("http://user:secret@no-such-host.invalid/"))
    assert "secret" not in str(caught.value)


@on_both_loops
async def test_other_schemes_are_refused() -> None:
    async with HTTPXTransport() as transport:
        with pytest.raises(httpx2.UnsupportedProtocol):
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
        async with HTTPXTransport() as transport:
            with pytest.raises(httpx2.ConnectTimeout, match=r"within 0\.1 seconds"):
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

    async with serving(script) as server, HTTPXTransport() as transport:
        with pytest.raises(httpx2.ReadTimeout, match=r"sent nothing for 0\.1 seconds"):
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
        with pytest.raises(httpx2.ReadTimeout, match=r"0\.1 seconds"):
            await anext(items)


@on_both_loops
async def test_write_timeout() -> None:
    async with talking(not_reading) as (transport, url):
        request = request_to(url, "POST", content=bytes(64 * MIB), extensions={"timeout": {"write": 0.1, "read": 30}})
        with pytest.raises(httpx2.WriteTimeout, match="took no bytes"):
            await transport.handle_async_request(request)


@on_both_loops
async def test_reset_while_sending_is_a_write_error() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.reader.readexactly(1000)
        conversation.reset()

    async with talking(script) as (transport, url):
        with pytest.raises(httpx2.WriteError, match="while the request was being sent"):
            await transport.handle_async_request(request_to(url, "POST", content=bytes(64 * MIB)))


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
