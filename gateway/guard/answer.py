"""From an upstream's bytes to the client's: the framing around the chat guard, for streams and for plain answers.

What the upstream sends is recognised by its first byte, not by what it says it is: JSON where a stream was asked for
becomes a stream, a stream where JSON was asked for becomes JSON, anything else becomes an error. Every event is parsed,
censored and written anew; no byte of an upstream reaches a client. What is said in another dialect is put into chat's
words between parsing and guarding, and back between guarding and writing.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from gateway.guard.channels import InvalidAnswer
from gateway.guard.chat import ChatGuard
from gateway.observe.facts import Fact, GuardFailed
from gateway.wire import chat, json, sse
from gateway.wire.dialect import CHAT, Dialect

# The shape of OpenAI's errors. None of these texts comes from an upstream.
Failure = dict[str, Any]


def failure(message: str, code: str, kind: str = "upstream_error") -> Failure:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


GUARD_FAILED = failure("The guard failed; the answer was stopped.", "guard_failed", "server_error")

# -- commands: what the performer has to do, as plain data ------------------------------------------------------------


class SendBytes(NamedTuple):
    """Write these bytes to the client, as they are."""

    data: bytes


class CloseUpstream(NamedTuple):
    """The answer is over: close the upstream, read no more of it."""


class RecordFact(NamedTuple):
    """Hand this fact to the sinks."""

    fact: Fact


Command = SendBytes | CloseUpstream | RecordFact


_JSON_BEGINS = b'{["'
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class BrokenAnswer(Exception):
    """A plain answer that cannot be passed on; `failure` is what the client gets instead, with status 502."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["error"]["message"])
        self.failure = failure


class _Source:
    """The upstream's bytes as parsed objects: events of a stream, or one whole JSON text. Bounded either way."""

    def __init__(self, max_event: int, max_whole: int) -> None:
        self.decoder = sse.Decoder(max_event)
        self.whole: bytearray | None = None
        self._max_whole = max_whole
        self._known = False

    @property
    def unread(self) -> int:
        return self.decoder.unread if self.whole is None else len(self.whole)

    def feed(self, data: bytes) -> list[sse.Event]:
        if self._known and self.whole is None:
            return self.decoder.feed(data)
        if not self._known:
            start = data.removeprefix(_BOM).lstrip(_BLANK)
            if not start:
                return self.decoder.feed(data)
            self._known = True
            if start[0] in _JSON_BEGINS:
                self.whole = bytearray()
        if self.whole is None:
            return self.decoder.feed(data)
        if len(self.whole) + len(data) > self._max_whole:
            raise InvalidAnswer(f"the upstream's answer is larger than {self._max_whole} bytes")
        self.whole += data
        return []


