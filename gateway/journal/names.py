"""How the files of a journal are called.

Worker 0 writes `PATH`, worker N writes `PATH.wN`. A file that was closed for its size has the second of its closing and
a number appended: `PATH.20260131T120000Z-000`. In the order of their names, the closed files of a worker are in the
order of their age.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

_CLOSED = re.compile(r"\.(\d{8}T\d{6}Z)-(\d{3})")
_STAMP = "%Y%m%dT%H%M%SZ"
_HIGHEST = 999


def worker_path(path: Path, worker: int) -> Path:
    """The file that a worker writes; workers are counted from 0."""
    return path if worker == 0 else path.with_name(f"{path.name}.w{worker}")


def index_path(path: Path) -> Path:
    """Where the index of the journal at `path` is kept."""
    return path.with_name(f"{path.name}.index.sqlite3")


def closed_files(path: Path) -> list[Path]:
    """The closed files of one worker, the oldest first. Raises OSError where the directory cannot be read."""
    return _matching(path, re.compile(re.escape(path.name) + _CLOSED.pattern))


def journal_files(path: Path) -> list[Path]:
    """Every file of the journal at `path`, of all workers. Raises OSError where the directory cannot be read."""
    return _matching(path, re.compile(rf"{re.escape(path.name)}(\.w[1-9]\d*)?({_CLOSED.pattern})?"))


def next_closed(path: Path, now: datetime) -> Path:
    """The name under which the file at `path` is closed: one that is free, and later than all that there are."""
    stamp, number = now.astimezone(UTC).replace(microsecond=0), 0
    if closed := closed_files(path):
        newest_stamp, newest_number = _parts(closed[-1])
        # A clock that was set back must not make the newest file look like the oldest.
        if newest_stamp >= stamp:
            stamp, number = newest_stamp, newest_number + 1
    if number > _HIGHEST:
        stamp, number = stamp + timedelta(seconds=1), 0
    return path.with_name(f"{path.name}.{stamp.strftime(_STAMP)}-{number:03}")


def _matching(path: Path, name: re.Pattern[str]) -> list[Path]:
    return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name))


def _parts(closed: Path) -> tuple[datetime, int]:
    found = _CLOSED.search(closed.name, len(closed.name) - len(".20260131T120000Z-000"))
    assert found
    return datetime.strptime(found[1], _STAMP).replace(tzinfo=UTC), int(found[2])
