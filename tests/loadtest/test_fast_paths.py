"""What is measured with a fast path switched off writes the same answer as with it."""

import json
from typing import Any
from unittest.mock import patch

import pytest

from loadtest.fast_paths import MeasuredPath, measured_paths, run


def told(written: list[bytes]) -> list[Any]:
    """The events; the order of their fields is no matter."""
    lines = b"".join(written).split(b"\n")
    data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]
    return [each if each == b"[DONE]" else json.loads(each) for each in data]


# Ten thousand words take seconds to compile; tests/automata looks at that way.
@pytest.mark.parametrize("way", [way for way in measured_paths(8) if not way.fresh], ids=lambda way: way.name)
def test_each_way_is_taken_and_changes_nothing(way: MeasuredPath) -> None:
    fast, taken = getattr(way.owner, way.method), []

    def noted(*given: object) -> object:
        found = fast(*given)
        taken.append(found is not None)
        return found

    with patch.object(way.owner, way.method, noted):
        _, written = run(way)
    assert any(taken)
    with patch.object(way.owner, way.method, lambda *_: None):
        assert told(run(way)[1]) == told(written)
