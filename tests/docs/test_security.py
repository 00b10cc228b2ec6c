"""Each promise of SECURITY.md names a test that holds it, and that test is there."""

from __future__ import annotations

import ast
import re

from tests.support.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
MODEL = PAGE[PAGE.index("## Threat model") : PAGE.index("## Scanned and unscanned text")]
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_is_named_is_there() -> None:
    named = REFERENCE.findall(PAGE)
    assert len(named) > 30
    tests = {
        path: {node.name for node in ast.parse((ROOT / path).read_text("utf-8")).body if hasattr(node, "name")}
        for path in {path for path, _ in named}
    }
    assert [(path, name) for path, name in named if name not in tests[path]] == []


def test_every_promise_names_a_test() -> None:
    promises = re.findall(r"^- \*\*.*?(?=^- \*\*|^#|\Z)", MODEL, re.MULTILINE | re.DOTALL)
    assert len(promises) > 15
    elsewhere = "limits-and-bounds.md"  # where each row names its own
    assert [each for each in promises if not REFERENCE.search(each) and elsewhere not in each] == []
