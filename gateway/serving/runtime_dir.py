"""The runtime directory that the processes of one gateway share, and the removal of abandoned ones.

Each has a file that its owner keeps locked as long as it lives. Unlike a process id, a lock is also valid where several
containers share a directory for temporary files, each with process ids of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "portcullis-"
OWNER = "owner"  # the file that is locked


@contextlib.contextmanager
def runtime_directory() -> Iterator[Path]:
    """A new directory for temporary files, removed at the end; abandoned ones are removed first. Raises OSError."""
    for abandoned in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # what cannot be looked at or removed stays
            _remove_if_abandoned(abandoned)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with _owned(folder):
            yield folder


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    unlocked = folder / "unlocked"
    with unlocked.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Gets its name only now: a file of that name that is not locked has no living owner.
        unlocked.rename(folder / OWNER)
        yield


def _remove_if_abandoned(folder: Path) -> None:
    """Raises OSError."""
    found = folder.lstat()
    # Any user can make a folder of this name in a shared directory.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    owner = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(owner)
