"""A read of the upstream's socket that `ReadPath` takes, framing and all, comes out as through the parser."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast
from unittest.mock import patch

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.guard import bytes_path
from gateway.guard.answer import StreamAnswer
from gateway.guard.commands import Command, RecordFact, SendBytes
from gateway.guard.findings import HOLD_BOUNDS, Histogram
from gateway.http1 import ResponseStream
from gateway.http1.connection import Connection, Origin
from gateway.http1.exchange import Exchange
from gateway.http1.response import StreamLimits
from gateway.observe.facts import Fact, GuardFailed
from gateway.policy.model import Action
from gateway.proxy import hotpath
from gateway.proxy.asgi import MAX_INLINE
from gateway.proxy.hotpath import BodyWriter, HotPath
from gateway.wire.chunk_template import encode
from gateway.wire.dialect import Dialect
from gateway.wire.messages import MESSAGES
from gateway.wire.responses import RESPONSES
from gateway.wire.sse import KEEP_ALIVE
from tests.support.event_client import answer_for as typed_answer_for
from tests.support.guard_client import HEAD, answer_for, policy, rule
from tests.support.native import BYTES_PATH, native_module

pytestmark = pytest.mark.skipif(native_module(BYTES_PATH) is None, reason="there is no compiler")
WORDS = policy(rule(), rule("FORBIDDEN", id="b", action=Action.BLOCK, message="No."))
RESPONSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
RUNNER = asyncio.Runner()


def event(content: str) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}
    return b"data: " + json.dumps({**HEAD, "choices": [choice], "obfuscation": "k3"}).encode() + b"\n\n"


def chunk(data: bytes, line: bytes = b"%x") -> bytes:
    return line % len(data) + b"\r\n" + data + b"\r\n"


USUAL = [chunk(event("c "))] * 3
BEGINNING = RESPONSE + chunk(event("Once ")) + chunk(event("upon "))


class Wire(asyncio.Transport):
    """Either side's: keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Owner:
    """Of the connection."""

    def release(self, connection: Connection) -> None:
        pass

    discard = release


@dataclass
class Run:
    """What came out of one stream; `taken`: reads that were taken whole."""

    body: bytes = b""
    facts: list[Fact] = field(default_factory=list)
    failure: str = ""
    taken: int = 0
    observed: int = 0

    def perform(self, commands: list[Command]) -> bytes:
        self.facts += [each.fact for each in commands if isinstance(each, RecordFact)]
        return b"".join(each.data for each in commands if isinstance(each, SendBytes))


async def relayed(
    reads: Sequence[bytes], run: Run, turns: int, paused: Sequence[int], make: Callable[[], StreamAnswer]
) -> None:
    """`reads` arrive, with so many turns of the loop between them; the client does not read before those `paused`."""
    client, upstream = Wire(), Wire()
    flow = FlowControl(client)
    cycle = RequestResponseCycle(
        scope={"type": "http", "method": "POST", "http_version": "1.1", "path": "/", "headers": []},  # type: ignore[typeddict-item]
        transport=client,
        flow=flow,
        logger=logging.getLogger("uvicorn.error"),
        access_logger=logging.getLogger("uvicorn.access"),
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )
    await cycle.send({"type": "http.response.start", "status": 200, "headers": []})
    connection = Connection(Origin("http", "localhost", 80), Owner())
    connection.connection_made(upstream)
    exchange = Exchange(connection, StreamLimits(), {}, head_only=False)
    answer, overhead = make(), Histogram(HOLD_BOUNDS)
    writer = BodyWriter.of(cast(Any, cycle).send)
    assert writer is not None

    async def pass_on() -> bytes:
        await exchange.read_head()
        source = ResponseStream(exchange)
        hot = HotPath(source, answer, writer, run.perform, overhead, MAX_INLINE)
        async for data in source:
            body = run.perform(answer.feed(data, 0.0))
            if answer.done:
                return body
            if body:
                await cycle.send({"type": "http.response.body", "body": body, "more_body": True})
                await hot.run()
                await flow.drain()
                if answer.done:
                    return hot.last
        return run.perform(answer.close(0.0))

    passing = asyncio.create_task(pass_on())
    for number, read in enumerate(reads):
        if number in paused:
            flow.pause_writing()
        before = len(client.written)
        connection.data_received(read)
        for _ in range(turns):
            await asyncio.sleep(0)
        # Who waited for the client was woken before it paused again, and writes once more, as uvicorn's own cycle does.
        assert number not in paused or number - 1 in paused or len(client.written) == before
        flow.resume_writing()
    connection.eof_received()
    last = b""
    try:
        last = await passing
    except (httpx2.HTTPError, RuntimeError) as error:
        run.failure = repr(error)
    # Whether a comment is shown depends on what else a read has.
    run.body = (dechunked(b"".join(client.written).partition(b"\r\n\r\n")[2]) + last).replace(KEEP_ALIVE, b"")
    run.observed = sum(overhead.counts)


