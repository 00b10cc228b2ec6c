"""Targets: what reads bytes or text without a policy."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from pathlib import Path

from gateway.automata.positions import positions
from gateway.automata.regex import RegexError, parse
from gateway.config import parse as parse_configuration
from gateway.http1.response import PARSE_ERRORS, ResponseParser, StreamLimits
from gateway.policy.errors import ConfigError
from gateway.wire import sse
from gateway.wire.json import JSONError, decode, encode
from tests.fuzz.target import Target, headed, pieces, seeds
from tests.support import event_readers
from tests.support.expressions import matches, spans
from tests.support.pages import ROOT

_LONGEST_TEXT = 5
_HTTP = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"
    b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.0 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
)


def read_events(data: bytes) -> None:
    """Cut in any way, the same events come out; and no other decoder reads text that ours does not."""
    choice, size, body = headed(data)
    limit = choice + 1 if choice < 64 else 1 << 16
    whole = _events([body], limit)
    assert _events(pieces(body, size), limit) == whole
    if limit > len(body):
        for name, read in event_readers.READERS.items():
            lost = event_readers.missing(body, event_readers.ours([body]), read(pieces(body, size)))
            assert lost is None, (name, lost)


def _events(reads: list[bytes], limit: int) -> tuple[list[sse.Event], bool]:
    decoder, events = sse.Decoder(limit), list[sse.Event]()
    try:
        for data in reads:
            events += decoder.feed(data)
        return events + decoder.close(), False
    except sse.EventTooLarge as error:
        return events + error.before, True


def read_json(data: bytes) -> None:
    """Only `JSONError`; what is written again is read as the same; and nothing is read that `json` does not read."""
    try:
        value = decode(data)
    except JSONError:
        return
    written = encode(value)
    assert decode(written) == value
    assert json.loads(written) == value


def read_regex(data: bytes) -> None:
    """Only `RegexError`; of what `re` reads too, without a line break in the text, both find the same."""
    pattern, _, text = data.decode("utf-8", "replace").partition("\ufffd")
    text = text[:_LONGEST_TEXT].replace("\n", " ")
    try:
        automaton = positions(parse(pattern))
    except RegexError:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
            re.compile(f"(?:{pattern})")  # as it is matched: flags for the whole cannot stand within
    except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError):
        return
    found = spans(automaton, text)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            assert ((start, end) in found) == matches(pattern, False, text, start, end), (pattern, text, start, end)


def read_configuration(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_configuration(data.decode("utf-8", "replace"), "fuzz", Path("/nonexistent"), environ={})


def read_response(data: bytes) -> None:
    """The same head, body and end under every cut; only the defined exceptions."""
    choice, size, body = headed(data)
    head_only = bool(choice & 1)
    assert _response(pieces(body, size), head_only) == _response([body], head_only)


def _response(reads: list[bytes], head_only: bool) -> tuple[object, ...]:
    parts: list[bytes] = []
    parser = ResponseParser(StreamLimits(), parts, head_only=head_only)
    failed = False
    try:
        for data in reads:
            parser.feed(data)
    except PARSE_ERRORS as error:
        assert parser.describe(error)
        failed = True
    seen = (parser.head, b"".join(parts), parser.complete, parser.ends_at_eof, failed)
    parser.close()
    return seen


TARGETS = {
    "sse": Target(
        read_events,
        seeds(
            b"\xef\xbb\xbfdata: a\r\rdata:b\n\n: c\nevent: x\ndata\ndata:  y\r\n\r\nid: 1\nretry: 5\n\ndata: last",
            b"data: a\xff\xe2\x80\xa8b\n\ndatax: no\nevent\ndata: [DONE]\n\n",
            choices=(5, 255),
        ),
    ),
    "json": Target(
        read_json,
        (
            b'{"a": [1, -2.5e3, null, true, "\\ud83d\\ude00\\u0000\\n\xc3\xa9"], "a": {}}',
            b"[1e999, NaN, 0123]",
            b'{"\\ud800": "\\udc00"}',
            b"[" * 200,
            b"\xef\xbb\xbf{}",
        ),
    ),
    "regex": Target(
        read_regex,
        (
            rb"(?i:a|b)+\bc{2,3}[^\w-]?" + b"\xffabcc ",
            rb"[\d\-x-z]*(?P<n>\s|$)\B." + b"\xff1x z",
            rb"(?s)^\x41\u0062\p{L}(?#c)\z" + b"\xffAbc",
            "(?i)straße|ſ[K]".encode() + b"\xffs",
        ),
        longest=40,
    ),
    "configuration": Target(
        read_configuration,
        tuple(path.read_bytes() for path in sorted((ROOT / "deploy").glob("examples/*.yaml"))),
        longest=4096,
    ),
    "http1": Target(read_response, seeds(*_HTTP)),
}
