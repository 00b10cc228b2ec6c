"""Each worker is a program of its own and this process's child."""

from __future__ import annotations

import asyncio
import os
import signal
import site
import sys
from pathlib import Path

import pytest

import gateway
from gateway.policy.model import Config
from gateway.serving.workers.handle import WorkerHandle, _environment

TIMEOUT = 60.0


async def started() -> WorkerHandle:
    slot = WorkerHandle(0)
    await slot.start(Config(upstreams={}, routes=(), policies={}))
    return slot


async def status(slot: WorkerHandle) -> int:
    assert slot.process is not None
    return await asyncio.wait_for(slot.process.wait(), TIMEOUT)


def close(slot: WorkerHandle) -> None:
    """As when the supervisor ends: its ends of the sockets are closed."""
    assert slot.writer is not None
    assert slot.connections is not None
    slot.writer.close()
    slot.connections.close()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_workers_are_children_and_end_with_their_sockets() -> None:
    slots = [await started(), await started()]
    pids = [slot.process.pid for slot in slots if slot.process is not None]
    assert [parent(pid) for pid in pids] == [os.getpid()] * 2
    assert pids[0] != pids[1]
    for slot in slots:
        close(slot)
    # Without a supervisor there is no configuration to serve.
    assert [await status(slot) for slot in slots] == [1, 1]


async def test_a_worker_that_is_killed_says_so_and_is_reaped() -> None:
    first, second = await started(), await started()
    first.kill()
    assert await status(first) == -signal.SIGKILL
    assert first.process is not None
    assert not Path(f"/proc/{first.process.pid}").exists()
    first.kill()  # nobody else is hit
    assert second.process is not None
    assert second.process.returncode is None
    close(first)
    close(second)
    assert await status(second) == 1


async def test_a_program_that_cannot_be_started_is_an_error_and_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot = WorkerHandle(0)
    before = set(Path("/proc/self/fd").iterdir())
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(OSError, match="No such file"):
        await slot.start(Config(upstreams={}, routes=(), policies={}))
    assert slot.process is None
    assert set(Path("/proc/self/fd").iterdir()) == before


async def test_a_program_that_cannot_load_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    slot = await started()
    assert await status(slot) == 1
    close(slot)


def test_an_installed_package_does_not_put_others_before_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    checkout = str(Path(gateway.__file__).parent.parent)
    assert _environment()["PYTHONPATH"] == f"{checkout}{os.pathsep}/elsewhere"
    monkeypatch.setattr(gateway, "__file__", f"{site.getsitepackages()[0]}/gateway/__init__.py")
    assert _environment()["PYTHONPATH"] == "/elsewhere"
