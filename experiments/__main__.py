"""`python -m experiments`: measure the experiments, or write what was measured."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import re
import sys
from pathlib import Path
from types import ModuleType

from loadtest.sections import RESULTS, put

EXPERIMENTS = ("urls", "insults", "bias", "lastword", "large")
PAGE = RESULTS.with_name("audit.md")
HEAD = """\
# The audit: what it finds, and how fast

`make audit-bench`: the four experiments of ReLM with models that are trained on the spot, and what they were taught
disclosed. Times are those of one machine in one run; what counts is their ratio.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments")
    parser.add_argument("do", choices=("measure", "write"))
    parser.add_argument("data", type=Path, help="the folder of models and figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; all, if none is given")
    given = parser.parse_args(arguments)
    names = given.names or EXPERIMENTS
    if unknown := set(names) - set(EXPERIMENTS):
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}")
    return _measure(given.data, names) if given.do == "measure" else _write(given.data, names)


def _measure(data: Path, names: tuple[str, ...] | list[str]) -> int:
    for name in names:
        folder = data / name
        folder.mkdir(parents=True, exist_ok=True)
        print(f"audit-bench: {name}", file=sys.stderr, flush=True)
        seen = _module(name).measure(folder)
        (data / f"{name}.json").write_text(json.dumps({"machine": _machine(), **seen}))
    return 0


def _write(data: Path, names: tuple[str, ...] | list[str]) -> int:
    """Returns 1 if a section says that something is not held."""
    missed = False
    for name in names:
        seen = json.loads((data / f"{name}.json").read_text())
        module = _module(name)
        title, text = module.section(seen)
        put(PAGE, title, f"{text.strip()}\n\nMachine: {seen['machine']}", HEAD)
        module.draw(seen, PAGE.parent)
        print(f"## {title}\n\n{text}")
        missed |= "OVER" in text
    return int(missed)


def _machine() -> str:
    """The processor, how many of it, and the system."""
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"(?m)^model name\s*:\s*(.+)$", cpuinfo.read_text()) if cpuinfo.exists() else []
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, {platform.system()}"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"experiments.{name}")


if __name__ == "__main__":
    sys.exit(main())
