"""A process without file descriptors, for as long as a test wants it."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def none_left() -> Iterator[None]:
    """Nothing can be opened; what is open stays so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open(os.devnull, os.O_RDONLY)
    taken = [first]
    # Not one for each of a million that may be allowed: as many as there are gaps below the highest one.
    highest = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def none_closing(seconds: float = 0.1) -> None:
    """Wait until no descriptor has been opened or closed for so long: one that closes later would be left over."""
    open_now, since = _listed(), time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(0.01)
        if (listed := _listed()) != open_now:
            open_now, since = listed, time.monotonic()


def _listed() -> set[str]:
    """All but the one that lists them."""
    return {f"{link.name} {link.readlink()}" for link in Path("/proc/self/fd").iterdir() if link.exists()}
