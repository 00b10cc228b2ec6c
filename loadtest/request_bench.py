"""What a whole request costs: microseconds of CPU in one worker, on a kept and on a new connection, beside nginx.

    python -m loadtest.request_bench [--against DIR]

Every target runs in turn, several times over, under the same closed loop of connections; each request has to come back
complete, and before anything is measured the forbidden word must come out of nginx and not of the gateway. `--against`
names a checkout of another version, which runs in the same rounds: a step is judged by the two rows of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import uvloop

from loadtest import process, targets
from loadtest.dialects import MODEL
from loadtest.process import Cores, choose_cores
from loadtest.report import environment
from loadtest.request_upstream import PROMPT, PROSE, WITH_WORD, serve
from loadtest.run import pin_self
from loadtest.script import FORBIDDEN

DEADLINE = 120.0  # seconds for one target's requests
WARM_UP = 200  # requests
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_STREAM_END = b"0\r\n\r\n"
OTHER = "other version"


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of request: how many chunks its answer has (0: it is no stream), how many are made, and how many at the
    same time."""

    name: str
    chunks: int
    kept: bool
    requests: int
    at_once: int = 16
    asked: str = PROMPT

    @property
    def request(self) -> bytes:
        asked: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": self.asked % self.chunks}]}
        body = json.dumps({**asked, "stream": True} if self.chunks else asked).encode()
        return _HEAD % len(body) + body


# The headers that OpenAI's Python client sends.
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
    b"User-Agent: OpenAI/Python 1.99.1\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 1.99.1\r\n"
    b"X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"
    b"X-Stainless-Runtime-Version: 3.11.7\r\nAuthorization: Bearer sk-none\r\nX-Stainless-Async: false\r\n"
    b"x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nContent-Length: %d\r\n\r\n"
)
ROWS = (
    Row("plain, kept connection", 0, kept=True, requests=600),
    Row("plain, new connection", 0, kept=False, requests=400),
    Row("one chunk, kept connection", 1, kept=True, requests=600),
    Row("one chunk, new connection", 1, kept=False, requests=400),
    Row("200 chunks, new connection", 200, kept=False, requests=100, at_once=100),
)
_CHECK = Row("the forbidden word", 1, kept=True, requests=1, asked=f"{PROMPT} {WITH_WORD}")


class _Client(asyncio.Protocol):
    """Sends requests on one connection, or one on each of several, until none is left."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = bytearray()
        self._size: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._load.row.request)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._size is None and (found := _LENGTH.search(received[:2048])) is not None:
            self._size = received.index(b"\r\n\r\n") + 4 + int(found[1])
        if not (received.endswith(_STREAM_END) if self._size is None else len(received) >= self._size):
            return
        self._load.check(bytes(received))
        self._received, self._size = bytearray(), None
        if not self._load.next():
            self._transport.close()
        elif self._load.row.kept:
            self._transport.write(self._load.row.request)
        else:
            self._transport.close()
            self._load.connect()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._received:
            self._load.fail("a connection was lost within an answer")


class _Load:
    """A closed loop of one row's requests."""

    def __init__(self, row: Row, port: int, guarded: bool) -> None:
        self.row = row
        self._port = port
        self._guarded = guarded
        self._left = self._open = row.requests
        self._done = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[object]] = set()

    async def run(self) -> None:
        """Raises `TargetError` for an answer that is wrong, or none."""
        for _ in range(min(self.row.at_once, self.row.requests)):
            self._left -= 1
            self.connect()
        try:
            async with asyncio.timeout(DEADLINE):
                await self._done
        except TimeoutError:
            raise targets.TargetError(f"{self.row.name}: {self._open} requests were not answered") from None

    def connect(self) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.create_connection(lambda: _Client(self), "127.0.0.1", self._port))
        self._tasks.add(task)  # type: ignore[arg-type]
        task.add_done_callback(self._tasks.discard)

    def next(self) -> bool:
        """An answer is complete; is another request to be sent in its place?"""
        self._open -= 1
        if not self._open and not self._done.done():
            self._done.set_result(None)
        self._left -= 1
        return self._left >= 0

    def check(self, answer: bytes) -> None:
        if not answer.startswith(b"HTTP/1.1 200 "):
            self.fail(f"an answer begins with {answer[:300]!r}")
        elif WITH_WORD in self.row.asked and (FORBIDDEN.encode() in answer) is self._guarded:
            self.fail("the forbidden word came out" if self._guarded else "no forbidden word came out")
        elif self.row.chunks > 1 and answer.count(b'"content":') < self.row.chunks * 0.95:
            self.fail("chunks are missing")

    def fail(self, fault: str) -> None:
        if not self._done.done():
            self._done.set_exception(targets.TargetError(f"{self.row.name}: {fault}"))


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of CPU and of time a request."""

    cpu: float
    wall: float


def measure(row: Row, target: targets.Running) -> Cost:
    """Raises `TargetError`."""
    assert target.pid is not None
    pids = process.tree(target.pid)
    cpu, began = process.cpu_seconds(pids), time.perf_counter()
    uvloop.run(_run(row, target))
    spent, took = process.cpu_seconds(pids) - cpu, time.perf_counter() - began
    return Cost(spent / row.requests * 1e6, took / row.requests * 1e6)


async def _run(row: Row, target: targets.Running) -> None:
    await _Load(row, target.port, target.guarded).run()


@contextlib.contextmanager
def upstream(cores: Cores) -> Iterator[int]:
    """Its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        context = multiprocessing.get_context("spawn")
        serving = context.Process(target=serve, args=(listener, cores.upstream), daemon=True)
        serving.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            serving.kill()
            serving.join()


