"""Limits of one process, in its memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.limits.account import UNLIMITED, Account, charged, is_limited, judge, settled, standing
from gateway.limits.decision import Decision
from gateway.policy.model import ClientKey

_UNSEEN = Account()


class MemoryLimiter:
    """One small account for every key name that was ever admitted; names come from the configuration only.

    `clock` returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    async def admit(self, key: ClientKey, tokens: int) -> Decision:
        return self.decide(key, tokens)

    async def settle(self, key: ClientKey, reserved: int, used: int) -> None:
        self.correct(key, used - reserved)

    async def close(self) -> None:
        self._accounts.clear()

    def decide(self, key: ClientKey, tokens: int) -> Decision:
        """As `admit`, at once."""
        if not is_limited(key):
            return UNLIMITED
        account = self._accounts.get(key.name, _UNSEEN)
        decision = judge(key, standing(account, key, self._clock()), tokens)
        if decision.admitted:
            self.charge(key, tokens)
        return decision

    def charge(self, key: ClientKey, tokens: int) -> None:
        """Count a request that was admitted elsewhere, so that this account is right when it has to decide."""
        account = self._accounts.get(key.name, _UNSEEN)
        self._accounts[key.name] = charged(account, key, tokens, self._clock())

    def correct(self, key: ClientKey, correction: int) -> None:
        """One stream ended that used `correction` tokens more than it had reserved."""
        account = self._accounts.get(key.name)
        if account is not None:
            self._accounts[key.name] = settled(account, key, correction, self._clock())

    def open_streams(self, key: ClientKey) -> int:
        return self._accounts.get(key.name, _UNSEEN).streams
