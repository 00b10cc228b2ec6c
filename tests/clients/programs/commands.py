"""Runs a command-line agent for one question, in a home of its own, and reads its JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BINARIES = Path(__file__).parents[1] / "node" / "node_modules" / ".bin"
# Each takes some 300 MB.
_AT_ONCE = asyncio.Semaphore(os.cpu_count() or 1)


class Refused(Exception):
    """What the agent says of an error, with the HTTP status if it says it."""

    def __init__(self, message: str, status_code: int | None) -> None:
        super().__init__(message)
        self.status_code = status_code


async def lines_of(name: str, *arguments: str, files: Mapping[str, str], **environment: str) -> list[dict[str, Any]]:
    """What it prints, as objects; `files`: path below the home → text."""
    async with _AT_ONCE:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            for path, text in files.items():
                (Path(home) / path).parent.mkdir(exist_ok=True)
                (Path(home) / path).write_text(text)
            process = await asyncio.create_subprocess_exec(
                BINARIES / name,
                *arguments,
                cwd=home,
                env={"PATH": os.environ["PATH"], "HOME": home, "NO_PROXY": "*", **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, errors = await process.communicate()
    print(errors.decode(), file=sys.stderr)
    return [json.loads(line) for line in out.splitlines()]
