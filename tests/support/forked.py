"""`portcullis …` as a process without its imports: forked from one that has the gateway in memory.

An interpreter takes most of a second to import what `serve` needs, and hundreds of tests start one. What is forked runs
`gateway.cli.main` with its own arguments, environment, directory and standard streams, and is a child of the test's own
process like any other. A test of the start itself starts an interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
MOST = 1 << 18  # bytes of arguments and environment
IMPORTED = (
    "gateway.app",
    "gateway.cli",
    "gateway.serving.servers",
    "gateway.serving.upstream_probe",
    "gateway.serving.vllm.managed",
    "gateway.serving.workers.supervisor",
)
SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


class Forked:
    """A process; where `streams` are pipes, `stdin`, `stdout` and `stderr` are unbuffered ends of them."""

    def __init__(
        self,
        arguments: list[str],
        *,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        streams: tuple[int | IO[bytes], int | IO[bytes], int | IO[bytes]] = (subprocess.PIPE,) * 3,
    ) -> None:
        self.returncode: int | None = None
        theirs: list[int] = []
        self._ours: list[io.FileIO | None] = []
        with contextlib.ExitStack() as opened:
            for number, stream in enumerate(streams):
                if stream == subprocess.PIPE:
                    ends = os.pipe()
                    opened.callback(os.close, ends[number != 0])
                    theirs.append(ends[number != 0])
                    self._ours.append(io.FileIO(ends[number == 0], "r" if number else "w"))
                elif stream == subprocess.DEVNULL:
                    theirs.append(os.open(os.devnull, os.O_RDWR))
                    opened.callback(os.close, theirs[-1])
                    self._ours.append(None)
                else:
                    theirs.append(stream if isinstance(stream, int) else stream.fileno())
                    self._ours.append(None)
            asked = {"arguments": arguments, "env": dict(os.environ) if env is None else env}
            self.pid = _fork({**asked, "cwd": str(cwd or Path.cwd())}, theirs)
        self._ended = os.pidfd_open(self.pid)

    @property
    def stdin(self) -> io.FileIO:
        return self._pipe(0)

    @property
    def stdout(self) -> io.FileIO:
        return self._pipe(1)

    @property
    def stderr(self) -> io.FileIO:
        return self._pipe(2)

    def _pipe(self, number: int) -> io.FileIO:
        pipe = self._ours[number]
        assert pipe is not None
        return pipe

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal. Raises `subprocess.TimeoutExpired`."""
        select.select([self._ended], [], [], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired("portcullis", timeout or 0)
        return status

    def close(self) -> None:
        """End it if it still runs, and close what is open."""
        self.kill()
        self.wait()
        os.close(self._ended)
        for pipe in filter(None, self._ours):
            pipe.close()


class AsyncForked:
    """A `Forked` whose output is read, and whose end is awaited, in the event loop."""

    def __init__(self, process: Forked, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self._process = process
        self.pid, self.send_signal, self.kill = process.pid, process.send_signal, process.kill
        self.stdout, self.stderr = stdout, stderr

    @classmethod
    async def start(
        cls, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None, limit: int = 1 << 20
    ) -> AsyncForked:
        streams = (subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE)
        process = Forked(list(arguments), env=env, cwd=cwd, streams=streams)
        return cls(process, await _reader(process.stdout, limit), await _reader(process.stderr, limit))

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        while (status := self._process.poll()) is None:
            await asyncio.sleep(0.002)
        return status

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return out, err


async def _reader(pipe: io.FileIO, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


def run(arguments: list[str], stdin: bytes, env: dict[str, str], timeout: float) -> subprocess.CompletedProcess[bytes]:
    """A command to its end, with what it wrote."""
    with contextlib.closing(Forked(arguments, env=env)) as process, ThreadPoolExecutor(3) as pipes:
        given = pipes.submit(_write, process.stdin, stdin)
        out, err = pipes.submit(process.stdout.readall), pipes.submit(process.stderr.readall)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        given.result()
        return subprocess.CompletedProcess(arguments, status, out.result(), err.result())


def _write(pipe: io.FileIO, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), io.BufferedWriter(pipe) as writer:
        writer.write(data)


# -- the process that forks --------------------------------------------------------------------------------------------


@cache
def _parent() -> socket.socket:
    """The way to a process that forks, started with the first command and ended with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST)
    with its:
        parent = subprocess.Popen([sys.executable, "-m", __name__], stdin=its, stdout=subprocess.DEVNULL, cwd=ROOT)
    atexit.register(lambda: (ours.close(), parent.wait()))
    return ours


def _fork(asked: dict[str, Any], streams: list[int]) -> int:
    """The process id of a new child of this process."""
    parent = _parent()
    # What it forks twice is adopted by its nearest ancestor that adopts.
    _adopt(True)
    try:
        socket.send_fds(parent, [json.dumps(asked).encode()], streams)
        return int(parent.recv(64))
    finally:
        _adopt(False)


def _adopt(whether: bool) -> None:
    if ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, int(whether), 0, 0, 0):
        raise OSError("no subreaper")


def _serve(asking: socket.socket) -> None:
    while True:
        data, descriptors, _, _ = socket.recv_fds(asking, MOST, 3)
        if not data:
            return
        told, tell = os.pipe()
        if (between := os.fork()) == 0:
            if (child := os.fork()) == 0:
                asking.detach()
                _run(json.loads(data), descriptors)
            os.write(tell, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)  # now the test's process has adopted the child
        asking.send(os.read(told, 64))
        for descriptor in (told, tell, *descriptors):
            os.close(descriptor)


def _run(asked: dict[str, Any], descriptors: list[int]) -> NoReturn:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 64)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["portcullis", *asked["arguments"]]
    sys.exit(importlib.import_module("gateway.cli").main())


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    _serve(socket.socket(fileno=os.dup(0)))
