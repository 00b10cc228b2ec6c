"""A program's output: its last lines in memory, and all of it in a log file if one is configured."""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from pathlib import Path
from typing import IO

from gateway.files import open_private

LINES = 200  # kept in memory
MAX_LINE = 2000  # bytes of a line that are kept
MAX_FILE = 50 * 1024 * 1024  # bytes; then the file becomes FILE.1, in place of an older one
READ = 65_536

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# What vLLM puts before its messages: the process, and level, time and place in the code.
_PREFIX = re.compile(r"^(?:\([\w -]+ pid=\d+\) *)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^]]*\] *|[A-Z]+: +)?")


class LogFile:
    """A log file of bounded size, readable by its owner only. Data that cannot be written is dropped: a full disk must
    not block the program."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if it cannot be written."""
        self._path = path
        self._open()

    def write(self, data: bytes) -> None:
        try:
            if self._file.tell() + len(data) > MAX_FILE:
                self._file.close()
                self._path.replace(f"{self._path}.1")
                self._open()
            self._file.write(data)
        except (OSError, ValueError):
            return

    def _open(self) -> None:
        self._file = os.fdopen(open_private(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)


class OutputTail:
    """The last lines of a pipe, drained by one thread so that the program never blocks, and read by others."""

    def __init__(self, file: LogFile | None = None) -> None:
        self._file = file
        self._lines: deque[bytes] = deque(maxlen=LINES)
        self._partial = b""  # a line without its end yet
        self._lock = threading.Lock()

    def drain(self, pipe: IO[bytes]) -> None:
        """Read to the end."""
        while data := os.read(pipe.fileno(), READ):
            if self._file is not None:
                self._file.write(data)
            self._append(data)

    def last(self, count: int) -> list[str]:
        """The last lines that are not blank, without control characters, the oldest first."""
        with self._lock:
            lines = (*self._lines, self._partial)
        return [text for line in lines if (text := _visible(line))][-count:]

    def latest(self, length: int) -> str:
        """The message of the last line with a letter or digit, cut to so many characters."""
        lines = (line for line in reversed(self.last(LINES)) if any(map(str.isalnum, line)))
        text = _PREFIX.sub("", next(lines, ""))
        return text if len(text) <= length else text[: max(length - 1, 0)] + "…"

    def _append(self, data: bytes) -> None:
        *lines, rest = (self._partial + data).split(b"\n")
        with self._lock:
            self._lines.extend(_cut(line) for line in lines)
            self._partial = _cut(rest)


def _cut(line: bytes) -> bytes:
    """The end of a line that is drawn again and again, as progress bars are; the beginning of another."""
    if len(line) <= MAX_LINE:
        return line
    return line[-MAX_LINE:] if b"\r" in line[-MAX_LINE:] else line[:MAX_LINE]


def _visible(line: bytes) -> str:
    """The line as a terminal would finally show it."""
    text = _ESCAPE.sub("", line.decode(errors="replace"))
    drawn = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return "".join(char if char.isprintable() else " " for char in drawn).strip()
