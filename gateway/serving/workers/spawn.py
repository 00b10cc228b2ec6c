"""How workers come into the world: those that are asked for together are forks of one program.

Each program has its code and data at random addresses of its own. What the processor has learnt of one worker, where
its branches lead above all, is then of no use when the same core goes on with another one, and a chunk costs a tenth
more. Forks of one program share their addresses, which still differ from one start of the gateway to the next.

The program has no threads, and ends as soon as its forks exist; they become this process's children. A worker that
takes a dead one's place is asked for alone, so it has addresses of its own again. Where the system does not let a
process adopt orphans, every worker is a program of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import site
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gateway

BIRTH_PATIENCE = 60.0  # seconds for the program to load and to fork
_PR_SET_CHILD_SUBREAPER = 36
_MOST_PIDS = 65_536  # bytes
_PYTHON = (sys.executable, "-P", "-m")  # -P: nothing is imported from the working directory


class Child:
    """A worker's process. `returncode` is None while it lives, and minus a signal's number where that ended it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """Its status, when it has ended."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """End it at once, if it lives."""
        if self.returncode is None:  # until it is reaped, its number is nobody else's
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> bool:
        """Has it ended?"""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
            self._ended.set()
        return bool(pid)


@dataclass(frozen=True, slots=True)
class _Wish:
    control: socket.socket
    connections: socket.socket
    child: asyncio.Future[Child]


class Births:
    """Brings workers up, and notices when they end. One for a process and its event loop, whose SIGCHLD it takes."""

    def __init__(self) -> None:
        self._adopts = _adopt_orphans()
        self._wishes: list[_Wish] = []
        self._bearing: set[asyncio.Task[None]] = set()
        self._living: set[Child] = set()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    async def worker(self, control: socket.socket, connections: socket.socket) -> Child:
        """A new worker with these sockets as its own; a fork of the same program as all that are asked for in the same
        turn of the loop. Raises OSError."""
        wish = _Wish(control, connections, asyncio.get_running_loop().create_future())
        if not self._wishes:
            asyncio.get_running_loop().call_soon(self._fulfil)
        self._wishes.append(wish)
        return await wish.child

    def _fulfil(self) -> None:
        wishes, self._wishes = self._wishes, []
        bearing = asyncio.create_task(self._bear(wishes))
        self._bearing.add(bearing)
        bearing.add_done_callback(self._bearing.discard)

    async def _bear(self, wishes: Sequence[_Wish]) -> None:
        children: list[Child] = []
        failure = None
        try:
            sockets = [(wish.control, wish.connections) for wish in wishes]
            children = [Child(pid) for pid in (await _fork(sockets) if self._adopts else _spawn(sockets))]
        except OSError as error:
            failure = error
        self._living.update(children)
        for place, wish in enumerate(wishes):
            child = children[place] if place < len(children) else None
            if wish.child.done():  # given up meanwhile
                if child is not None:
                    child.kill()
            elif child is not None:
                wish.child.set_result(child)
            else:
                wish.child.set_exception(failure or ChildProcessError(None, "the program that forks it ended early"))
        self._reap()  # those that ended before they were known here

    def _reap(self) -> None:
        self._living = {child for child in self._living if not child.reap()}


def _adopt_orphans() -> bool:
    """Make the forks of a program that ended this process's children. Only Linux knows that, since 3.4."""
    return sys.platform == "linux" and not ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _spawn(ends: Sequence[tuple[socket.socket, socket.socket]]) -> list[int]:
    """Workers that are programs of their own. Raises OSError where one cannot be had, and then there is none."""
    pids: list[int] = []
    try:
        for pair in ends:
            pids.append(_spawn_one(pair))
    except OSError:
        # Nobody would ever hear of those that are there already.
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    return pids


def _spawn_one(pair: tuple[socket.socket, socket.socket]) -> int:
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    descriptors = [end.fileno() for end in pair]
    arguments = [*_PYTHON, "gateway.serving.workers.worker", *map(str, descriptors)]
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        return os.posix_spawn(sys.executable, arguments, _environment(), file_actions=[no_input])
    finally:
        for end in pair:
            if end.fileno() >= 0:
                end.set_inheritable(False)


async def _fork(ends: Sequence[tuple[socket.socket, socket.socket]]) -> list[int]:
    """The process ids of the workers that came up, in this order; fewer than asked for where a fork failed.

    Raises OSError where there is none at all.
    """
    reading, writing = os.pipe()
    try:
        os.set_blocking(reading, False)
        descriptors = (writing, *(end.fileno() for pair in ends for end in pair))
        try:
            program = await asyncio.create_subprocess_exec(
                *_PYTHON,
                "gateway.serving.workers.forkserver",
                *map(str, descriptors),
                pass_fds=descriptors,
                stdin=asyncio.subprocess.DEVNULL,
                env=_environment(),
            )
        finally:
            os.close(writing)
        try:
            await asyncio.wait_for(program.wait(), BIRTH_PATIENCE)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            await program.wait()
        # Only now are its forks this process's own.
        with contextlib.suppress(BlockingIOError):
            return [int(pid) for pid in os.read(reading, _MOST_PIDS).split()]
        return []
    finally:
        os.close(reading)


def _environment() -> dict[str, str]:
    """So that a worker finds the package that this is, installed or not."""
    here = str(Path(gateway.__file__).parent.parent)
    if here in (*site.getsitepackages(), site.getusersitepackages()):
        # Found anyway; and in front, packages that are installed there would take the place of Python's own modules.
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
