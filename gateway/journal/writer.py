"""The journal's writer: takes entries in memory, and a thread of its own writes them.

Nothing here ever stops a stream. A disk that is full, slow or gone fills the backlog; then entries are dropped and
counted, and writing is retried with back-off. A caller that requires the journal awaits `committed` instead of `write`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from threading import Event, Lock, Thread

from gateway.exits import error_place
from gateway.journal.backlog import MAX_WAITING, Backlog, OnWritten
from gateway.journal.chain import Chain
from gateway.journal.entries import JournalEntry, encode
from gateway.journal.files import JournalFile, worker_path
from gateway.policy.model import Journal

COMMIT_TIMEOUT = 5.0  # seconds that an answer waits for a journal that is required, and a start for the first opening
FIRST_PAUSE = 0.1  # seconds between two attempts; doubled each time, up to LONGEST_PAUSE
LONGEST_PAUSE = 5.0
IDLE = 60.0  # seconds between two checks of a file that nothing is written to


class JournalProblem(Enum):
    """The ways in which a journal can fail; several may last at the same time."""

    BROKEN = "lines cannot be written"
    FULL = "entries arrive faster than they are written"
    STOPPED = "nothing writes any more"


class _LastingProblems:
    """Problems that last, each reported once when it starts or changes and once when it ends.

    Safe between threads; `notify` is called from the thread in which the change happened.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._lock = Lock()
        self._lasting: dict[JournalProblem, str] = {}

    def __contains__(self, problem: JournalProblem) -> bool:
        return problem in self._lasting

    def __bool__(self) -> bool:
        return bool(self._lasting)

    def report(self, problem: JournalProblem, text: str) -> None:
        with self._lock:
            changed = self._lasting.get(problem) != text
            self._lasting[problem] = text
        # Outside the lock: a slow callback blocks its own thread and no other.
        if changed:
            self._notify(text)

    def clear(self, problem: JournalProblem, text: str) -> None:
        with self._lock:
            lasted = self._lasting.pop(problem, None) is not None
        if lasted:
            self._notify(text)


class JournalWriter:
    """Writes one worker's file of the journal.

    `on_problem` gets one line of text, free of secrets, whenever the journal's state changes for the worse or for the
    better. It is called from the journal's thread or from the caller's, and must not raise.
    `commit_timeout` is in seconds.
    """

    def __init__(
        self,
        config: Journal,
        on_problem: Callable[[str], None],
        worker: int = 0,
        *,
        commit_timeout: float = COMMIT_TIMEOUT,
    ) -> None:
        path = worker_path(Path(config.path), worker)
        self._key = config.key
        self._name = f"journal {path}"
        self._commit_timeout = commit_timeout
        self._backlog = Backlog()
        self._problems = _LastingProblems(on_problem)
        chain = Chain(path, config.key) if config.chain else None
        self._file = JournalFile(path, config.fsync, config.max_size, config.keep, chain)
        self._attempted = Event()
        self._thread = Thread(target=self._run, name="journal", daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until it has opened the file or failed to, so that `healthy` is right."""
        self._thread.start()
        if not self._attempted.wait(self._commit_timeout):
            self._problems.report(
                JournalProblem.BROKEN, f"{self._name}: could not be opened within {self._commit_timeout:g} seconds"
            )

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

        False if that failed, or took longer than the 5 seconds of the timeout; entries that were not dropped are still
        written when the disk allows it. More than 10,000 at once are never committed.
        """
        if not entries:
            return self.healthy
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()

        def on_written(written: bool) -> None:
            # The loop may have ended, and the waiting task with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_set, done, written)

        if not self._put(entries, on_written):
            return False
        try:
            async with asyncio.timeout(self._commit_timeout):
                return await done
        except TimeoutError:
            return False

    def close(self, timeout: float = COMMIT_TIMEOUT) -> None:
        """Write pending entries, sync and close, within `timeout` seconds; the rest is dropped and reported."""
        self._backlog.close()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if left := self._backlog.abandon():
            self._problems.report(
                JournalProblem.STOPPED, f"{self._name}: closed before {left} entries could be written"
            )

    def _put(self, entries: Sequence[JournalEntry], on_written: OnWritten | None) -> bool:
        complete = self._backlog.put(entries, on_written)
        if not complete and not self._backlog.closed:
            text = f"{self._name}: {MAX_WAITING} entries wait to be written; further ones are dropped"
            self._problems.report(JournalProblem.FULL, text)
        return complete and self._thread.is_alive() and JournalProblem.BROKEN not in self._problems

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            # A defect of ours. The message may quote an entry, so it stays here.
            text = f"{self._name}: stopped by an internal error: {error_place(error)}"
            self._problems.report(JournalProblem.STOPPED, text)
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
                self._report_failure(error)
                if self._backlog.closed:
                    return
                self._backlog.pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                self._report_progress()
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
        self._file.save_head()
        if self._backlog.closed and not self._backlog:
            self._file.close()
        elif self._file.sync_due_in() == 0:
            self._file.sync()

    def _report_failure(self, error: OSError) -> None:
        reason = error.strerror or os.strerror(error.errno or 0)
        text = f"{self._name}: cannot be written: {reason}; up to {MAX_WAITING} entries wait until it can"
        self._problems.report(JournalProblem.BROKEN, text)
        # After that, so that a task whose commit failed does not find the journal healthy.
        self._backlog.failed()
        self._attempted.set()

    def _report_progress(self) -> None:
        self._problems.clear(JournalProblem.BROKEN, f"{self._name}: is written again")
        if not self._backlog:
            text = f"{self._name}: has caught up; {self._backlog.dropped} entries were dropped since the start"
            self._problems.clear(JournalProblem.FULL, text)
        self._attempted.set()


def _set(done: asyncio.Future[bool], written: bool) -> None:
    if not done.done():
        done.set_result(written)
