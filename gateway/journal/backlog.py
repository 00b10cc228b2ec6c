"""Entries that wait to be written: a bounded queue, filled by the event loop and emptied by the journal's thread.

Entries leave it when they are written and not before, so what waits and what is being written share one bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Condition

from gateway.journal.entries import JournalEntry

MAX_WAITING = 10_000  # entries
BATCH = 256  # entries written at once; encoding them keeps the event loop waiting for about a millisecond
LINGER = 0.05  # seconds: entries that arrive together are written together, and wake the thread once

OnWritten = Callable[[bool], None]


class Backlog:
    """Safe between threads. `put` never waits for the disk, only for the few statements that the lock guards."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._entries: deque[JournalEntry] = deque()
        self._waiting: deque[tuple[int, OnWritten]] = deque()
        self._accepted = 0
        self._written = 0
        self._dropped = 0
        self._closed = False

    @property
    def dropped(self) -> int:
        """Entries that were refused or abandoned."""
        return self._dropped

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entries: Sequence[JournalEntry], on_written: OnWritten | None = None) -> bool:
        """Queue the entries that fit and drop the others; False if any was dropped.

        `on_written` is called once if all were queued: with True when they are written, with False when that failed.
        """
        with self._condition:
            free = 0 if self._closed else MAX_WAITING - len(self._entries)
            queued = entries[:free]
            idle = not self._entries
            self._entries.extend(queued)
            self._accepted += len(queued)
            self._dropped += len(entries) - len(queued)
            complete = len(queued) == len(entries)
            if on_written is not None and complete:
                self._waiting.append((self._accepted, on_written))
            # A thread that was woken by the first entry lingers by itself; more calls would only take its time.
            if queued and (idle or on_written is not None or len(self._entries) >= BATCH):
                self._condition.notify()
        return complete

    def head(self) -> tuple[JournalEntry, ...]:
        """The next entries to write, at most `BATCH`; they stay until `written`."""
        with self._condition:
            return tuple(islice(self._entries, BATCH))

    def wait(self, timeout: float) -> None:
        """Wait until there is enough to write, the backlog is closed, or `timeout` seconds have passed."""
        with self._condition:
            self._condition.wait_for(lambda: self._entries or self._closed, timeout)
            if self._entries:
                self._condition.wait_for(self._urgent, min(LINGER, timeout))

    def pause(self, seconds: float) -> None:
        """Wait although there are entries; only closing ends it early."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed, seconds)

    def written(self, count: int) -> None:
        """The first `count` entries are written."""
        with self._condition:
            for _ in range(min(count, len(self._entries))):
                self._entries.popleft()
            self._written += count
            done = []
            while self._waiting and self._waiting[0][0] <= self._written:
                done.append(self._waiting.popleft()[1])
        for on_written in done:
            on_written(True)

    def failed(self) -> None:
        """Writing failed: the callbacks are called with False. The entries stay, for the next attempt."""
        with self._condition:
            callbacks = [on_written for _, on_written in self._waiting]
            self._waiting.clear()
        for on_written in callbacks:
            on_written(False)

    def close(self) -> None:
        """Accept no more entries."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def abandon(self) -> int:
        """Close, and drop the pending entries; returns their number."""
        with self._condition:
            self._closed = True
            left = len(self._entries)
            self._dropped += left
            self._entries.clear()
        self.failed()
        return left

    def _urgent(self) -> bool:
        return bool(self._waiting) or self._closed or len(self._entries) >= BATCH
