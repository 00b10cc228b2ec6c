"""What fuzzing begins with, and all that it has found, through the targets."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, findings


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)
        assert len(seed) <= TARGETS[name].longest


@pytest.mark.parametrize(("name", "finding"), [(name, path.name) for name in TARGETS for path in findings(name)])
def test_findings(name: str, finding: str) -> None:
    TARGETS[name].run((CORPUS / name / finding).read_bytes())


def test_every_folder_is_a_targets() -> None:
    assert {path.name for path in CORPUS.glob("*")} <= TARGETS.keys()