def dechunked(data: bytes) -> bytes:
    body = b""
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line, 16)
        assert data[size : size + 2] == b"\r\n"
        body, data = body + data[:size], data[size + 2 :]
    return body


def chat() -> StreamAnswer:
    answer = answer_for(WORDS)
    assert isinstance(answer, StreamAnswer)
    return answer


def run(
    reads: Sequence[bytes],
    native: bool,
    turns: int = 2,
    paused: Sequence[int] = (),
    make: Callable[[], StreamAnswer] = chat,
) -> Run:
    found, module = Run(), native_module(BYTES_PATH)

    class Counted:
        def __init__(self, *given: Any) -> None:
            self.path = module.ReadPath(*given)

        def feed(self, data: bytes) -> bytes | None:
            self.path.events = self.events
            rest: bytes | None = self.path.feed(data)
            assert rest is None or (rest and len(rest) <= len(data) + 8)
            found.taken += rest is None
            return rest

        events = None
        failure = property(lambda self: self.path.failure)

    with (
        patch.object(bytes_path, "IMPLEMENTATION", module.BytesPath),
        patch.object(hotpath, "READ_PATH", Counted if native else None),
        patch.object(hotpath, "perf_counter", lambda: 0.0),
    ):
        RUNNER.run(relayed(reads, found, turns, paused, make))
    return found


def assert_same(reads: Sequence[bytes], turns: int = 2, paused: Sequence[int] = ()) -> Run:
    """What came out, which is the same as without it."""
    found, expected = run(reads, True, turns, paused), run(reads, False, turns, paused)
    assert (found.body, found.facts, found.failure) == (expected.body, expected.facts, expected.failure)
    return found


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


PIECES = ("", "It is ", "12MON", "KEYS", "a", "`", "FORBID", "DEN", 'a "quote"\n', "é", "word " * 200, "x, \\" * 300)
LINES = (b"%x", b"%X", b"%x", b"00%x", b"%x;a=b", b'%x;a="b"', b"0000000%x", b" %x", b"%x ")


@example(chunks=[], ended=END, split=False, cuts=[], noise=[], turns=1, paused=[0, 1])
@given(
    chunks=st.lists(
        st.tuples(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3), st.sampled_from(LINES)), max_size=8
    ),
    ended=st.sampled_from((END, b"0\r\nTrailer: a\r\n\r\n", b"", b"x\r\n", END + b"1\r\na\r\n")),
    split=st.booleans(),
    cuts=st.lists(st.integers(0, 9000), max_size=6),
    noise=st.lists(st.tuples(st.integers(0, 9000), st.sampled_from(b"\n\r0;agZ\x00\xff ")), max_size=1),
    turns=st.integers(0, 2),
    paused=st.lists(st.integers(0, 8), max_size=2),
)
def test_what_comes_out_is_what_the_parsers_way_writes(
    chunks: list[tuple[list[str], bytes]],
    ended: bytes,
    split: bool,
    cuts: list[int],
    noise: list[tuple[int, int]],
    turns: int,
    paused: list[int],
) -> None:
    reads = [chunk(b"".join(map(event, pieces)), line) for pieces, line in chunks]
    data = bytearray(b"".join(reads) + ended)
    for place, byte in noise:
        if data:
            data[place % len(data)] = byte
    if split or noise:
        reads = cut(bytes(data), cuts)
    elif ended:
        reads.append(ended)
    assert_same([BEGINNING, chunk(event("a ")), *reads], turns, paused)