class StreamAnswer:
    """An answer to a client that asked for a stream. Feed it reads, perform its commands; it never raises.

    `now` is the caller's clock in seconds, used only to say how long text was held.
    """

    def __init__(self, guard: ChatGuard, *, max_event: int, max_whole: int, dialect: Dialect = CHAT) -> None:
        self.done = False
        self.fault = ""  # what the upstream did wrong within its answer: `protocol`, `error_event`
        self._guard = guard
        self._dialect = dialect
        self._source = _Source(max_event, max_whole)
        self._comments = 0
        self._heard = False

    @property
    def unread(self) -> int:
        """Bytes that came and could not be read yet: of an event without its end, or of an answer that is JSON."""
        return self._source.unread

    def feed(self, data: bytes, now: float) -> list[Command]:
        """One read from the upstream."""
        if self.done:
            return []
        self._guard.counts.now = now
        out: list[bytes] = []
        try:
            payload = self._source.decoder.single(data)
            if payload is not None and self._repeat(payload, out):
                return self._commands(out)
            try:
                events = self._source.feed(data)
            except sse.EventTooLarge as error:
                self._events(error.before, out)
                raise InvalidAnswer(str(error)) from None
            self._events(events, out)
        except Exception as error:
            return self._fail_closed(error, out)
        if not out and self._source.decoder.comments != self._comments:
            out.append(sse.KEEP_ALIVE)
        self._comments = self._source.decoder.comments
        return self._commands(out)

    def close(self, now: float) -> list[Command]:
        """The upstream ended its answer in an orderly way."""
        if self.done:
            return []
        self._guard.counts.now = now
        out: list[bytes] = []
        try:
            if self._source.whole is not None:
                self._whole(bytes(self._source.whole), out)
            else:
                self._events(self._source.decoder.close(), out)
            if not self.done:
                if not self._heard:
                    raise InvalidAnswer("the upstream's answer is neither a stream of events nor JSON")
                self._send_chunks(self._guard.end(), out)
                if self._guard.finished:
                    out.append(sse.DONE)
                self.done = True
        except Exception as error:
            return self._fail_closed(error, out)
        return self._commands(out)

    def fail(self, reason: Failure, now: float) -> list[Command]:
        """The upstream failed: what is held and no match comes out, then the error (§4.7, §5)."""
        if self.done:
            return []
        self._guard.counts.now = now
        out: list[bytes] = []
        try:
            self._send_chunks(self._guard.end(), out)
        except Exception as error:
            return self._fail_closed(error, out)
        out.append(sse.encode(json.encode(reason)))
        self.done = True
        return self._commands(out)

    def cancel(self) -> list[Command]:
        """The client left: nothing more is sent, and the books are closed."""
        if self.done:
            return []
        self.done = True
        self._guard.abandon()
        return [CloseUpstream(), RecordFact(self._guard.counts.fact())]

    def _commands(self, out: list[bytes]) -> list[Command]:
        commands: list[Command] = [SendBytes(out[0] if len(out) == 1 else b"".join(out))] if out else []
        if self.done:
            commands += [CloseUpstream(), RecordFact(self._guard.counts.fact())]
        return commands

    def _fail_closed(self, error: Exception, out: list[bytes]) -> list[Command]:
        """Nothing more of the answer comes out, but what was scanned when it is the upstream that is at fault."""
        if isinstance(error, InvalidAnswer):
            try:
                self._send_chunks(self._guard.end(), out)
                out.append(sse.encode(json.encode(failure(f"{error}.", "upstream_protocol_error"))))
                self.done, self.fault = True, "protocol"
                return self._commands(out)
            except Exception as worse:
                error = worse
        self.done = True
        out.append(sse.encode(json.encode(GUARD_FAILED)))
        with contextlib.suppress(Exception):
            self._guard.abandon()
        return [RecordFact(guard_failed(self._guard, error)), *self._commands(out)]

    def _events(self, events: list[sse.Event], out: list[bytes]) -> None:
        for event in events:
            if self.done:
                return
            if self._repeat(event.data, out):
                continue
            self._heard = True
            if event.data.strip() == b"[DONE]":
                self._send_chunks(self._guard.end(), out)
                out.append(sse.DONE)
                self.done = True
                return
            try:
                received = json.decode(event.data)
            except json.JSONError:
                raise InvalidAnswer("the upstream sent an event that is not JSON") from None
            self._object(received, out)
            if self._dialect is CHAT:  # the quick way writes what it has read, as it was read
                self._guard.learn(event.data)

    def _repeat(self, data: bytes, out: list[bytes]) -> bool:
        quick = self._guard.repeat(data)
        if quick is None:
            return False
        payload, more = quick
        if payload:
            out.append(sse.encode(payload))
        if more:
            self._send_chunks(more, out)
            self._end_if_finished(out)
        return True

    def _object(self, received: object, out: list[bytes]) -> None:
        if not isinstance(received, dict):
            if (shown := self._guard.stray(received)) is not None:
                out.append(sse.encode(json.encode(shown)))
            return
        if received.get("error") is not None:
            self._send_chunks(self._guard.end(), out)
            out.append(sse.encode(json.encode(self._guard.error(received))))
            self.done, self.fault = True, "error_event"
            return
        self._chunk(self._dialect.as_chunk(received), out)

    def _chunk(self, chunk: chat.Json, out: list[bytes]) -> None:
        self._send_chunks(self._guard.chunk(chunk), out)
        self._end_if_finished(out)

    def _end_if_finished(self, out: list[bytes]) -> None:
        if self._guard.finished:
            out.append(sse.DONE)
            self.done = True

    def _whole(self, data: bytes, out: list[bytes]) -> None:
        """A JSON answer where a stream was asked for."""
        try:
            received = json.decode(data)
        except json.JSONError:
            raise InvalidAnswer("the upstream sent an answer that is not JSON") from None
        if not isinstance(received, dict):
            raise InvalidAnswer("the upstream sent an answer that is no JSON object")
        self._heard = True
        if received.get("error") is not None:
            return self._object(received, out)
        for chunk in chat.as_chunks(self._dialect.as_completion(received)):
            if not self.done:
                self._chunk(chunk, out)
        if not self.done:
            self._send_chunks(self._guard.end(), out)
            out.append(sse.DONE)
            self.done = True
        return None

    def _send_chunks(self, chunks: list[chat.Json], out: list[bytes]) -> None:
        for chunk in chunks:
            out.append(sse.encode(json.encode(self._dialect.spelled(chunk))))


