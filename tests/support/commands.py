"""`portcullis` as a user starts it: arguments, environment and standard streams, and where it matters a process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any
from unittest import mock

from gateway.cli import main
from tests.support import forked
from tests.support.forked import Forked

COMMAND = [sys.executable, "-m", "gateway.cli"]
TIMEOUT = 60  # seconds until a process that hangs fails the test; nothing is measured
# What might not end where it should, and what starts processes and threads.
OWN_PROCESS = (["serve"], ["demo"], ["audit"])
NAMES = ("UPSTREAM_BASE_URL", "UPSTREAM_API_KEY", "OPENAI_API_KEY", "PORTCULLIS_KEY")

Rules = list[dict[str, Any]]


def environment(**variables: str) -> dict[str, str]:
    """The environment without what would change the gateway's configuration, and with `variables`."""
    return {name: value for name, value in os.environ.items() if name not in NAMES} | variables


def portcullis(*arguments: str | Path, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A command, run to its end: in this process, which has imported everything, where the command allows that."""
    command = [*map(str, arguments)]
    if command[:1] in OWN_PROCESS:
        return portcullis_process(*command, stdin=stdin, **variables)
    out, err = io.BytesIO(), io.BytesIO()
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin), "utf-8"),
        "stdout": io.TextIOWrapper(out, "utf-8", write_through=True),
        "stderr": io.TextIOWrapper(err, "utf-8", "backslashreplace", write_through=True),
    }
    with mock.patch.multiple(sys, **streams), mock.patch.dict(os.environ, environment(**variables), clear=True):
        try:
            status = main(command)
        except SystemExit as ended:  # of argparse
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())


def portcullis_process(
    *arguments: str | Path, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own, run to its end; in an interpreter of its own where that has to find more."""
    if "PYTHONPATH" in variables:
        command = [*COMMAND, *map(str, arguments)]
        env = environment(**variables)
        return subprocess.run(command, input=stdin, capture_output=True, env=env, timeout=TIMEOUT, check=False)
    return forked.run([*map(str, arguments)], stdin, environment(**variables), TIMEOUT)


@contextmanager
def running(*arguments: str | Path, stdout: int | IO[bytes] = subprocess.PIPE, **variables: str) -> Iterator[Forked]:
    """A command with three unbuffered pipes, or writing into `stdout`; it is gone afterwards."""
    streams = (subprocess.PIPE, stdout, subprocess.PIPE)
    with closing(Forked([*map(str, arguments)], env=environment(**variables), streams=streams)) as process:
        yield process


def write_config(folder: Path, rules: Rules, **sections: Any) -> Path:
    """A configuration with the demo upstream and one policy named `default`."""
    config = {
        "upstreams": {"demo": {"type": "demo"}},
        "routes": [{"model": "*", "upstream": "demo", "policy": "default"}],
        "policies": {"default": {"rules": rules}},
        **sections,
    }
    path = folder / "portcullis.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path