def test_every_cut_of_a_stream_comes_out_the_same() -> None:
    data = chunk(event("time") + event("12MON")) + chunk(event("day ")) + END
    expected = run([BEGINNING, chunk(event("a ")), data], False)
    assert expected.failure == "" and b"Once " in expected.body
    for place in range(len(data)):
        found = run([BEGINNING, chunk(event("a ")), *cut(data, [place])], True)
        assert (found.body, found.facts, found.failure) == (expected.body, expected.facts, expected.failure)


def test_damaged_framing_comes_out_the_same() -> None:
    sound = chunk(event("time "))
    for place in (*range(5), *range(-2, 0)):
        for byte in b"\n\r0;agZ\x00 ":
            damaged = bytearray(sound)
            damaged[place] = byte
            assert_same([BEGINNING, chunk(event("a ")), *USUAL, bytes(damaged) + sound, *USUAL, END])


def test_chunks_in_a_chunk_are_text() -> None:
    comment, text = b": comment\n\n", event("time ")
    line, inner = b"%x" % len(text), chunk(text)
    # The line of the last one ends with the digits of what could be a chunk of its own.
    longer = text + b"\r\n:" + b"-" * (0x100 - 5) + b"\n\n"
    assert chunk(longer).startswith(b"1" + line + b"\r\n")
    for data, first in (
        (chunk(comment) + chunk(inner), 0),
        (chunk(comment + inner), len(line) + 2),
        (chunk(comment) + chunk(longer), 0),
    ):
        expected = run([BEGINNING, *USUAL, data, *USUAL, END], False)
        for place in range(60):
            found = run([BEGINNING, *USUAL, *cut(data, [first, place]), *USUAL, END], True)
            assert (found.body, found.facts, found.failure) == (expected.body, expected.facts, "")


def test_an_event_in_two_chunks_comes_out_the_same() -> None:
    whole, after = event("time ") + event("and "), (chunk(event("b ")), chunk(event("c ")), END)
    expected = run([BEGINNING, chunk(event("a ")), chunk(whole), *after], False)
    for place in range(1, len(whole)):
        found = run([BEGINNING, chunk(event("a ")), chunk(whole[:place]) + chunk(whole[place:]), *after], True)
        assert (found.body, found.facts, found.failure) == (expected.body, expected.facts, "")


@pytest.mark.parametrize("together", [1, 3])
def test_most_reads_of_a_stream_are_taken_whole(together: int) -> None:
    chunks = [chunk(event(f"word {number} ")) for number in range(60)]
    reads = [b"".join(chunks[at : at + together]) for at in range(0, 60, together)]
    found = assert_same([BEGINNING, *reads, END])
    assert found.taken >= len(reads) - 1 and b"word 59" in found.body and found.observed >= found.taken


def typed(dialect: Dialect) -> list[bytes]:
    """A stream of typed events, each as one chunk."""
    texts = ["Once ", "upon ", "a 12MON", "day ", "12MON", "KEYS ", *["word "] * 9]
    if dialect is MESSAGES:
        block = {"type": "text", "text": ""}
        begun = [{"type": "message_start", "message": {"type": "message", "role": "assistant", "content": []}}]
        begun.append({"type": "content_block_start", "index": 0, "content_block": block})
        deltas = [{"type": "text_delta", "text": text} for text in texts]
        events = [*begun, *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas)]
    else:
        item = {"id": "it_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        where = {"item_id": "it_1", "output_index": 0, "content_index": 0}
        begun = [{"type": "response.created", "response": {"status": "in_progress", "output": []}}]
        begun.append({"type": "response.output_item.added", "output_index": 0, "item": item})
        begun.append({"type": "response.content_part.added", **where, "part": {"type": "output_text", "text": ""}})
        deltas = [{"type": "response.output_text.delta", **where, "delta": text} for text in texts]
        events = [{**event, "sequence_number": at} for at, event in enumerate([*begun, *deltas])]
    return [chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()) for event in events]


