"""Limits shared by several gateways, in Redis. Needs the optional dependency `redis`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gateway.limits.decision import UNLIMITED, Decision, Remaining, decide, is_limited
from gateway.limits.memory import MemoryLimiter
from gateway.policy.model import ClientKey
from gateway.version import install_hint

try:
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError
except ImportError as error:
    raise ImportError(f"limits in Redis need the package redis: {install_hint('redis')}") from error

CONNECTIONS = 16
# Seconds without calls after a failure, so that only one request in a while waits for the timeout.
PAUSE = 1.0
# Lua passes the arguments of a command on its stack, which has room for about 8,000.
BATCH = 1000


@dataclass(frozen=True, slots=True)
class _Lease:
    """An open stream of this process. `charged`: Redis has counted its request and its tokens."""

    id: str
    charged: bool


class RedisLimiter:
    """Exact over all gateways with the same Redis and key names. `timeout` bounds every call, in seconds.

    An open stream is a lease of `lease` seconds that one task renews for the whole process, so that the streams of a
    gateway that dies are given back. While Redis cannot be reached or is slow, this process decides alone, from all
    that it admitted itself; `failures` counts the calls that went without Redis, `last_failure` names the last kind of
    error, and streams that were admitted meanwhile are leased when Redis is back.

    Raises `ValueError` where `url` is no Redis URL, without quoting it: it may hold a password. Does not connect.
    """

    def __init__(self, url: str, *, timeout: float = 1.0, lease: float = 60.0) -> None:
        self.failures = 0
        self.last_failure = ""
        self._timeout = timeout
        self._lease_time = lease
        self._own = MemoryLimiter()
        self._leases: dict[str, deque[_Lease]] = {}
        self._process = secrets.token_hex(8)
        self._numbers = count()
        self._call_again_at: float | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._redis = _client(url, timeout)
        self._reserve_script = self._redis.register_script(script("reserve"))
        self._release_script = self._redis.register_script(script("release"))
        self._renew_script = self._redis.register_script(script("renew"))

    async def reserve(self, key: ClientKey, tokens: int) -> Decision:
        if not is_limited(key):
            return UNLIMITED
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._keep_leases())
        # If Redis counts this and its answer is lost, the stream continues under the same lease.
        lease = f"{self._process}:{next(self._numbers)}"
        left = await self._reserve_in_redis(key, tokens, lease)
        if left is None:
            decision = self._own.reserve_now(key, tokens)
        else:
            decision = decide(key, left, tokens)
            if decision.admitted:
                self._own.charge(key, tokens)
        if decision.admitted:
            self._leases.setdefault(key.name, deque()).append(_Lease(lease, charged=left is not None))
        return decision

    async def release(self, key: ClientKey, reserved: int, used: int) -> None:
        leases = self._leases.get(key.name)
        if not leases:
            return
        lease = leases.popleft()  # one stream of a key is as good as another
        if not leases:
            del self._leases[key.name]
        self._own.release_now(key, used - reserved)
        limit = key.tpm or 0
        owed = used - reserved if lease.charged else used
        correction = max(-2 * limit, min(2 * limit, owed))  # as in a bucket: more changes nothing
        await self._call(self._release_script, key.name, [_or_empty(key.tpm), correction, lease.id])

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        for name, leases in list(self._leases.items()):
            await self._release_leases(name, [lease.id for lease in leases])
        self._leases.clear()
        with contextlib.suppress(RedisError, OSError):
            async with asyncio.timeout(self._timeout):
                await self._redis.aclose()

    async def _reserve_in_redis(self, key: ClientKey, tokens: int, lease: str) -> Remaining | None:
        """What Redis had left for the key; where that is enough, it has charged the request. None if Redis failed."""
        limits = [_or_empty(key.rpm), _or_empty(key.tpm), _or_empty(key.max_streams)]
        wanted = 0 if key.tpm is None else min(tokens, key.tpm + 1)  # a larger integer may be no double
        reply = await self._call(self._reserve_script, key.name, [*limits, wanted, lease, self._lease_time])
        if reply is None:
            return None
        requests, left, streams = reply
        return Remaining(
            requests=None if key.rpm is None else float(requests),
            tokens=None if key.tpm is None else float(left),
            streams=int(streams),
        )

    async def _call(self, script: Any, name: str, arguments: Sequence[str | int | float]) -> Any:
        """The script's reply for the key `name`, or None where Redis did not give one in time."""
        if not self._may_call():
            self.failures += 1
            return None
        keys = [f"portcullis:{name}:buckets", f"portcullis:{name}:streams"]
        try:
            async with asyncio.timeout(self._timeout):
                reply = await script(keys=keys, args=arguments)
        except (RedisError, OSError) as error:
            self.failures += 1
            self.last_failure = type(error).__name__  # its text may quote the address
            self._call_again_at = time.monotonic() + PAUSE
            return None
        self._call_again_at = None
        return reply

    def _may_call(self) -> bool:
        if self._call_again_at is None:
            return True
        now = time.monotonic()
        if now < self._call_again_at:
            return False
        self._call_again_at = now + PAUSE  # one call tries; the others go without until it knows
        return True

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._lease_time / 3)
            for name in list(self._leases):
                await self._renew(name)

    async def _renew(self, name: str) -> None:
        leases = [lease.id for lease in self._leases.get(name, ())]
        for batch in _batches(leases):
            await self._call(self._renew_script, name, [self._lease_time, *batch])
        # A stream that ended meanwhile may have been given back just before it was renewed.
        running = {lease.id for lease in self._leases.get(name, ())}
        await self._release_leases(name, [lease for lease in leases if lease not in running])

    async def _release_leases(self, name: str, leases: Sequence[str]) -> None:
        for batch in _batches(leases):
            await self._call(self._release_script, name, ["", 0, *batch])


def script(name: str) -> str:
    """The Lua script of one operation: it runs inside Redis, and so reads and writes atomically."""
    return "".join(Path(__file__).with_name(f"{part}.lua").read_text("utf-8") for part in ("common", name))


def _client(url: str, timeout: float) -> Redis:
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),  # a request that Redis did count would be counted again
        )
        pool.connection_class(**pool.connection_kwargs)  # an option it does not know would show up in a request only
    except (ValueError, TypeError):
        # The parser's own message may quote a part of the password.
        raise ValueError("not a Redis URL; write redis://HOST:PORT/DATABASE, rediss://… or unix://PATH") from None
    return Redis.from_pool(pool)


def _batches(leases: Sequence[str]) -> Iterator[Sequence[str]]:
    return (leases[start : start + BATCH] for start in range(0, len(leases), BATCH))


def _or_empty(limit: int | None) -> str | int:
    return "" if limit is None else limit