class PlainAnswer:
    """An answer to a client that asked for it whole. Bounded by `max_whole` bytes, as JSON or as a stream."""

    def __init__(self, guard: ChatGuard, *, max_event: int, max_whole: int, dialect: Dialect = CHAT) -> None:
        self._guard = guard
        self._dialect = dialect
        self._source = _Source(max_event, max_whole)
        self._assembler: chat.Assembler | None = None
        self._done = False
        self._size = 0
        self._max_whole = max_whole

    @property
    def done(self) -> bool:
        """Nothing more is wanted of the upstream."""
        return self._done

    @property
    def unread(self) -> int:
        """As that of a `StreamAnswer`."""
        return self._source.unread

    def feed(self, data: bytes, now: float) -> None:
        """One read. Raises `BrokenAnswer`."""
        self._guard.counts.now = now
        self._size += len(data)
        try:
            if self._size > self._max_whole:
                raise InvalidAnswer(f"the upstream's answer is larger than {self._max_whole} bytes")
            self._events(self._source.feed(data))
        except (InvalidAnswer, sse.EventTooLarge) as error:
            raise self._broken(f"{error}.") from None

    def close(self, now: float) -> bytes:
        """The end of the upstream's answer; the body for the client. Raises `BrokenAnswer`."""
        self._guard.counts.now = now
        try:
            if self._source.whole is not None:
                received = json.decode(bytes(self._source.whole))
                if not isinstance(received, dict):
                    raise InvalidAnswer("the upstream sent an answer that is no JSON object")
                if received.get("error") is not None:
                    raise self._broken_by(received)
                return self._written(self._guard.completion(self._dialect.as_completion(received)))
            if not self._done:
                self._events(self._source.decoder.close())
            if self._assembler is None:
                raise InvalidAnswer("the upstream's answer is neither a stream of events nor JSON")
            self._add(self._guard.end())
            return self._written(self._assembler.whole())
        except json.JSONError:
            raise self._broken("the upstream sent an answer that is not JSON.") from None
        except (InvalidAnswer, sse.EventTooLarge) as error:
            raise self._broken(f"{error}.") from None

    def _events(self, events: list[sse.Event]) -> None:
        for event in events:
            if self._done:
                return
            if event.data.strip() == b"[DONE]":
                self._done = True
                return
            try:
                received = json.decode(event.data)
            except json.JSONError:
                raise InvalidAnswer("the upstream sent an event that is not JSON") from None
            if not isinstance(received, dict):
                self._guard.stray(received)
                continue
            if received.get("error") is not None:
                raise self._broken_by(received)
            self._add(self._guard.chunk(self._dialect.as_chunk(received)))
            self._done = self._done or self._guard.finished

    def _add(self, chunks: list[chat.Json]) -> None:
        self._assembler = self._assembler or chat.Assembler()
        for chunk in chunks:
            self._assembler.add(chunk)

    def _written(self, whole: chat.Json) -> bytes:
        return json.encode(self._dialect.spelled(whole))

    def _broken(self, message: str) -> BrokenAnswer:
        self._guard.abandon()
        return BrokenAnswer(failure(message, "upstream_protocol_error"))

    def _broken_by(self, received: chat.Json) -> BrokenAnswer:
        self._guard.abandon()
        return BrokenAnswer(self._guard.error(received))


def guard_failed(guard: ChatGuard, error: Exception) -> GuardFailed:
    """Where the guard failed. The exception's text may quote what was scanned, so it is left out."""
    where = type(error).__name__
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None:
        where += f" at {trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
    return GuardFailed(guard.counts.compiled.policy.name, where)
