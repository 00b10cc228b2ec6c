"""What can happen to what the gateway keeps: the journal's disk is full, hangs, loses a file; Redis goes."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.faults.client import request_of
from tests.faults.fault import Act, Counts, Fault, Trial, answered, total
from tests.faults.process_faults import under_load
from tests.faults.speech import whole_answer
from tests.support.redis_servers import RedisServer

REQUESTS = 10
DISK = "disk"  # a file in the gateway's folder: so many seconds every call takes; if it is empty, none returns
# Imported by the gateway's own Python at its start: a disk that is slow or hangs, as one over a network does.
SLOW_DISK = """
import os, time
disk, write, sync = os.environ["FAULTS_DISK"], os.write, os.fsync
def slow(call):
    def slowed(*arguments):
        while os.path.exists(disk):
            with open(disk) as file:
                if pause := file.read():
                    time.sleep(float(pause))
                    break
            time.sleep(0.01)
        return call(*arguments)
    return slowed
os.write, os.fsync = slow(write), slow(sync)
"""


def journal_of(trial: Trial) -> Path:
    return trial.world.folder / "journal.jsonl"


def _lines_in(path: Path, kind: bytes = b"request") -> int:
    """Lines of this kind."""
    files = path.parent.glob(f"{path.name}*")
    return sum(file.read_bytes().count(b'"type":"%s"' % kind) for file in files if ".head" not in file.name)


async def _lines_come(trial: Trial, count: int) -> None:
    """Wait for the lines of as many requests, no more."""
    while _lines_in(journal_of(trial)) < count:
        await asyncio.sleep(0.02)
    trial.expect("lines of requests", _lines_in(journal_of(trial)), count)


def _no_room(trial: Trial) -> int:
    """The journal's file cannot grow by a line; gives the limit that was."""
    pid = trial.world.served.process.pid
    size = journal_of(trial).stat().st_size
    before, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + trial.rng.randrange(100), hard))
    return before


def _room(trial: Trial, limit: int) -> None:
    pid = trial.world.served.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))


async def _ask(trial: Trial, *gets: str) -> None:
    trial.world.stage.scene = whole_answer
    for number, wanted in enumerate(gets):
        answer = await trial.world.ask(trial, stream=bool(number % 2))
        trial.expect("answer", answer.summary, wanted)


