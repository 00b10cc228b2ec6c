"""Bytes of one response → its head and the parts of its body: httptools callbacks. No socket, no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import httptools
from msgspec import Struct


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bytes. `head` bounds the response heads of one exchange, interim ones included, and what frames the body between
    two of its bytes, `headers` their lines; above `unread` bytes of queued body the socket is not read."""

    head: int = 64 * 1024
    headers: int = 256
    unread: int = 64 * 1024


class ResponseHead(Struct, frozen=True):
    """`headers` as they came, in order."""

    status: int
    headers: list[tuple[bytes, bytes]]


class _SurplusData(Exception):
    """Bytes after the end of the response; stops the parser."""


class _TooManyHeaders(Exception):
    """Stops the parser: each header costs many times its own length."""


class _HeadTooLarge(Exception):
    pass


PARSE_ERRORS = (httptools.HttpParserError, httptools.HttpParserUpgrade, _HeadTooLarge)


class ResponseParser:
    """Appends the body to `parts` as it is fed. `feed` raises `PARSE_ERRORS`, which `describe` explains.

    `head_only`: the response is one to HEAD, which has no body whatever its headers declare.
    """

    def __init__(self, limits: StreamLimits, parts: list[bytes], *, head_only: bool) -> None:
        self.head: ResponseHead | None = None
        self.head_size = 0
        self.complete = False
        self.keep_alive = True
        # The parser calls list.append itself: no Python frame for a chunk.
        self.on_body = parts.append
        self._between: list[None] = []  # not empty between a chunk and the line of the next
        self.on_chunk_complete = partial(self._between.append, None)
        self.on_chunk_header = self._between.clear
        self._limits = limits
        self._head_only = head_only
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = httptools.HttpResponseParser(self)
        self.feed: Callable[[bytes], None] = self._feed_head  # once the head is complete, the parser's own method

    def is_between_chunks(self, data: bytes) -> bool:
        """Does `data`, which was fed last, end with a chunk?"""
        # The line of the next chunk has not ended, so what there is of it ends with no line break.
        return bool(self._between) and data.endswith(b"\r\n")

    def close(self) -> None:
        """Break the cycle of references with the httptools parser. Nothing may be fed afterwards."""
        del self._parser, self.feed

    @property
    def ends_at_eof(self) -> bool:
        """Is the connection's end that of the body, too?"""
        return self.head is not None and not _is_framed(self.head.headers)

    def describe(self, error: Exception) -> str:
        if isinstance(error, _HeadTooLarge):
            return f"response head larger than {self._limits.head} bytes"
        if isinstance(error, httptools.HttpParserUpgrade):
            return "response switches protocols, which was not requested"
        if isinstance(error.__context__, _TooManyHeaders):
            return f"response head of more than {self._limits.headers} headers"
        return f"malformed response ({error})"

    def _feed_head(self, data: bytes) -> None:
        left = self._limits.head - self.head_size
        self.head_size += len(data)
        self._parser.feed_data(data[:left])
        if len(data) > left:
            if self.head is None:
                raise _HeadTooLarge
            self._parser.feed_data(data[left:])

    # httptools' callbacks; those of the body are set in the constructor.

    def on_message_begin(self) -> None:
        if self.complete:
            raise _SurplusData
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # else a trailer, which must not become a header
            self._headers.append((name, value.rstrip(b" \t")))
            if len(self._headers) > self._limits.headers:
                raise _TooManyHeaders

    def on_headers_complete(self) -> None:
        parser = self._parser
        status = parser.get_status_code()
        if status < 200:
            return
        self.keep_alive = parser.should_keep_alive()
        self.head = ResponseHead(status, self._headers)
        # The parser does not know the request's method; every other response without a body it completes by itself.
        self.complete = self._head_only
        self.feed = parser.feed_data

    def on_message_complete(self) -> None:
        self.complete = self.head is not None


def _is_framed(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the body has an end of its own; otherwise it ends with the connection."""
    codings = b""
    for name, value in headers:
        name = name.lower()
        if name == b"content-length":
            return True
        if name == b"transfer-encoding":
            codings = value
    return codings.rpartition(b",")[2].strip().lower() == b"chunked"
