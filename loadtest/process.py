"""CPU time, memory and cores of other processes, read from /proc; and starting them so that they always end with us.

Linux only, as is the bench.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PARENT = 1  # place in /proc/PID/stat after the name
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores the target and the load tools run on; an empty set leaves a process where the system puts it."""

    target: frozenset[int]
    upstream: frozenset[int]
    client: frozenset[int]

    @property
    def note(self) -> str:
        """One phrase for the report."""
        if not self.target:
            return "not pinned: fewer than two cores may be used, so the load tools disturb the target"
        return f"target on core {min(self.target)}, upstream on {min(self.upstream)}, load on {min(self.client)}"


def choose_cores() -> Cores:
    """One core for the target alone; the upstream and the load generator share another, or take one each."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(usable) < 2:
        return Cores(frozenset(), frozenset(), frozenset())
    upstream = usable[1:2] if len(usable) > 2 else usable[:1]
    return Cores(frozenset(usable[-1:]), frozenset(upstream), frozenset(usable[:1]))


def start(
    command: Sequence[str], *, cores: frozenset[int], log: Path, directory: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, pinned, its output in `log`; the kernel ends it if we die.

    Raises `OSError` if it cannot be started.
    """
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_before_exec(cores),
        )


def _before_exec(cores: frozenset[int]) -> Callable[[], None]:
    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if cores:
            os.sched_setaffinity(0, cores)

    return prepare


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its group: asked first, then killed after three seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=3)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def tree(root: int) -> list[int]:
    """The process and all its living descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(_numbers(stat)[_PARENT])
        except OSError:  # it ended between the listing and the reading
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _numbers(stat: Path) -> list[str]:
    """The fields after the command's name, which stands in brackets and may hold spaces and brackets itself."""
    return stat.read_text().rpartition(")")[2].split()


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time that these processes have used so far, with all their threads.

    From the kernel's clock of each process, which counts nanoseconds. The ticks in /proc/PID/stat are samples: a
    process that works in bursts of microseconds gets too many of them or too few.
    """
    return sum(time.clock_gettime(_process_clock(pid)) for pid in pids)


def _process_clock(pid: int) -> int:
    """The id of a process's CPU clock, as clock_getcpuclockid(3) makes it on Linux."""
    return (~pid << 3) | 2


def busy_seconds(cores: frozenset[int]) -> float:
    """Time that these cores have spent so far on any process at all."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *numbers = line.split()
        if name in {f"cpu{core}" for core in cores}:
            ticks += sum(map(int, numbers[:3]))  # user, nice, system
    return ticks / _TICKS_A_SECOND


def resident_kb(pids: Sequence[int]) -> int:
    """Resident memory of these processes, in units of 1,024 bytes."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules under this interpreter."""
    return [sys.executable, "-m", module, *arguments]
