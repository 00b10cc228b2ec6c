"""How all tests run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from prometheus_client import values

# What a test checks is not how long the machine takes; it may be busy with other tests.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    """Metrics that workers share are switched on for a whole process."""
    before = values.ValueClass
    yield
    values.ValueClass = before
