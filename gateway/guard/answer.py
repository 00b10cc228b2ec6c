"""From an upstream's bytes to the client's: the framing around the guard, for streams and for plain answers.

An answer is recognised by its first byte, not by its content type: JSON where a stream was requested becomes a stream,
a stream where JSON was requested becomes JSON, anything else becomes an error. Every event is parsed, censored and
re-encoded, by an encoder of the client's dialect; no byte of an upstream reaches a client.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from typing import NoReturn

from gateway.guard.answer_guard import AnswerGuard, Assembler
from gateway.guard.bytes_path import BytesPath
from gateway.guard.channels import InvalidAnswer
from gateway.guard.commands import GUARD_FAILED, CloseUpstream, Command, Failure, RecordFact, SendBytes, failure
from gateway.guard.fast_path import fast_path
from gateway.observe.facts import GuardFailed
from gateway.wire import json, sse
from gateway.wire.chat import CHAT
from gateway.wire.dialect import AnswerEncoder, Dialect, UntranslatableAnswer
from gateway.wire.json import Json

_JSON_BEGINS = b'{["'
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_NO_END = "The upstream ended its stream before the answer had ended."
_NO_ANSWER = "the upstream's answer is neither a stream of events nor JSON"


class BrokenAnswer(Exception):
    """A plain answer that cannot be passed on; `failure` is what the client gets instead, with status 502."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["error"]["message"])
        self.failure = failure


class _GuardedAnswer(ABC):
    """Common part of both kinds of answer: the upstream's bytes become events of a stream or one JSON text, each
    bounded, and the objects in them go through the guard.

    `dialect` is the upstream's, `encoder` writes the client's if that is another.
    """

    def __init__(
        self,
        guard: AnswerGuard,
        *,
        max_event: int,
        max_whole: int,
        dialect: Dialect = CHAT,
        encoder: AnswerEncoder | None = None,
    ) -> None:
        self.done = False  # nothing more is wanted of the upstream
        self._guard = guard
        self._dialect = dialect
        self.encoder = encoder or dialect.encoder()
        self._decoder = sse.Decoder(max_event)
        self._json: bytearray | None = None  # an answer that is JSON
        self._recognised = False
        self._max_whole = max_whole

    @property
    def unread(self) -> int:
        """Bytes that came and could not be read yet: of an event without its end, or of an answer that is JSON."""
        return self._decoder.unread if self._json is None else len(self._json)

    def _read(self, data: bytes) -> list[sse.Event]:
        if not self._recognised and (start := data.removeprefix(_BOM).lstrip(_BLANK)):
            self._recognised = True
            if start[0] in _JSON_BEGINS:
                self._json = bytearray()
        if self._json is None:
            return self._decoder.feed(data)
        if len(self._json) + len(data) > self._max_whole:
            raise InvalidAnswer(f"the upstream's answer is larger than {self._max_whole} bytes")
        self._json += data
        return []

    def _events(self, events: list[sse.Event]) -> None:
        for event in events:
            if self.done:
                return
            self._event(event)

    def _event(self, event: sse.Event) -> None:
        """Guard one event of a stream."""
        if self._dialect.is_end(event):
            self._end()
            return
        received = _decoded(event.data, "an event")
        if not isinstance(received, dict):
            self._stray(self._guard.stray(received))
        elif (error := self._dialect.error_of(received)) is not None:
            self._upstream_error(error)
        else:
            self._send(self._guard.chunk(self._dialect.chunk_to_chat(received)))

    def _json_object(self) -> Json:
        """The answer that is JSON; empty if it is an error, which `_upstream_error` gets."""
        received = _decoded(bytes(self._json or b""), "an answer")
        if not isinstance(received, dict):
            raise InvalidAnswer("the upstream sent an answer that is not a JSON object")
        if (error := self._dialect.error_of(received)) is not None:
            self._upstream_error(error)
            return {}
        return self._dialect.answer_to_chat(received)

    @abstractmethod
    def _send(self, chunks: list[Json]) -> None:
        """Pass chunks on that the guard let through."""

    @abstractmethod
    def _end(self) -> None:
        """The upstream has ended the stream."""

    @abstractmethod
    def _stray(self, shown: object | None) -> None:
        """An event was no object; `shown` is what may be shown of it, if anything."""

    @abstractmethod
    def _upstream_error(self, received: Json) -> None:
        """The upstream sent an error instead of an answer, or in the middle of one."""


