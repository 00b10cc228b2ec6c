"""The writer: nothing is lost while the disk works, nothing waits when it does not, and everything lost is counted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.journal.backlog import BATCH, MAX_WAITING
from gateway.journal.files import JournalFile, closed_files, journal_files, worker_path
from gateway.journal.reader import read_lines
from gateway.journal.writer import JournalWriter
from gateway.policy.model import Fsync, Journal
from tests.support.journal_samples import (
    KEY,
    MATCH,
    REQUEST,
    SECRET,
    TIMEOUT,
    all_offsets,
    journal_at,
    matches,
    offsets,
    until,
)
from tests.support.pages import ROOT


@contextmanager
def writing(config: Journal, worker: int = 0, **options: Any) -> Iterator[tuple[JournalWriter, list[str]]]:
    """A started writer and what it complained about."""
    told: list[str] = []
    writer = JournalWriter(config, told.append, worker, **options)
    writer.start()
    try:
        yield writer, told
    finally:
        writer.close(TIMEOUT)


# -- while the disk works ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", Fsync)
def test_everything_is_written_in_order(tmp_path: Path, fsync: Fsync) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path, fsync=fsync)) as (writer, told):
        assert writer.healthy
        for first in range(0, 5000, 500):
            assert writer.write(matches(500, first))
    assert offsets(path) == list(range(5000))
    assert (told, writer.dropped) == ([], 0)


def test_the_text_is_in_no_file_and_in_no_complaint(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path, max_size=2000)) as (writer, told):
        writer.write([*matches(100), REQUEST])
    missing = tmp_path / "missing" / "journal"
    with writing(journal_at(missing)) as (writer, more):
        writer.write([MATCH])
    assert more
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(kept) > 5
    for text in [*kept, *(complaint.encode() for complaint in told + more), repr(writer).encode()]:
        assert SECRET.encode() not in text.lower() and KEY.encode() not in text


def test_d27_a_link_is_named_with_the_reason_and_nothing_is_lost(tmp_path: Path) -> None:
    path, victim = tmp_path / "journal", tmp_path / "victim"
    victim.touch()
    path.symlink_to(victim)
    with writing(journal_at(path)) as (writer, told):
        assert not writer.write(matches(5))
        path.unlink()
    assert told[0].startswith(f"journal {path}: cannot be written: it is a symbolic link")
    assert (offsets(path), writer.dropped, victim.read_bytes()) == (list(range(5)), 0, b"")


def test_files_are_closed_under_load(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path, max_size=10_000, keep=1000)) as (writer, told):
        for first in range(0, 9000, 100):
            assert writer.write(matches(100, first))
    assert len(closed_files(path)) > 100
    assert max(file.stat().st_size for file in journal_files(path)) <= 10_000
    assert all_offsets(path) == list(range(9000))
    assert told == []


def test_entries_of_many_threads_are_all_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path)) as (writer, _):
        threads = [
            threading.Thread(target=lambda first=first: [writer.write(matches(1, first + n)) for n in range(500)])
            for first in range(0, 4000, 500)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all_offsets(path) == list(range(4000))


async def test_committed_means_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path, fsync=Fsync.ALWAYS)) as (writer, _):
        for first in range(0, 60, 3):
            assert await writer.committed(matches(3, first))
            assert offsets(path) == list(range(first + 3))


async def test_many_may_wait_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path)) as (writer, _):
        assert all(await asyncio.gather(*(writer.committed(matches(1, number)) for number in range(1000))))
        assert offsets(path) == list(range(1000))


async def test_nothing_to_commit(tmp_path: Path) -> None:
    with writing(journal_at(tmp_path / "journal")) as (writer, _):
        assert await writer.committed([])
    assert not await writer.committed([])


def test_what_is_written_soon_is_written_without_closing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with writing(journal_at(path)) as (writer, _):
        writer.write([MATCH])
        until(lambda: path.stat().st_size > 0)
        writer.write(matches(BATCH * 3))
        until(lambda: len(path.read_bytes().splitlines()) == BATCH * 3 + 1)


# -- when the disk does not --------------------------------------------------------------------------------------------


async def test_a_missing_directory_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "later" / "journal"
    with writing(journal_at(path)) as (writer, told):
        assert not writer.healthy
        assert not writer.write(matches(1))
        assert not await writer.committed(matches(1, 1))
        path.parent.mkdir()
        until(lambda: writer.healthy)
        assert await writer.committed(matches(1, 2))
        assert offsets(path) == [0, 1, 2]
    assert told == [
        f"journal {path}: cannot be written: No such file or directory; up to 10000 entries wait until it can",
        f"journal {path}: is written again",
    ]
    assert writer.dropped == 0


def test_a_journal_in_use_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    holder = JournalFile(path, Fsync.NEVER, 1000, 0)
    holder.open()
    with writing(journal_at(path)) as (writer, told):
        assert not writer.healthy
        holder.close()
        until(lambda: writer.healthy)
    assert "another process writes to it; give each gateway a journal.path of its own" in told[0]


def test_what_does_not_fit_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "later" / "journal"
    with writing(journal_at(path)) as (writer, told):
        assert not writer.write(matches(MAX_WAITING - 1))
        assert writer.dropped == 0
        assert not writer.write(matches(3, MAX_WAITING - 1))
        assert not writer.write(matches(5, MAX_WAITING + 2))
        assert writer.dropped == 7
        path.parent.mkdir()
        until(lambda: writer.healthy)
        assert offsets(path) == list(range(MAX_WAITING))
    assert [text.removeprefix(f"journal {path}: ") for text in told] == [
        "cannot be written: No such file or directory; up to 10000 entries wait until it can",
        "10000 entries wait to be written; further ones are dropped",
        "is written again",
        "has caught up; 7 entries were dropped since the start",
    ]


async def test_a_full_disk_loses_only_what_it_counts(small_disk: Path) -> None:
    path = small_disk / "journal"
    with writing(journal_at(path)) as (writer, told):
        sent = 0
        while await writer.committed(matches(100, sent)):
            sent += 100
        assert not writer.healthy
        written = len(offsets(path))
        assert sent <= written < sent + 100
        path.rename(path.with_name("kept"))
        kept = path.with_name("kept").read_bytes()
        path.with_name("kept").unlink()
        until(lambda: writer.healthy)
        assert await writer.committed(matches(1, sent + 100))
        assert kept.endswith(b"\n") and kept.count(b"\n") == written
        assert offsets(path) == list(range(written, sent + 101))
    assert "No space left on device" in told[0]
    assert told[1:] == [f"journal {path}: is written again"]


@contextmanager
def stalled(path: Path) -> Iterator[JournalWriter]:
    """A writer that believes its disk is well while its thread stands still."""
    go_on = threading.Event()

    def hold_up(text: str) -> None:
        if "again" in text:
            go_on.wait(TIMEOUT)

    writer = JournalWriter(journal_at(path), hold_up, commit_timeout=0.2)
    writer.start()
    path.parent.mkdir()
    until(lambda: writer.healthy)
    try:
        yield writer
    finally:
        go_on.set()
        writer.close(TIMEOUT)


async def test_a_disk_that_hangs_commits_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "later" / "journal"
    with stalled(path) as writer:
        assert not await writer.committed(matches(1))
        assert writer.write(matches(MAX_WAITING - 1, 1))
        assert not writer.write(matches(1, MAX_WAITING))
        assert not await writer.committed(matches(1, MAX_WAITING + 1))
        assert not writer.healthy
        assert writer.dropped == 2
    assert offsets(path) == list(range(MAX_WAITING))


async def test_a_client_that_leaves_while_its_entries_are_committed_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "later" / "journal"
    with stalled(path) as writer:
        waiting = asyncio.create_task(writer.committed(matches(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert offsets(path) == [0]


def test_what_cannot_be_written_before_the_end_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "journal"
    with writing(journal_at(path)) as (writer, told):
        writer.write(matches(3))
    assert told[-1] == f"journal {path}: closed before 3 entries could be written"
    assert (writer.dropped, writer.healthy) == (3, False)
    assert not writer.write(matches(1))
    assert writer.dropped == 4


def test_a_defect_of_ours_is_reported_without_text(tmp_path: Path) -> None:
    with writing(journal_at(tmp_path / "journal")) as (writer, told):
        writer.write([SECRET])  # type: ignore[list-item]  # no entry at all
        until(lambda: not writer.healthy)
        assert not writer.write(matches(1))
    assert "stopped by an internal error: AttributeError at entries.py" in told[0]
    assert SECRET not in told[0]
    assert writer.dropped == 2


# -- several processes, and their end ----------------------------------------------------------------------------------


@contextmanager
def appending(path: Path, worker: int, first: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.appender", str(path), str(worker), str(first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT)
        assert process.stdout
        process.stdout.close()


def read_until_killed(process: subprocess.Popen[str], lines: int) -> list[int]:
    """Kill the process after it has printed that many lines; returns all that it printed."""
    assert process.stdout
    printed = [int(process.stdout.readline()) for _ in range(lines)]
    os.kill(process.pid, signal.SIGKILL)
    # What a kill cuts off in the pipe was not said.
    return printed + [int(line) for line in process.stdout if line.endswith("\n")]


def read_back(path: Path) -> tuple[set[int], int]:
    """The offsets in all files of the journal, and the number of damaged lines."""
    found: set[int] = set()
    damaged = 0
    for file in journal_files(path):
        with file.open("rb") as opened:
            piece = read_lines(opened, 0, 1_000_000)
        found.update(line.offset for line in piece.lines)  # type: ignore[union-attr]  # all of them are matches
        damaged += piece.damaged
    return found, damaged


def test_what_was_committed_survives_kills(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    committed: list[int] = []
    for life in range(3):
        with appending(path, worker=0, first=life * 1_000_000) as process:
            committed += read_until_killed(process, 50)
    with writing(journal_at(path)) as (writer, told):
        writer.write(matches(1, 9_000_000))
    found, damaged = read_back(path)
    assert found >= {*committed, 9_000_000}
    assert damaged <= 3
    assert told == []


def test_several_workers_write_files_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with appending(path, 0, 0) as one, appending(path, 1, 1_000_000) as two, appending(path, 2, 2_000_000) as three:
        committed = [offset for process in (one, two, three) for offset in read_until_killed(process, 50)]
    found, damaged = read_back(path)
    assert found >= set(committed)
    assert damaged <= 3
    for worker in range(3):
        own = {offset for file in closed_files(worker_path(path, worker)) for offset in offsets(file)}
        assert {offset // 1_000_000 for offset in own} == {worker}
