"""Lines of the package by capability, at the commit of a review and now: `python -m tests.docs.lines` prints the tables
of docs/decisions/0013-lines.md, by lines.toml and git."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path, PurePath

REVIEW = "2e8e0c2"
ROWS = tomllib.loads(Path(__file__).with_name("lines.toml").read_text("utf-8"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _files(commit: str) -> dict[str, str]:
    """The sources of the package at a commit."""
    names = _git("ls-tree", "-r", "--name-only", commit, "gateway").split()
    return {name: _git("show", f"{commit}:{name}") for name in names if PurePath(name).suffix in (".py", ".c")}


def _row(name: str) -> str:
    stem = str(PurePath(name).relative_to("gateway").with_suffix(""))
    return next(row for rows in ROWS.values() for row, globs in rows.items() if any(fnmatch(stem, g) for g in globs))


def _fresh_lines(commit: str, name: str, source: str, known: frozenset[str]) -> int:
    """Lines of functions and methods of which no line stands as it did at the review, wherever it stood."""
    blame = _git("blame", "-s", "-w", "-M", "-C", "--abbrev=39", commit, "--", name).splitlines()
    old = [line.split(" ", 1)[0].lstrip("^")[:39] in known for line in blame]
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    spans = [(node.lineno, node.end_lineno or node.lineno) for node in functions]
    spans = [span for span in spans if not any(a <= span[0] and span[1] <= b and (a, b) != span for a, b in spans)]
    return sum(end - begin + 1 for begin, end in spans if not any(old[begin - 1 : end]))


def main(commit: str = "HEAD") -> None:
    known = frozenset(line[:39] for line in _git("rev-list", REVIEW).split())
    then, now, fresh = Counter[str](), Counter[str](), Counter[str]()
    for name, source in _files(REVIEW).items():
        then[_row(name)] += source.count("\n")
    for name, source in _files(commit).items():
        row = _row(name)
        now[row] += source.count("\n")
        if row in ROWS["kept"] and name.endswith(".py"):
            fresh[row] += _fresh_lines(commit, name, source, known)
    print("| capability | lines then | lines now | of them in functions without a line from then |\n|---|---|---|---|")
    for row in ROWS["kept"]:
        print(f"| {row} | {then[row]:,} | {now[row]:,} | {fresh[row]:,} |")
    sums = [sum(each[row] for row in ROWS["kept"]) for each in (then, now, fresh)]
    print(f"| **all** | **{sums[0]:,}** | **{sums[1]:,}** | **{sums[2]:,}** |\n\n| capability since then | lines now |\n|---|---|")
    for row in ROWS["later"]:
        assert not then[row], f"{row}: was there at {REVIEW}"
        print(f"| {row} | {now[row]:,} |")
    print(f"| **all** | **{sum(now[row] for row in ROWS['later']):,}** |")


if __name__ == "__main__":
    main(*sys.argv[1:])
