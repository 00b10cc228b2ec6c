"""A real redis-server with a password, which can be stopped, started again and suspended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PASSWORD = "s3cret/of:the@server"
_TIMEOUT = 30.0


def executable() -> str:
    tools = os.environ.get("PORTCULLIS_TOOLS")
    places = [os.environ.get("PATH", os.defpath), *([f"{tools}/usr/bin"] if tools else [])]
    found = shutil.which("redis-server", path=os.pathsep.join(places))
    assert found, (
        "redis-server is neither in PATH nor in $PORTCULLIS_TOOLS/usr/bin: install Debian's package redis-server, "
        "or leave these tests out with -m 'not services'"
    )
    return found


class RedisServer:
    """Keeps nothing on disk, so that a new start is an empty one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD.replace('/', '%2F').replace('@', '%40')}@127.0.0.1:{self._port}/0"

    def start(self) -> None:
        options = {"port": self._port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "requirepass": PASSWORD}
        command = [executable(), *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
        self._process = subprocess.Popen(command, cwd=self._directory, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _TIMEOUT
        while not self._accepts():
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server does not listen"
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(_TIMEOUT)
            self._process = None

    def suspend(self) -> None:
        """Connections stay open and are accepted; nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
