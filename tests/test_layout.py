"""How the tests are laid out: what several of them need is in `tests/support`, and no file is long. And the package: no
module is long, no two classes share a name; which module imports which is import-linter's."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

TESTS = Path(__file__).parent
MOST_LINES = 500
MOST_LINES_OF_A_MODULE = 400
PACKAGE = TESTS.parent / "gateway"
PACKAGE_FILES = sorted(PACKAGE.rglob("*.py"))
FILES = sorted(path for path in TESTS.rglob("*.py") if "node_modules" not in path.parts)
MODULES = [path for path in FILES if path.name.startswith("test_")]


@cache
def imported(path: Path) -> set[str]:
    """The modules that a file imports, and what might be one among the names that it takes from them."""
    found: set[str] = set()
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [node for node in tree.body if not isinstance(node, ast.If)]  # TYPE_CHECKING
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_no_file_imports_a_test() -> None:
    tests = {".".join(path.relative_to(TESTS.parent).with_suffix("").parts) for path in MODULES}
    assert {str(path.relative_to(TESTS)): found for path in FILES if (found := imported(path) & tests)} == {}


def test_no_file_of_tests_is_long() -> None:
    lengths = {str(path.relative_to(TESTS)): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_tests_of_the_http_client_are_in_their_folder() -> None:
    """Others use it from the outside."""
    inside = {f"gateway.http1.{path.stem}" for path in (TESTS.parent / "gateway" / "http1").glob("[a-z]*.py")}
    outside = [path for path in MODULES if path.parent.name != "http1" and imported(path) & inside]
    assert outside == []


def test_folders_that_make_test_leaves_out_are_marked() -> None:
    """Their files are not even imported there; tests/audit marks its own in its conftest.py."""
    files = [path for path in MODULES if path.parent.name in ("clients", "vllm")]
    assert [path for path in files if "\npytestmark = " not in path.read_text("utf-8")] == []


def test_no_module_of_the_package_is_long() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text("utf-8").splitlines()) for path in PACKAGE_FILES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_MODULE} == {}


def test_no_class_of_the_package_has_the_name_of_another() -> None:
    names = Counter(
        node.name
        for path in PACKAGE_FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_modules_of_the_package_import_each_other_in_a_circle() -> None:
    """Imports within functions count, too; those for annotations alone do not."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE_FILES}
    imports = {name: imported(path) & names.keys() - {name} for name, path in names.items()}
    TopologicalSorter(imports).prepare()  # raises CycleError, with the circle


def test_functions_are_named_for_what_they_do() -> None:
    vague = {
        *("settle", "take", "begin", "whole", "told", "tell", "ask", "say", "room", "law", "books"),
        *("go_on", "goes_on", "work_out"),
    }
    folders = [TESTS.parent / name for name in ("gateway", "loadtest", "experiments")]
    functions = [
        f"{path.name}: {node.name}"
        for path in sorted(path for folder in folders for path in folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.strip("_") in vague
    ]
    assert functions == []
