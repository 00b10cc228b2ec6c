"""Event streams as others read them, and streams that they might read in different ways."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import anthropic._streaming as anthropic_streaming
import httpx
import openai._streaming as openai_streaming
from httpx_sse import EventSource

from gateway.wire import sse

Texts = list[tuple[str, str]]  # the data of each event that has any, and its type

BOM, TWICE_ENCODED = b"\xef\xbb\xbf", "\xef\xbb\xbf".encode()
_LINES = (
    b"data: {}|data:{}|data:  x|data|data:|data: a: b|datax: no| data: no|Data: no|data: \xff|data: [DONE]|data:\0\t|"
    b"data: \xe2\x80\xa8\xc2\x85\x0b\x0c\x1c|data: \xc3\xa9\xf0\x9f\x98\x80\xef\xbb\xbf|event: e|event:e|event|"
    b"event: \xff|event: error|event: thread.x|: comment|:|:data: no|id: 1|id: a\0b|id|retry: 5|retry: no|no|no: x|\0"
).split(b"|")
_ENDS = (b"\n", b"\n", b"\n", b"\r\n", b"\r")


def hostile_stream(rng: Random) -> bytes:
    """Lines of every kind with line breaks of every kind, marks and pieces of them anywhere, and any end."""
    parts = [rng.choice((b"", b"", b"", BOM, TWICE_ENCODED, BOM + TWICE_ENCODED, BOM[:2]))]
    end = rng.choice((None, *_ENDS))
    for _ in range(rng.randrange(14)):
        parts.append(rng.choice((b"", b"", b"", rng.choice(_LINES), rng.choice(_LINES), rng.randbytes(3))))
        parts.append(end or rng.choice(_ENDS))
        if rng.random() < 0.05:
            parts.append(rng.choice((BOM, TWICE_ENCODED, BOM[:1], b"\r", b"x" * 3000, b"data: " + b"y" * 70_000)))
    stream = b"".join(parts)
    return stream[: rng.randrange(len(stream) + 1)] if rng.random() < 0.3 else stream


def cut(rng: Random, stream: bytes) -> list[bytes]:
    """In pieces: whole, each byte for itself, or anywhere."""
    count = rng.choice((0, 0, 1, 2, 5))
    if rng.random() < 0.2 and len(stream) < 2000:
        return [stream[at : at + 1] for at in range(len(stream))]
    edges = [0, *sorted(rng.randrange(len(stream) + 1) for _ in range(count)), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges) if start < end]


def ours(pieces: list[bytes]) -> Texts:
    decoder = sse.Decoder(1 << 20)
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()
    return [(event.data.decode("utf-8", "replace"), event.event or "message") for event in events if event.data]


def _read(events: Iterable[Any]) -> Texts:
    """Up to where a decoder fails, whose client then gets nothing more."""
    found: Texts = []
    with contextlib.suppress(UnicodeDecodeError):
        found.extend((event.data, event.event or "message") for event in events if event is not None and event.data)
    return found


def _by_httpx_sse(pieces: list[bytes]) -> Texts:
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=iter(pieces))
    return _read(EventSource(response).iter_sse())


# What Python's clients read events with.
READERS: dict[str, Callable[[list[bytes]], Texts]] = {
    "openai": lambda pieces: _read(openai_streaming.SSEDecoder().iter_bytes(iter(pieces))),
    "anthropic": lambda pieces: _read(anthropic_streaming.SSEDecoder().iter_bytes(iter(pieces))),
    "httpx-sse": _by_httpx_sse,
}


def missing(stream: bytes, own: Texts, others: Texts) -> str | None:
    """What others read, in their order, and we do not.

    Some clients skip a byte order mark at the beginning of each line, some only at the stream's, some at none. So the
    same lines may be other events there, and the lines of data are compared.
    """
    marked = BOM in stream or TWICE_ENCODED in stream
    left = iter(_lines(own) if marked else own)
    return next((repr(each) for each in (_lines(others) if marked else others) if each not in left), None)


def _lines(events: Texts) -> list[str]:
    return [line for data, _ in events for line in data.split("\n")]
