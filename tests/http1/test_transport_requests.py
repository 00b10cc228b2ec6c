"""What one exchange does: cancellation, request bodies, the httpx2 client around it, TLS."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from contextlib import aclosing

import httpx2
import pytest

from gateway.http1 import HeadStart, HTTP1Transport, Origin, origin_of
from tests.support.http1_scripts import (
    CHUNKED,
    MIB,
    HTTPXTransport,
    answering,
    body_of,
    chunks,
    request_to,
    talking,
    trusting,
)
from tests.support.scripted_server import Conversation, ScriptedServer, on_both_loops, serving


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200"])
@on_both_loops
async def test_cancel_before_the_head_closes_at_once(sent: bytes) -> None:
    asked = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(sent)
        asked.set()
        await conversation.until_client_leaves()

    async with serving(script) as server, HTTPXTransport() as transport:
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
        task = asyncio.create_task(transport.handle_async_request(request_to(url, "POST", content=bytes(64 * MIB))))
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

    async with serving(script) as server, HTTPXTransport() as transport:
        response = await transport.handle_async_request(request_to(server.url))
        items = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(items) == b"hello"
        waiting = asyncio.ensure_future(anext(items))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await response.aclose()
        await server.conversations[0].client_left.wait()
        with pytest.raises(httpx2.StreamClosed):
            await waiting
        with pytest.raises(httpx2.StreamClosed):
            await anext(items)


@on_both_loops
async def test_closing_a_response_that_never_ends_frees_a_paused_socket() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(CHUNKED)
        while True:
            await conversation.send(chunks(bytes(65536)))

    async with serving(script) as server, HTTPXTransport() as transport:
        response = await transport.handle_async_request(request_to(server.url))
        await asyncio.sleep(0.05)
        await response.aclose()
        await server.conversations[0].until_client_leaves()


# Requests.


@on_both_loops
async def test_request_goes_out_as_it_was_built() -> None:
    bodies = []

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            bodies.append(await conversation.body())
            await conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with serving(script) as server, HTTPXTransport() as transport:
        url = server.url + "/v1/x%20y?q=a%2Fb"
        for content, headers in [
            (b"", {}),
            (b"bytes", {"X-Name": "value"}),
            (bytes(5 * MIB), {}),
        ]:
            request = request_to(url, "POST", content=content, headers=headers)
            await body_of(await transport.handle_async_request(request))
        assert bodies == [b"", b"bytes", bytes(5 * MIB)]
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
    ],
)
@on_both_loops
async def test_request_that_cannot_be_framed_safely_is_never_sent(headers: dict[str, str]) -> None:
    async with serving(answering(b"")) as server, HTTPXTransport() as transport:
        with pytest.raises(httpx2.LocalProtocolError) as caught:
            await transport.handle_async_request(request_to(server.url, "POST", content=b"abc", headers=headers))
        assert "secret" not in str(caught.value)
        assert server.conversations == []


@pytest.mark.parametrize("closes", [False, True])
@on_both_loops
async def test_response_may_come_before_the_request_is_sent(closes: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
        if not closes:
            await conversation.until_client_leaves()

    async with talking(script) as (transport, url):
        response = await transport.handle_async_request(request_to(url, "POST", content=bytes(64 * MIB)))
        assert (response.status_code, await body_of(response)) == (413, b"large")


# As httpx2's transport, over TLS, over IPv6, in numbers.


@on_both_loops
async def test_httpx_client_reads_json_and_undoes_gzip() -> None:
    packed = gzip.compress(json.dumps({"text": "größer"}).encode())
    raw = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    async with serving(answering(raw)) as server, httpx2.AsyncClient(transport=HTTPXTransport()) as client:
        for _ in range(2):
            response = await client.post(server.url, json={"q": 1})
            assert response.json() == {"text": "größer"}
        async with client.stream("GET", server.url) as streamed:
            assert b"".join([part async for part in streamed.aiter_raw()]) == packed
        assert len(server.conversations) == 1


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
            async with HTTPXTransport(verify=verify) as transport:
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
    async with serving(script, certificate="localhost") as server, HTTPXTransport(verify=verify) as transport:
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
    async with serving(sni_script, certificate=certificate) as server, HTTPXTransport(verify=context) as transport:
        with pytest.raises(httpx2.ConnectError, match=message):
            await transport.handle_async_request(request_to(server.url))


@on_both_loops
async def test_tls_to_a_plain_server_is_a_handshake_failure() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.reader.readexactly(5)
        await conversation.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(script) as server, HTTPXTransport() as transport:
        with pytest.raises(httpx2.ConnectError, match="TLS handshake failed"):
            await transport.handle_async_request(request_to(f"https://localhost:{server.port}/"))


@on_both_loops
async def test_ipv6_literal() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    async with (
        serving(answering(CHUNKED + chunks(b"he", b"llo") + b"0\r\n\r\n"), host="::1") as server,
        HTTPXTransport() as transport,
    ):
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

    async with serving(script) as server, HTTPXTransport() as transport:

        async def read(n: int) -> bytes:
            return await body_of(await transport.handle_async_request(request_to(f"{server.url}/{n}")))

        bodies = await asyncio.gather(*(read(n) for n in range(streams)))
    for n, body in enumerate(bodies):
        assert body == b"".join(b"/%d %d;" % (n, i) for i in range(10))


@on_both_loops
async def test_a_request_without_httpx_objects_is_the_same_on_the_wire() -> None:
    sent: list[bytes] = []

    async def script(conversation: Conversation) -> None:
        sent.append((await conversation.request()).raw_head)
        await conversation.send(b"HTTP/1.1 404 No\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\nok")

    async with serving(script) as server, aclosing(HTTP1Transport()) as transport:
        origin = origin_of(httpx2.URL(server.url))
        response = await transport.send(origin, HeadStart("POST", b"/v1?a=b", {"host": "h"}), {"x": "y"}, b"body", {})
        assert (response.status_code, response.is_success) == (404, False)
        assert response.headers == {"x-a": "1, 2", "content-length": "2"}
        assert b"".join([part async for part in response.stream]) == b"ok"
        await response.aclose()
    assert sent == [b"POST /v1?a=b HTTP/1.1\r\nhost: h\r\nx: y\r\ncontent-length: 4\r\n\r\n"]


@pytest.mark.parametrize("headers", [{"a": "b\r\nc: d"}, {"a\n": "b"}, {"a b": "c"}, {"a": "b\0"}])
async def test_it_smuggles_in_no_header_either(headers: dict[str, str]) -> None:
    async with aclosing(HTTP1Transport()) as transport:
        with pytest.raises(httpx2.LocalProtocolError):
            await transport.send(Origin("http", "127.0.0.1", 9), HeadStart("POST", b"/", {}), headers, b"", {})
        with pytest.raises(httpx2.LocalProtocolError):
            HeadStart("POST", b"/", headers)
