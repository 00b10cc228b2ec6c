"""The gateway's own process with a probe of its event loop: `python -m loadtest.bounds.probe REPORT serve …`.

A tick every millisecond notes how late it comes (which the machine's other work makes longer) and how much CPU time
the loop's thread used since the tick before (which it does not). SIGUSR2 writes the largest of both since the last one
to REPORT, as JSON, and begins again. `wait` is what of that CPU time a chunk has before itself, at the 99th percentile
over all moments at which one may come.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway import cli
from gateway.serving import servers

TICK = 0.001  # seconds
REPORT_SIGNAL = signal.SIGUSR2


def wait_of(ticks: Sequence[tuple[float, float]], share: float = 0.01) -> float:
    """The seconds of CPU time that are still left before the next tick, or more, in that `share` of all moments.

    `ticks`: the seconds since the one before, and the CPU time in these.
    """
    below, above = 0.0, max((busy for _, busy in ticks), default=0.0)
    moments = share * sum(seconds for seconds, _ in ticks)
    for _ in range(30):
        middle = (below + above) / 2
        if sum(busy - middle for _, busy in ticks if busy > middle) > moments:
            below = middle
        else:
            above = middle
    return above


class LoopProbe:
    """The largest lateness and CPU time of what ran between two ticks, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Path) -> None:
        self._loop, self._report = loop, report
        self._reset()
        self._tick()

    def _reset(self) -> None:
        self._late = self._busy = 0.0
        self._ticks: list[tuple[float, float]] = []
        self._due, self._cpu = time.perf_counter(), time.thread_time()

    def _tick(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        self._late = max(self._late, now - self._due)
        self._busy = max(self._busy, cpu - self._cpu)
        self._ticks.append((now - self._due + TICK, cpu - self._cpu))
        self._due, self._cpu = now + TICK, cpu
        self._loop.call_later(TICK, self._tick)

    def write(self) -> None:
        """Write what was seen so far, in one step, and forget it."""
        new = self._report.with_suffix(".new")
        new.write_text(json.dumps({"late": self._late, "busy": self._busy, "wait": wait_of(self._ticks)}))
        new.rename(self._report)
        self._reset()


def main() -> int:
    report = Path(sys.argv[1])
    serve = servers.serve

    async def probed(*arguments: Any) -> signal.Signals:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(REPORT_SIGNAL, LoopProbe(loop, report).write)
        return await serve(*arguments)

    servers.serve = probed
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
