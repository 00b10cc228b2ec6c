"""What an upstream can do to the gateway: a table of plays, each asked for as a stream, as a plain answer, or both."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.faults.fault import Counts, Fault, Trial, answered, failed, total
from tests.faults.speech import Speech
from tests.faults.world import Scene
from tests.support.upstream import END, Call, chunk, completion, delta, event, http, plain, stream_head

Play = Scene


@dataclass(frozen=True, slots=True)
class _Upstream:
    """`plain` and `stream`: what the client gets of it, and what is counted; None where it is not asked for so."""

    name: str
    does: str
    play: Play
    plain: tuple[str, Counts] | None
    stream: tuple[str, Counts] | None
    model: str = "any"
    sample: bool = False


def _whole(speech: Speech) -> bytes:
    return plain(completion(speech.text))


def _half(speech: Speech) -> bytes:
    whole = _whole(speech)
    return whole[: len(whole) - 20]


def _is_stream(call: Call) -> bool:
    return bool(call.body["stream"])


async def _begin(call: Call, speech: Speech) -> None:
    """Half an answer of the kind that was asked for."""
    await call.send(stream_head() + speech.begun if _is_stream(call) else _half(speech))


async def _gone_before(call: Call, _: Speech) -> None:
    call.close()


async def _reset_before(call: Call, _: Speech) -> None:
    call.conversation.reset()


async def _reset_in_head(call: Call, _: Speech) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nConte")
    call.conversation.reset()


async def _silent(call: Call, _: Speech) -> None:
    await call.hang()


async def _half_a_head(call: Call, _: Speech) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    await call.hang()


async def _reset_within(call: Call, speech: Speech) -> None:
    await _begin(call, speech)
    await asyncio.sleep(0.1)  # what was sent is read first: a reset drops what was not
    call.conversation.reset()


async def _closed_within(call: Call, speech: Speech) -> None:
    await _begin(call, speech)
    call.close()


async def _stalled(call: Call, speech: Speech) -> None:
    await _begin(call, speech)
    await call.hang()


async def _half_a_frame(call: Call, speech: Speech) -> None:
    if _is_stream(call):
        await call.send(stream_head() + speech.begun + b"40\r\ndata: {" + speech.word.encode())
    else:
        whole = plain(completion(speech.text)).partition(b"\r\n\r\n")[2]
        await call.send(stream_head(content_type="application/json") + b"%x\r\n" % (len(whole) + 9) + whole)
    call.close()


async def _half_an_event(call: Call, speech: Speech) -> None:
    await call.send(stream_head() + speech.begun + chunk(event(delta(speech.word))[:-9]) + END)


async def _no_chunk(call: Call, speech: Speech) -> None:
    await call.send(stream_head() + speech.begun + speech.word.encode() + b"\r\n")
    call.close()


async def _too_short(call: Call, speech: Speech) -> None:
    await call.send(_whole(speech)[:-1])
    call.close()


async def _too_long(call: Call, speech: Speech) -> None:
    whole = _whole(speech)
    _, _, body = whole.partition(b"\r\n\r\n")
    length = b"Content-Length: %d" % len(body)
    await call.send(whole.replace(length, b"Content-Length: %d" % (len(body) - 9)))


async def _two_lengths(call: Call, speech: Speech) -> None:
    await call.send(_whole(speech).replace(b"Content-Length", b"Content-Length: 3\r\nContent-Length"))


async def _length_and_chunks(call: Call, speech: Speech) -> None:
    head = stream_head("Content-Length: 12")
    await call.send(head + speech.begun + speech.rest + END)


async def _no_http(call: Call, speech: Speech) -> None:
    await call.send(b"220 mail.example " + speech.word.encode() + b"\r\n")
    call.close()


async def _slow_start(call: Call, speech: Speech) -> None:
    """A byte at a time, the head too."""
    whole = stream_head() + speech.begun + speech.rest + END if _is_stream(call) else _whole(speech)
    await asyncio.sleep(0.2)
    await call.conversation.send_bytewise(whole)


async def _endless_stream(call: Call, speech: Speech) -> None:
    await call.send(stream_head())
    while not call.conversation.writer.is_closing():
        await call.send(b"".join(chunk(each) for each in speech.events))
        await asyncio.sleep(0.02)


async def _endless_event(call: Call, speech: Speech) -> None:
    await call.send(stream_head() + speech.begun + chunk(b"data: "))
    while not call.conversation.writer.is_closing():
        await call.send(chunk(speech.word.encode() * 500))


async def _endless_head(call: Call, speech: Speech) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\n")
    while not call.conversation.writer.is_closing():
        await call.send(b"X-Note: " + speech.word.encode() * 50 + b"\r\n")


async def _endless_body(call: Call, speech: Speech) -> None:
    await call.send(stream_head(content_type="application/json"), chunk(b'{"a": "'))
    while not call.conversation.writer.is_closing():
        await call.send(chunk(speech.word.encode() * 500))


async def _endless_comments(call: Call, _: Speech) -> None:
    await call.send(stream_head())
    while not call.conversation.writer.is_closing():
        await call.send(chunk(b": still here\n\n" * 100))
        await asyncio.sleep(0.01)


async def _flood_of_1xx(call: Call, _: Speech) -> None:
    while not call.conversation.writer.is_closing():
        await call.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)


async def _some_1xx(call: Call, speech: Speech) -> None:
    await call.send(
        b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 5, _whole(speech)
    )


@cache
def _packed_gigabyte() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(1024)) + packer.flush()


async def _bomb(call: Call, _: Speech) -> None:
    """A gigabyte of zeros."""
    packed = await asyncio.to_thread(_packed_gigabyte)  # it takes seconds, for which nobody else is to wait
    kind = "text/event-stream" if _is_stream(call) else "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    begun = gzip.compress(b"data: " if _is_stream(call) else b'{"a": "')
    await call.send(head.encode().replace(str(len(packed)).encode(), str(len(packed) + len(begun)).encode()) + begun)
    await call.send(packed)


async def _broken_gzip(call: Call, speech: Speech) -> None:
    whole = bytearray(gzip.compress(b"data: " + speech.text.encode() * 9))
    whole[20] ^= 0xFF
    await call.send(http(200, bytes(whole), "text/event-stream", "Content-Encoding: gzip"))


async def _unknown_encoding(call: Call, speech: Speech) -> None:
    await call.send(http(200, speech.word.encode(), "application/json", "Content-Encoding: br"))


async def _page(call: Call, speech: Speech) -> None:
    await call.send(http(200, b"<html>" + speech.word.encode() + b"</html>", "text/html"))


async def _error_inside(call: Call, speech: Speech) -> None:
    await call.send(plain({"error": {"message": speech.text, "type": "x", "code": "own_code"}}))


async def _error_event(call: Call, speech: Speech) -> None:
    error = {"error": {"message": speech.text, "type": "server_error", "code": "own_code"}}
    await call.send(stream_head() + speech.begun + chunk(event(error)) + speech.rest + END)


async def _no_done(call: Call, speech: Speech) -> None:
    await call.send(stream_head() + b"".join(map(chunk, speech.events)) + chunk(event(delta(finish="stop"))) + END)


async def _garbage_behind(call: Call, speech: Speech) -> None:
    whole = stream_head() + speech.begun + speech.rest + END if _is_stream(call) else _whole(speech)
    await call.send(whole + b"HTTP/1.1 200 OK\r\n" + speech.word.encode())


async def _whole_answer(call: Call, speech: Speech) -> None:
    await call.send(stream_head() + speech.begun + speech.rest + END if _is_stream(call) else _whole(speech))


def _status(status: int) -> Play:
    async def play(call: Call, speech: Speech) -> None:
        error = {"message": speech.text, "type": "x", "param": None, "code": "own_code"}
        await call.send(plain({"error": error}, status, "Retry-After: 1"))

    return play


def _broken_once(how: str) -> Play:
    """A kept connection that ends as its next request comes; on a new one there is an answer."""

    broken = False

    async def play(call: Call, speech: Speech) -> None:
        nonlocal broken
        if len(call.conversation.requests) > 1:
            broken = True
            (call.close if how == "close" else call.conversation.reset)()
        elif broken:  # nothing is kept for another fault
            broken = False
            await call.send(plain(completion(speech.text), 200, "Connection: close"))
        else:
            await call.send(_whole(speech))

    return play


def _both(status: int, code: str, error: str) -> dict[str, tuple[str, Counts]]:
    """Nothing was sent on: the same error for a stream and for a plain answer."""
    return dict.fromkeys(("plain", "stream"), (f"{status} {code}", failed(status, error)))


def _within(status: int, code: str, error: str) -> dict[str, tuple[str, Counts]]:
    """A stream has begun, and ends with an error event."""
    return {
        "plain": (f"{status} {code}", failed(status, error)),
        "stream": (f"200 event {code}", failed(status, error, stream=True)),
    }


_DONE: dict[str, tuple[str, Counts]] = {"plain": ("200", answered()), "stream": ("200 done", answered())}


def _status_counts(status: int) -> Counts:
    return {f"status {status}": 1, "upstream status": 1, f"failed: upstream status {status}": 1}


_BROKE, _RESET, _SLOW = "upstream_protocol_error", "upstream_reset", "upstream_timeout"

_TABLE: tuple[_Upstream, ...] = (
    _Upstream(
        "no such host",
        "its name leads nowhere",
        _silent,
        **_both(502, "upstream_unreachable", "dns"),
        model="nowhere",
        sample=True,
    ),
    _Upstream(
        "nobody listens", "its port is closed", _silent, **_both(502, "upstream_unreachable", "refused"), model="nobody"
    ),
    _Upstream("closes", "closes before it answers", _gone_before, **_both(502, _BROKE, "protocol")),
    _Upstream("resets", "resets before it answers", _reset_before, **_both(502, _RESET, "reset"), sample=True),
    _Upstream("resets in the head", "sends half a head, resets", _reset_in_head, **_both(502, _RESET, "reset")),
    _Upstream("silence", "takes the request, says nothing", _silent, **_both(504, _SLOW, "timeout"), model="hasty"),
    _Upstream(
        "half a head", "sends half a head, then nothing", _half_a_head, **_both(504, _SLOW, "timeout"), model="hasty"
    ),
    _Upstream(
        "resets within", "sends half an answer, resets", _reset_within, **_within(502, _RESET, "reset"), sample=True
    ),
    _Upstream("closes within", "sends half an answer, closes", _closed_within, **_within(502, _BROKE, "protocol")),
    _Upstream(
        "stalls",
        "sends half an answer, then nothing",
        _stalled,
        **_within(504, _SLOW, "timeout"),
        model="hasty",
        sample=True,
    ),
    _Upstream(
        "half a frame", "ends in the middle of a chunk", _half_a_frame, **_within(502, _BROKE, "protocol"), sample=True
    ),
    _Upstream(
        "half an event",
        "ends in the middle of an event",
        _half_an_event,
        None,
        ("200 event " + _BROKE, failed(502, "protocol", stream=True)),
    ),
    _Upstream(
        "no chunk",
        "sends text where a chunk's size belongs",
        _no_chunk,
        None,
        ("200 event " + _BROKE, failed(502, "protocol", stream=True)),
    ),
    _Upstream(
        "a length too long",
        "sends a byte less than it said, closes",
        _too_short,
        (f"502 {_BROKE}", failed(502, "protocol")),
        None,
        sample=True,
    ),
    _Upstream(
        "a length too short",
        "sends nine bytes more than it said",
        _too_long,
        (f"502 {_BROKE}", failed(502, "protocol")),
        None,
    ),
    _Upstream(
        "two lengths", "sends two lengths that differ", _two_lengths, (f"502 {_BROKE}", failed(502, "protocol")), None
    ),
    _Upstream(
        "a length and chunks",
        "sends a length and chunks",
        _length_and_chunks,
        None,
        (f"502 {_BROKE}", failed(502, "protocol")),
    ),
    _Upstream("no HTTP", "answers in another protocol", _no_http, **_both(502, _BROKE, "protocol")),
    _Upstream("a byte at a time", "sends head and body bytewise", _slow_start, **_DONE, sample=True),
    _Upstream(
        "a stream without end",
        "sends events for ever",
        _endless_stream,
        None,
        ("200 event " + _SLOW, failed(504, "timeout", stream=True)),
        model="hasty",
        sample=True,
    ),
    _Upstream(
        "comments without end",
        "sends nothing but comments, for ever",
        _endless_comments,
        None,
        ("200 event " + _SLOW, failed(504, "timeout", stream=True)),
        model="hasty",
    ),
    _Upstream(
        "an event without end",
        "sends one event for ever",
        _endless_event,
        None,
        ("200 event " + _BROKE, failed(502, "protocol", stream=True)),
        sample=True,
    ),
    _Upstream("a head without end", "sends header lines for ever", _endless_head, **_both(502, _BROKE, "protocol")),
    _Upstream(
        "an answer without end",
        "sends one JSON text for ever",
        _endless_body,
        (f"502 {_BROKE}", failed(502, "protocol")),
        None,
    ),
    _Upstream("a flood of 1xx", "sends 103 for ever", _flood_of_1xx, **_both(502, _BROKE, "protocol"), sample=True),
    _Upstream("some 1xx", "sends 100 and five 103 before a whole answer", _some_1xx, ("200", answered()), None),
    _Upstream(
        "a compression bomb",
        "sends a gigabyte of zeros as a megabyte of gzip",
        _bomb,
        **_within(502, _BROKE, "protocol"),
        sample=True,
    ),
    _Upstream("broken gzip", "sends gzip with a wrong byte", _broken_gzip, **_within(502, _BROKE, "protocol")),
    _Upstream(
        "an unknown encoding", "sends what was not asked for", _unknown_encoding, **_within(502, _BROKE, "protocol")
    ),
    _Upstream("a page", "sends HTML with 200", _page, **_within(502, _BROKE, "protocol")),
    _Upstream(
        "an error in 200",
        "sends an error with 200",
        _error_inside,
        ("502 own_code", failed(502, "protocol")),
        ("200 event own_code", failed(502, "error_event", stream=True)),
    ),
    _Upstream(
        "an error event",
        "sends an error in mid-stream, and continues",
        _error_event,
        None,
        ("200 event own_code", failed(502, "error_event", stream=True)),
        sample=True,
    ),
    _Upstream("no [DONE]", "ends a stream without it", _no_done, None, ("200", answered())),
    _Upstream("more than an answer", "sends a word behind its answer", _garbage_behind, **_DONE),
    _Upstream(
        "a kept connection closes",
        "ends a kept connection as its next request comes, answers on a new one",
        _broken_once("close"),
        ("200", total(answered(2), {"retries": 1, "upstream reset": 1})),
        None,
        model="again",
        sample=True,
    ),
    _Upstream(
        "a kept connection resets",
        "resets it as its next request comes, answers on a new one",
        _broken_once("reset"),
        ("200", total(answered(2), {"retries": 1, "upstream reset": 1})),
        None,
        model="again",
    ),
    *(
        _Upstream(
            f"status {status}",
            f"answers {status}, the word in its message",
            _status(status),
            **dict.fromkeys(("plain", "stream"), (f"{status} own_code", _status_counts(status))),
            sample=status == 500,
        )
        for status in (400, 429, 500, 502, 503, 504, 529)
    ),
    _Upstream("status 401", "refuses the gateway's key", _status(401), **_both(502, "upstream_auth", "auth")),
)


def _act(row: _Upstream, *, stream: bool, gets: str) -> Fault:
    async def act(trial: Trial) -> None:
        trial.world.stage.scene = row.play
        if row.name.startswith("a kept"):
            await trial.world.ask(trial, row.model)
        answer = await trial.world.ask(trial, row.model, stream=stream)
        trial.expect("answer", answer.summary, gets)
        if answer.status == 200:
            whole = gets in ("200", "200 done")
            may = {trial.speech.censored} if whole else trial.speech.may_get()
            trial.require(row.name.startswith("a stream") or answer.content in may, f"content {answer.content!r}")

    wanted = row.stream if stream else row.plain
    assert wanted is not None
    name = f"{row.name}, {'stream' if stream else 'plain'}"
    return Fault(name, "upstream", row.does, gets, act, wanted[1], row.sample and (stream or row.stream is None))


def faults() -> Iterator[Fault]:
    for row in _TABLE:
        for stream, wanted in ((False, row.plain), (True, row.stream)):
            if wanted is not None:
                yield _act(row, stream=stream, gets=wanted[0])
