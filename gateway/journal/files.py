"""One worker's file: appended to, synced, closed when it is full. Everything here may block, and raises OSError.

A file ends in a whole line or in one unfinished one, never in more: what a full disk cut off is taken back, and where a
crash left half a line, the next one begins on a line of its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from gateway.files import open_private
from gateway.journal.names import closed_files, next_closed
from gateway.policy.model import Fsync

SYNC_INTERVAL = 1.0  # seconds between two syncs under `fsync: second`


class JournalFile:
    """`max_size` is in bytes, and exceeded only by a single line that is longer; `keep` closed files stay."""

    def __init__(self, path: Path, fsync: Fsync, max_size: int, keep: int) -> None:
        self._path = path
        self._fsync = fsync
        self._max_size = max_size
        self._keep = keep
        self._descriptor: int | None = None
        self._size = 0
        self._torn = False
        self._unsynced_since: float | None = None

    def open(self) -> None:
        """Make the file ready, anew if somebody moved or deleted it."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self.close()
        if self._descriptor is None:
            self._open()

    def append(self, lines: Sequence[bytes]) -> int:
        """Write whole lines; returns how many of them, from the first on, are written: at least one.

        Under `fsync: always` these are on the disk.
        """
        self.open()
        fitting = self._fitting(lines)
        if not fitting:
            self._rotate()
            fitting = self._fitting(lines)
        size, torn = self._size, self._torn
        written = self._write(lines[:fitting])
        if self._fsync is Fsync.ALWAYS:
            try:
                self.sync()
            except OSError:
                # These lines will be written again, and must not stand in the file twice.
                with contextlib.suppress(OSError):
                    self._cut(size)
                    self._torn = torn
                raise
        return written

    def sync_due_in(self) -> float | None:
        """Seconds until the file wants `sync`, 0 when it is late; None when nothing waits for it."""
        if self._fsync is not Fsync.SECOND or self._unsynced_since is None:
            return None
        return max(0.0, self._unsynced_since + SYNC_INTERVAL - monotonic())

    def sync(self) -> None:
        if self._descriptor is None or self._unsynced_since is None:
            return
        # Also if it fails: the system forgets what it could not write, so asking again would succeed, and lie.
        self._unsynced_since = None
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync, unless the policy is `never`, and let go of the file."""
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
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _is_current(self, descriptor: int) -> bool:
        """Does the path still lead to the file that is open? Otherwise lines would go where nobody looks."""
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _fitting(self, lines: Sequence[bytes]) -> int:
        """How many lines the file has room for. An empty one takes any first line."""
        size = self._size + self._torn
        for count, line in enumerate(lines):
            size += len(line)
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
            whole = text.rfind(b"\n", 0, written) + 1
            count = text.count(b"\n", 0, whole) - (self._torn and whole > 0)
            self._settle(whole, written)
            if not count:
                raise
            return count
        self._settle(written, written)
        return len(lines)

    def _settle(self, whole: int, written: int) -> None:
        """Take note of `written` bytes, of which the first `whole` end in a line end; take back the others."""
        assert self._descriptor is not None
        if written and self._unsynced_since is None:
            self._unsynced_since = monotonic()
        self._torn = self._torn and not whole
        self._size += written
        if written > whole:
            try:
                self._cut(self._size - written + whole)
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


def _lock(descriptor: int) -> None:
    """Two writers of one file would rotate it under each other's hands."""
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
