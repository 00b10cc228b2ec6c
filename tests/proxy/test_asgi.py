"""Work beside the event loop: what is offloaded, to which thread, in turns, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from math import inf
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from gateway.proxy.asgi import (
    JOB_SLICE,
    LONG_JOB,
    MAX_INLINE,
    DisconnectWatch,
    offload,
    offload_in_slices,
    pop_buffered_body,
    scan_size,
)

TIMEOUT = 30  # seconds; it ends a test that hangs


async def stays() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("size", "where"),
    [
        (MAX_INLINE, "MainThread"),
        (MAX_INLINE + 1, "offload-short"),
        (LONG_JOB, "offload-short"),
        (LONG_JOB + 1, "offload-long"),
    ],
)
async def test_d26_where_work_is_done(size: int, where: str) -> None:
    def name() -> str:
        return threading.current_thread().name

    assert (await offload(size, name)).startswith(where)


async def test_d26_no_more_threads_than_the_loop_can_bear() -> None:
    """However much work there is: what is running at once is bounded, and all of it is done."""
    running, most = 0, 0
    lock = threading.Lock()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1
        return number

    done = await asyncio.gather(*(offload(LONG_JOB + number % 2, work, number) for number in range(100)))
    assert done == list(range(100))
    assert most <= 3


async def test_cancelled_it_waits_for_work_that_has_begun() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(TIMEOUT)
        ended.set()

    task = asyncio.create_task(offload(MAX_INLINE + 1, work))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_d26_cancelled_it_does_not_wait_for_work_that_has_not_begun() -> None:
    go_on, begun = threading.Event(), threading.Event()
    first = asyncio.create_task(offload(MAX_INLINE + 1, go_on.wait, TIMEOUT))
    await asyncio.sleep(0)
    second = asyncio.create_task(offload(MAX_INLINE + 1, begun.set))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    assert await first
    assert not begun.is_set()


def counting(to: int, size: int, log: list[str], name: str = "") -> Generator[int, None, str]:
    for step in range(to):
        log.append(f"{name}{step}")
        yield size
    return "done"


@pytest.mark.parametrize("size", [0, 1000, MAX_INLINE])
async def test_d26_short_work_in_turns_is_done_at_once(size: int) -> None:
    log: list[str] = []
    assert (
        await offload_in_slices(stays, size, 1, counting(100, 10 * JOB_SLICE, log, threading.current_thread().name), 0)
        == "done"
    )
    assert len(log) == 100


@pytest.mark.parametrize("scan_cost", [1, 16])
async def test_d26_long_work_lets_others_have_their_turns(scan_cost: int) -> None:
    log: list[str] = []
    works = [
        offload_in_slices(stays, LONG_JOB, scan_cost, counting(1000, JOB_SLICE // scan_cost, log, name), inf)
        for name in "abc"
    ]
    assert await asyncio.gather(*works) == ["done"] * 3
    assert len(log) == 3000
    # There are two threads: without turns the third work would begin when one of the others is done.
    begins = [log.index(f"{name}0") for name in "abc"]
    ends = [log.index(f"{name}999") for name in "abc"]
    assert max(begins) < min(ends)


async def test_d26_a_client_that_leaves_ends_the_work() -> None:
    left, log = asyncio.Event(), []
    ended = False

    def steps() -> Generator[int, None, None]:
        nonlocal ended
        try:
            while True:  # it never ends by itself
                log.append("step")
                yield JOB_SLICE
        finally:
            ended = True

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    task = asyncio.create_task(offload_in_slices(receive, LONG_JOB, 1, steps(), inf))
    while len(log) < 5:
        await asyncio.sleep(0.001)
    left.set()
    with pytest.raises(ClientDisconnect):
        await asyncio.wait_for(task, TIMEOUT)
    assert ended


async def test_long_work_ends_with_its_deadline() -> None:
    log: list[str] = []
    steps = counting(1000, JOB_SLICE, log)
    with pytest.raises(TimeoutError):
        await offload_in_slices(stays, LONG_JOB, 1, steps, 0)
    assert steps.gi_frame is None and not log


async def test_an_error_in_a_turn_is_raised() -> None:
    def steps() -> Generator[int, None, None]:
        yield JOB_SLICE
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await offload_in_slices(stays, LONG_JOB, 1, steps(), inf)


@pytest.mark.parametrize(
    ("text", "inline"),
    [
        ("plain words of a long answer. " * 200, True),
        ('["1","1",' * 600, False),
        ("[1,1,1,1," * 600, False),
        ("\\\\" * 1000, False),
        ('["1","1",' * 30, True),
    ],
)
def test_what_may_be_json_in_a_text_counts_for_more(text: str, inline: bool) -> None:
    assert (scan_size(json.dumps(text).encode()) <= MAX_INLINE) is inline


class Cycle:
    """What our own server has for a request, as far as it is looked at here."""

    on_leave: Any = None

    def __init__(self, body: bytes = b"", *, more_body: bool = False, disconnected: bool = False) -> None:
        self.body, self.more_body, self.disconnected = bytearray(body), more_body, disconnected
        self.message_event = asyncio.Event()

    async def receive(self) -> Any:
        await asyncio.Event().wait()


def test_a_body_is_taken_once_it_is_complete_and_only_from_our_own_server() -> None:
    cycle = Cycle(b"body")
    assert pop_buffered_body(cycle.receive) == b"body" and not cycle.body
    assert pop_buffered_body(Cycle(b"bo", more_body=True).receive) is None
    assert pop_buffered_body(Cycle(b"body", disconnected=True).receive) is None
    assert pop_buffered_body(stays) is None


async def test_a_client_that_leaves_is_noticed_until_the_watch_ends() -> None:
    left: list[str] = []
    cycle = Cycle()
    watch = DisconnectWatch(cycle.receive, lambda: left.append("ours"))
    cycle.on_leave()
    watch.stop()
    assert left == ["ours"] and cycle.on_leave is None
    DisconnectWatch(Cycle(disconnected=True).receive, lambda: left.append("gone before")).stop()

    async def leaves() -> Any:
        return {"type": "http.disconnect"}

    watch = DisconnectWatch(leaves, lambda: left.append("another server's"))
    await asyncio.sleep(0.01)
    watch.stop()
    DisconnectWatch(stays, lambda: left.append("never")).stop()
    await asyncio.sleep(0)
    assert left == ["ours", "gone before", "another server's"]
