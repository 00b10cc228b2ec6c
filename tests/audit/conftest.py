from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`audit`: everything here, since it takes as long as much of the rest together."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("audit")
