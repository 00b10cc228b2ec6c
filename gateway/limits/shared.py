"""Limits shared by the worker processes of one gateway, in small locked files of one directory."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gateway.files import open_private, private_folder
from gateway.limits.decision import UNLIMITED, Bucket, Decision, KeyUsage, decide, is_limited
from gateway.limits.memory import MemoryLimiter
from gateway.policy.model import ClientKey

WORKERS = 256
LOCK_TIMEOUT = 1.0
_PAUSE = 0.001
_SUFFIX = ".limits"
_Result = TypeVar("_Result")

# Both buckets' level and time, then the open streams of every worker. It must fit into one page of memory: then a
# process that is killed has written all of it or nothing.
_RECORD = struct.Struct(f"<4d{WORKERS}I")


def read_record(file: int) -> tuple[KeyUsage, list[int]]:
    """The usage, and the open streams of every worker. A file that is new, or not of this size, means a key that was
    never seen."""
    stored = os.pread(file, _RECORD.size + 1, 0)
    if len(stored) != _RECORD.size:
        return KeyUsage(), [0] * WORKERS
    requests, requests_at, tokens, tokens_at, *streams = _RECORD.unpack(stored)
    return KeyUsage(Bucket(requests, requests_at), Bucket(tokens, tokens_at), sum(streams)), streams


def write_record(file: int, usage: KeyUsage, streams: Sequence[int]) -> None:
    """Raises `OSError`, also where the disk took only a part."""
    requests, tokens = usage.requests, usage.tokens
    packed = _RECORD.pack(requests.level, requests.at, tokens.level, tokens.at, *streams)
    if os.pwrite(file, packed, 0) != len(packed):
        raise OSError("the record was only partly written; is the disk full?")


class SharedLimiter:
    """Exact over all processes that use `directory`, which must be on a local file system and is made if missing.

    `worker` is this process's slot, 0 to 255. One process at a time has it: a start in a slot gives back the
    streams of the process that had it before. Times are of the system's monotonic clock, which all its processes share.

    Where a file cannot be used, or stays locked for `LOCK_TIMEOUT` seconds, the decision is made for this process
    alone, from all that it admitted itself, and counted in `failures`.

    Raises `ValueError` for another slot, `OSError` where the directory or a file in it cannot be used.
    """

    def __init__(self, directory: Path, worker: int) -> None:
        if not 0 <= worker < WORKERS:
            raise ValueError(f"worker: {worker} is not a slot; use 0 to {WORKERS - 1}")
        self.failures = 0
        self._directory = directory
        self._worker = worker
        self._own = MemoryLimiter(time.monotonic)
        private_folder(directory)
        for path in directory.glob(f"*{_SUFFIX}"):
            self._give_back_streams(path)

    async def reserve(self, key: ClientKey, tokens: int) -> Decision:
        if not is_limited(key):
            return UNLIMITED
        try:
            return await _retry_while_locked(lambda: self._reserve(key, tokens))
        except OSError:
            self.failures += 1
            return self._own.reserve_now(key, tokens)

    async def release(self, key: ClientKey, reserved: int, used: int) -> None:
        if not is_limited(key):
            return
        self._own.release_now(key, used - reserved)
        try:
            await _retry_while_locked(lambda: self._release(key, used - reserved))
        except OSError:
            # The next record that is written has the right number of streams; what was reserved stays spent.
            self.failures += 1

    async def close(self) -> None:
        await self._own.close()

    def _reserve(self, key: ClientKey, tokens: int) -> Decision:
        with _locked(self._path(key)) as file:
            usage, streams = self._read(file, key)
            now = time.monotonic()
            decision = decide(key, usage.remaining(key, now), tokens)
            used = {"requests": 1, "tokens": tokens} if decision.admitted else {}
            streams[self._worker] += decision.admitted
            write_record(file, usage.changed(key, now, **used), streams)
            if decision.admitted:
                self._own.charge(key, tokens)
            return decision

    def _release(self, key: ClientKey, correction: int) -> None:
        with _locked(self._path(key)) as file:
            usage, streams = self._read(file, key)
            write_record(file, usage.changed(key, time.monotonic(), tokens=correction), streams)

    def _read(self, file: int, key: ClientKey) -> tuple[KeyUsage, list[int]]:
        """This process counts its own streams: the file may lack some, after a failure to write it."""
        usage, streams = read_record(file)
        streams[self._worker] = self._own.open_streams(key)
        return replace(usage, streams=sum(streams)), streams

    def _path(self, key: ClientKey) -> Path:
        return self._directory / f"{sha256(key.name.encode()).hexdigest()[:32]}{_SUFFIX}"

    def _give_back_streams(self, path: Path) -> None:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                with _locked(path) as file:
                    usage, streams = read_record(file)
                    streams[self._worker] = 0
                    return write_record(file, usage, streams)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)


async def _retry_while_locked(step: Callable[[], _Result]) -> _Result:
    """What `step` returns, repeated while another process has locked the file; other tasks run in between.

    Raises what `step` raises: `BlockingIOError` only after `LOCK_TIMEOUT` seconds.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return step()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, locked until the end of the block. Raises `BlockingIOError` if another process has locked it."""
    file = open_private(path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    finally:
        os.close(file)
