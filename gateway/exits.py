"""Exit statuses of the command line. The numbers are public: scripts and service managers rely on them."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

DONE = 0  # success, or stopped by SIGTERM; `scan`: nothing matched
CHANGED = 1  # `scan`: something was redacted or flagged
UNHEALTHY = 1  # `health`: no gateway answers as one should; Docker reserves 2
BROKEN = 1  # `journal verify`: the journal is not what was written
STILL_FOUND = 1  # `audit --verify`: something is still said under the new rules
FOUND = 1  # `doctor`: something is not as it should be
USAGE = 2  # bad configuration, usage or input; a file that cannot be used
BLOCKED = 3  # `scan`: a rule blocked
FINDINGS = 3  # `audit --fail-on-findings`: something was found
INTERNAL = 70  # an internal error
CANNOT_LISTEN = 71  # `serve`: the address cannot be listened on
NOT_STARTED = 72  # `serve`: a worker or the server did not come up
VLLM_FAILED = 73  # `serve --vllm`: vLLM could not be started, or failed again and again
UNWRITTEN = 74  # the output cannot be written, or its reader has gone
# `audit`: the model, or the gateway, cannot be reached or failed on the way; `doctor`: the gateway; `check
# --online`: an upstream.
NO_MODEL = 75
INTERRUPTED = 130  # by SIGINT


def discard_stdout() -> None:
    """Point standard output at /dev/null, so that closing it with unwritten data fails no more."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_place(error: BaseException) -> str:
    """The type of an exception and where it was raised, without its message, which may quote a text."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name} line {frame.lineno}"
