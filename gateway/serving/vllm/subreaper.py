"""Runs one program so that nothing of it outlives whoever started it.

    python -I -S keeper.py LIFE GRACE COMMAND [ARGUMENT ...]

LIFE is the reading end of a pipe. When its other end is closed, on purpose or because its owner is gone, the program's
process group gets SIGTERM, and after GRACE seconds everything of it that is left gets SIGKILL. When the program ends by
itself, what it leaves behind ends in the same way. The keeper ends when nothing is left, with the program's status: 128
and the signal's number where a signal ended it, 127 where it could not be started.

It uses nothing but Python's own library, so that it is small and starts at once. Signals mean nothing to it: it has a
session of its own, and so has the program. On Linux it adopts orphans, so it also finds those that have left the group;
and where it is killed itself, the program gets SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

KILL_PATIENCE = 5.0  # seconds for what was killed to be gone; a process that waits for a device is not, for a while
LOOK_EVERY = 0.1  # seconds, for processes of the group that are nobody's children
CANNOT_START = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class _Program:
    """What was started; `status` is None while it runs."""

    def __init__(self, pid: int) -> None:
        self.group = pid
        self.status: int | None = None
        self._has_children = False

    @property
    def gone(self) -> bool:
        """Is nothing of it left?"""
        return self.status is not None and not self._has_children and not self._has_group()

    def reap(self) -> None:
        """Take notice of all that has ended."""
        self._has_children = True
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.group:
                    code = os.waitstatus_to_exitcode(status)
                    self.status = code if code >= 0 else 128 - code
        self._has_children = False

    def send(self, number: signal.Signals) -> None:
        """To the group, and to orphans that have left it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)
        for child in _children():
            if child != self.group:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)

    def _has_group(self) -> bool:
        try:
            os.killpg(self.group, 0)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a group that has only ended ones
            return False
        return True


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:  # no Linux
        return []


def keep(life: int, grace: float, command: list[str]) -> int:
    """Run `command` until it ends or `life` does; returns its status. Raises OSError if it cannot be started."""
    heard, hearing = os.pipe()
    os.set_blocking(heard, False)
    os.set_blocking(hearing, False)
    signal.set_wakeup_fd(hearing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A handler is not passed on to the program, as SIG_IGN would be.
        signal.signal(number, lambda *_: None)
    program = _Program(_start(command))
    waits = [life, heard]
    deadline: float | None = None
    told_orphans = killing = False
    while True:
        left = None if deadline is None else max(0.0, min(deadline - time.monotonic(), LOOK_EVERY))
        ready, _, _ = select.select(waits, [], [], left)
        if heard in ready:
            os.read(heard, 4096)
        program.reap()
        if program.gone:
            break
        ended = program.status is not None
        if life in ready or (ended and not told_orphans):
            program.send(signal.SIGTERM)
            told_orphans = ended  # before, they are children of the program's processes
            waits = [heard]
            deadline = deadline or time.monotonic() + grace
        if deadline is not None and time.monotonic() >= deadline:
            if killing:
                break
            killing, deadline = True, time.monotonic() + KILL_PATIENCE
        if killing:
            # Again and again: what it killed may have left children, who are found only now.
            program.send(signal.SIGKILL)
    return 128 + signal.SIGKILL if program.status is None else program.status


def _start(command: list[str]) -> int:
    """Raises OSError."""
    prepare: Callable[[], object] | None = None
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def prepare() -> object:
            return prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

    program = subprocess.Popen(  # noqa: S603 - the operator's own command
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=prepare
    )
    program.returncode = 0  # it is waited for here, not by its own destructor
    return program.pid


def main(arguments: list[str]) -> int:
    life, grace, *command = arguments
    try:
        return keep(int(life), float(grace), command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
