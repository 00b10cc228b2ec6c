"""Bodies that an upstream compressed although it was asked not to: every member, every cut, no garbage."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterable

import httpx2
import pytest

from gateway.proxy.upstreams.client import MAX_INFLATED, UnknownEncoding, inflated

TEXTS = (b"one ", b"two ", b"three")


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def response(coding: str, pieces: Iterable[bytes]) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-encoding": coding}, stream=Pieces(pieces))


async def read(coding: str, *pieces: bytes) -> bytes:
    return b"".join([piece async for piece in inflated(response(coding, pieces))])


def cuts(data: bytes) -> Iterable[tuple[bytes, ...]]:
    """Whole, byte by byte, and in two at every place."""
    yield (data,)
    yield tuple(data[i : i + 1] for i in range(len(data)))
    for i in range(1, len(data)):
        yield data[:i], data[i:]


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZip "])
async def test_d16_every_member_is_read(coding: str) -> None:
    data = b"".join(map(gzip.compress, (*TEXTS, b"", b"!")))
    for pieces in cuts(data):
        assert await read(coding, *pieces) == b"one two three!"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_d16_a_body_that_ends_too_early_is_broken(coding: str) -> None:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if coding == "gzip" else 0))
    flushed = packer.compress(b"one ") + packer.flush(zlib.Z_SYNC_FLUSH)
    whole = flushed + packer.compress(b"two") + packer.flush()
    assert await read(coding, whole) == b"one two"
    assert await read(coding) == b""  # an answer without a body
    for end in range(1, len(whole)):
        got = []
        with pytest.raises(httpx2.RemoteProtocolError):
            async for piece in inflated(response(coding, (whole[:end],))):
                got.append(piece)
        assert b"one two".startswith(b"".join(got))
        if end >= len(flushed):
            assert b"".join(got).startswith(b"one ")


async def test_d16_a_second_member_that_ends_too_early_is_broken() -> None:
    first, second = gzip.compress(b"one "), gzip.compress(b"two")
    for end in range(1, len(second)):
        for pieces in ((first + second[:end],), (first, second[:end])):
            with pytest.raises(httpx2.RemoteProtocolError):
                await read("gzip", *pieces)


GARBAGE = {
    "text": b"12MONKEYS",
    "one byte": b"\x00",
    "half a header": b"\x1f\x8b",
    "a zlib stream": zlib.compress(b"two"),
    "a new line": b"\r\n",
}


@pytest.mark.parametrize("behind", GARBAGE)
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_d16_what_follows_must_be_a_member(coding: str, behind: str) -> None:
    body = gzip.compress(b"one") if coding == "gzip" else zlib.compress(b"one")
    for pieces in ((body + GARBAGE[behind],), (body, GARBAGE[behind])):
        with pytest.raises(httpx2.RemoteProtocolError):
            await read(coding, *pieces)


@pytest.mark.parametrize(
    "size", [MAX_INFLATED - 1, MAX_INFLATED, MAX_INFLATED + 1, 2 * MAX_INFLATED, 50 * MAX_INFLATED]
)
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_d16_no_piece_is_larger_than_the_bound_and_none_waits_for_the_next_read(coding: str, size: int) -> None:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if coding == "gzip" else 0))
    flushed = packer.compress(b"a" * size) + packer.flush(zlib.Z_SYNC_FLUSH)
    end = packer.flush()
    seen = 0
    sizes: list[int] = []

    def pieces() -> Iterable[bytes]:
        nonlocal seen
        yield flushed
        seen = sum(sizes)
        yield end

    async for piece in inflated(response(coding, pieces())):
        sizes.append(len(piece))
    assert seen == sum(sizes) == size
    assert max(sizes) <= MAX_INFLATED


async def test_d16_others_get_their_turn_beside_members_of_nothing() -> None:
    members, turns = 1000, 0
    reading = asyncio.ensure_future(read("gzip", gzip.compress(b"") * members))
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert await reading == b""
    assert turns >= members


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip, br"])
async def test_what_is_compressed_in_another_way_is_refused(coding: str) -> None:
    with pytest.raises(UnknownEncoding):
        await read(coding, b"one")
