"""Lines of the package by capability, at the commit of a review and now: `python -m tests.docs.lines` prints the tables
of docs/decisions/0013-lines.md, by lines.toml and git."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePath

REVIEW = "2e8e0c2"
ROWS = tomllib.loads(Path(__file__).with_name("lines.toml").read_text("utf-8"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _files(commit: str) -> dict[str, str]:
    """The sources of the package at a commit."""
    names = _git("ls-tree", "-r", "--name-only", commit, "gateway").split()
    return {name: _git("show", f"{commit}:{name}") for name in names if PurePath(name).suffix in (".py", ".c", ".h")}


def _row(name: str) -> str:
    stem = str(PurePath(name).relative_to("gateway").with_suffix(""))
    return next(row for rows in ROWS.values() for row, globs in rows.items() if any(fnmatch(stem, g) for g in globs))


def _origins(commit: str, name: str, source: str, known: frozenset[str]) -> tuple[int, int]:
    """How many lines stand as at the review, wherever they stood; and how many are of functions without such a line."""
    blame = _git("blame", "-s", "-w", "-M", "-C", "--abbrev=39", commit, "--", name).splitlines()
    old = [line.split(" ", 1)[0].lstrip("^")[:39] in known for line in blame]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    if not name.endswith(".py"):
        return sum(old), 0
    spans = [(n.lineno, n.end_lineno or n.lineno) for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)]
    outer = [span for span in spans if not any(a <= span[0] and span[1] <= b and (a, b) != span for a, b in spans)]
    return sum(old), sum(end - begin + 1 for begin, end in outer if not any(old[begin - 1 : end]))


def _print_table(columns: Sequence[str], rows: Iterable[str], counts: Sequence[Counter[str]]) -> None:
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {row} | {' | '.join(f'{count[row]:,}' for count in counts)} |")
    print(f"| all | {' | '.join(f'{sum(count[row] for row in rows):,}' for count in counts)} |\n")


def main(commit: str = "HEAD") -> None:
    known = frozenset(line[:39] for line in _git("rev-list", REVIEW).split())
    then, now, unchanged, fresh = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for name, source in _files(REVIEW).items():
        then[_row(name)] += source.count("\n")
    for name, source in _files(commit).items():
        row = _row(name)
        now[row] += source.count("\n")
        if row in ROWS["kept"]:
            same, others = _origins(commit, name, source, known)
            unchanged[row] += same
            fresh[row] += others
    assert then.keys() <= ROWS["kept"].keys(), then.keys() - ROWS["kept"].keys()
    columns = ("capability", "lines then", "lines now", "as they stood then", "in functions with none of those")
    _print_table(columns, ROWS["kept"], (then, now, unchanged, fresh))
    _print_table(("capability since then", "lines now"), ROWS["later"], (now,))


if __name__ == "__main__":
    main(*sys.argv[1:])
