"""The share of each turn of the event loop that clients get who may have no key.

Hundreds of connections may have something to parse in the same turn, and every stream would wait for all of them. So
they wait for one another, in one queue for each loop: what finds no time in a turn is done in the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary, proxy

TURN = 0.001  # seconds of each turn
# Seconds that are counted for what happens outside the queue: a client's next read, the first step of a request.
READING, STARTING = 0.00002, 0.00015
BUFFER = 128 * 1024  # bytes that are read of a client at once at most


class Turns:
    """Runs short pieces of work in order. Work that a piece adds has a later turn, in which what it began is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loop = proxy(loop)
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()  # at most two for each connection: its slice, its request
        self._spent = 0.0  # seconds of this turn
        self._wakes = False
        self.buffer = memoryview(bytearray(BUFFER))  # of every connection: what is read into it is copied at once

    def run(self, work: Callable[[], None]) -> None:
        """Run a piece at once if none is pending and there is time left."""
        if self._waiting or self._spent >= TURN:
            self.add(work)
            return
        begin = self._clock()
        try:
            work()
        finally:
            self._spent += self._clock() - begin
            if not self._wakes:
                self._wake()

    def add(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)
        self._wake()

    def charge(self, seconds: float) -> None:
        """Count them to this turn."""
        self._spent += seconds
        self._wake()

    def _wake(self) -> None:
        if not self._wakes:
            self._wakes = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._spent = 0.0
        try:
            for _ in range(len(self._waiting)):
                if self._spent >= TURN:
                    break
                work, begin = self._waiting.popleft(), self._clock()
                try:
                    work()
                finally:
                    self._spent += self._clock() - begin
        finally:
            self._wakes = False
            if self._waiting or self._spent:
                self._wake()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """The loop's only queue."""
    if loop not in _turns:
        _turns[loop] = Turns(loop)
    return _turns[loop]
