"""Workers that start together are forks of one program, and this process's own children."""

from __future__ import annotations

import asyncio
import os
import signal
import site
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import gateway
from gateway.serving.workers.spawn import Births, Child, _environment, _spawn

PATIENCE = 60.0


async def born(births: Births, count: int, ends: ExitStack) -> list[Child]:
    wanted = []
    with ExitStack() as theirs:
        for _ in range(count):
            control, their_control = socket.socketpair()
            connections, their_connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (control, connections):
                ends.enter_context(end)
            for end in (their_control, their_connections):
                theirs.enter_context(end)
            wanted.append(births.worker(their_control, their_connections))
        return await asyncio.wait_for(asyncio.gather(*wanted), PATIENCE)


def addresses(child: Child) -> set[tuple[str, str]]:
    """Where it has the code of its libraries."""
    lines = Path(f"/proc/{child.pid}/maps").read_text().splitlines()
    return {(line.split()[0], line.split()[-1]) for line in lines if " r-xp " in line and ".so" in line}


def parent(child: Child) -> int:
    return int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_those_asked_for_together_share_their_addresses() -> None:
    births = Births()
    with ExitStack() as ends:
        first, second = await born(births, 2, ends)
        (successor,) = await born(births, 1, ends)
        assert len({first.pid, second.pid, successor.pid}) == 3
        assert addresses(first) == addresses(second) != addresses(successor)
        assert {parent(child) for child in (first, second, successor)} == {os.getpid()}
    # Whose sockets are closed has no supervisor any more.
    assert [await asyncio.wait_for(child.wait(), PATIENCE) for child in (first, second, successor)] == [1, 1, 1]


async def test_a_child_that_is_killed_says_so_and_is_reaped() -> None:
    births = Births()
    with ExitStack() as ends:
        first, second = await born(births, 2, ends)
        first.kill()
        assert await asyncio.wait_for(first.wait(), PATIENCE) == -signal.SIGKILL
        assert not Path(f"/proc/{first.pid}").exists()
        first.kill()  # nobody else is hit
        assert second.returncode is None
    assert await asyncio.wait_for(second.wait(), PATIENCE) == 1


async def test_where_orphans_cannot_be_adopted_every_worker_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serving.workers.spawn._adopt_orphans", lambda: False)
    births = Births()
    with ExitStack() as ends:
        first, second = await born(births, 2, ends)
        assert {parent(first), parent(second)} == {os.getpid()}
        first.kill()
        assert await asyncio.wait_for(first.wait(), PATIENCE) == -signal.SIGKILL
    assert await asyncio.wait_for(second.wait(), PATIENCE) == 1


async def test_where_one_program_cannot_be_started_the_others_do_not_stay() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    with ExitStack() as ends:
        for end in (end for pair in pairs for end in pair):
            ends.enter_context(end)
        pairs[2][1].close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            _spawn(pairs)
        with pytest.raises(ChildProcessError):  # no child is left, not even an unreaped one
            os.waitpid(-1, os.WNOHANG)
        assert not any(end.get_inheritable() for end in (*pairs[0], *pairs[1], pairs[2][0]))


async def test_a_program_that_cannot_load_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    births = Births()
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    with ExitStack() as ends, pytest.raises(OSError, match="ended early"):
        await born(births, 2, ends)


def test_an_installed_package_does_not_put_others_before_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    checkout = str(Path(gateway.__file__).parent.parent)
    assert _environment()["PYTHONPATH"] == f"{checkout}{os.pathsep}/elsewhere"
    monkeypatch.setattr(gateway, "__file__", f"{site.getsitepackages()[0]}/gateway/__init__.py")
    assert _environment()["PYTHONPATH"] == "/elsewhere"


def test_the_program_has_no_threads_when_it_forks() -> None:
    code = "import os, gateway.serving.workers.forkserver; print(len(os.listdir('/proc/self/task')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"1\n"
