"""A process without file descriptors, for as long as a test wants it."""

from __future__ import annotations

import os
import resource
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
