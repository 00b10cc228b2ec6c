"""Server-Sent Events, bytes to events and back, as the HTML standard reads them (section 9.2.6 there).

A stream is lines (ended by LF, CR or CRLF); a line is `field: value`; an empty line breaks an event. Only `data` and
`event` mean something here. The decoder reads as much as the most forgiving client: CR alone, no space after the colon,
a field without a colon, several data lines, byte order marks before any line, a last event that nothing ends. Every
event is re-encoded by `encode`, so a client that also splits at other characters (U+2028, VT) finds none to split at.

What is buffered between two reads is one incomplete line, and of that only what matters, and the data lines of one
event. Both count against one bound.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Byte order marks, also encoded twice. Node's `openai` skips one at the beginning of each line, `eventsource-parser`
# one of either kind at the beginning of the stream.
_MARKS = re.compile(b"(?:\xef\xbb\xbf|\xc3\xaf\xc2\xbb\xc2\xbf)*")
LF, CR = b"\n\r"  # as numbers: to look for a byte by bytes raises and catches an exception each time
_KEPT_FIELDS = (b"data:", b"event:")
_LONGEST_FIELD = len(b"event:")  # after so many bytes of a line it is known whether the line is kept

ONE_LINE = b"data: "  # what an event of one line, as `encode` writes it, begins with
EVENT_END = b"\n\n"
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b":\n\n"


class Event(NamedTuple):
    """One event: its data lines joined by LF, not yet known to be UTF-8, and its type, empty if it has none."""

    data: bytes
    event: str = ""


class EventTooLarge(ValueError):
    """An event passed the bound; the decoder is of no use afterwards. `before` holds the read's events before it."""

    def __init__(self, limit: int, before: list[Event]) -> None:
        super().__init__(
            f"upstream sent an event of more than {limit} bytes; raise limits.max_event, now {limit}, to let it pass"
        )
        self.limit = limit
        self.before = before


class Decoder:
    """Bytes in, events out, however the bytes are cut; `comments` counts the comment lines so far.

    `max_event` bounds, in bytes, the joined data of one event and the value of any one line that is kept.
    """

    def __init__(self, max_event: int) -> None:
        self.comments = 0
        self.limit = max_event
        self._after_cr = False  # the last byte was CR, which ended its line: an LF that comes next belongs to it
        self._line = bytearray()  # the incomplete last line; one that is ignored keeps only its first bytes
        self._data: list[bytes] = []
        self._size = 0  # bytes in _data, one LF for each line included
        self._event = ""
        self.between = True  # nothing of an event is buffered

    @property
    def unread(self) -> int:
        """Bytes that are buffered."""
        return len(self._line) + self._size

    def single(self, data: bytes) -> bytes | None:
        """The data of the one event that `data` is, if it is one of a single line of data and nothing else but its
        type, as nearly every read is. Else None, and nothing has happened: `feed` takes it."""
        size = len(data)
        start = data.find(b"\n") + 1 if data.startswith(b"event: ") else 0
        if (
            self.between
            and data.find(b"\n", start) == size - 2
            and data.startswith(b"data: ", start)
            and data.endswith(b"\n")
            and CR not in data
            and size <= self.limit
        ):
            return data[start + 6 : -2]
        return None

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises `EventTooLarge`."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if CR in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[Event] = []
        *lines, rest = data.split(b"\n")
        if lines:
            if self._line:
                lines[0] = bytes(self._line) + lines[0]
                self._line.clear()
            self._read(lines, events)
        self._line += rest
        self._bound_line(events)
        self.between = not (self._line or self._data or self._event or self._after_cr)
        return events

    def close(self) -> list[Event]:
        """End of the stream: the last line and event count as ended, because clients that read by line act on them."""
        return self.feed(b"\n\n")

    def _read(self, lines: list[bytes], events: list[Event]) -> None:
        for line in lines:
            if line.startswith(b"data:"):
                self._add(line[6:] if line.startswith(b"data: ") else line[5:], events)
            elif not line:
                if self._data:
                    events.append(Event(b"\n".join(self._data), self._event))
                    self._data.clear()
                    self._size = 0
                self._event = ""
            elif line.startswith(b":"):
                self.comments += 1
            elif line == b"data":
                self._add(b"", events)
            elif line.startswith(b"event:") or line == b"event":
                name = line[6:].removeprefix(b" ")
                if len(name) > self.limit:
                    raise EventTooLarge(self.limit, events)
                self._event = name.decode("utf-8", "replace")
            elif len(unmarked := _MARKS.sub(b"", line, count=1)) < len(line):
                self._read([unmarked], events)

    def _add(self, value: bytes, events: list[Event]) -> None:
        if self._size + len(value) > self.limit:
            raise EventTooLarge(self.limit, events)
        self._data.append(value)
        self._size += len(value) + 1

    def _bound_line(self, events: list[Event]) -> None:
        """Forget the rest of a line that is ignored; refuse one that is kept as soon as it passes the bound."""
        line = self._line
        if len(line) < _LONGEST_FIELD:
            return
        if not line.startswith(_KEPT_FIELDS):
            line[:] = _MARKS.sub(b"", line, count=1)
        if not line.startswith(_KEPT_FIELDS):
            del line[_LONGEST_FIELD:]
            return
        value_start = line.index(b":") + 1
        value_start += line.startswith(b" ", value_start)
        before = self._size if line.startswith(b"data") else 0
        if before + len(line) - value_start > self.limit:
            raise EventTooLarge(self.limit, events)


def encode(payload: bytes, event: str = "") -> bytes:
    """One event with one data line. `payload` is JSON text.

    Raises `ValueError` for a payload or type with a line break in it (JSON has none, as msgspec writes it).
    """
    if LF in payload or CR in payload:
        raise ValueError("an event's payload holds a line break: encode it as JSON first")
    if not payload.isascii():
        payload = escape_line_ends(payload)
    if not event:
        return b"data: " + payload + b"\n\n"
    if "\n" in event or "\r" in event:
        raise ValueError("an event's type holds a line break")
    return b"event: " + event.encode() + b"\ndata: " + payload + b"\n\n"


def escape_line_ends(payload: bytes) -> bytes:
    """JSON without what other readers than an event stream's take for a line break."""
    for line_end, escape in _OTHER_LINE_ENDS:
        payload = payload.replace(line_end, escape)
    return payload


# Some clients split lines as Python's str.splitlines does, here too. In JSON these stand in strings only.
_OTHER_LINE_ENDS = [(character.encode(), b"\\u%04x" % ord(character)) for character in "\x85\u2028\u2029"]
