"""A head that comes again is not parsed again: the same reaches the application as if it had been."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from gateway.proxy.downstream.protocol import BoundedProtocol
from gateway.proxy.downstream.repeated import MAX_HEADS, MAX_ONCE, RepeatedHead, RepeatedHeads
from tests.support.raw_http import Connection

LINE = b"POST /a?b=c HTTP/1.1\r\n"
HEADS = {
    "usual": LINE + b"Host: localhost\r\nContent-Length: %d\r\nX-A: 1\r\n\r\n",
    "length last": LINE + b"Host: localhost\r\nOrigin: http://a\r\ncontent-length:%d\r\n\r\n",
    "length with blanks": LINE + b"Host: localhost\r\nCONTENT-LENGTH: \t %d \t\r\nX-A: 1\r\n\r\n",
    "leading zeros": LINE + b"Host: localhost\r\nContent-Length: 000%d\r\n\r\n",
    "line breaks before it": b"\r\n\r\n" + LINE + b"Host: localhost\r\nContent-Length: %d\r\n\r\n",
    "length in a value": LINE + b"Host: localhost\r\nX-A: content-length: 3\r\nContent-Length: %d\r\n\r\n",
    "length in a target": b"POST /content-length:3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
    "two lengths": LINE + b"Host: localhost\r\nContent-Length: %d\r\nContent-Length: 2\r\n\r\n",
    "chunked": LINE + b"Host: localhost\r\nTransfer-Encoding: chunked\r\nX-A: %d\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunked and a length": LINE + b"Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n",
    "bare line breaks": (LINE + b"Host: localhost\r\nContent-Length: %d\r\n\r\n").replace(b"\r\n", b"\n"),
    "a continued line": LINE + b"Host: localhost\r\nX-A: 1\r\n content-length: 3\r\nContent-Length: %d\r\n\r\n",
    "close": LINE + b"Host: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
    "old": b"POST /a HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n",
    "an offer": LINE + b"Host: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n",
    "expects": LINE + b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
    "no host": LINE + b"Content-Length: %d\r\n\r\n",
    "a get": b"GET /a HTTP/1.1\r\nHost: localhost\r\nX-A: %d\r\n\r\n",
}
_ID = re.compile(rb"req_[0-9a-f]+")  # of a refusal
BODIES = (b"ok", b"", b"\r\n\r\n", b"ok", b"a" * 9, b"a" * 10, b"a" * 123, b"content-length: 7\r\n\r\n", b"ok\r\n")


class Unlearning(RepeatedHeads):
    def learn(self, data: bytes, body: bytes, scope: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def heads(monkeypatch: pytest.MonkeyPatch) -> RepeatedHeads:
    heads = RepeatedHeads()
    monkeypatch.setattr(BoundedProtocol, "heads", heads)
    return heads


async def _served(monkeypatch: pytest.MonkeyPatch, reads: list[bytes], heads: RepeatedHeads) -> Connection:
    with monkeypatch.context() as patch:
        patch.setattr(BoundedProtocol, "heads", heads)
        connection = Connection()
        for data in reads:
            await connection.send(data)
        connection.close()
        await connection.settle()
        return connection


def _seen(connection: Connection) -> list[dict[str, object]]:
    """What reached the application, but for what it has noted there itself."""
    return [{name: part for name, part in scope.items() if "portcullis." not in name} for scope in connection.asked]


@pytest.mark.parametrize("name", HEADS)
async def test_it_is_what_the_parser_makes_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [HEADS[name] % len(body) + body for body in BODIES]
    whole = b"".join(requests)
    others = [HEADS["usual"] % 2 + b"ok", HEADS["length last"] % 2 + b"ok"]
    many = HEADS["usual"] % 2 + b"ok"
    sequences = [
        requests,
        [*requests[:2], *others, *requests[2:], *others, *requests],  # heads in turn
        [requests[0], requests[0] + requests[2], requests[4]],  # two in one read
        [requests[0], requests[2] + b"\r\n", requests[4]],  # something behind it
        [requests[0], requests[0][:-1], requests[0][-1:], requests[0]],  # a body in two reads
        [requests[0], requests[0][:30], requests[0][30:], requests[0]],  # a head in two reads
        [requests[0], (HEADS[name] % 3) + b"ok", requests[0], requests[0]],  # a body that is too short
        [whole[start : start + 50] for start in range(0, len(whole), 50)],
        [many, many, requests[0], many, requests[0]],
    ]
    known = RepeatedHeads()  # of the sequences before, too
    for reads, heads in [(reads, heads) for reads in sequences for heads in (RepeatedHeads(), known, known)]:
        plain, learnt = [await _served(monkeypatch, reads, each) for each in (Unlearning(), heads)]
        assert _seen(learnt) == _seen(plain)
        assert _ID.sub(b"", learnt.transport.written) == _ID.sub(b"", plain.transport.written)
        assert (learnt.transport.end, learnt.refused) == (plain.transport.end, plain.refused)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("usual", 1),
        ("length last", 1),
        ("leading zeros", 1),
        ("length with blanks", 0),
        ("two lengths", 0),
        ("close", 0),
    ],
)
async def test_it_is_not_parsed_again(name: str, parsed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bytes] = []
    find = RepeatedHeads.find

    def counted(self: RepeatedHeads, data: bytes) -> tuple[RepeatedHead, bytes, bytes] | None:
        request = find(self, data)
        told.extend([] if request is None else [request[2]])
        return request

    monkeypatch.setattr(RepeatedHeads, "find", counted)
    known = RepeatedHeads()
    requests = [HEADS[name] % len(body) + body for body in BODIES]
    await _served(monkeypatch, requests, known)
    assert told == list(BODIES[2:]) * parsed  # one that comes once is not known
    await _served(monkeypatch, requests[:1], known)  # on another connection
    assert told == [*BODIES[2:], *BODIES[:1]] * parsed


async def test_few_heads_are_kept(heads: RepeatedHeads) -> None:
    def request(number: int) -> bytes:
        return b"POST /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok" % number

    connection = Connection()
    for number in range(MAX_HEADS * 2):
        assert heads.find(request(number)) is None
        await connection.send(request(number))
        assert heads.find(request(number)) is None
        await connection.send(request(number))
        assert heads.find(request(number)) is not None
    assert [heads.find(request(number)) is not None for number in range(MAX_HEADS * 2)] == [False] * MAX_HEADS + [
        True
    ] * MAX_HEADS
    assert connection.statuses == [200] * MAX_HEADS * 4


async def test_heads_that_come_once_are_forgotten(heads: RepeatedHeads) -> None:
    connection = Connection()
    for number in range(MAX_ONCE + 1):
        await connection.send(b"POST /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok" % number)
    assert len(heads._once) == 1
    assert not heads._known


async def test_a_head_that_ends_a_connection_is_not_like_another(heads: RepeatedHeads) -> None:
    """A NUL, which stands for the length in what is looked up, is in no head."""
    usual = HEADS["usual"] % 2 + b"ok"
    connection = Connection()
    for _ in range(3):
        await connection.send(usual)
    forged = usual.replace(b"X-A", b"\0X-A")
    assert heads.find(usual) is not None
    assert heads.find(forged) is None
    await connection.send(forged)
    assert connection.statuses == [200, 200, 200, 400]


async def test_it_is_answered_in_its_turn() -> None:
    """While one request is answered, the next one is parsed and waits."""
    connection = Connection()
    request = HEADS["usual"] % 2 + b"ok"
    await connection.send(request)
    connection.go.clear()
    await connection.send(request, request)
    connection.go.set()
    await connection.settle()
    assert connection.statuses == [200] * 3
    connection.close()
    await asyncio.sleep(0)
