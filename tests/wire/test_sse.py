"""The event stream decoder against named cases, a naive reading of the standard, and every way of cutting the input."""

from __future__ import annotations

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.sse import DONE, KEEP_ALIVE, Decoder, Event, EventTooLarge, encode

LIMIT = 1 << 20
BOM, TWICE_ENCODED = b"\xef\xbb\xbf", "\xef\xbb\xbf".encode()

# name: (stream, its events, its comment lines); a stream's end ends its last line and its last event
CASES: dict[str, tuple[bytes, list[Event], int]] = {
    "nothing": (b"", [], 0),
    "one": (b"data: x\n\n", [Event(b"x")], 0),
    "two": (b"data: x\n\ndata: y\n\n", [Event(b"x"), Event(b"y")], 0),
    "no space": (b"data:x\n\n", [Event(b"x")], 0),
    "only one space goes": (b"data:  x \n\n", [Event(b" x ")], 0),
    "tab stays": (b"data:\tx\n\n", [Event(b"\tx")], 0),
    "colons in the value": (b"data: a: b:c\n\n", [Event(b"a: b:c")], 0),
    "cr": (b"data: x\r\rdata: y\r\r", [Event(b"x"), Event(b"y")], 0),
    "crlf": (b"data: x\r\n\r\ndata: y\r\n\r\n", [Event(b"x"), Event(b"y")], 0),
    "mixed ends": (b"data: x\r\n\rdata: y\n\r\ndata: z\r\r\n", [Event(b"x"), Event(b"y"), Event(b"z")], 0),
    "lf cr is two ends": (b"data: x\n\rdata: y\n\n", [Event(b"x"), Event(b"y")], 0),
    "several data lines": (b"data: a\ndata:\ndata: c\n\n", [Event(b"a\n\nc")], 0),
    "empty data": (b"data:\n\ndata: \n\n", [Event(b""), Event(b"")], 0),
    "data without colon": (b"data\n\ndata\ndata\n\n", [Event(b""), Event(b"\n")], 0),
    "event type": (b"event: a\ndata: x\n\n", [Event(b"x", "a")], 0),
    "event type after the data": (b"data: x\nevent: a\n\n", [Event(b"x", "a")], 0),
    "last event type counts": (b"event: a\nevent:b\ndata: x\n\n", [Event(b"x", "b")], 0),
    "event without colon": (b"event: a\nevent\ndata: x\n\n", [Event(b"x")], 0),
    "type without data yields nothing": (b"event: a\n\ndata: x\n\n", [Event(b"x")], 0),
    "type is not UTF-8": (b"event: \xff\ndata: x\n\n", [Event(b"x", "\ufffd")], 0),
    "data is not UTF-8": (b"data: \xff\n\n", [Event(b"\xff")], 0),
    "id and retry": (b"id: 7\nretry: 10\nid\ndata: x\n\nid: 8\n\n", [Event(b"x")], 0),
    "unknown fields": (b"Data: a\n data: b\ndata : c\ndatas: d\nda: e\nevents: f\nx\ndata: y\n\n", [Event(b"y")], 0),
    "comments": (b":\n\n: data: x\n:data: y\n\ndata: z\n:in between\n\n", [Event(b"z")], 4),
    "long comment": (b":" + b"x" * 100 + b"\ndata: z\n\n", [Event(b"z")], 1),
    "empty lines": (b"\n\n\r\r\n\ndata: x\n\n\n\n\n", [Event(b"x")], 0),
    "one event, then empty lines": (b"data: x\n\n\n\ndata: y\n\n", [Event(b"x"), Event(b"y")], 0),
    "one-line then two-line event": (b"data: x\n\ndata: y\ndata: z\n\n", [Event(b"x"), Event(b"y\nz")], 0),
    "byte order mark": (BOM + b"data: x\n\n", [Event(b"x")], 0),
    "two byte order marks": (BOM + BOM + b"data: x\n\ndata: y\n\n", [Event(b"x"), Event(b"y")], 0),
    "one encoded twice": (BOM + TWICE_ENCODED + b"data: x\n\n", [Event(b"x")], 0),
    "half a byte order mark": (b"\xef\xbbdata: x\n\ndata: y\n\n", [Event(b"y")], 0),
    "nothing but half a mark": (b"\xef\xbb", [], 0),
    "later byte order mark": (b"data: x\n\n" + BOM + b"data: y\n\n", [Event(b"x"), Event(b"y")], 0),
    "nothing but a mark in a line": (b"data: x\n" + BOM + b"\ndata: y\n\n", [Event(b"x"), Event(b"y")], 0),
    "marks within a line": (b"data: " + BOM + b"x\nda" + BOM + b"ta: y\n\n", [Event(BOM + b"x")], 0),
    "nul and other line separators": (
        "data: a\0\x0b\x0c\x1c\x1d\x1e\x85\u0085\u2028\u2029b\n\n".encode(),
        [Event("a\0\x0b\x0c\x1c\x1d\x1e\x85\u0085\u2028\u2029b".encode())],
        0,
    ),
    "unended line": (b"data: x\n\ndata: y", [Event(b"x"), Event(b"y")], 0),
    "unended event": (b"data: x\n\nevent: a\ndata: y\n", [Event(b"x"), Event(b"y", "a")], 0),
    "unended with cr": (b"data: x\r", [Event(b"x")], 0),
    "unended comment": (b": x", [], 1),
    "unended field": (b"data", [Event(b"")], 0),
}