class StreamAnswer(_GuardedAnswer):
    """An answer to a client that requested a stream. Feed it reads, perform its commands; it never raises.

    `now` is the caller's clock in seconds, used only to measure how long text was held.
    """

    fault = ""  # what the upstream did wrong within its answer: `protocol`, `error_event`
    _out: list[bytes]  # for the client, of the read at hand
    path: BytesPath | None = None  # while the next read may take it
    _comments = 0
    _seen_event = False

    def __init__(
        self, guard: AnswerGuard, *, dialect: Dialect = CHAT, encoder: AnswerEncoder | None = None, **bounds: int
    ) -> None:
        super().__init__(guard, dialect=dialect, encoder=encoder, **bounds)
        self._fast = fast_path(guard, dialect, self.encoder, translates=encoder is not None)
        self._translates = encoder is not None

    def feed(self, data: bytes, now: float) -> list[Command]:
        """Guard one read from the upstream."""
        taken = self.repeat(data, now)
        if taken is None:
            return self.feed_events(data, now)
        return taken if isinstance(taken, list) else [SendBytes(taken)] if taken else []

    def repeat(self, data: bytes, now: float, most: int = sys.maxsize) -> bytes | list[Command] | None:
        """`feed` for a read of at most `most` characters that begins with events for a fast path: the bytes to send, if
        nothing else is to be done. None for any other read, for `feed_events`; nothing has happened then.
        """
        if self.done or self._fast is None or not self._seen_event:
            return None
        self._out = []
        try:
            if (path := self.path) is not None:
                within = len(data) - self._fast.framing <= most
                if within and (shown := path.feed(data, now)) is not None:
                    return shown
                self._leave_path()
                if within and len(path.rest) < len(data):
                    return self._feed_events(path.rest, now, [path.sent] if path.sent else [])
            self._guard.counts.now = now
            payload = self._decoder.single(data)
            if payload is None or (taken := self._fast.repeat(payload, most)) is None:
                return None
            sent, more = taken
            self._out = [sent] if sent else []
            self.path = self._fast.bytes_path(self._decoder.limit)
            if not more:
                return sent
            self._send(more)
        except Exception as error:
            return self.fail_closed(error)
        return self._commands()

    def feed_events(self, data: bytes, now: float) -> list[Command]:
        """`feed` for any read that `repeat` has not taken."""
        return self._feed_events(data, now, [])

    def _feed_events(self, data: bytes, now: float, out: list[bytes]) -> list[Command]:
        """Guard events. `out`: bytes to be sent before."""
        if self.done:
            return []
        self._out = out
        try:
            self._leave_path(now)
            try:
                self._events(self._read(data))
            except sse.EventTooLarge as error:
                self._events(error.before)
                raise InvalidAnswer(str(error)) from None
            if self._fast is not None and self._decoder.between and not self.done:
                self.path = self._fast.bytes_path(self._decoder.limit)
        except Exception as error:
            return self.fail_closed(error)
        if not self._out and self._decoder.comments != self._comments:
            self._out.append(sse.KEEP_ALIVE)
        self._comments = self._decoder.comments
        return self._commands()

    def close(self, now: float) -> list[Command]:
        """The upstream ended its answer in an orderly way."""
        if self.done:
            return []
        self._out = []
        try:
            self._leave_path(now)
            if self._json is None:
                self._events(self._decoder.close())
            else:
                for sent in self._guard.as_stream(self._json_object()):
                    if not self.done:
                        self._send(sent)
                if not self.done:
                    self._end()
            if not self.done:
                if not self._seen_event:
                    raise InvalidAnswer(_NO_ANSWER)
                self._send_rest()
                if self._guard.finished or (self._translates and self._guard.reasons):
                    self._out.append(self.encoder.end())
                elif self._translates:  # in the client's dialect an answer has an end
                    self._error(failure(_NO_END, "upstream_protocol_error"))
                    self.fault = "protocol"
                self.done = True
        except Exception as error:
            return self.fail_closed(error)
        return self._commands()

    def fail(self, reason: Failure, now: float) -> list[Command]:
        """The upstream failed: held text that is no match is released, then the error (semantics rule 7)."""
        if self.done:
            return []
        self._out = []
        try:
            self._leave_path(now)
            self._send_rest()
        except Exception as error:
            return self.fail_closed(error)
        self._error(reason)
        return self._commands()

    def cancel(self) -> list[Command]:
        """The client left: nothing more is sent, and the counts are final."""
        if self.done:
            return []
        self.done, self._out = True, []
        self._leave_path()
        self._guard.abandon()
        return self._commands()

    def _leave_path(self, now: float | None = None) -> None:
        if self.path is not None:
            self.path.write_back()
            self.path = None
        self._guard.counts.now = self._guard.counts.now if now is None else now

    def _commands(self) -> list[Command]:
        out = self._out
        commands: list[Command] = [SendBytes(out[0] if len(out) == 1 else b"".join(out))] if out else []
        if self.done:
            commands += [CloseUpstream(), RecordFact(self._guard.counts.fact())]
        return commands

    def fail_closed(self, error: Exception) -> list[Command]:
        """End the answer without anything held; scanned text is sent only if the upstream is at fault."""
        try:
            self._leave_path()
        except Exception as worse:
            error = worse
        if isinstance(error, InvalidAnswer | UntranslatableAnswer):
            try:
                if isinstance(error, InvalidAnswer):
                    self._send_rest()
                else:
                    self._guard.abandon()
                self._error(failure(f"{error}.", "upstream_protocol_error"))
                self.fault = "protocol"
                return self._commands()
            except Exception as worse:
                error = worse
        self._error(GUARD_FAILED)
        self._guard.counts.failed = True
        with contextlib.suppress(Exception):
            self._guard.abandon()
        return [RecordFact(GuardFailed.of(self._guard.counts.compiled.policy.name, error)), *self._commands()]

    def _event(self, event: sse.Event) -> None:
        self._seen_event = True
        taken = None if self._fast is None else self._fast.repeat(event.data)
        if taken is not None:
            sent, more = taken
            self._out += [sent] if sent else []
            if more:
                self._send(more)
            return
        super()._event(event)
        if self._fast is not None:
            self._fast.learn(event.data)

    def _end(self) -> None:
        self._send_rest()
        self._out.append(self.encoder.end())
        self.done = True

    def _stray(self, shown: object | None) -> None:
        if shown is not None:
            self._out.append(sse.encode(json.encode(shown)))

    def _upstream_error(self, received: Json) -> None:
        self._send_rest()
        self._error(self._guard.error(received))
        self.fault = "error_event"

    def _error(self, error: Json) -> None:
        self._out.append(self.encoder.error(error))
        self.done = True

    def _send(self, chunks: list[Json]) -> None:
        self._out += map(self.encoder.events, chunks)
        if self._guard.finished:
            self._out.append(self.encoder.end())
            self.done = True

    def _send_rest(self) -> None:
        """Release held text that is not a match."""
        self._out += map(self.encoder.events, self._guard.end())


