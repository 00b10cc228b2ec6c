"""Does memory grow with requests? A million short ones, a hundred thousand streams, and streams whose clients leave.

    python -m loadtest.soak [--scale 0.1] [--speed 60]

No two requests are alike: models, prompts, users, keys, ids and agents are new in each, so what is kept for any of them
shows. A process takes what it keeps while the first 10,000 requests of a kind are answered, four times as many of them
at once as later, so that how many happen to overlap does not show. After them resident memory is read after each of 50
batches, and its slope is to be at most a byte a request. Nothing may be unaccounted for at the
end, and there may be no more series of metrics than after the short requests. With `--speed`, the clock of the gateway
runs so many times as fast (libfaketime): a quarter of an hour at 60 is 15 hours of probes, timeouts and expiry.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from loadtest import process, targets
from loadtest.process import choose_cores
from loadtest.report import environment
from loadtest.request_bench import Row, measure, upstream
from loadtest.request_upstream import PROSE
from loadtest.run import pin_self

BATCHES = 50
WARM_UP = 10_000  # requests of each kind
CROWD = 4  # times as many at once while it warms up
MOST = 1.0  # bytes a request
STEP = 128 * 1024  # bytes; memory comes and goes in steps, and a slope over few requests may be one of them
LEAVING = "streams that are left"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), Path("/nowhere"))
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Unlike(Row):
    """Requests of which each is new."""

    @property
    def request(self) -> bytes:
        new = f"{next(_NUMBERS)}"
        asked = {
            "model": f"model-{new}",
            "messages": [{"role": "user", "content": f"{self.asked % self.chunks} {new}", "name": f"name-{new}"}],
            "user": f"user-{new}",
            f"field-{new}": new,
        }
        body = json.dumps({**asked, "stream": True} if self.chunks else asked).encode()
        return _HEAD.replace(b"NEW", new.encode()) % len(body) + body


_HEAD = (
    b"POST /v1/chat/completions?NEW HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"User-Agent: agent/NEW\r\nAuthorization: Bearer sk-NEW\r\nx-request-id: request-NEW\r\nx-NEW: NEW\r\n"
    b"traceparent: 00-NEW-NEW-01\r\nContent-Length: %d\r\n\r\n"
)
ROWS = (
    Unlike("short requests", 0, kept=True, requests=1_000_000),
    Unlike("streams", 5, kept=True, requests=100_000, at_once=64),
    Unlike(LEAVING, 50, kept=False, requests=20_000, at_once=64),
)


@dataclass(frozen=True, slots=True)
class Soaked:
    """`memory`: bytes after each batch behind those that warm up; `row` is one batch."""

    row: Row
    memory: tuple[int, ...]
    seconds: float

    @property
    def slope(self) -> float:
        """Bytes a request."""
        places = range(0, len(self.memory) * self.row.requests, self.row.requests)
        return statistics.linear_regression(places, self.memory).slope

    @property
    def grows(self) -> bool:
        return self.slope > MOST and self.memory[-1] - self.memory[0] > STEP

    def __str__(self) -> str:
        first, last = (memory / 2**20 for memory in (self.memory[0], self.memory[-1]))
        requests = self.row.requests * len(self.memory)
        return f"| {self.row.name} | {requests:,} | {self.seconds:.0f} | {first:.1f} | {last:.1f} | {self.slope:.2f} |"


HEAD = "| kind | requests | seconds | MiB before | MiB behind | bytes a request |\n|---|---|---|---|---|---|"


def soak(row: Row, target: targets.Running) -> Soaked:
    """Raises `TargetError` for an answer that is wrong, or none."""
    assert target.pid is not None
    warm = math.ceil(WARM_UP / row.requests)
    began, memory = 0.0, []
    for number in range(warm + BATCHES):
        if number == warm:
            began = time.monotonic()
        batch = row if number >= warm else replace(row, at_once=CROWD * row.at_once)
        if row.name == LEAVING:
            uvloop.run(_leave(batch, target.port))
        else:
            measure(batch, target)
        memory.append(process.resident_kb(process.tree(target.pid)) * 1024)
    return Soaked(row, tuple(memory[warm:]), time.monotonic() - began)


async def _leave(row: Row, port: int) -> None:
    """Each client reads the beginning of its stream, and goes."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(row.request)
        await reader.readuntil(b"data: ")
        writer.transport.abort()

    for start in range(0, row.requests, row.at_once):
        await asyncio.gather(*(one() for _ in range(min(row.at_once, row.requests - start))))


def exposed(port: int) -> dict[str, float]:
    """Series and their values."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def faults_of(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """What is wrong at the end, in sentences."""
    found = [f"a new series: {name}" for name in after.keys() - before.keys()]
    found += [f"{name} is {value}" for name, value in after.items() if "_errors_total{" in name or "_failures_" in name]
    if after["portcullis_streams_active"]:
        found.append(f"{after['portcullis_streams_active']} streams are active")
    return found


@contextmanager
def faster(speed: int) -> Iterator[None]:
    """What is started meanwhile has a clock of this speed."""
    if speed == 1:
        yield
        return
    os.environ |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"+0 x{speed}"}
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["FAKETIME"]


def run(scale: float, speed: int, only: str) -> tuple[list[Soaked], list[str]]:
    """Raises `TargetError`."""
    cores = choose_cores()
    pin_self(cores)
    rows = [  # a kept connection might end by a timeout that is too short for its client
        replace(
            row,
            kept=row.kept and speed == 1,
            requests=round(row.requests * scale / BATCHES),
        )
        for row in ROWS
        if only in row.name
    ]
    with ExitStack() as started:
        port = started.enter_context(upstream(cores))
        with faster(speed):
            target = started.enter_context(targets.running("portcullis-1000", PROSE, port, cores.target))
        found: list[Soaked] = []
        before: dict[str, float] = {}
        for row in rows:
            found.append(soak(row, target))
            print(found[-1], flush=True)
            before = before or exposed(target.port)
        return found, faults_of(before, exposed(target.port))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Exit status 1 where memory grows, or something is wrong at the end."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.soak", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="this share of the requests")
    parser.add_argument("--speed", type=int, default=1, metavar="N", help="of the gateway's clock")
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds with this in their name")
    options = parser.parse_args(arguments)
    print("\n".join(f"{key:<9} {fact}" for key, fact in environment(choose_cores()).items()), HEAD, sep="\n\n")
    found, wrong = run(options.scale, options.speed, options.only)
    wrong += [f"{each.row.name}: {each.slope:.2f} bytes a request" for each in found if each.grows]
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
