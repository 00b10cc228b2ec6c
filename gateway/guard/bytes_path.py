"""The shortest way of a stream: whole events that differ from one before in their content and padding only, under words
that are not remarkable. A read of bytes in, bytes out, in one function.

It does what `FastPath.repeat`, `ChannelText.feed` and `Censor.feed` do one behind the other where each takes its quick
way; tests/guard/test_bytes_path.py holds them equal. An event for which that is not so leaves no trace; it is for them.
`_bytes_path.c` is the same in C, and takes its place where it has been built and the environment does not say
`PORTCULLIS_NATIVE=0`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from gateway.censor.literal_cursor import LiteralCursor
from gateway.censor.releaser import Releaser
from gateway.censor.scanner import Scanner
from gateway.guard.channels import ChannelCounts, ChannelText
from gateway.guard.findings import Histogram
from gateway.wire.chunk_template import ChunkTemplate, decode_string, encode
from gateway.wire.sse import EVENT_END, ONE_LINE, escape_line_ends

# Where it stands JSON may begin, which is a text of its own (`gateway.wire.fences`).
_FENCE = "`"
SWITCH = "PORTCULLIS_NATIVE"


class BytesPath(Protocol):
    """The events of one template, whose content is one text.

    Of a read that was not taken to its end, `sent` is for the events that were, and `rest` are the other bytes.
    """

    @property
    def sent(self) -> bytes: ...
    @property
    def rest(self) -> bytes: ...
    def feed(self, data: bytes, now: float, /) -> bytes | None:
        """The bytes to send for a read, possibly none; None if a part was not consumed. `now` as in `StreamAnswer`."""


class PythonBytesPath:
    """`BytesPath`. `cursor`: the only one that the scanner has, if there is only one; `piece`, `limit`: characters of
    a content and bytes of an event at most."""

    __slots__ = (
        *("_after", "_before", "_between", "_counts", "_cursor", "_decode", "_encode", "_escape", "_held", "_hold"),
        *("_limit", "_piece", "_releaser", "_scanner", "_shown_after", "_shown_before", "_text", "rest", "sent"),
    )

    def __init__(
        self,
        before: bytes,
        between: bytes,
        after: bytes,
        shown_before: bytes,
        shown_after: bytes,
        text: ChannelText,
        counts: ChannelCounts,
        scanner: Scanner,
        cursor: LiteralCursor | None,
        releaser: Releaser,
        decode: Callable[[bytes], str],
        encode: Callable[[str], bytes],
        escape: Callable[[bytes], bytes],
        held: Histogram,
        hold: Histogram,
        piece: int,
        limit: int,
    ) -> None:
        self._before, self._between, self._after = before, between, after
        self._shown_before, self._shown_after = shown_before, shown_after
        self._text, self._counts, self._scanner, self._cursor, self._releaser = text, counts, scanner, cursor, releaser
        self._decode, self._encode, self._escape = decode, encode, escape
        self._held, self._hold = held, hold
        self._piece, self._limit = piece, limit
        self.sent = self.rest = b""

    def feed(self, data: bytes, now: float) -> bytes | None:
        """The bytes to send for a read, possibly none; None if a part was not consumed. `now` as in `StreamAnswer`."""
        before, between, after = self._before, self._between, self._after
        text, releaser = self._text, self._releaser
        self._counts.now = now
        sent = b""
        at, size = 0, len(data)
        while at < size:
            end = data.find(EVENT_END, at)
            begin, stop = at + len(before), end - len(after)
            if begin > stop or not (data.startswith(before, at) and data.endswith(after, begin, end)):
                break
            if between:
                # Nothing in the padding ends a string, so the last place is the one behind the content.
                stop = data.rfind(between, begin, padded := stop)
                padding = data[stop + len(between) : padded]
                if stop < 0 or (padding and not padding.isalnum()):
                    break
            try:
                given = self._decode(data[begin - 1 : stop + 1])  # with its quotes
            except ValueError:
                break
            if len(given) > self._piece or _FENCE in given or end - at > self._limit:
                break
            live = self._scan(given)
            if live is None:
                break
            at = end + len(EVENT_END)
            held = releaser.held + given
            cut = len(held) - live
            if cut > 0:
                shown, held = held[:cut], held[cut:]
                releaser.base += cut
                text.written += cut
            else:
                shown = ""
            releaser.held = held
            text.note_held(shown, len(held))
            if shown or not given:
                content = self._encode(shown)
                sent += self._shown_before
                sent += content if content.isascii() else self._escape(content)
                sent += self._shown_after
        if at == size:
            return sent
        self.sent, self.rest = sent, data[at:]
        return None

    def _scan(self, text: str) -> int | None:
        """`Scanner.scan_quickly`."""
        cursor = self._cursor
        if cursor is None:
            return self._scanner.scan_quickly(text)
        state = cursor.state
        try:
            for char in text:
                state = state[char]
                if state.arrival is not None:
                    return None
        except KeyError:
            walked = cursor.machine.walk(cursor.state, text)
            if walked is None:
                return None
            state = walked
        cursor.state = state
        cursor.folded += len(text)
        self._scanner.scanned += len(text)
        return state.live if state.live >= 0 else cursor.machine.live(state)


class ReadPath(Protocol):
    """`BytesPath` with HTTP's framing around it: from a read of the upstream's socket to the write to the client's.

    Only in C: in Python, comparing the framing takes longer than httptools does.
    """

    events: BytesPath | None
    """Where the events go, as long as nothing else has taken one."""

    @property
    def failure(self) -> Exception | None:
        """The error raised within it; no further data is accepted."""

    def feed(self, data: bytes, /) -> bytes | None:
        """The rest of a read that begins with a chunk; None if there is none."""


class OpenReadPath(Protocol):
    """Makes a `ReadPath`. `write` is the client's transport's, `cycle` and `flow` are uvicorn's. Reads of more than
    `small` bytes are weighed, with `escape` and `value` as in `gateway.proxy.asgi`, and may have `most`."""

    def __call__(
        self,
        clock: Callable[[], float],
        write: Callable[[bytes], None],
        cycle: object,
        flow: object,
        overhead: Histogram,
        small: int,
        most: int,
        escape: int,
        value: int,
        /,
    ) -> ReadPath: ...


def _native() -> Any:
    """The module in C where there is one, and it is not switched off."""
    if os.environ.get(SWITCH, "1") != "0":
        with contextlib.suppress(ImportError):
            return import_module("gateway.guard._bytes_path")
    return None


_NATIVE = _native()
IMPLEMENTATION: type[PythonBytesPath] = PythonBytesPath if _NATIVE is None else _NATIVE.BytesPath
# An editable installation may have one that was built from an older source.
READ_PATH: OpenReadPath | None = getattr(_NATIVE, "ReadPath", None)


def is_native() -> bool:
    """Is it the one in C that is used?"""
    return IMPLEMENTATION is not PythonBytesPath


def open_bytes_path(template: ChunkTemplate, text: object, limit: int) -> BytesPath | None:
    """None where the general way has more to do; to be asked for again whenever that was taken. `limit`: bytes that an
    event may have."""
    around = template.before + template.between + template.after
    if type(text) is not ChannelText or b"\n" in around or b"\r" in around:
        return None
    quick = text.censor.quick_scanner()
    if quick is None or not (template.shown_before.isascii() and template.shown_after.isascii()):
        return None
    scanner, piece = quick
    return IMPLEMENTATION(
        ONE_LINE + template.before,
        template.between,
        template.after,
        ONE_LINE + template.shown_before,
        template.shown_after + EVENT_END,
        text,
        text.counts,
        scanner,
        scanner.sole_cursor,
        text.censor.releaser,
        decode_string,
        encode,
        escape_line_ends,
        text.counts.held,
        text.counts.hold,
        piece,
        limit,
    )
