"""What is asked of an upstream now and then, and shared by all who want to know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Cached(Generic[Result]):
    """The result of `ask`, which is called at most once in `ttl` seconds; who comes while it runs waits for that call.

    `result` is what holds until the first call has ended, and after one that failed. `ask` is bounded in time.
    """

    def __init__(self, ask: Callable[[], Awaitable[Result]], ttl: float, result: Result) -> None:
        self._ask = ask
        self._ttl = ttl
        self._default = self._result = result
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def get(self) -> Result:
        asking = self._asking is not None and not self._asking.done()
        if not asking and time.monotonic() - self._asked_at > self._ttl:
            self._asking = asyncio.create_task(self._refresh())
        if self._asking is not None:
            await asyncio.wait((self._asking,))  # unlike awaiting it: who leaves does not end it for the others
        return self._result

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))

    async def _refresh(self) -> None:
        result = self._default
        try:
            result = await self._ask()
        finally:
            self._result, self._asked_at = result, time.monotonic()
