"""Limits that the worker processes of one gateway share, in small files of one directory."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gateway.files import open_private, private_folder
from gateway.limits.account import UNLIMITED, Account, charged, is_limited, judge, refilled, settled, standing
from gateway.limits.bucket import FULL, Bucket
from gateway.limits.decision import Decision
from gateway.limits.memory import MemoryLimiter
from gateway.policy.model import ClientKey

WORKERS = 256
PATIENCE = 1.0
_PAUSE = 0.001
_SUFFIX = ".limits"
_Result = TypeVar("_Result")

# Both buckets' level and time, then the open streams of every worker. It must fit into one page of memory: then a
# process that is killed has written all of it or nothing.
_RECORD = struct.Struct(f"<4d{WORKERS}I")


@dataclass(frozen=True, slots=True)
class _Record:
    requests: Bucket
    tokens: Bucket
    streams: tuple[int, ...]

    @staticmethod
    def read(file: int) -> _Record:
        """A file that is new, or not of this size, is a key that was never seen."""
        stored = os.pread(file, _RECORD.size + 1, 0)
        if len(stored) != _RECORD.size:
            return _Record(FULL, FULL, (0,) * WORKERS)
        requests, requests_at, tokens, tokens_at, *streams = _RECORD.unpack(stored)
        return _Record(Bucket(requests, requests_at), Bucket(tokens, tokens_at), tuple(streams))

    def write(self, file: int) -> None:
        """Raises `OSError`, also where the disk took only a part."""
        requests, tokens = self.requests, self.tokens
        packed = _RECORD.pack(requests.level, requests.at, tokens.level, tokens.at, *self.streams)
        if os.pwrite(file, packed, 0) != len(packed):
            raise OSError("the record was written in part; is the disk full?")

    def with_streams(self, worker: int, count: int) -> _Record:
        return replace(self, streams=(*self.streams[:worker], count, *self.streams[worker + 1 :]))


class SharedLimiter:
    """Exact over all processes that use `directory`, which must be on a local file system and is made if missing.

    `worker` is this process's slot, 0 to 255. One process at a time has it: starting anew in a slot gives back the
    streams of whoever had it before. Times are of the system's monotonic clock, which all its processes share.

    Where a file cannot be used, or stays locked for `PATIENCE` seconds, the decision is made for this process alone,
    from all that it admitted itself, and counted in `failures`.

    Raises `ValueError` for another slot, `OSError` where the directory or a file in it cannot be used.
    """

    def __init__(self, directory: Path, worker: int) -> None:
        if not 0 <= worker < WORKERS:
            raise ValueError(f"worker: {worker} is no slot; use 0 to {WORKERS - 1}")
        self.failures = 0
        self._directory = directory
        self._worker = worker
        self._own = MemoryLimiter(time.monotonic)
        private_folder(directory)
        for path in directory.glob(f"*{_SUFFIX}"):
            self._give_back_streams(path)

    async def admit(self, key: ClientKey, tokens: int) -> Decision:
        if not is_limited(key):
            return UNLIMITED
        try:
            return await _retry_while_locked(lambda: self._admit(key, tokens))
        except OSError:
            self.failures += 1
            return self._own.decide(key, tokens)

    async def settle(self, key: ClientKey, reserved: int, used: int) -> None:
        if not is_limited(key):
            return
        self._own.correct(key, used - reserved)
        try:
            await _retry_while_locked(lambda: self._settle(key, used - reserved))
        except OSError:
            # The next record that is written has the right number of streams; what was reserved stays spent.
            self.failures += 1

    async def close(self) -> None:
        await self._own.close()

    def _admit(self, key: ClientKey, tokens: int) -> Decision:
        with _locked(self._path(key)) as file:
            record = _Record.read(file)
            now = time.monotonic()
            account = self._account(record, key)
            decision = judge(key, standing(account, key, now), tokens)
            if decision.admitted:
                self._write(file, record, charged(account, key, tokens, now), self._own.open_streams(key) + 1)
                self._own.charge(key, tokens)
            else:
                self._write(file, record, refilled(account, key, now), self._own.open_streams(key))
            return decision

    def _settle(self, key: ClientKey, correction: int) -> None:
        with _locked(self._path(key)) as file:
            record = _Record.read(file)
            account = settled(self._account(record, key), key, correction, time.monotonic())
            self._write(file, record, account, self._own.open_streams(key))

    def _account(self, record: _Record, key: ClientKey) -> Account:
        """This process knows its own streams better than the file, which a failure may have kept it from writing."""
        others = sum(record.streams) - record.streams[self._worker]
        return Account(record.requests, record.tokens, others + self._own.open_streams(key))

    def _write(self, file: int, record: _Record, account: Account, streams: int) -> None:
        _Record(account.requests, account.tokens, record.streams).with_streams(self._worker, streams).write(file)

    def _path(self, key: ClientKey) -> Path:
        return self._directory / f"{sha256(key.name.encode()).hexdigest()[:32]}{_SUFFIX}"

    def _give_back_streams(self, path: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with _locked(path) as file:
                    return _Record.read(file).with_streams(self._worker, 0).write(file)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)


async def _retry_while_locked(step: Callable[[], _Result]) -> _Result:
    """What `step` returns, tried again while a file is another process's; other tasks run in between.

    Raises what `step` raises: `BlockingIOError` only after `PATIENCE` seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return step()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, this process's alone until the end of the block. Raises `BlockingIOError` if it is another's."""
    file = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    finally:
        os.close(file)
