"""One line of progress on standard error: rewritten in place on a terminal, a new line now and then in a log."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

LOG_INTERVAL = 10.0  # seconds between two lines in a log
TERMINAL_INTERVAL = 0.2  # and between two updates on a terminal

_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def shown_while_slow(stream: TextIO, text: Callable[[float], str]) -> Iterator[None]:
    """Progress of work that cannot say how far it is: `text` gets the seconds since the beginning. Nothing is written
    for less than `TERMINAL_INTERVAL` on a terminal, and `LOG_INTERVAL` elsewhere."""
    meter, over = ProgressMeter(stream), threading.Event()

    def show() -> None:
        while not over.wait(TERMINAL_INTERVAL):
            meter.show(text)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        meter.clear()


class ProgressMeter:
    """Writes progress to `stream`, at most once in `terminal_interval` or `LOG_INTERVAL` seconds. `clock` is injectable
    for tests."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        *,
        terminal_interval: float = TERMINAL_INTERVAL,
    ) -> None:
        self._stream, self._clock = stream, clock
        self._terminal = stream.isatty()
        self._interval = terminal_interval if self._terminal else LOG_INTERVAL
        self._begin = self._last = clock()
        self._shown = False

    def show(self, text: Callable[[float], str]) -> None:
        """Update the line if it is time to. `text` gets the seconds since the beginning; on a terminal it is cut to the
        width."""
        now = self._clock()
        if now - self._last < self._interval:
            return
        self._last = now
        shown = text(now - self._begin)
        if self._terminal:
            self._write(_CLEAR + shown[: shutil.get_terminal_size().columns - 1])
        else:
            self._write(shown + "\n")
        self._shown = self._terminal

    def clear(self) -> None:
        """Remove the line from the terminal, so that other output can follow."""
        if self._shown:
            self._write(_CLEAR)
            self._shown = False

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, and progress is not worth failing for
            self._stream.write(text)
            self._stream.flush()
