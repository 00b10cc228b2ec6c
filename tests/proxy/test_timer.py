"""`TimeLimit` is `asyncio.timeout`: what runs out of time, and what another cancels, in that order and the other."""

from __future__ import annotations

import asyncio

import pytest

from gateway.proxy.timer import TimeLimit


async def test_what_takes_longer_is_a_timeout_and_the_task_goes_on() -> None:
    with pytest.raises(TimeoutError), TimeLimit(0.01):
        await asyncio.sleep(60)
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()
    with TimeLimit(60):
        await asyncio.sleep(0)
    with pytest.raises(ValueError), TimeLimit(60):
        raise ValueError


@pytest.mark.parametrize("limit", [0.0, 60.0])
async def test_whoever_else_cancels_goes_before(limit: float) -> None:
    async def waits() -> None:
        with TimeLimit(limit):
            await asyncio.sleep(60)

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
