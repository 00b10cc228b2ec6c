"""What a connection may cost and how its requests are framed, before a key is looked at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx2
import pytest

from gateway.proxy.downstream import protocol
from gateway.proxy.downstream.protocol import MAX_AHEAD, MAX_AHEAD_BYTES, MAX_HEAD, MAX_HEADERS
from tests.support.gateway import TIMEOUT, RunningGateway, before, question
from tests.support.raw_http import Connection, answers_in
from tests.support.upstream import completion, plain, sending, sending_then_hanging, stream_head

ANSWER = sending(plain(completion("fine")))
GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def reads(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def head_of(size: int) -> bytes:
    begin, end = b"GET /a HTTP/1.1\r\nHost: localhost\r\nx: ", b"\r\n\r\n"
    return begin + b"v" * (size - len(begin) - len(end)) + end


# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [997, 16_000, 1 << 20])
async def test_d3_a_head_has_a_size(size: int) -> None:
    for over in (0, 1):
        connection = Connection()
        await connection.send(*reads(head_of(MAX_HEAD + over), size))
        assert connection.statuses == [431 if over else 200]
        assert connection.transport.end == ("eof" if over else "")
        assert connection.refused == [("other", 431)] * over


@pytest.mark.parametrize("line", [b"a:b\r\n", b"a: %b\r\n" % (b"v" * 500)])
async def test_d3_a_head_has_a_number_of_headers(line: bytes) -> None:
    for count in (MAX_HEADERS, MAX_HEADERS + 1, 12_500):
        connection = Connection()
        await connection.send(b"GET /a HTTP/1.1\r\nHost: localhost\r\n" + line * (count - 1) + b"\r\n")
        assert connection.statuses == [200 if count == MAX_HEADERS else 431]
        assert len(connection.protocol.headers) <= MAX_HEADERS


@pytest.mark.parametrize("begins", [b"GET /", b"GET /a HTTP/1.1\r\nx: ", b"GET /a HTTP/1.1\r\n", b"\r\n"])
async def test_d3_a_head_without_end_is_answered_and_dropped(begins: bytes) -> None:
    connection = Connection()
    await connection.send(begins, *[b"\r\n" * 5000 if begins == b"\r\n" else b"a" * 10_000] * 20)
    assert connection.statuses == [431]
    await connection.send(b"a" * 10_000)
    await connection.send(b"a" * 10_000)
    assert connection.statuses == [431]
    assert connection.answers[0].body["error"]["code"] == "head_too_large"
    assert connection.answers[0].headers["connection"] == "close"
    assert connection.transport.end == "eof"


# -- trailers ----------------------------------------------------------------------------------------------------------

TRAILERS = {
    "many": lambda size: b"a: b\r\n" * (size // 6) + b"a: " + b"b" * (size % 6) + b"\r\n",
    "a long value": lambda size: b"a: " + b"b" * size + b"\r\n",
    "a long name": lambda size: b"a" * size + b": b\r\n",
}


@pytest.mark.parametrize("size", [13, 16_000, 1 << 20])
@pytest.mark.parametrize("kind", TRAILERS)
async def test_d1_trailers_are_bounded_and_dropped(kind: str, size: int) -> None:
    around = len(b"\r\n0\r\n" + TRAILERS[kind](0) + b"\r\n")
    for over in (0, 1):
        connection = Connection()
        behind = b"\r\n0\r\n" + TRAILERS[kind](MAX_HEAD - around + over) + b"\r\n"
        assert len(behind) == MAX_HEAD + over
        await connection.send(CHUNKED + b"1\r\na", *reads(behind, size))
        assert connection.statuses == [400 if over else 200]
        assert connection.transport.end == ("eof" if over else "")
        assert len(connection.asked[0]["headers"]) == 2


async def test_d1_trailers_without_end_are_dropped_after_the_answer() -> None:
    connection = Connection()
    await connection.send(CHUNKED.replace(b"/a", b"/unread") + b"1\r\na\r\n0\r\n")
    assert connection.statuses == [200]
    assert connection.answers[0].headers["connection"] == "close"
    for _ in range(protocol.LEFTOVER // 60_000):
        await connection.send(b"a: b\r\n" * 10_000)
        assert connection.transport.end == "eof"
    await connection.send(b"a: b\r\n" * 10_000)
    assert connection.transport.end == "aborted"
    assert len(connection.asked[0]["headers"]) == 2


async def test_what_is_dropped_is_read_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "DROP_EVERY", 0)
    connection = Connection()
    await connection.send(CHUNKED.replace(b"/a", b"/unread") + b"1\r\na\r\n0\r\n")
    for number in range(1, 4):
        await connection.send(b"a: b\r\n" * 1_000)
        assert connection.transport.pauses == [True, False] * number
    connection.protocol.data_received(b"a: b\r\n")
    connection.transport.abort()
    await connection.settle()
    assert connection.transport.pauses[-1]  # nothing is read of a connection that is gone


async def test_d1_chunk_extensions_are_bounded() -> None:
    for over in (0, 1):
        connection = Connection()
        begins = b"\r\n1;a="
        await connection.send(
            CHUNKED + b"1\r\na", begins + b"x" * (MAX_HEAD - len(begins) + over), b"\r\nb\r\n0\r\n\r\n"
        )
        assert connection.statuses == [400]  # a line break more is too much
        connection = Connection()
        await connection.send(CHUNKED + b"1\r\na", begins + b"x" * 60_000 + b"\r\nb\r\n0\r\n\r\n")
        assert connection.answers[0].body["body"] == "ab"


@pytest.mark.parametrize("cut", range(0, 60, 3))
async def test_d18_trailers_never_become_headers(cut: int) -> None:
    request = CHUNKED + b"1\r\na\r\n0\r\nAuthorization: Bearer x\r\nOpenAI-Organization: y\r\n\r\n"
    at = len(request) - cut
    for tail in (b"", GET):
        connection = Connection()
        await connection.send(request[:at], request[at:] + tail)
        assert connection.statuses == [200, 200][: 2 if tail else 1]
        assert [answer.body["headers"] for answer in connection.answers] == [["host", "transfer-encoding"], ["host"]][
            : len(connection.answers)
        ]


async def test_d18_a_key_in_a_trailer_is_none() -> None:
    body = json.dumps(question()).encode()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\nAuthorization: Bearer sk-of-a-client\r\n\r\n" % (len(body), body)
    )
    async with before(ANSWER, keys=("sk-of-a-client",)) as (gateway, upstream):
        reader, writer = await connected(gateway)
        writer.write(request)
        assert b" 401 " in await asyncio.wait_for(reader.readline(), TIMEOUT)
        assert not upstream.calls
        writer.close()


# -- pipelining --------------------------------------------------------------------------------------------------------


async def test_d2_requests_ahead_of_their_turn_are_answered_in_order() -> None:
    connection = Connection()
    await connection.send(b"".join(GET.replace(b"/a", b"/%d" % n) for n in range(1 + MAX_AHEAD)))
    assert [answer.body["path"] for answer in connection.answers] == [f"/{n}" for n in range(1 + MAX_AHEAD)]
    assert all("connection" not in answer.headers for answer in connection.answers)
    await connection.send(GET)
    assert len(connection.answers) == 2 + MAX_AHEAD


@pytest.mark.parametrize("size", [60, 16_000, 1 << 20])
async def test_d2_more_of_them_are_not_taken(size: int) -> None:
    connection = Connection()
    connection.go.clear()
    await connection.send(*reads(GET * 4000, size))
    assert len(connection.protocol._waiting) == MAX_AHEAD
    connection.go.set()
    await connection.settle()
    assert len(connection.answers) == 1 + MAX_AHEAD == len(connection.asked)
    assert [answer.headers.get("connection") for answer in connection.answers] == [None] * MAX_AHEAD + ["close"]
    assert connection.transport.end == "eof"


async def test_d2_their_bytes_are_bounded_together() -> None:
    for over in (0, 1):
        connection = Connection()
        connection.go.clear()
        await connection.send(GET)
        post = b"POST /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n"
        await connection.send(post, b"x" * (MAX_AHEAD_BYTES - len(post) + over))
        assert len(connection.protocol._waiting) == 1 - over
        connection.go.set()
        await connection.settle()
        assert connection.statuses == [200]
        # The request that was dropped is not answered: its client sends it again.
        assert connection.answers[0].headers.get("connection") == ("close" if over else None)


async def test_d2_a_client_that_always_sends_ahead_goes_on() -> None:
    connection = Connection()
    connection.go.clear()
    await connection.send(head_of(20_000) * 3)
    for _ in range(50):
        connection.go.set()
        await asyncio.sleep(0)
        connection.go.clear()
        await connection.send(head_of(20_000))
    connection.go.set()
    await connection.settle()
    assert connection.statuses == [200] * 53


async def test_d2_what_follows_the_last_request_is_dropped() -> None:
    connection = Connection()
    await connection.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + GET * 9)
    assert connection.statuses == [200]
    assert connection.transport.end == "closed"


async def test_bad_http_behind_a_request_that_is_answered_does_not_get_into_its_answer() -> None:
    connection = Connection()
    connection.go.clear()
    await connection.send(GET + GET + b"\x00nonsense\r\n")
    connection.go.set()
    await connection.settle()
    assert connection.statuses == [200, 200]
    assert connection.transport.end == "eof"


@pytest.mark.parametrize("behind", [b"G", GET, GET * 3, GET * 99, b"\x00", CHUNKED + b"ffff\r\n" + b"x" * 65535])
async def test_d10_a_client_that_sent_ahead_and_leaves_stops_the_upstream(
    behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps(question(stream=True)).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    async with before(sending_then_hanging(stream_head())) as (gateway, upstream):
        _, writer = await connected(gateway)
        writer.write(request + behind)
        while not upstream.calls:
            await asyncio.sleep(0.002)
        writer.close()
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        line = (await gateway.logged(1))[0]
        assert (line["outcome"], line["error"]) == ("cancelled", "client left")
        assert (await gateway.metrics()).value("portcullis_streams_active") == 0
    assert not [record for record in caplog.records if record.name == "uvicorn.error" and record.levelname == "ERROR"]


# -- an offer of another protocol --------------------------------------------------------------------------------------

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
BODY = b'{"x": "\\r\\nUpgrade: h2c"}\r\n\r\n'
FRAMED = {
    "content-length": b"POST /a HTTP/1.1\r\nHost: localhost\r\n%%bContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY),
    "chunked": CHUNKED[:-2] + b"%%b\r\n%x\r\n%b\r\n0\r\nupgrade: z\r\n\r\n" % (len(BODY), BODY),
    "no body": b"GET /a HTTP/1.1\r\n%bHost: localhost\r\n\r\n",
}


def offers() -> Iterator[tuple[str, bytes, int]]:
    for protocol_name in (b"h2c", b"websocket"):
        for framing, request in FRAMED.items():
            for count in (1, 2):
                yield f"{framing}, {count}", request % (OFFER % protocol_name), count


@pytest.mark.parametrize(("name", "request_", "count"), list(offers()))
async def test_d17_an_offer_is_ignored_wherever_it_is_cut(name: str, request_: bytes, count: int) -> None:
    sent = request_ * count
    for cut in range(len(sent) + 1):
        connection = Connection()
        await connection.send(*filter(None, (sent[:cut], sent[cut:])))
        bodies = [answer.body["body"].encode() for answer in connection.answers]
        assert bodies == [b"" if name.startswith("no body") else BODY] * count, cut
        assert connection.transport.end == ""
        connection.close()
    connection = Connection()
    await connection.send(*reads(sent, 1))
    assert connection.statuses == [200] * count


# -- bodies that nobody reads ------------------------------------------------------------------------------------------


async def test_d23_a_connection_ends_with_the_answer_to_an_unread_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER", 0.2)
    async with before(ANSWER, keys=("sk-of-a-client",)) as (gateway, _):
        reader, writer = await connected(gateway)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx")
        (answer,) = answers_in(await asyncio.wait_for(reader.read(), TIMEOUT))
        assert (answer.status, answer.headers["connection"]) == (401, "close")

        async def trickle() -> None:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(trickle(), TIMEOUT)


async def test_d23_the_answer_is_seen_behind_all_of_the_body() -> None:
    async with before(ANSWER, keys=("sk-of-a-client",)) as (gateway, _):
        reader, writer = await connected(gateway)
        size = 8 << 20
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size >> 16):
            writer.write(b"x" * (1 << 16))
            await writer.drain()
        (answer,) = answers_in(await asyncio.wait_for(reader.read(), TIMEOUT))
        assert answer.status == 401
        writer.close()


async def test_d23_a_body_that_has_come_keeps_the_connection() -> None:
    connection = Connection()
    request = b"POST /unread HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n"
    await connection.send(request + b"abc", request + b"abc")
    assert connection.statuses == [200, 200]
    assert connection.transport.end == ""
    await connection.send(request)
    assert connection.answers[2].headers["connection"] == "close"
    assert connection.transport.end == "eof"


async def test_line_ends_between_requests_keep_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection()
    await connection.send(GET)
    timer = connection.protocol.timeout_keep_alive_task
    await connection.send(b"\r\n", b"\r\n")
    assert timer is not None and connection.protocol.timeout_keep_alive_task is timer and not timer.cancelled()


# -- framing -----------------------------------------------------------------------------------------------------------

HOST = b"Host: localhost\r\n"
FRAMING = {
    "no Host": (b"GET /a HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET /a HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
    "two Hosts, 1.0": (b"GET /a HTTP/1.0\r\nHost: localhost\r\nHost: y\r\n\r\n", 400),
    "no Host, 1.0": (b"GET /a HTTP/1.0\r\n\r\n", 200),
    "empty Host": (b"GET /a HTTP/1.1\r\nHost:\r\n\r\n", 200),
    "Host with port": (b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
    "Host of two words": (b"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "Host with a path": (b"GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "Host with a user": (b"GET /a HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    "gzip, chunked": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "gzip": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n", 501),
    "identity": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501),
    "chunked, gzip": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    "chunked twice": (
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunked on two lines": (CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "gzip on a line before": (
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    "chunked in 1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n", 400),
    "Chunked": (CHUNKED.replace(b"chunked", b"Chunked") + b"0\r\n\r\n", 200),
    "xchunked": (CHUNKED.replace(b"chunked", b"xchunked") + b"0\r\n\r\n", 501),
    "length, then chunked": (CHUNKED.replace(HOST, HOST + b"Content-Length: 5\r\n") + b"0\r\n\r\n", 400),
    "chunked, then length": (CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "the same length twice": (
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        400,
    ),
    "a list of lengths": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 1\r\n\r\na", 400),
    "a length with a sign": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1\r\n\r\na", 400),
    "a negative length": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\na", 400),
    "a hexadecimal length": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x1\r\n\r\na", 400),
    "no length": (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length:\r\n\r\na", 400),
    "a length of 2 ** 64": (
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551616\r\n\r\na",
        400,
    ),
    "a bare LF behind a header": (b"GET /a HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", 400),
    "a bare LF behind the request line": (b"GET /a HTTP/1.1\nHost: localhost\r\n\r\n", 400),
    "a bare LF behind the head": (b"GET /a HTTP/1.1\r\nHost: localhost\r\n\n", 400),
    "a bare CR in a value": (b"GET /a HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", 400),
    "a folded line": (b"GET /a HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 400),
    "a folded chunked": (
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a first line that is folded": (b"GET /a HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    "white space before the colon": (b"GET /a HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "chunked with white space before": (CHUNKED.replace(b"Encoding:", b"Encoding :") + b"0\r\n\r\n", 400),
    "a name of nothing": (b"GET /a HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n", 400),
    "NUL in a name": (b"GET /a HTTP/1.1\r\nHost: localhost\r\nX\0: y\r\n\r\n", 400),
    "NUL in a value": (b"GET /a HTTP/1.1\r\nHost: localhost\r\nX: y\0\r\n\r\n", 400),
    "a line that is no header": (b"GET /a HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n", 400),
    "HTTP/2.0": (b"GET /a HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    "HTTP/0.9": (b"GET /a HTTP/0.9\r\nHost: localhost\r\n\r\n", 505),
    "HTTP/1.2": (b"GET /a HTTP/1.2\r\nHost: localhost\r\n\r\n", 400),
    "no version": (b"GET /a\r\n\r\n", 505),
    "an unknown method": (b"BREW /a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a method in lower case": (b"get /a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 400),
    "a target of no ASCII": (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a target with a space": (b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "an absolute target": (b"GET http://x/a HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
}
CHUNKS = {
    "no size": b"\r\n",
    "no hexadecimal": b"g\r\n",
    "a sign": b"+1\r\na\r\n",
    "negative": b"-1\r\na\r\n",
    "0x": b"0x1\r\na\r\n",
    "too large": b"1" + b"0" * 16 + b"\r\n",
    "white space before": b" 1\r\na\r\n",
    "white space behind": b"1 \r\na\r\n",
    "a bare LF behind the size": b"1\na\r\n",
    "a bare LF behind the extension": b"1;a=b\na\r\n",
    "a bare CR behind the size": b"1\ra\r\n",
    "longer than its size": b"1\r\nab\r\n",
    "a bare LF behind the data": b"1\r\na\n",
    "a bare LF behind a trailer": b"0\r\na: b\n\r\n",
    "a bare LF at the end": b"0\r\n\n",
}


@pytest.mark.parametrize("case", FRAMING)
async def test_d36_framing(case: str) -> None:
    request, status = FRAMING[case]
    for size in (1, 1 << 20):
        connection = Connection()
        await connection.send(*reads(request + GET * (status != 200), size))
        assert connection.statuses == [status]
        if status == 200:
            continue
        assert connection.asked == []
        assert connection.refused == [("other", status)]
        answer = connection.answers[0]
        assert answer.body["error"].keys() == {"message", "type", "param", "code"}
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["connection"] == "close"
        assert answer.headers["x-request-id"] and answer.headers["x-portcullis-policy"] == "none"
        assert connection.transport.end == "eof"


@pytest.mark.parametrize("case", CHUNKS)
async def test_d36_chunks(case: str) -> None:
    for size in (1, 1 << 20):
        connection = Connection()
        await connection.send(*reads(CHUNKED + CHUNKS[case] + b"0\r\n\r\n" + GET, size))
        assert connection.statuses == [400]
        assert len(connection.asked) == 1
        assert connection.transport.end == "eof"


# -- errors ------------------------------------------------------------------------------------------------------------


async def test_d33_bad_http_is_answered_and_counted() -> None:
    async with before(ANSWER) as (gateway, _):
        reader, writer = await connected(gateway)
        writer.write(b"GET /v1/models HTTP/1.1\r\nX-Request-Id: mine-1\r\n\r\n")
        (answer,) = answers_in(await asyncio.wait_for(reader.read(), TIMEOUT))
        assert (answer.status, answer.body["error"]["code"]) == (400, "invalid_http")
        assert answer.headers["x-request-id"] == "mine-1"
        assert (await gateway.metrics()).value("portcullis_requests_total", path="other", status="400") == 1
        assert [(line["path"], line["status"]) for line in await gateway.logged(1)] == [("other", 400)]
        writer.close()


@pytest.mark.parametrize("defect", [MemoryError(), KeyError("12MONKEYS")])
async def test_d33_a_defect_is_answered_and_counted(monkeypatch: pytest.MonkeyPatch, defect: Exception) -> None:
    async def broken(*_: object) -> None:
        raise defect

    monkeypatch.setattr("gateway.proxy.admission.answered", broken)
    async with before(ANSWER) as (gateway, _):
        answer = await gateway.ask()
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
        assert answer.headers["x-request-id"]
        assert "MONKEYS" not in answer.text
        path = "/v1/chat/completions"
        assert (await gateway.metrics()).value("portcullis_requests_total", path=path, status="500") == 1


async def connected(gateway: RunningGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
