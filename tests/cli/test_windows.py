"""What runs without the modules, functions and signals that Windows has not: the library, and the commands that need no
server. They are hidden here; nothing of this runs on Windows itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import ON_WINDOWS, main
from tests.support.commands import write_config

# What the standard library imports with them by the platform is imported before.
HIDDEN = """
import asyncio, ctypes, importlib.metadata, multiprocessing, os, platform, shutil, signal, ssl, subprocess, sys
import tempfile

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hiding())
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules.pop(name, None)
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fchmod", "fork", "geteuid", "killpg"):
    delattr(os, name)
for name in ("SIGCHLD", "SIGHUP", "SIGKILL"):
    delattr(signal, name)
"""
RUN = """
import gateway
assert "".join(gateway.censor_stream(["a SEC", "RET"], [gateway.Rule(id="r", words=("SECRET",))])) == "a [REDACTED]"

from gateway.cli import main
config = sys.argv[1]
for command in (
    ["check", config], ["scan", "--config", config], ["detectors"], ["schema"], ["version"], ["doctor", "--help"]
):
    try:
        assert main(command) == 0, command
    except SystemExit as ended:
        assert ended.code == 0, command
"""


def test_the_library_and_what_needs_no_server_run_without_what_windows_lacks(tmp_path: Path) -> None:
    config = write_config(tmp_path, [{"id": "r", "words": ["SECRET"]}, {"id": "mails", "detector": "email"}])
    command = [sys.executable, "-c", HIDDEN + RUN, str(config)]
    done = subprocess.run(command, input="nothing of it\n", capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert f"{config}: valid\nnothing of it\n" in done.stdout


@pytest.mark.parametrize("command", ["serve", "demo", "masks", "journal", "audit", "completion"])
def test_what_does_not_run_there_says_so(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command not in ON_WINDOWS
    monkeypatch.setattr(sys, "platform", "win32")
    assert main([command]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"portcullis: {command} does not run on Windows; it does in WSL 2 and in the image\n"
    assert shown.out == ""
