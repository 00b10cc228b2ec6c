"""Each known defect has a case that is named after it."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.support.pages import ROOT

DEFECTS = tomllib.loads((ROOT / "tests" / "defects.toml").read_text("utf-8"))
SOURCES = "\n".join(
    file.read_text("utf-8")
    for ending in ("py", "toml")
    for file in sorted((ROOT / "tests").rglob(f"*.{ending}"))
    if file.name not in ("defects.toml", "test_defects.py")
)
NAMED = {number.upper() for number in re.findall(r"(?:def test_|[\"'])([de]\d+)[_, ]", SOURCES)}


@pytest.mark.parametrize("number", DEFECTS)
def test_a_defect_has_a_case(number: str) -> None:
    assert number in NAMED


def test_a_case_names_a_defect_that_is_listed() -> None:
    named = {number.upper() for number in re.findall(r"def test_([de]\d+)_", SOURCES)}
    assert named <= DEFECTS.keys()
