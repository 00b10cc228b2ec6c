"""Files of a journal → lines, from any offset on, past every kind of damage."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from gateway.journal.entries import Line, decode

MAX_LINE = 256 * 1024  # bytes; what is longer was not written by the gateway


class Identity(NamedTuple):
    """Identifies a file across renames. Inodes are reused, so the first line is part of it."""

    inode: int
    head: str


@dataclass(frozen=True, slots=True)
class LinesRead:
    """Some lines of a file. `end` is the byte behind the last complete one, from which reading continues.

    `damaged` counts lines that cannot be decoded; `finished`: there was no further complete line.
    """

    lines: tuple[Line, ...]
    damaged: int
    end: int
    finished: bool


def identity(file: BinaryIO) -> Identity | None:
    """None for a file without a complete line. Moves the reading position."""
    file.seek(0)
    first = file.readline(MAX_LINE)
    if not first.endswith(b"\n") and len(first) < MAX_LINE:
        return None
    return Identity(os.fstat(file.fileno()).st_ino, hashlib.sha256(first).hexdigest())


def read_lines(file: BinaryIO, start: int, limit: int) -> LinesRead:
    """At most `limit` lines from byte `start` on. A last line without a line end is left for later: it may grow."""
    file.seek(start)
    lines: list[Line] = []
    damaged = 0
    end = start
    for _ in range(limit):
        text, size = _read_line(file)
        if not size:
            return LinesRead(tuple(lines), damaged, end, finished=True)
        end += size
        line = decode(text)
        if line is not None:
            lines.append(line)
        elif text.strip():
            damaged += 1
    return LinesRead(tuple(lines), damaged, end, finished=False)


def _read_line(file: BinaryIO) -> tuple[bytes, int]:
    """The first `MAX_LINE` bytes of a complete line and its size in bytes; 0 where there is no complete line."""
    text = part = file.readline(MAX_LINE)
    size = len(part)
    while part and not part.endswith(b"\n"):
        part = file.readline(MAX_LINE)
        size += len(part)
    return text, size if part else 0
