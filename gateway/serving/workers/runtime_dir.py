"""The folder that the workers of one gateway share, and what is left of those whose gateway was killed.

Each has a file that its supervisor keeps locked as long as it lives. A lock tells the living from the dead also where
several containers share a folder for temporary files, each with process ids of its own.
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
def scratch_folder() -> Iterator[Path]:
    """A new folder in the system's place for temporary files, removed at the end; abandoned ones are removed first.

    Raises OSError where there cannot be one.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with _owned(folder):
            yield folder


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    unlocked = folder / "unlocked"
    with unlocked.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Under its own name only now: who finds it there unlocked may know that nobody lives.
        unlocked.rename(folder / OWNER)
        yield


def _remove_abandoned(parent: Path) -> None:
    """What cannot be looked at or removed stays."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    """Raises OSError."""
    found = folder.lstat()
    # Anybody can make folders of this name in a place that all share.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    owner = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(owner)