@pytest.mark.parametrize("dialect", [RESPONSES, MESSAGES], ids=lambda dialect: dialect.path)
def test_typed_events_are_taken_and_come_out_the_same_at_every_cut(dialect: Dialect) -> None:
    def make() -> StreamAnswer:
        return typed_answer_for(WORDS, dialect)

    chunks = typed(dialect)
    expected = run([RESPONSE, *chunks, END], False, make=make)
    assert b"KEYS" not in expected.body and b"12MON" in expected.body and expected.failure == ""
    found = run([RESPONSE, *chunks, END], True, make=make)
    assert (found.body, found.facts, found.failure) == (expected.body, expected.facts, "") and found.taken >= 9
    before, cuttable, after = chunks[:-4], b"".join(chunks[-4:-2]), chunks[-2:]
    for place in range(len(cuttable)):
        found = run([RESPONSE, *before, *cut(cuttable, [place]), *after, END], True, make=make)
        assert (found.body, found.facts, found.failure) == (expected.body, expected.facts, "")


def test_it_is_taken_again_behind_a_read_that_took_another_way() -> None:
    halves = chunk(event("a")[:30]) + chunk(event("a")[30:])
    reads = [read for each in (halves, chunk(event("`b ")), chunk(b": comment\n\n")) for read in (each, *USUAL)]
    assert assert_same([BEGINNING, *reads, END]).taken >= 3 * 2


def test_nothing_overtakes_what_waits_for_the_client() -> None:
    reads = [chunk(event(f"word{number} ")) for number in range(30)]
    found = assert_same([BEGINNING, *reads, END], paused=(5, 6, 12))
    texts = [json.loads(line[6:])["choices"][0]["delta"]["content"] for line in found.body.split(b"\n\n") if line]
    assert texts == ["Once ", "upon ", *(f"word{number} " for number in range(30))]


def test_a_large_read_is_left_to_the_parser() -> None:
    large = chunk(event("x, " * 500))
    assert native_taken(large) is False and native_taken(chunk(event("x" * 600))) is True


def native_taken(read: bytes) -> bool:
    few, more = (run([BEGINNING, chunk(event("a ")), *reads, END], True).taken for reads in ([], [read]))
    return more > few


@pytest.mark.parametrize("fault", [RuntimeError("quotes 12MONKEYS"), ValueError("quotes 12MONKEYS")])
def test_a_failure_within_it_fails_closed(fault: Exception) -> None:
    def failing(text: str) -> bytes:
        if '"' in text:
            raise fault
        return encode(text)

    with patch.object(bytes_path, "encode", failing):
        reads = [chunk(event("a ")), chunk(event("sent ")), chunk(event("held 12MON")), chunk(event('a "'))]
        found = run([BEGINNING, *reads, chunk(event("late ")), END], True)
    assert b"sent " in found.body and b"late" not in found.body and b"12MON" not in found.body
    assert b"guard_failed" in found.body
    (failed,) = (fact for fact in found.facts if isinstance(fact, GuardFailed))
    assert failed.where.startswith(f"{type(fault).__name__} at {__name__}:") and "12MONKEYS" not in repr(found.facts)


def test_it_refuses_what_it_cannot_use() -> None:
    module, overhead, taken = native_module(BYTES_PATH), Histogram(HOLD_BOUNDS), list[bytes]()
    given = (lambda: 0.0, taken.append, object(), object(), overhead, 512, 8192, 12, 16)
    path = module.ReadPath(*given)
    assert path.feed(b"1\r\na\r\n") == b"1\r\na\r\n" and path.failure is None  # no way for events
    path.events = object()
    assert path.feed(b"1\r\na\r\n") == b"1\r\na\r\n"
    for wrong in ("a", None, 1):
        with pytest.raises(TypeError):
            path.feed(wrong)
    with pytest.raises(TypeError):
        module.ReadPath.__new__(module.ReadPath).feed(b"")
    with pytest.raises(TypeError):
        path.__init__(*given)
    for place, other in ((4, object()), (5, "many")):
        with pytest.raises((TypeError, AttributeError)):
            module.ReadPath(*given[:place], other, *given[place + 1 :])
    path.events = module.BytesPath.__new__(module.BytesPath)
    assert path.feed(b"1\r\na\r\n") == b"1\r\na\r\n" and not taken
