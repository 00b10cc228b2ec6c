"""Several real processes on one directory."""

from __future__ import annotations

import fcntl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.limits import shared
from gateway.limits.decision import Bucket
from gateway.limits.shared import SharedLimiter
from gateway.policy.model import ClientKey
from tests.support.limit_process import KEY, KEY_RPM, NARROW, Process

STREAMS = ClientKey.of("c", "streams", max_streams=2)


def test_processes_together_admit_exactly_the_limit(tmp_path: Path) -> None:
    processes = [Process("shared", tmp_path, worker) for worker in range(3)]
    try:
        for process in processes:
            process.wait_ready()
        began = time.monotonic()
        for process in processes:
            process.ask(KEY, KEY_RPM)
        answers = [process.answer() for process in processes]
        refilled = (time.monotonic() - began) * KEY_RPM / 60
    finally:
        for process in processes:
            process.kill()
    assert [answer.failures for answer in answers] == [0, 0, 0]
    assert KEY_RPM <= sum(answer.admitted for answer in answers) <= KEY_RPM + refilled


def test_a_killed_process_gives_its_streams_back_when_its_slot_starts_anew(tmp_path: Path) -> None:
    first, second = Process("shared", tmp_path, 1), Process("shared", tmp_path, 2)
    again: Process | None = None
    try:
        for process, admitted in ((first, 2), (second, 1)):
            process.wait_ready()
            process.ask(NARROW, 2)
            assert process.answer().admitted == admitted
        first.kill()
        second.ask(NARROW, 2)
        assert second.answer().admitted == 0
        again = Process("shared", tmp_path, 1)
        again.wait_ready()
        second.ask(NARROW, 5)
        assert second.answer().admitted == 2
    finally:
        for started in (first, second, again):
            if started is not None:
                started.kill()


async def test_a_directory_that_is_gone_leaves_the_limits_of_the_process(tmp_path: Path) -> None:
    directory = tmp_path / "limits"
    limiter = SharedLimiter(directory, 0)
    assert (await limiter.reserve(STREAMS, 0)).admitted
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    assert [(await limiter.reserve(STREAMS, 0)).admitted for _ in range(2)] == [True, False]
    assert limiter.failures == 2
    directory.mkdir()
    other = SharedLimiter(directory, 1)
    wider = replace(STREAMS, max_streams=3)
    assert (await limiter.reserve(wider, 0)).admitted
    assert not (await other.reserve(wider, 0)).admitted, "the file knows of what was admitted without it"
    await limiter.release(wider, 0, 0)
    assert [(await other.reserve(wider, 0)).admitted for _ in range(2)] == [True, False]
    assert (limiter.failures, other.failures) == (2, 0)


async def test_a_lock_that_is_never_released_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LOCK_TIMEOUT", 0.05)
    limiter = SharedLimiter(tmp_path, 0)
    assert (await limiter.reserve(STREAMS, 0)).admitted
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert (await limiter.reserve(STREAMS, 0)).admitted
        await limiter.release(STREAMS, 0, 0)
        assert limiter.failures == 2
        with pytest.raises(BlockingIOError):
            SharedLimiter(tmp_path, 0)
    assert [(await limiter.reserve(STREAMS, 0)).admitted for _ in range(2)] == [True, False]
    assert limiter.failures == 2


async def test_a_file_of_another_size_is_a_key_that_was_never_seen(tmp_path: Path) -> None:
    limiter = SharedLimiter(tmp_path, 0)
    assert (await limiter.reserve(STREAMS, 0)).admitted
    (path,) = tmp_path.iterdir()
    for content in (b"", b"x" * 100, b"x" * 5000):
        path.write_bytes(content)
        other = SharedLimiter(tmp_path, 1)
        assert [(await other.reserve(STREAMS, 0)).admitted for _ in range(3)] == [True, True, False]


async def test_a_clock_that_begins_anew_does_not_stop_the_refill(tmp_path: Path) -> None:
    """The directory outlived its system: its times are ahead of the clock."""
    key = ClientKey.of("d", "requests", rpm=1)
    limiter = SharedLimiter(tmp_path, 0)
    assert (await limiter.reserve(key, 0)).admitted
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        usage, streams = shared.read_record(file.fileno())
        ahead = replace(usage, requests=Bucket(usage.requests.level, time.monotonic() + 1_000_000))
        shared.write_record(file.fileno(), ahead, streams)
        assert (await limiter.reserve(key, 0)).reason == "requests"
        assert shared.read_record(file.fileno())[0].requests.at <= time.monotonic()


async def test_no_file_name_or_content_shows_a_name(tmp_path: Path) -> None:
    limiter = SharedLimiter(tmp_path, 0)
    await limiter.reserve(STREAMS, 0)
    (path,) = tmp_path.iterdir()
    assert STREAMS.name not in path.name
    assert STREAMS.name.encode() not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0


async def test_d27_nothing_is_written_to_what_a_link_leads_to(tmp_path: Path) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "limits"
    victim.write_bytes(b"theirs")
    limiter = SharedLimiter(directory, 0)
    assert (await limiter.reserve(STREAMS, 0)).admitted
    (path,) = directory.iterdir()
    for link in (path.symlink_to, path.hardlink_to):
        path.unlink()
        link(victim)
        before = limiter.failures
        await limiter.reserve(STREAMS, 0)
        assert limiter.failures == before + 1
        with pytest.raises(OSError, match=r"it is a symbolic link|it has a second name"):
            SharedLimiter(directory, 1)
    assert victim.read_bytes() == b"theirs"


def test_d27_a_directory_that_was_there_becomes_its_owners_only(tmp_path: Path) -> None:
    directory = tmp_path / "limits"
    directory.mkdir()
    directory.chmod(0o777)
    SharedLimiter(directory, 0)
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("worker", [-1, shared.WORKERS])
def test_a_slot_that_does_not_exist_is_refused(worker: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"worker: {worker} is not a slot; use 0 to 255"):
        SharedLimiter(tmp_path, worker)
