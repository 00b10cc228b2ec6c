"""How all tests run."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from prometheus_client import values

# What a test checks is not how long the machine takes; it may be busy with other tests.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# What a shell has ignored, in the background and under nohup, every process that a test starts would ignore, too. What
# is caught here is as usual there.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def pytest_collection_finish() -> None:
    """What the collection of thousands of tests has made stays; `gc.collect()` in a test need not go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    """Metrics that workers share are switched on for a whole process."""
    before = values.ValueClass
    yield
    values.ValueClass = before
