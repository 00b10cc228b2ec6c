"""Limits of one process, in its memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.limits.decision import UNLIMITED, Decision, KeyUsage, decide, is_limited
from gateway.policy.model import ClientKey

_UNSEEN = KeyUsage()


class MemoryLimiter:
    """One `KeyUsage` for every key name that was ever admitted; names come from the configuration only.

    `clock` returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._usage: dict[str, KeyUsage] = {}

    async def reserve(self, key: ClientKey, tokens: int) -> Decision:
        return self.reserve_now(key, tokens)

    async def release(self, key: ClientKey, reserved: int, used: int) -> None:
        self.release_now(key, used - reserved)

    async def close(self) -> None:
        self._usage.clear()

    def reserve_now(self, key: ClientKey, tokens: int) -> Decision:
        if not is_limited(key):
            return UNLIMITED
        usage = self._usage.get(key.name, _UNSEEN)
        decision = decide(key, usage.remaining(key, self._clock()), tokens)
        if decision.admitted:
            self.charge(key, tokens)
        return decision

    def charge(self, key: ClientKey, tokens: int) -> None:
        """Count a request that was admitted elsewhere, so that this usage is right when it has to decide."""
        usage = self._usage.get(key.name, _UNSEEN)
        self._usage[key.name] = usage.changed(key, self._clock(), requests=1, tokens=tokens, streams=1)

    def release_now(self, key: ClientKey, correction: int) -> None:
        """One stream ended that used `correction` tokens more than it had reserved."""
        usage = self._usage.get(key.name)
        if usage is not None:
            self._usage[key.name] = usage.changed(key, self._clock(), tokens=correction, streams=-1)

    def open_streams(self, key: ClientKey) -> int:
        return self._usage.get(key.name, _UNSEEN).streams
