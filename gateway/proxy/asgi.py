"""What the relay needs of ASGI and the event loop: a way to the server, work offload, word of a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

from gateway.censor.compile import CompiledPolicy
from gateway.policy.model import Direction

SERVER_SEND = "portcullis.send"  # in an ASGI scope: the server's own `send`
REFUSAL = "portcullis.refusal"  # in an ASGI scope: the `HTTPFailure` that the server answers with, before any endpoint
# bytes; scanning them for words takes half a millisecond as one text, and some 15 where they are very many short ones
MAX_INLINE = 8 * 1024
# How much longer it may take for patterns and detectors, where text is full of what they want, and for constraints.
PATTERN_COST = 4
LONG_JOB = 256 * 1024  # bytes, weighed; less takes some tenths of a second
JOB_SLICE = 64 * 1024  # bytes, weighed, of a long job that are done before another job has its turn
SWITCH_INTERVAL = 0.001  # seconds after which a thread that works beside the event loop lets it go on

Result = TypeVar("Result")

# Threads beside the event loop compete with it for the interpreter's lock, so more of them would make nothing faster
# and every stream slower. What is short does not wait for what is long. No more work waits than there are requests in
# flight (`limits.max_streams`): each has one piece at a time.
_short_work = ThreadPoolExecutor(1, "offload-short")
_long_work = ThreadPoolExecutor(2, "offload-long")


def _protocol_of(send: Send) -> Any:
    """The gateway's own protocol; None where another server runs the application."""
    return getattr(getattr(send, "__self__", None), "protocol", None)


def limit_sending(send: Send, seconds: float) -> None:
    """Cut the client off when it takes nothing of its answer for so long."""
    if (protocol := _protocol_of(send)) is not None:
        protocol.send_timeout = seconds


def stalled(send: Send) -> bool:
    """Was the client cut off for that?"""
    return bool(getattr(_protocol_of(send), "stalled", False))


def abort(send: Send) -> None:
    """Cut the client off, with all that it has not read.

    ASGI has no word for it, and a server that closes in order first waits until everything is read.
    """
    if (protocol := _protocol_of(send)) is not None:
        protocol.cut()


def scan_cost(policy: CompiledPolicy, direction: Direction) -> int:
    """How many bytes each byte of such text counts for when it is asked whether to offload its scan."""
    programs = (program for (way, _), program in policy.programs.items() if way is direction)
    constrained = direction is Direction.OUTPUT and policy.policy.constrain is not None
    return PATTERN_COST if constrained or any(program.patterns for program in programs) else 1


async def offload(size: int, work: Callable[..., Result], *arguments: Any) -> Result:
    """Do pure work on `size` bytes, weighed (`scan_cost`); in a thread where it would keep every other stream waiting.

    Cancelled, it still waits for work that has begun: nobody else may touch the guard before.
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


class _Ended(NamedTuple, Generic[Result]):
    value: Result


async def offload_in_slices(receive: Receive, size: int, scan_cost: int, steps: Generator[int, None, Result]) -> Result:
    """`offload` for long work of a client that may leave. `steps` yields the bytes that each step took, and returns the
    result; after `JOB_SLICE` bytes other work has its turn.

    Raises `ClientDisconnect` between two turns when the client has left.
    """
    if size * scan_cost <= MAX_INLINE:
        while (ended := _take_turn(steps, JOB_SLICE)) is None:
            pass
        return ended.value
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        while not gone.done():
            ended = await offload(max(size * scan_cost, LONG_JOB + 1), _take_turn, steps, JOB_SLICE // scan_cost)
            if ended is not None:
                return ended.value
        raise ClientDisconnect
    finally:
        gone.cancel()
        steps.close()


def _take_turn(steps: Generator[int, None, Result], most: int) -> _Ended[Result] | None:
    """None if there are steps left after `most` bytes."""
    try:
        while most > 0:
            most -= next(steps)
    except StopIteration as end:
        return _Ended(end.value)
    return None


_background: set[asyncio.Task[Any]] = set()  # the loop itself only holds tasks weakly


def start_background_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Let something be done whoever waits for it or not. It must be bounded in time and not raise."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has left. The request's body was read before, so nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
