"""Subreaper: runs one program and ends its whole process tree together with the process that asked for it.

    python -I -S subreaper.py LIFE GRACE COMMAND [ARGUMENT ...]

LIFE is the reading end of a pipe. When its other end is closed, on purpose or because its owner is gone, the program's
process group gets SIGTERM, and after GRACE seconds everything of it that is left gets SIGKILL. When the program ends by
itself, the processes it leaves behind end in the same way. The subreaper exits when none is left, with the program's
status: 128 and the signal's number where a signal ended it, 127 where it could not be started.

It imports the standard library only, so that it is small and starts at once. It ignores signals: it has a session of
its own, and so has the program. On Linux it adopts orphans, so it also finds those that have left the group; and if it
is killed itself, the program gets SIGTERM.
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

KILL_TIMEOUT = 5.0  # seconds for killed processes to be gone; one that waits for a device may stay longer
POLL_INTERVAL = 0.1  # seconds, for processes of the group that are not our children
CANNOT_START = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class _Program:
    """The program and its process tree; `status` is None while the program itself runs."""

    def __init__(self, pid: int) -> None:
        self.group = pid
        self.status: int | None = None
        self._has_children = False

    @property
    def gone(self) -> bool:
        """Whether no process of it is left."""
        return self.status is not None and not self._has_children and not self._has_group()

    def reap(self) -> None:
        """Reap all children that have ended."""
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
        except (ProcessLookupError, PermissionError):  # the latter on macOS, for a group of zombies
            return False
        return True


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:  # not Linux
        return []


def supervise(life: int, grace: float, command: list[str]) -> int:
    """Run `command` until it ends or `life` does; returns its status. Raises OSError if it cannot be started."""
    wake, wake_write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A handler is not passed on to the program, as SIG_IGN would be.
        signal.signal(number, lambda *_: None)
    program = _Program(_start(command))
    waits = [life, wake]
    deadline: float | None = None
    orphans_signalled = killing = False
    while True:
        left = None if deadline is None else max(0.0, min(deadline - time.monotonic(), POLL_INTERVAL))
        ready, _, _ = select.select(waits, [], [], left)
        if wake in ready:
            os.read(wake, 4096)
        program.reap()
        if program.gone:
            break
        ended = program.status is not None
        if life in ready or (ended and not orphans_signalled):
            program.send(signal.SIGTERM)
            orphans_signalled = ended  # before, they are children of the program's processes
            waits = [wake]
            deadline = deadline or time.monotonic() + grace
        if deadline is not None and time.monotonic() >= deadline:
            if killing:
                break
            killing, deadline = True, time.monotonic() + KILL_TIMEOUT
        if killing:
            # Repeated: a killed process may have left children, which are found only now.
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
        return supervise(int(life), float(grace), command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
