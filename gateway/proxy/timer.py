"""The deadline of one answer."""

from __future__ import annotations

import asyncio
from time import perf_counter


class Deadline:
    """Cancels work when `perf_counter` is past `at`, by one coarse timer instead of one for each chunk.

    `passed`: has it done so?
    """

    INTERVAL = 0.5  # seconds; its precision

    def __init__(self, at: float) -> None:
        self.passed = False
        self._at = at
        self._timer: asyncio.TimerHandle | None = None

    def start(self, work: asyncio.Future[None]) -> None:
        self._timer = work.get_loop().call_later(self.INTERVAL, self._tick, work)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, work: asyncio.Future[None]) -> None:
        if perf_counter() > self._at:
            self.passed = True
            work.cancel()
        else:
            self.start(work)
