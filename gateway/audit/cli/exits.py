"""Exit statuses of `portcullis audit`, and how it goes on when standard output cannot be written."""

from __future__ import annotations

import contextlib
import os
import sys

DONE = 0
STILL_FOUND = 1  # --verify
USAGE = 2
FINDINGS = 3  # --fail-on-findings
OUTPUT_FAILED = 74
MODEL_FAILED = 75
INTERRUPTED = 130


def discard_stdout() -> None:
    """Point standard output at /dev/null, so that closing it with unwritten data fails no more."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
