"""A cache of one call's result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Cached(Generic[Result]):
    """The result of `call`, which is made at most once in `ttl` seconds; those that come while it runs share it.

    `result` holds until the first call has ended, and after one that failed. `call` is bounded in time.
    """

    def __init__(self, call: Callable[[], Awaitable[Result]], ttl: float, result: Result) -> None:
        self._call = call
        self._ttl = ttl
        self._default = self._result = result
        self._called_at = float("-inf")
        self._calling: asyncio.Task[None] | None = None

    async def get(self) -> Result:
        calling = self._calling is not None and not self._calling.done()
        if not calling and time.monotonic() - self._called_at > self._ttl:
            self._calling = asyncio.create_task(self._refresh())
        if self._calling is not None:
            await asyncio.wait((self._calling,))  # unlike awaiting it: a cancelled caller ends only its own wait
        return self._result

    async def close(self) -> None:
        if self._calling is not None:
            self._calling.cancel()
            await asyncio.wait((self._calling,))

    async def _refresh(self) -> None:
        result = self._default
        try:
            result = await self._call()
        finally:
            self._result, self._called_at = result, time.monotonic()
