"""Console examples: `$ ` commands and the output below them, run in one shell a block.

In the expected output `…` stands for any text within a line, and a line that is only `…` for any lines.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_MARK = "\x1e"
_TIMEOUT = 120.0  # seconds


class Step(NamedTuple):
    command: str
    expected: str


def steps(text: str) -> list[Step]:
    """`$ ` begins a command, `> ` continues with it, everything else is output."""
    found: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:], ""))
        elif line.startswith("> ") and not found[-1].expected:
            found[-1] = Step(f"{found[-1].command}\n{line[2:]}", "")
        else:
            found[-1] = Step(found[-1].command, found[-1].expected + line + "\n")
    return found


def run(block: list[Step], directory: Path, environ: dict[str, str]) -> list[str]:
    """What each command printed, standard error included. `$?` is the status of the command before."""
    script = "exec 2>&1\n"
    for step in block:
        script += f"{step.command}\n__status=$?; printf '\\036'; (exit $__status)\n"
    shell = subprocess.Popen(
        ["sh", "-c", script],
        cwd=directory,
        env={**os.environ, **environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=_TIMEOUT)
    finally:
        # What an example started in the background does not outlive it, however the example ended.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    return printed.split(_MARK)[: len(block)]


def agrees(expected: str, printed: str) -> bool:
    # An example need not show that a text ends without a line break.
    return re.fullmatch(_expression(expected.strip("\n")), printed.strip("\n")) is not None


def _expression(expected: str) -> str:
    out = ""
    for line in expected.splitlines(keepends=True):
        if line.strip() == "…":
            out += r"(?:.*\n?)*?"
        else:
            out += "[^\n]*".join(map(re.escape, line.split("…")))
    return out
