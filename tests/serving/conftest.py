"""A stand-in for vLLM in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.managed_vllm import StandIn


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    made = StandIn(tmp_path / "stand-in")
    made.folder.mkdir()
    made.will()
    return made
