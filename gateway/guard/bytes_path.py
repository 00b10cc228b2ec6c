"""The fastest path of a stream: whole events that differ from one before in their content, padding and figures only,
under words that are not remarkable. A read of bytes in, bytes out, in one function.

It does what `FastPath.repeat`, `ChannelText.feed` and `Censor.feed` do one behind the other where each takes its quick
way; tests/guard/test_bytes_path.py holds them equal. An event for which that is not so leaves no trace; it is for them.
`_bytes_path.c` is the same in C, and takes its place where it has been built and the environment does not say
`PORTCULLIS_NATIVE=0`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from gateway.automata.literals import LiteralState
from gateway.automata.phrases import WordMachine
from gateway.censor.literal_cursor import LiteralCursor
from gateway.censor.releaser import Releaser
from gateway.censor.scanner import Scanner, over_words
from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.channels import ChannelCounts, ChannelText
from gateway.guard.event_texts import PlaceText
from gateway.guard.findings import Histogram
from gateway.native import load_native
from gateway.wire.chunk_template import decode_string
from gateway.wire.event_template import CONTENT, EventTemplate, Tally
from gateway.wire.json import encode
from gateway.wire.sse import EVENT_END, ONE_LINE, escape_line_ends

# Where it stands JSON may begin, which is a text of its own (`gateway.wire.fences`).
_FENCE = "`"
MAX_NUMBER = 1 << 53  # of the next event, where events have one; a stream adds few to it


class Record(NamedTuple):
    """Where the text of an answer of typed events is kept for the events that repeat it: `keep` gets what is shown of
    it, and `place` what it is compared with."""

    tally: Tally
    keep: Callable[[str], object]
    place: PlaceText | None = None


class BytesPath(Protocol):
    """The events of one template, whose content is one text.

    Of a read that was not taken to its end, `sent` is for the events that were, and `rest` are the other bytes. What
    changes with each event may be written to the guard, the text and the record only by `write_back`.
    """

    @property
    def sent(self) -> bytes: ...
    @property
    def rest(self) -> bytes: ...
    def feed(self, data: bytes, now: float, /) -> bytes | None:
        """The bytes to send for a read, possibly none; None if a part was not consumed. `now` as in `StreamAnswer`."""

    def write_back(self) -> None:
        """To be called before another path is taken, or anything is read of what the path changes; not needed where a
        part of a read was not consumed."""


class PythonBytesPath:
    """`BytesPath`. `cursor`: the only one that the scanner has, if there is only one; `piece`, `limit`: characters of
    a content and bytes of an event at most."""

    __slots__ = (
        *("_counts", "_cursor", "_decode", "_encode", "_escape", "_guard", "_held", "_hold", "_limit", "_over_words"),
        *("_piece", "_record", "_releaser", "_scanner", "_template", "_text", "rest", "sent"),
    )

    def __init__(
        self,
        template: EventTemplate,
        guard: AnswerGuard,
        text: ChannelText,
        counts: ChannelCounts,
        scanner: Scanner,
        cursor: LiteralCursor | None,
        releaser: Releaser,
        over_words: Callable[[WordMachine, LiteralState, str], LiteralState | None],
        decode: Callable[[bytes], str],
        encode: Callable[[str], bytes],
        escape: Callable[[bytes], bytes],
        held: Histogram,
        hold: Histogram,
        record: Record | None,
        piece: int,
        limit: int,
    ) -> None:
        self._template, self._guard = template, guard
        self._text, self._counts, self._scanner, self._cursor, self._releaser = text, counts, scanner, cursor, releaser
        self._over_words, self._decode, self._encode, self._escape = over_words, decode, encode, escape
        self._held, self._hold, self._record = held, hold, record
        self._piece, self._limit = piece, limit
        self.sent = self.rest = b""

    def feed(self, data: bytes, now: float) -> bytes | None:
        """The bytes to send for a read, possibly none; None if a part was not consumed. `now` as in `StreamAnswer`."""
        template, text, releaser, record = self._template, self._text, self._releaser, self._record
        self._counts.now = now
        sent = b""
        at, size = 0, len(data)
        while at < size:
            begin = at + len(template.line) if data.startswith(template.line, at) else at
            read = template.read(data, begin + len(ONE_LINE)) if data.startswith(ONE_LINE, begin) else None
            if read is None:
                break
            values, end = read
            place = template.kinds.index(CONTENT)
            try:
                given = self._decode(b'"%b"' % values[place])
            except ValueError:
                break
            if len(given) > self._piece or _FENCE in given or end - at > self._limit:
                break
            if record is not None and record.tally.left < len(releaser.held) + len(given):
                break
            if not data.startswith(EVENT_END, end) or (live := self._scan(given)) is None:
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
            if record is not None:
                _keep(record, shown, held)
            if template.counted is not None:
                prompt, answer = template.counted
                self._guard.usage = int(values[prompt]), int(values[answer])
            if shown or (template.empties and not given):
                content = self._encode(shown)[1:-1]
                values[place] = content if content.isascii() else self._escape(content)
                if record is not None and template.numbered:
                    values.append(b"%d" % record.tally.number)
                    record.tally.number += 1
                sent += _event(template.shown, template.order, values)
            elif template.bare:
                sent += _event(template.bare, template.bare_order, values)
        if at == size:
            return sent
        self.sent, self.rest = sent, data[at:]
        return None

    def write_back(self) -> None:
        """Nothing: all is written down."""

    def _scan(self, text: str) -> int | None:
        """`Scanner.scan_quickly`."""
        cursor = self._cursor
        if cursor is None:
            return self._scanner.scan_quickly(text)
        state = self._over_words(cursor.machine, cursor.state, text)
        if state is None:
            return None
        cursor.state = state
        cursor.folded += len(text)
        self._scanner.scanned += len(text)
        return state.live if state.live >= 0 else cursor.machine.live(state)


def _keep(record: Record, shown: str, held: str) -> None:
    if record.place is not None:
        record.place.ahead = held
    if shown:
        record.keep(shown)
        record.tally.left -= len(shown)


def _event(around: tuple[bytes, ...], order: bytes, values: list[bytes]) -> bytes:
    parts = [part for before, place in zip(around, order, strict=False) for part in (before, values[place])]
    return b"".join((*parts, around[-1]))


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


_NATIVE = load_native("gateway.guard._bytes_path")
IMPLEMENTATION: type[PythonBytesPath] = PythonBytesPath if _NATIVE is None else _NATIVE.BytesPath
# An editable installation may have one that was built from an older source.
READ_PATH: OpenReadPath | None = getattr(_NATIVE, "ReadPath", None)


def is_native() -> bool:
    """Is it the one in C that is used?"""
    return IMPLEMENTATION is not PythonBytesPath


def open_bytes_path(
    template: EventTemplate, guard: AnswerGuard, text: object, limit: int, record: Record | None = None
) -> BytesPath | None:
    """None where the slow path has more to do; to be asked for again whenever that was taken. `limit`: bytes that an
    event may have."""
    if type(text) is not ChannelText or any(b"\n" in part or b"\r" in part for part in template.around):
        return None
    quick = text.censor.quick_scanner()
    if quick is None or not all(map(bytes.isascii, template.shown)):
        return None
    if record is not None and not (-1 if template.numbered else -2) < record.tally.number < MAX_NUMBER:
        return None
    scanner, piece = quick
    return IMPLEMENTATION(
        template,
        guard,
        text,
        text.counts,
        scanner,
        scanner.sole_cursor,
        text.censor.releaser,
        over_words,
        decode_string,
        encode,
        escape_line_ends,
        text.counts.held,
        text.counts.hold,
        record,
        piece,
        limit,
    )
