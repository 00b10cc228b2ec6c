"""A process with a limiter of its own: `python -m tests.support.limit_process shared DIRECTORY WORKER` or
`redis URL LEASE`.

It says `ready`; for every line with a number it asks for that many requests at once and answers with how many were
admitted and how often the shared state failed. It settles nothing and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from gateway.limits import Limiter, shared
from gateway.limits.redis import RedisLimiter
from gateway.limits.shared import SharedLimiter
from gateway.policy.model import ClientKey

# So many that the processes are at it at the same time.
KEY_RPM = 1500
KEY = ClientKey.of("the key of several processes", "many", rpm=KEY_RPM)
NARROW = ClientKey.of("another", "narrow", max_streams=3)
KEYS = {key.name: key for key in (KEY, NARROW)}
_ROOT = Path(__file__).resolve().parents[2]


class Answer(NamedTuple):
    admitted: int
    failures: int


class Process:
    """One such process; `ask` only writes, so that several can be at it at the same time."""

    def __init__(self, *arguments: object) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-m", "tests.support.limit_process", *map(str, arguments)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def wait_ready(self) -> None:
        assert self.running.stdout is not None
        assert self.running.stdout.readline() == "ready\n"

    def ask(self, key: ClientKey, requests: int) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{key.name} {requests}\n")
        self.running.stdin.flush()

    def answer(self) -> Answer:
        assert self.running.stdout is not None
        admitted, failures = self.running.stdout.readline().split()
        return Answer(int(admitted), int(failures))

    def kill(self) -> None:
        self.running.kill()
        self.running.communicate(timeout=30)


async def _serve(kind: str, where: str, number: str) -> None:
    limiter: SharedLimiter | RedisLimiter
    if kind == "shared":
        shared.LOCK_TIMEOUT = 30  # on a busy machine every process gets its turn late
        limiter = SharedLimiter(Path(where), int(number))
    else:
        limiter = RedisLimiter(where, timeout=30, lease=float(number))
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, requests = line.split()
        admitted = await _burst(limiter, KEYS[name], int(requests))
        print(admitted, limiter.failures, flush=True)


async def _burst(limiter: Limiter, key: ClientKey, requests: int) -> int:
    decisions = await asyncio.gather(*(limiter.reserve(key, 0) for _ in range(requests)))
    return sum(decision.admitted for decision in decisions)


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
