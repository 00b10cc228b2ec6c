"""Files and folders that only their owner may read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
# O_NONBLOCK: opening a named pipe without a reader fails instead of blocking.
_OPENED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_private(path: Path, flags: int) -> int:
    """Open a file, created if it is missing, and make it readable by its owner only; returns the descriptor.

    Raises OSError with the path and the reason for a symbolic link, a special file, a file with a second hard link, and
    a file of another user: another user of the folder could have put it there to redirect or read what is written. The
    folder's owner is trusted, so root may use the files of a service.
    """
    descriptor = _open(path, flags | os.O_CREAT)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, errno.EINVAL, "it is not a regular file")
        if found.st_nlink > 1:
            raise _refused(path, errno.EMLINK, "it has a second name (a hard link): delete it, or name another file")
        _make_private(path, descriptor, found, _FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def private_folder(path: Path) -> None:
    """Create a folder, or restrict an existing one, to its owner. Raises OSError as `open_private` does."""
    path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _make_private(path, descriptor, os.fstat(descriptor), _FOLDER_MODE)
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _OPENED, _FILE_MODE)
    except OSError as error:
        # A symbolic link fails with ELOOP, or with ENOTDIR under O_DIRECTORY.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise _refused(path, errno.ELOOP, "it is a symbolic link: name the file or folder itself") from None
        raise


def _make_private(path: Path, descriptor: int, found: os.stat_result, mode: int) -> None:
    if found.st_uid not in (os.geteuid(), path.parent.stat().st_uid):
        raise _refused(path, errno.EPERM, f"it belongs to another user ({found.st_uid}): delete it, or name another")
    if stat.S_IMODE(found.st_mode) & ~mode:
        os.fchmod(descriptor, mode)


def _refused(path: Path, number: int, reason: str) -> OSError:
    return OSError(number, reason, str(path))


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        # O_EXCL: no other user of the folder can have opened it before.
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
