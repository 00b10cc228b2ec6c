"""What code and documentation cite is there: numbered rules, documents, files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import ROOT, prose

CITED_RULES = re.compile(r"semantics rules? ((?:\d+(?:, | and )?)+)", re.IGNORECASE)
NUMBERED_RULES = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)
# A paragraph of a document, or a document by a name in capitals, that is not in the repository.
FOREIGN = re.compile(r"§|\b(?:CONTRACT|DESIGN)(?:'s|\.md)?\b")
PAGES = ["docs/architecture.md", "docs/hot-path.md", "CONTRIBUTING.md"]
# Where a path on such a page may begin.
FOLDERS = (ROOT, ROOT / "gateway")
PATH = re.compile(r"\.?\w[\w.-]*(?:/[\w.-]+)*/?")
SUFFIXES = (".md", ".py", ".toml", ".json", ".yaml", ".yml")
CODE = re.compile(r"`([^`\n]+)`")
CLASS_OR_METHOD = re.compile(r"_?(?:[A-Z][a-z0-9]+){2,}(?:\.\w+)?|_?[A-Z][a-z]+\.\w+")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> Iterator[Path]:
    for folder in ("gateway", "tests"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".toml") and path != Path(__file__):
                yield path
    yield ROOT / "pyproject.toml"


def test_cited_rules_of_the_semantics_are_there() -> None:
    rules = set(NUMBERED_RULES.findall((ROOT / "docs" / "semantics.md").read_text("utf-8")))
    cited = {
        (str(path.relative_to(ROOT)), number)
        for path in sources()
        for found in CITED_RULES.finditer(path.read_text("utf-8"))
        for number in re.findall(r"\d+", found[1])
    }
    assert len(rules) > 10 and len(cited) > 10
    assert [each for each in sorted(cited) if each[1] not in rules] == []


def test_no_source_cites_a_document_that_is_elsewhere() -> None:
    found = {str(path.relative_to(ROOT)): FOREIGN.findall(path.read_text("utf-8")) for path in sources()}
    assert {path: names for path, names in found.items() if names} == {}


def names_in_code() -> frozenset[str]:
    """Classes, functions and constants of the package, and the fields of its dataclasses."""
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "gateway").rglob("*.py")))
    return frozenset(re.findall(r"^ *(?:class |def |async def )?(\w+)(?=[(:\[ =])", text, re.MULTILINE))


def test_the_glossary_uses_names_of_the_code() -> None:
    rows = re.findall(r"^\|(?:[^|]*\|){3}([^|]*)\|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    named = {name for cell in rows for name in CODE.findall(cell)}
    assert len(named) > 40
    assert sorted(named - names_in_code()) == []


def paths_of(page: Path) -> Iterator[str]:
    """What stands in backticks and looks like a path: it has a folder in front, or the suffix of a file."""
    for code in CODE.findall(prose(page)):
        path = code.partition("::")[0]
        if PATH.fullmatch(path) and ("/" in path or path.endswith(SUFFIXES)):
            yield path


@pytest.mark.parametrize("name", PAGES)
def test_files_that_a_page_names_are_there(name: str) -> None:
    named = set(paths_of(ROOT / name))
    assert named
    assert [path for path in sorted(named) if not any((folder / path).exists() for folder in FOLDERS)] == []


def test_every_module_at_the_top_is_on_the_map() -> None:
    there = {path.name for path in (ROOT / "gateway").iterdir() if path.name not in ("__init__.py", "__pycache__")}
    map_ = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert [name for name in sorted(there) if f"`{name}" not in map_] == []


def names_of_classes() -> frozenset[str]:
    """Classes of the package, and their methods with the class in front."""
    names: set[str] = set()
    for path in (ROOT / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
                names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, FUNCTION)}
    return frozenset(names)


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/hot-path.md"])
def test_classes_and_methods_that_a_page_names_are_there(name: str) -> None:
    named = {code for code in CODE.findall(prose(ROOT / name)) if CLASS_OR_METHOD.fullmatch(code)}
    assert len(named) > 10
    assert sorted(named - names_of_classes()) == []