def cut_at(stream: bytes, *cuts: int) -> list[bytes]:
    edges = [0, *cuts, len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def decoded(pieces: list[bytes], limit: int = LIMIT) -> tuple[list[Event], int]:
    decoder = Decoder(limit)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close(), decoder.comments


@pytest.mark.parametrize(("stream", "events", "comments"), CASES.values(), ids=CASES)
def test_cases_under_every_cut(stream: bytes, events: list[Event], comments: int) -> None:
    expected = (events, comments)
    assert decoded([stream]) == expected
    assert decoded([stream[i : i + 1] for i in range(len(stream))]) == expected
    assert decoded([piece for i in range(len(stream)) for piece in (b"", stream[i : i + 1])]) == expected
    for cut in range(len(stream) + 1):
        assert decoded(cut_at(stream, cut)) == expected, f"cut at {cut}"


@pytest.mark.parametrize(("stream", "events", "comments"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("trailer", [b"data: z\n\n", b"\r\n\r\ndata: z\n\n", b"event: e\ndata: z\r\r"])
def test_cases_with_trailing_data(stream: bytes, events: list[Event], comments: int, trailer: bytes) -> None:
    assert decoded([stream + b"\n\n" + trailer])[0][:-1] == events
    assert decoded([stream, b"\n\n", trailer])[0][:-1] == events


def naively_decoded(stream: bytes) -> tuple[list[Event], int]:
    text = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[Event] = []
    comments = 0
    data = b""
    kind = b""
    for line in (text + b"\n\n").split(b"\n"):
        while line.startswith((BOM, TWICE_ENCODED)):
            line = line[3 if line.startswith(BOM) else 6 :]
        if line == b"":
            if data:
                events.append(Event(data[:-1], kind.decode("utf-8", "replace")))
            data = kind = b""
        elif line.startswith(b":"):
            comments += 1
        else:
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"data":
                data += value + b"\n"
            elif field == b"event":
                kind = value
    return events, comments


ENDS = [b"\n", b"\n\n", b"\r", b"\r\n"]
FIELDS = [b"data: ", b"data:", b"data", b"event: e", b"event", b":", b"data: {}\n\n", b"id: 1\n"]
fragments = st.sampled_from([*ENDS, *FIELDS, b"x", b" ", BOM, TWICE_ENCODED, b"\xef", b"\0"])


@given(st.lists(st.lists(fragments | st.binary(max_size=3), max_size=8).map(b"".join), max_size=8))
def test_agrees_with_a_naive_reading(pieces: list[bytes]) -> None:
    assert decoded(pieces) == naively_decoded(b"".join(pieces))


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_out_as_soon_as_its_last_line_end_has_begun(end: bytes) -> None:
    decoder = Decoder(LIMIT)
    assert decoder.feed(b"data: x" + end) == []
    assert decoder.feed(end[:1]) == [Event(b"x")]
    assert decoder.feed(end[1:] + b"data: y" + end + end) == [Event(b"y")]


def test_a_comment_shows_at_once() -> None:
    decoder = Decoder(LIMIT)
    assert decoder.feed(b"data: x\n\n: keep") == [Event(b"x")]
    assert decoder.comments == 0
    assert decoder.feed(b"-alive\n") == []
    assert decoder.comments == 1


# name: stream whose second event passes a bound of 10 bytes
TOO_LARGE = {
    "one line": b"data: 0123456789a\n\n",
    "no space": b"data:0123456789a\n\n",
    "no end": b"data: 0123456789a",
    "many lines": b"data: 01234\ndata: 56789\n\n",
    "short lines without end": b"data: a\n" * 20,
    "empty lines": b"data:\n" * 20,
    "empty lines without colon": b"data\n" * 20,
    "lines between comments": b": c\ndata: aa\n" * 20,
    "event type": b"event: 0123456789a\ndata: x\n\n",
    "event type without end": b"event: 0123456789a",
}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("stream", TOO_LARGE.values(), ids=TOO_LARGE)
def test_bound_under_every_cut(stream: bytes, end: bytes) -> None:
    stream = b"data: 1\n\n" + stream
    stream = stream.replace(b"\n", end)
    for pieces in ([stream], [stream[i : i + 1] for i in range(len(stream))], *(cut_at(stream, i) for i in range(99))):
        decoder = Decoder(10)
        events: list[Event] = []
        with pytest.raises(EventTooLarge, match=r"more than 10 bytes.*limits\.max_event") as caught:
            for piece in pieces:
                events += decoder.feed(piece)
        assert events + caught.value.before == [Event(b"1")]
        assert caught.value.limit == 10


def test_bound_in_a_read_of_whole_events() -> None:
    decoder = Decoder(10)
    assert decoder.feed(b"data: 1\n\n") == [Event(b"1")]
    with pytest.raises(EventTooLarge) as caught:
        decoder.feed(b"data: 2\n\ndata: 0123456789a\n\n")
    assert caught.value.before == [Event(b"2")]


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 0123456789\n\n",
        b"data:0123456789\r\n\r\n",
        b"data: 01234\ndata: 6789\n\n",
        b"event: 0123456789\ndata: 0123456789\n\n",
        b": comment longer than the bound\n" * 5 + b"ignored: longer than the bound\ndata: 0123456789\n\n",
    ],
)
def test_just_within_the_bound_under_every_cut(stream: bytes) -> None:
    expected = naively_decoded(stream)
    assert decoded([stream], limit=10) == expected
    for cut in range(len(stream)):
        assert decoded(cut_at(stream, cut), limit=10) == expected
    assert decoded([stream[i : i + 1] for i in range(len(stream))], limit=10) == expected


def test_endless_ignored_lines_are_not_kept() -> None:
    decoder = Decoder(10)
    for opening in (b": comment ", b"ignored field ", BOM + b"ignored field ", BOM * 1000 + b"x"):
        decoder.feed(opening)
        for _ in range(1000):
            assert decoder.feed(b"x" * 1000) == []
        assert len(decoder._line) < 10
        decoder.feed(b"\n")
    assert decoder.comments == 1
    assert decoder.feed(b"data: x\n\n") == [Event(b"x")]


def test_a_long_line_byte_by_byte() -> None:
    payload = b"x" * LIMIT
    decoder = Decoder(LIMIT)
    decoder.feed(b"data: ")
    assert not any(decoder.feed(b"x") for _ in range(LIMIT))
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\n") == [Event(payload)]


def test_encode() -> None:
    assert encode(b"{}") == b"data: {}\n\n"
    assert encode(b"{}", "message_start") == b"event: message_start\ndata: {}\n\n"
    assert encode(b"{}", "\u00e9") == "event: \u00e9\ndata: {}\n\n".encode()
    assert encode(b"[DONE]") == DONE


@pytest.mark.parametrize(
    ("payload", "event"),
    [(b"a\nsecret", ""), (b"a\rsecret", ""), (b"{}", "a\nsecret"), (b"{}", "a\rsecret")],
)
def test_encode_refuses_line_ends(payload: bytes, event: str) -> None:
    with pytest.raises(ValueError, match="line break") as caught:
        encode(payload, event)
    assert "secret" not in str(caught.value)


def test_encode_leaves_no_line_end_for_clients_that_split_at_more() -> None:
    spelled = '{"a":"é\u2028\u2029\x85ü"}'
    framed = encode(spelled.encode()).decode()
    assert framed == 'data: {"a":"é\\u2028\\u2029\\u0085ü"}\n\n'
    assert framed.splitlines() == framed.split("\n")[:-1]
    assert json.loads(framed[6:]) == json.loads(spelled)


def test_d5_an_event_full_of_other_line_ends_takes_no_more_memory_than_it_is_long() -> None:
    payload = '"\x85\u2028\u2029"'.encode() * 50_000
    tracemalloc.start()
    try:
        written = len(encode(payload))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * written


@given(st.lists(st.tuples(st.text(max_size=20), st.text("abc_.\u00e9", max_size=9)), max_size=5))
def test_what_is_encoded_is_decoded(pairs: list[tuple[str, str]]) -> None:
    ends = str.maketrans("", "", "\n\r\x85\u2028\u2029")
    events = [Event(text.translate(ends).encode(), event) for text, event in pairs]
    stream = KEEP_ALIVE.join(encode(event.data, event.event) for event in events) + DONE
    assert decoded([stream])[0] == [*events, Event(b"[DONE]")]
