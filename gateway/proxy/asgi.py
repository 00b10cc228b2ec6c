"""ASGI and the event loop: scope keys, offloading to threads, background tasks, detection of a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from gateway.censor.compile import CompiledPolicy
from gateway.policy.model import Direction

SERVER_SEND = "portcullis.send"  # in an ASGI scope: the server's own `send`
REFUSAL = "portcullis.refusal"  # in an ASGI scope: the `HTTPFailure` that the server answers with, before any endpoint
ORIGIN_HEADERS = "portcullis.origin_headers"  # in an ASGI scope: what lets the page that asks read the answer
# bytes; scanning them for words takes half a millisecond as one text, and some 15 as very many short ones
MAX_INLINE = 8 * 1024
# What each backslash and each comma counts for besides: where text is JSON, a value in it is a text of its own, and
# takes some 30 to 100 us.
ESCAPE_SIZE, VALUE_SIZE = 12, 16  # bytes
UNREAD_SIZE = 8  # bytes that each byte counts for which came before and is scanned now: it may be JSON in a text
SMALL_READ = 512  # bytes; the values in so little are few
# times that of words: patterns, detectors and protected prompts, where text is full of candidates, and constraints
PATTERN_COST = 4
LONG_JOB = 256 * 1024  # bytes, weighed; less takes some tenths of a second
JOB_SLICE = 64 * 1024  # bytes, weighed, of a long job that are done before another job has its turn
SWITCH_INTERVAL = 0.001  # seconds after which a thread that works beside the event loop lets it continue

Result = TypeVar("Result")

# Threads beside the event loop compete with it for the interpreter's lock, so more of them would make nothing faster
# and every stream slower. What is short does not wait for what is long. No more work waits than there are requests in
# flight (`limits.max_streams`): each has one piece at a time.
_short_work = ThreadPoolExecutor(1, "offload-short")
_long_work = ThreadPoolExecutor(2, "offload-long")


def scan_cost(policy: CompiledPolicy, direction: Direction) -> int:
    """The bytes that each byte of such text counts for in a decision to offload its scan."""
    return max(policy.costs[direction], PATTERN_COST if direction in policy.costly else 1)


def scan_size(data: bytes) -> int:
    """The bytes that a piece of an answer or prompt counts for in such a decision."""
    size = len(data)
    return size if size <= SMALL_READ else size + ESCAPE_SIZE * data.count(b"\\") + VALUE_SIZE * data.count(b",")


async def offload(size: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """Do pure work on `size` bytes, times their `scan_cost`; in a thread where it would delay every other stream.

    Cancelled, it still waits for work that has begun: until then nothing else may touch the guard.
    """
    if size <= MAX_INLINE:
        return work(*arguments)
    job = (_short_work if size <= LONG_JOB else _long_work).submit(work, *arguments)
    done = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if not job.cancel():
            await asyncio.wait([done])
        raise


async def offload_in_slices(
    receive: Receive, size: int, cost: int, steps: Generator[int, None, Result], deadline: float
) -> Result:
    """`offload` for long work of a client that may leave. `steps` yields the bytes that each step took, and returns the
    result; after `JOB_SLICE` bytes, times their `cost`, another job has its turn.

    Raises `ClientDisconnect` between two turns when the client has left, and `TimeoutError` when `perf_counter` is past
    `deadline`.
    """
    if size * cost <= MAX_INLINE:
        while (ended := _run_slice(steps, JOB_SLICE)) is None:
            pass
        return ended[0]
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        while not gone.done():
            if perf_counter() > deadline:
                raise TimeoutError
            ended = await offload(max(size * cost, LONG_JOB + 1), _run_slice, steps, JOB_SLICE // cost)
            if ended is not None:
                return ended[0]
        raise ClientDisconnect
    finally:
        gone.cancel()
        steps.close()


def _run_slice(steps: Generator[int, None, Result], most: int) -> tuple[Result] | None:
    """The result; None if there are steps left after `most` bytes."""
    try:
        while most > 0:
            most -= next(steps)
    except StopIteration as end:
        return (end.value,)
    return None


_background: set[asyncio.Task[Any]] = set()  # the loop itself only holds tasks weakly


def start_background_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run work to its end, even if its caller is cancelled. It must be bounded in time and not raise."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


def pop_buffered_body(receive: Receive) -> bytes | None:
    """The whole body of a request, if it has arrived, and our own server is the one that has it: it need not be asked
    for, nor timed."""
    cycle: Any = getattr(receive, "__self__", None)
    if not hasattr(cycle, "on_leave") or cycle.more_body or cycle.disconnected:
        return None
    body, cycle.body = bytes(cycle.body), bytearray()
    cycle.message_event.clear()
    return body


def release_headers(receive: Receive) -> None:
    """Let go of a request's headers, which our own server keeps until the next one."""
    cycle: Any = getattr(receive, "__self__", None)
    if hasattr(cycle, "on_leave"):
        cycle.release_headers()


class DisconnectWatch:
    """Calls `on_leave` when the client has left, until it is stopped. The request's body was read before.

    Our own server's cycle says so by itself; any other server is asked, by a task that waits for its answer.
    """

    def __init__(self, receive: Receive, on_leave: Callable[[], None]) -> None:
        cycle: Any = getattr(receive, "__self__", None)
        self._cycle = cycle if hasattr(cycle, "on_leave") else None
        self._on_leave = on_leave
        self._waiting: asyncio.Task[None] | None = None
        if self._cycle is None:
            self._waiting = asyncio.ensure_future(wait_for_disconnect(receive))
            self._waiting.add_done_callback(self._has_left)
        elif cycle.disconnected:
            on_leave()
        else:
            cycle.on_leave = on_leave

    def _has_left(self, waiting: asyncio.Task[None]) -> None:
        if not waiting.cancelled():
            self._on_leave()

    def stop(self) -> None:
        if self._cycle is not None:
            self._cycle.on_leave = None
        elif self._waiting is not None:
            self._waiting.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has left. The request's body was read before, so nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
