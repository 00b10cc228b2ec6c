"""The file itself: its end after a crash or on a full disk, its bound, its name, its lock."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.journal.files import JournalFile, closed_files, journal_files, next_closed, worker_path
from gateway.policy.model import Fsync

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def file_at(path: Path, max_size: int = 1000, keep: int = 10, fsync: Fsync = Fsync.NEVER) -> JournalFile:
    return JournalFile(path, fsync, max_size, keep)


def numbered(count: int, size: int = 10) -> list[bytes]:
    return [f"{number:0{size - 1}}\n".encode() for number in range(count)]


def append_all(file: JournalFile, lines: list[bytes]) -> None:
    while lines:
        lines = lines[file.append(lines) :]


def test_half_a_line_gets_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"whole\nhalf")
    file = file_at(path)
    file.append([b"next\n"])
    file.append([b"last\n"])
    assert path.read_bytes() == b"whole\nhalf\nnext\nlast\n"


@pytest.mark.parametrize("fsync", Fsync)
def test_no_line_is_lost_when_files_are_closed_for_their_size(tmp_path: Path, fsync: Fsync) -> None:
    path = tmp_path / "journal"
    file = file_at(path, max_size=100, keep=1000, fsync=fsync)
    lines = numbered(95)
    append_all(file, lines)
    file.close()
    closed = closed_files(path)
    assert [old.stat().st_size for old in closed] == [100] * 9
    assert b"".join(old.read_bytes() for old in [*closed, path]) == b"".join(lines)


def test_a_line_longer_than_a_file_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file = file_at(path, max_size=100)
    append_all(file, [b"short\n", b"x" * 200 + b"\n", b"short\n"])
    assert [old.stat().st_size for old in closed_files(path)] == [6, 201]
    assert path.read_bytes() == b"short\n"


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_only_the_newest_closed_files_stay(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "journal"
    lines = numbered(95)
    append_all(file_at(path, max_size=100, keep=keep), lines)
    closed = closed_files(path)
    assert len(closed) == keep
    assert b"".join(file.read_bytes() for file in [*closed, path]) == b"".join(lines[-5 - 10 * keep :])


@pytest.mark.parametrize(
    ("existing", "name"),
    [
        pytest.param([], "20260131T120000Z-000", id="first"),
        pytest.param(["20260131T115959Z-007"], "20260131T120000Z-000", id="a new second"),
        pytest.param(["20260131T120000Z-000"], "20260131T120000Z-001", id="the same second"),
        pytest.param(["20260131T120000Z-999"], "20260131T120001Z-000", id="a full second"),
        pytest.param(["20260131T130000Z-004"], "20260131T130000Z-005", id="the clock was set back"),
    ],
)
def test_names_of_closed_files_are_in_the_order_of_their_age(tmp_path: Path, existing: list[str], name: str) -> None:
    path = tmp_path / "journal"
    for other in existing:
        (tmp_path / f"journal.{other}").touch()
    assert next_closed(path, NOON) == tmp_path / f"journal.{name}"


def test_the_files_of_a_journal_are_told_from_others(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    own = ["a.jsonl", "a.jsonl.20260131T120000Z-000", "a.jsonl.w1", "a.jsonl.w1.20260131T120000Z-000", "a.jsonl.w12"]
    others = ["a.jsonl.index.sqlite3", "a.jsonl.w0", "a.jsonl.gz", "b.jsonl", "axjsonl", "a.jsonl.20260131T120000Z"]
    for name in own + others:
        (tmp_path / name).touch()
    assert [file.name for file in journal_files(path)] == own
    assert [file.name for file in closed_files(path)] == own[1:2]
    assert worker_path(path, 0) == path
    assert worker_path(path, 3).name == "a.jsonl.w3"


def test_a_file_that_was_moved_or_deleted_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file = file_at(path)
    file.append([b"one\n"])
    path.rename(tmp_path / "moved")
    file.append([b"two\n"])
    assert path.read_bytes() == b"two\n"
    path.unlink()
    file.append([b"three\n"])
    assert path.read_bytes() == b"three\n"
    assert (tmp_path / "moved").read_bytes() == b"one\n"


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first, second = file_at(path), file_at(path)
    first.open()
    with pytest.raises(OSError, match="another process writes to it"):
        second.open()
    first.close()
    second.append([b"now\n"])
    assert path.read_bytes() == b"now\n"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    os.mkfifo(path)
    with pytest.raises(OSError, match="regular file"):
        file_at(path).open()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file_at(path).open()
    assert path.stat().st_mode & 0o777 == 0o600


def test_d27_a_file_that_was_there_becomes_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"one\n")
    path.chmod(0o666)
    file_at(path).append([b"two\n"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
@pytest.mark.parametrize("worker", [0, 1])
def test_d27_nothing_is_appended_to_what_a_link_leads_to(
    tmp_path: Path, link: Callable[[Path, Path], None], worker: int
) -> None:
    victim, path = tmp_path / "victim", worker_path(tmp_path / "journal", worker)
    victim.write_bytes(b"theirs")
    link(path, victim)
    with pytest.raises(OSError, match=r"it is a symbolic link|it has a second name") as refused:
        file_at(path).append([b"ours\n"])
    assert refused.value.filename == str(path)
    assert victim.read_bytes() == b"theirs"


def test_d27_a_link_in_the_place_of_the_open_file_is_not_followed(tmp_path: Path) -> None:
    """Not even one that leads to the very file, under another name."""
    path = tmp_path / "journal"
    file = file_at(path)
    file.append([b"one\n"])
    path.rename(tmp_path / "moved")
    path.symlink_to("moved")
    with pytest.raises(OSError, match="it is a symbolic link"):
        file.append([b"two\n"])
    assert (tmp_path / "moved").read_bytes() == b"one\n"
    path.unlink()
    file.append([b"two\n"])
    assert path.read_bytes() == b"two\n"


def test_on_a_full_disk_the_file_ends_in_a_whole_line(small_disk: Path) -> None:
    path = small_disk / "journal"
    file = file_at(path, max_size=2**30)
    lines = numbered(10_000, size=300)
    written = 0
    with pytest.raises(OSError) as refused:
        while True:
            written += file.append(lines[written:])
    assert refused.value.errno == errno.ENOSPC
    assert written > 1000
    assert path.read_bytes() == b"".join(lines[:written])
    path.unlink()
    file.append([b"room\n"])
    assert path.read_bytes() == b"room\n"


@pytest.mark.parametrize("begun", [b"", b"half"])
def test_lines_that_could_not_be_synced_are_not_in_the_file(failing_disk: Path, begun: bytes) -> None:
    path = failing_disk / "journal"
    path.write_bytes(begun)
    file = file_at(path, max_size=2**30, fsync=Fsync.ALWAYS)
    lines = numbered(200, size=300)
    written = 0
    for _ in range(3):
        with pytest.raises(OSError):
            for _ in range(1000):
                written += file.append(lines)
        first = begun + b"\n" if begun and written else begun
        assert path.read_bytes() == first + b"".join(lines) * (written // len(lines))
