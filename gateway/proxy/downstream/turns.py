"""How much of a turn of the event loop clients get that may have no key.

Each of hundreds of connections may have something to parse in the same turn, and every stream would wait for all of
them. So they wait, in one queue for each loop, and what is left over in a turn has its place in the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

TURN = 0.001  # seconds of a turn of the loop
# Seconds that are counted for what happens behind the queue: a client's next read, the first step of a request.
READING, STARTING = 0.00002, 0.0003
BUFFER = 256 * 1024  # bytes that are read at once at most

Work = Callable[[], None]


class Turns:
    """Does short pieces of work in their order, in each turn of the loop about `TURN` seconds of it.

    A turn has no second piece of whoever comes again, so that what the first one began can happen in between.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter) -> None:
        self._call_soon = loop.call_soon
        self._clock = clock
        self._waiting: deque[Work] = deque()
        self._spent = 0.0  # seconds, in this turn
        self._awake = False
        self.buffer = memoryview(bytearray(BUFFER))  # what is read into it is copied at once, so all can use it

    def run(self, work: Work) -> None:
        """Do it at once if nothing waits and the turn has time left."""
        if self._waiting or self._spent >= TURN:
            self.add(work)
            return
        self._wake()
        self._do(work)

    def add(self, work: Work) -> None:
        self._waiting.append(work)
        self._wake()

    def charge(self, seconds: float) -> None:
        """Count what work costs this turn of the loop, or the next one, after it has returned."""
        self._spent += seconds
        self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._awake, self._spent = False, 0.0
        for _ in range(len(self._waiting)):
            self._wake()
            if self._spent >= TURN:
                return
            self._do(self._waiting.popleft())

    def _do(self, work: Work) -> None:
        begin = self._clock()
        try:
            work()
        finally:
            self._spent += self._clock() - begin


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """The loop's one queue."""
    if loop not in _turns:
        _turns[loop] = Turns(loop)
    return _turns[loop]
