"""Files of a journal → lines, from any offset on, past every kind of damage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
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
    """At most `limit` lines from byte `start` on. A last line without a line break is left for later: it may grow."""
    file.seek(start)
    lines: list[Line] = []
    damaged = count = 0
    end = start
    for text, size, complete in islice(raw_lines(file), limit):
        if complete:
            count, end = count + 1, end + size
            line = decode(text)
            if line is not None:
                lines.append(line)
            elif text.strip():
                damaged += 1
    return LinesRead(tuple(lines), damaged, end, finished=count < limit)


class RawLine(NamedTuple):
    """The first `MAX_LINE` bytes of a line, its size in bytes, and whether it has its line break."""

    text: bytes
    size: int
    complete: bool


def raw_lines(file: BinaryIO) -> Iterator[RawLine]:
    """The lines of a file, from where it is read next; only the last can be incomplete."""
    while text := file.readline(MAX_LINE):
        part, size = text, len(text)
        while part and not part.endswith(b"\n"):
            part = file.readline(MAX_LINE)
            size += len(part)
        yield RawLine(text, size, bool(part))
