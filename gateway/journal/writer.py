"""The journal's writing end: entries are handed over in memory, a thread of its own does everything that can wait.

Nothing here ever stops a stream. A disk that is full, slow or gone fills the backlog; then entries are dropped and
counted, and the disk is tried again, after ever longer pauses. Whoever must not go on without the journal asks
`committed` instead of `write`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

from gateway.journal.backlog import MAX_WAITING, Backlog, Settle
from gateway.journal.entries import JournalEntry
from gateway.journal.files import JournalFile
from gateway.journal.lines import encode
from gateway.journal.names import worker_path
from gateway.journal.problems import Problem, Problems
from gateway.policy.model import Journal

PATIENCE = 5.0  # seconds that an answer waits for a journal that is required, and a start for the first opening
FIRST_PAUSE = 0.1  # seconds between two attempts; doubled each time, up to LONGEST_PAUSE
LONGEST_PAUSE = 5.0
IDLE = 60.0  # seconds between two looks at a file that nothing is written to


class JournalWriter:
    """Writes one worker's file of the journal.

    `on_problem` gets one line of text, free of secrets, whenever the journal's state changes for the worse or for the
    better. It is called from the journal's thread or from the caller's, and must not raise. `patience` is in seconds.
    """

    def __init__(
        self,
        config: Journal,
        on_problem: Callable[[str], None],
        worker: int = 0,
        *,
        patience: float = PATIENCE,
    ) -> None:
        path = worker_path(Path(config.path), worker)
        self._key = config.key
        self._name = f"journal {path}"
        self._patience = patience
        self._backlog = Backlog()
        self._problems = Problems(on_problem)
        self._file = JournalFile(path, config.fsync, config.max_size, config.keep)
        self._attempted = Event()
        self._thread = Thread(target=self._run, name="journal", daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until it has opened the file or failed to, so that `healthy` tells the truth."""
        self._thread.start()
        if not self._attempted.wait(self._patience):
            self._problems.begin(Problem.BROKEN, f"{self._name}: could not be opened within {self._patience:g} seconds")

    @property
    def healthy(self) -> bool:
        """Lines are being written and none has been dropped since it last caught up."""
        return self._thread.is_alive() and not self._problems

    @property
    def dropped(self) -> int:
        """Entries that will never be written, since the start."""
        return self._backlog.dropped

    def write(self, entries: Sequence[JournalEntry]) -> bool:
        """Hand entries over; never waits.

        False: some were dropped because 10,000 wait already, or the journal is closed; or all of them wait, and the
        journal is broken at this moment.
        """
        return self._put(entries, None)

    async def committed(self, entries: Sequence[JournalEntry]) -> bool:
        """Hand entries over and wait until they are written, under `fsync: always` to the disk itself.

        False if that failed, or took longer than the patience of 5 seconds; entries that were not dropped are still
        written when the disk allows it. More than 10,000 at once are never committed.
        """
        if not entries:
            return self.healthy
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()

        def settle(written: bool) -> None:
            # A loop that has ended has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_set, done, written)

        if not self._put(entries, settle):
            return False
        try:
            async with asyncio.timeout(self._patience):
                return await done
        except TimeoutError:
            return False

    def close(self, timeout: float = PATIENCE) -> None:
        """Write what waits, sync and close, within `timeout` seconds; what is left then is dropped and reported."""
        self._backlog.close()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if left := self._backlog.abandon():
            self._problems.begin(Problem.STOPPED, f"{self._name}: closed before {left} entries could be written")

    def _put(self, entries: Sequence[JournalEntry], settle: Settle | None) -> bool:
        complete = self._backlog.put(entries, settle)
        if not complete and not self._backlog.closed:
            text = f"{self._name}: {MAX_WAITING} entries wait to be written; further ones are dropped"
            self._problems.begin(Problem.FULL, text)
        return complete and self._thread.is_alive() and Problem.BROKEN not in self._problems

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            # A defect of ours. The message may quote an entry, so it stays here.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(frame.filename).name} line {frame.lineno}"
            self._problems.begin(Problem.STOPPED, f"{self._name}: stopped by an internal error: {where}")
            self._backlog.abandon()
        finally:
            # What could not be synced was reported when it was tried; here only the descriptor matters.
            with contextlib.suppress(OSError):
                self._file.close()
            self._attempted.set()

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                self._write_next()
            except OSError as error:
                self._broke(error)
                if self._backlog.closed:
                    return
                self._backlog.pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                self._caught_up()
                if self._backlog.closed and not self._backlog:
                    return
                due = self._file.sync_due_in()
                self._backlog.wait(IDLE if due is None else due)

    def _write_next(self) -> None:
        self._file.open()
        lines = [encode(entry, self._key) for entry in self._backlog.head()]
        while lines:
            count = self._file.append(lines)
            self._backlog.written(count)
            del lines[:count]
        if self._backlog.closed and not self._backlog:
            self._file.close()
        elif self._file.sync_due_in() == 0:
            self._file.sync()

    def _broke(self, error: OSError) -> None:
        reason = error.strerror or os.strerror(error.errno or 0)
        text = f"{self._name}: cannot be written: {reason}; up to {MAX_WAITING} entries wait until it can"
        self._problems.begin(Problem.BROKEN, text)
        # After that, so that whoever learns that a commit failed does not find the journal healthy.
        self._backlog.failed()
        self._attempted.set()

    def _caught_up(self) -> None:
        self._problems.end(Problem.BROKEN, f"{self._name}: is written again")
        if not self._backlog:
            text = f"{self._name}: has caught up; {self._backlog.dropped} entries were dropped since the start"
            self._problems.end(Problem.FULL, text)
        self._attempted.set()


def _set(done: asyncio.Future[bool], written: bool) -> None:
    if not done.done():
        done.set_result(written)
