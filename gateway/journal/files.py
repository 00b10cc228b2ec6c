"""A journal's files: one for each worker, appended to, synced, rotated. Everything here may block, and raises OSError.

Worker 0 writes `PATH`, worker N writes `PATH.wN`. A file that was rotated for its size has the second of its closing
and a number appended: `PATH.20260131T120000Z-000`. Sorted by name, a worker's closed files are sorted by age.

A file ends in a complete line or in one incomplete line, never in more: an append that a full disk cut short is undone,
and after a crash that left half a line the next line begins on a new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

from gateway.files import open_private
from gateway.journal.chain import SEAL_SIZE, Chain
from gateway.policy.model import Fsync

SYNC_INTERVAL = 1.0  # seconds between two syncs under `fsync: second`
_CLOSED = re.compile(r"\.(\d{8}T\d{6}Z)-(\d{3})")
_STAMP = "%Y%m%dT%H%M%SZ"
_HIGHEST = 999
_TAIL = 64 * 1024  # bytes; the last line is looked for in them


def worker_path(path: Path, worker: int) -> Path:
    """The file that a worker writes; workers are counted from 0."""
    return path if worker == 0 else path.with_name(f"{path.name}.w{worker}")


def index_path(path: Path) -> Path:
    """The path of the index of the journal at `path`."""
    return path.with_name(f"{path.name}.index.sqlite3")


def closed_files(path: Path) -> list[Path]:
    """The closed files of one worker, the oldest first."""
    return _named(path, re.compile(re.escape(path.name) + _CLOSED.pattern))


def journal_files(path: Path) -> list[Path]:
    """Every file of the journal at `path`, of all workers."""
    return _named(path, re.compile(rf"{re.escape(path.name)}(\.w[1-9]\d*)?({_CLOSED.pattern})?"))


def next_closed(path: Path, now: datetime) -> Path:
    """The name that the file at `path` gets when it is closed: a free one that sorts behind all others."""
    stamp, number = now.astimezone(UTC).replace(microsecond=0), 0
    if closed := closed_files(path):
        newest_stamp, newest_number = _closing_of(closed[-1])
        # A clock that was set back must not make the newest file look like the oldest.
        if newest_stamp >= stamp:
            stamp, number = newest_stamp, newest_number + 1
    if number > _HIGHEST:
        stamp, number = stamp + timedelta(seconds=1), 0
    return path.with_name(f"{path.name}.{stamp.strftime(_STAMP)}-{number:03}")


def owner_of(file: Path) -> Path:
    """The path that the worker writes of whose files this is one."""
    found = re.fullmatch(rf"(.+?){_CLOSED.pattern}", file.name)
    return file if found is None else file.with_name(found[1])


def _named(path: Path, name: re.Pattern[str]) -> list[Path]:
    return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name))


def _closing_of(closed: Path) -> tuple[datetime, int]:
    found = _CLOSED.search(closed.name, len(closed.name) - len(".20260131T120000Z-000"))
    assert found
    return datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC), int(found[2])


class JournalFile:
    """`max_size` is in bytes, and exceeded only by a single line that is longer; `keep` closed files stay. Lines are
    sealed where there is a `chain`."""

    def __init__(self, path: Path, fsync: Fsync, max_size: int, keep: int, chain: Chain | None = None) -> None:
        self._path = path
        self._fsync = fsync
        self._max_size = max_size
        self._keep = keep
        self._chain = chain
        self._descriptor: int | None = None
        self._size = 0
        self._torn = False
        self._last: bytes | None = None  # the last complete line when the file was opened
        self._unsynced_since: float | None = None

    def open(self) -> None:
        """Open the file, again if it was moved or deleted."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self.close()
        if self._descriptor is None:
            self._open()
        if self._chain is not None and not self._chain.resumed:
            self._resume(self._chain)

    def append(self, lines: Sequence[bytes]) -> int:
        """Write complete lines; returns how many of them, from the first on, are written: at least one.

        Under `fsync: always` these are on the disk.
        """
        self.open()
        fitting = self._fitting(lines)
        if not fitting:
            self._rotate()
            fitting = self._fitting(lines)
        size, torn = self._size, self._torn
        lines = lines[:fitting]
        if self._chain is not None:
            lines = self._chain.seal(lines, first=self._last is None)
        written = self._write(lines)
        if self._fsync is Fsync.ALWAYS:
            try:
                self.sync()
            except OSError:
                # These lines will be written again, and must not stand in the file twice.
                with contextlib.suppress(OSError):
                    self._cut(size)
                    self._torn = torn
                raise
        self._last = lines[written - 1]
        if self._chain is not None:
            self._chain.advance(written)
        return written

    def save_head(self) -> None:
        """Write down, beside the file, which line is the chain's last. Not a part of `append`: if it fails, no line is
        to be written again."""
        if self._chain is not None:
            self._chain.save()

    def sync_due_in(self) -> float | None:
        """Seconds until `sync` is due, 0 when it is late; None when nothing is unsynced."""
        if self._fsync is not Fsync.SECOND or self._unsynced_since is None:
            return None
        return max(0.0, self._unsynced_since + SYNC_INTERVAL - monotonic())

    def sync(self) -> None:
        if self._descriptor is None or self._unsynced_since is None:
            return
        # Also if it fails: the kernel drops the pages it could not write, so a second fsync would succeed wrongly.
        self._unsynced_since = None
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync, unless the policy is `never`, and close the file."""
        if self._descriptor is None:
            return
        try:
            if self._fsync is not Fsync.NEVER:
                self.sync()
        finally:
            os.close(self._descriptor)
            self._descriptor = None
            self._unsynced_since = None

    def _open(self) -> None:
        new = not self._path.exists()
        descriptor = open_private(self._path, os.O_RDWR | os.O_APPEND)
        try:
            _lock(descriptor)
            if not self._is_current(descriptor):
                raise OSError(errno.ESTALE, "it was replaced while it was being opened")
            if new and self._fsync is Fsync.ALWAYS:
                _sync_directory(self._path.parent)
            self._size = os.fstat(descriptor).st_size
            self._torn = self._size > 0 and os.pread(descriptor, 1, self._size - 1) != b"\n"
            self._last = _last_line(descriptor, self._size)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _resume(self, chain: Chain) -> None:
        last = self._last
        if last is None and (closed := closed_files(self._path)):
            with closed[-1].open("rb") as file:
                last = _last_line(file.fileno(), os.fstat(file.fileno()).st_size)
        if not chain.resume(last) and self._last is not None:
            self._rotate()  # no file has lines of two chains

    def _is_current(self, descriptor: int) -> bool:
        """Is the open file still the one at the path? Otherwise lines would be lost to every reader."""
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _fitting(self, lines: Sequence[bytes]) -> int:
        """How many lines fit into the file. An empty one takes any first line."""
        size = self._size + self._torn
        seal = 0 if self._chain is None else SEAL_SIZE
        for count, line in enumerate(lines):
            size += len(line) + seal
            if size > self._max_size and (count or self._size):
                return count
        return len(lines)

    def _write(self, lines: Sequence[bytes]) -> int:
        assert self._descriptor is not None
        text = b"".join((b"\n" if self._torn else b"", *lines))
        written = 0
        try:
            while written < len(text):
                written += os.write(self._descriptor, text[written:])
        except OSError:
            complete = text.rfind(b"\n", 0, written) + 1
            count = text.count(b"\n", 0, complete) - (self._torn and complete > 0)
            self._record_write(complete, written)
            if not count:
                raise
            return count
        self._record_write(written, written)
        return len(lines)

    def _record_write(self, complete: int, written: int) -> None:
        """Update the state after `written` bytes, the first `complete` of which end a line; cut off the rest."""
        assert self._descriptor is not None
        if written and self._unsynced_since is None:
            self._unsynced_since = monotonic()
        self._torn = self._torn and not complete
        self._size += written
        if written > complete:
            try:
                self._cut(self._size - written + complete)
            except OSError:
                self._torn = True

    def _cut(self, size: int) -> None:
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, size)
        self._size = size

    def _rotate(self) -> None:
        assert self._descriptor is not None
        if self._fsync is not Fsync.NEVER:
            self.sync()
        # The lock is kept until the file has its new name.
        self._path.rename(next_closed(self._path, datetime.now(UTC)))
        os.close(self._descriptor)
        self._descriptor = None
        self._unsynced_since = None
        closed = closed_files(self._path)
        for old in closed[: max(0, len(closed) - self._keep)]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        self._open()


def _last_line(descriptor: int, size: int) -> bytes | None:
    """The last complete line, without its line break; None where there is none, or it is longer than any of ours."""
    tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    complete, end, _ = tail.rpartition(b"\n")
    return complete.rpartition(b"\n")[2] if end else None


def _lock(descriptor: int) -> None:
    """Two writers of one file would each rotate it while the other writes."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(
            errno.EWOULDBLOCK, "another process writes to it; give each gateway a journal.path of its own"
        ) from None


def _sync_directory(directory: Path) -> None:
    """A new file survives a power failure only if its name does."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Not every file system can sync a directory; those that cannot say so with this one error.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