class PlainAnswer(_GuardedAnswer):
    """An answer to a client that requested no stream. Bounded by `max_whole` bytes, as JSON or as a stream."""

    _assembler: Assembler | None = None
    _size = 0

    def feed(self, data: bytes, now: float) -> None:
        """Guard one read from the upstream. Raises `BrokenAnswer`."""
        self._guard.counts.now = now
        self._size += len(data)
        try:
            if self._size > self._max_whole:
                raise InvalidAnswer(f"the upstream's answer is larger than {self._max_whole} bytes")
            self._events(self._read(data))
        except (InvalidAnswer, sse.EventTooLarge) as error:
            raise self._broken(f"{error}.") from None

    def close(self, now: float) -> bytes:
        """The end of the upstream's answer; the body for the client. Raises `BrokenAnswer`."""
        self._guard.counts.now = now
        try:
            answer = self._guard.completion(self._json_object()) if self._json is not None else self._assembled()
            return json.encode(self.encoder.answer(answer))
        except json.JSONError:
            raise self._broken("the upstream sent an answer that is not JSON.") from None
        except (InvalidAnswer, UntranslatableAnswer, sse.EventTooLarge) as error:
            raise self._broken(f"{error}.") from None

    def _assembled(self) -> Json:
        if not self.done:
            self._events(self._decoder.close())
        if self._assembler is None:
            raise InvalidAnswer(_NO_ANSWER)
        self._send(self._guard.end())
        return self._assembler.answer()

    def _send(self, chunks: list[Json]) -> None:
        self._assembler = self._assembler or self._guard.assembler()
        for chunk in chunks:
            self._assembler.add(chunk)
        self.done = self.done or self._guard.finished

    def _end(self) -> None:
        self.done = True

    def _stray(self, shown: object | None) -> None:
        """It has no place in a whole answer."""

    def _upstream_error(self, received: Json) -> NoReturn:
        self._guard.abandon()
        raise BrokenAnswer(self._guard.error(received))

    def _broken(self, message: str) -> BrokenAnswer:
        self._guard.abandon()
        return BrokenAnswer(failure(message, "upstream_protocol_error"))


def _decoded(data: bytes, what: str) -> object:
    """Raises `InvalidAnswer`."""
    try:
        return json.decode(data)
    except json.JSONError:
        raise InvalidAnswer(f"the upstream sent {what} that is not JSON") from None