_ANSWERS = ("200", "200 done") * (REQUESTS // 2)


async def _disk_full(trial: Trial) -> None:
    await _ask(trial, "200")
    await asyncio.sleep(0.2)
    before, limit = _lines_in(journal_of(trial)), _no_room(trial)
    await _ask(trial, *_ANSWERS)
    _room(trial, limit)
    await _lines_come(trial, before + REQUESTS)


def _disk(pause: str) -> Act:
    async def act(trial: Trial) -> None:
        await _ask(trial, "200")
        await asyncio.sleep(0.2)
        before, disk = _lines_in(journal_of(trial)), trial.world.folder / DISK
        _write_at_once(disk, pause)
        await _ask(trial, *_ANSWERS)
        disk.unlink()
        await _lines_come(trial, before + REQUESTS)

    return act


def _write_at_once(path: Path, text: str) -> None:
    """Nobody reads it half written."""
    path.with_suffix(".new").write_text(text, "utf-8")
    path.with_suffix(".new").rename(path)


async def _full_and_required(trial: Trial) -> None:
    await _ask(trial, "200")
    limit = _no_room(trial)
    await _ask(trial, "503 journal_failed", "503 overloaded")
    _room(trial, limit)
    while (await trial.world.served.client.get(f"{trial.world.served.admin}/readyz")).status_code != 200:
        await asyncio.sleep(0.05)
    await _ask(trial, "200")


async def _hangs_and_required(trial: Trial) -> None:
    await _ask(trial, "200")
    disk = trial.world.folder / DISK
    disk.touch()
    await _ask(trial, "503 journal_failed")
    disk.unlink()
    await _ask(trial, "200")


async def _slow_and_required(trial: Trial) -> None:
    disk = trial.world.folder / DISK
    trial.world.stage.scene = whole_answer
    _write_at_once(disk, "0.2")
    for stream in (False, True) * 2:
        before = _lines_in(journal_of(trial), b"match")
        answer = await trial.world.ask(trial, stream=stream)
        trial.expect("answer", answer.summary, "200 done" if stream else "200")
        trial.expect("matches written", _lines_in(journal_of(trial), b"match"), before + 3)
    disk.unlink()


async def _moved(trial: Trial) -> None:
    """As logrotate does: nothing is lost, and a new file is begun."""
    await _ask(trial, "200")
    await asyncio.sleep(0.3)
    before = _lines_in(journal_of(trial))
    journal_of(trial).rename(journal_of(trial).with_name("journal.jsonl.20200101T000000Z-000"))
    await _ask(trial, *_ANSWERS)
    await _lines_come(trial, before + REQUESTS)


def _redis(what: str) -> Act:
    async def act(trial: Trial) -> None:
        server = trial.world.parts["redis"]
        assert isinstance(server, RedisServer)
        async with under_load(trial) as load:
            if what in ("killed", "restarted"):
                await asyncio.to_thread(server.stop)
            if what == "restarted":
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
            if what == "flushed":
                with redis.Redis.from_url(server.url) as client:
                    await asyncio.to_thread(client.flushall)
            if what == "paused":
                server.suspend()
            for _ in range(REQUESTS // 2):
                client = await trial.world.connect()
                await client.send(request_of("good"))
                answer = await client.read()
                trial.got(answer)
                trial.expect("answer", answer.summary, "200")
                left = int(answer.headers["x-ratelimit-remaining-requests"])
                trial.require(0 < left <= 5000, f"{left} requests are left")
                client.close()
            if what == "paused":
                server.resume()
            if what == "killed":
                await asyncio.to_thread(server.start)
        trial.expect(
            "streams", sorted(each.result().summary for each in load.answers), ["200 done"] * len(load.answers)
        )

    return act


def faults() -> Iterator[Fault]:
    def fault(name: str, does: str, gets: str, act: Act, counts: Counts, setting: str, **more: bool) -> Fault:
        return Fault(name, "storage", does, gets, act, counts, setting=setting, **more)

    served = answered(REQUESTS + 1)
    refused: Counts = {"status 503": 1, "failed: journal": 1}
    yield fault(
        "the disk is full",
        "the journal cannot grow, for ten requests",
        "200; its lines come later, each once",
        _disk_full,
        served,
        "journal",
        sample=True,
    )
    yield fault(
        "the disk hangs",
        "no write of the journal returns, for ten requests",
        "200; its lines come later, each once",
        _disk(""),
        served,
        "journal",
        sample=True,
    )
    yield fault(
        "the disk is slow",
        "each write of the journal takes 0.3 s, for ten requests",
        "200; its lines come later, each once",
        _disk("0.3"),
        served,
        "journal",
    )
    yield fault("the journal is moved", "its file is renamed", "200; no line is lost", _moved, served, "journal")
    yield fault(
        "full, and required",
        "the journal cannot grow, and answers need it",
        "503 journal_failed, 503 overloaded, 200 again",
        _full_and_required,
        total(answered(2), refused, {"status 503": 1, "failed: overloaded": 1}),
        "required",
        sample=True,
    )
    yield fault(
        "hangs, and required",
        "no write of the journal returns, and answers need it",
        "503 journal_failed after 5 s, 200 again",
        _hangs_and_required,
        total(answered(2), refused),
        "required",
    )
    yield fault(
        "slow, and required",
        "each write of the journal takes 0.2 s, and answers need it",
        "200, its matches are written before it",
        _slow_and_required,
        answered(4),
        "required",
    )
    for what, does in {
        "killed": "is killed under eight streams, and started again",
        "paused": "takes connections and answers nothing",
        "restarted": "is killed and comes back empty",
        "flushed": "forgets everything under eight streams",
    }.items():
        yield fault(
            f"Redis {what}",
            does,
            "200, within the limits",
            _redis(what),
            answered(8 + REQUESTS // 2),
            "redis",
            sample=what == "paused",
        )