def bench(rows: Sequence[Row], rounds: int, against: Path | None) -> dict[tuple[str, str], list[Cost]]:
    """The costs of each round, by the names of row and target."""
    cores = choose_cores()
    pin_self(cores)
    costs: dict[tuple[str, str], list[Cost]] = {}
    with contextlib.ExitStack() as started:
        port = started.enter_context(upstream(cores))
        running: dict[str, targets.Running] = {}
        for name in ("nginx", "portcullis-1000"):
            with contextlib.suppress(targets.NotInstalledError):
                running[name] = started.enter_context(targets.running(name, PROSE, port, cores.target))
        if against is not None:
            other = targets.running("portcullis-1000", PROSE, port, cores.target, against.resolve())
            running[OTHER] = started.enter_context(other)
        for target in running.values():
            for row in (_CHECK, *(replace(row, requests=min(WARM_UP, row.requests)) for row in rows)):
                uvloop.run(_run(row, target))
        for number in range(rounds):
            for row in rows:
                for name in list(running)[:: -1 if number % 2 else 1]:
                    costs.setdefault((row.name, name), []).append(measure(row, running[name]))
    return costs


def table(costs: dict[tuple[str, str], list[Cost]]) -> str:
    """Per row and target: CPU of the best, the median and the worst round, requests a second of the best."""
    lines = [f"{'request':<28}{'target':<18}{'CPU us: least':>14}{'median':>9}{'most':>9}{'a second':>10}"]
    for (row, target), found in costs.items():
        cpu = sorted(cost.cpu for cost in found)
        fastest = 1e6 / min(cost.wall for cost in found)
        line = f"{row:<28}{target:<18}{cpu[0]:>14.0f}{cpu[len(cpu) // 2]:>9.0f}{cpu[-1]:>9.0f}{fastest:>10.0f}"
        lines.append(line)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Exit status 1 if an answer was wrong or a target did not start."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.request_bench", description=__doc__)
    parser.add_argument("--rounds", type=int, choices=range(1, 101), default=10, metavar="N")
    parser.add_argument("--against", type=Path, metavar="DIR", help="a checkout of another version, as a target more")
    parser.add_argument("--rows", metavar="TEXT", default="", help="only rows that have this in their name")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if options.rows in row.name]
    facts = environment(choose_cores())
    try:
        costs = bench(rows, options.rounds, options.against)
    except targets.TargetError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"{key:<9} {fact}" for key, fact in facts.items()), table(costs), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
