"""What the documentation says of bounds and of scanned fields is what the code has, and each bound has its test."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.docs import generated
from tests.support.pages import PAGES, ROOT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    text = page.read_text("utf-8")
    assert generated.rendered(text) == text, "run python -m tests.docs.generated"


def test_every_generated_part_stands_on_a_page() -> None:
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    assert [name for name in generated.blocks() if f"<!-- generated: {name} -->\n" not in pages] == []


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("bound", generated.bounds(), ids=lambda bound: bound.what)
def test_a_bound_has_a_value_and_a_test(bound: generated.Bound) -> None:
    assert bound.value
    path, _, name = bound.test.partition("::")
    assert name in functions(path), f"{path} has no {name}"


def test_every_constant_is_a_bound_or_said_to_be_none() -> None:
    listed = {bound.where for bound in generated.bounds()}
    others = generated.no_bounds()
    missing = [name for name in generated.constants() if name not in listed and name not in others]
    assert missing == [], "add a row to tests/docs/bounds.toml"
    assert [name for name in others if name in listed] == []
    for name in others:
        generated.resolved(name)
