"""What the bench puts between the load and the upstream: nothing, a byte copy, nginx, Portcullis."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtest import patterns, process
from loadtest.dialects import DIALECTS, OVER_CHAT
from loadtest.scenario import Guard, Scenario
from loadtest.script import FORBIDDEN, REPLACEMENT, listed_words

_START_SECONDS = 60.0  # 100,000 words take a few seconds to compile on a slow machine


class TargetError(RuntimeError):
    """A target did not start; the message holds the end of its output."""


class NotInstalledError(RuntimeError):
    """A target that this machine does not have."""


@dataclass(frozen=True, slots=True)
class Running:
    """A started target: where to connect, which process to measure (None if there is none), whether it guards, and
    where its files are."""

    port: int
    pid: int | None
    guarded: bool
    directory: Path = Path()


@contextlib.contextmanager
def running(
    name: str, scenario: Scenario, upstream_port: int, cores: frozenset[int], checkout: Path | None = None
) -> Iterator[Running]:
    """Start a target by its name, wait until it answers, and end it whatever happens. `checkout` is of the gateway,
    this one if there is none.

    Raises `NotInstalledError` for nginx where there is none, `TargetError` for one that does not start.
    """
    if name == "direct":
        yield Running(upstream_port, None, guarded=False)
        return
    with tempfile.TemporaryDirectory(prefix="portcullis-bench-") as temporary:
        directory = Path(temporary)
        directory.chmod(0o755)  # nginx's worker is another user where its master is root
        port = free_port()
        command = _command(name, scenario, port, upstream_port, directory)
        started = process.start(command, cores=cores, log=directory / "log", directory=checkout)
        try:
            ready_path = "/readyz" if name.startswith("portcullis") else "/v1/models"
            wait_until_ready(name, started, port, ready_path, directory / "log")
            yield Running(port, started.pid, name.startswith("portcullis"), directory)
        finally:
            process.stop(started)


def free_port() -> int:
    """A port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def nginx_version() -> str | None:
    """nginx's own words for its version, or None where it is not installed."""
    if not (binary := _nginx()):
        return None
    said = subprocess.run([binary, "-v"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"nginx/(\S+)", said)
    return found[1] if found else "unknown"


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/local/nginx/sbin")


def _command(name: str, scenario: Scenario, port: int, upstream_port: int, directory: Path) -> list[str]:
    if name == "bytecopy":
        return process.python("loadtest.bytecopy", "--port", str(port), "--upstream-port", str(upstream_port))
    if name == "nginx":
        binary = _nginx()
        if not binary:
            raise NotInstalledError("not installed")
        places = {"PORT": str(port), "UPSTREAM_PORT": str(upstream_port), "DIRECTORY": str(directory)}
        template = Path(__file__).with_name("nginx.conf").read_text(encoding="utf-8")
        (directory / "nginx.conf").write_text(fill(template, places), encoding="utf-8")
        return [binary, "-p", str(directory), "-c", str(directory / "nginx.conf")]
    guard = Guard.of(name)
    words = listed_words(scenario, guard.words)
    (directory / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    configuration = directory / "portcullis.yaml"
    configuration.write_text(json.dumps(gateway_configuration(port, upstream_port, guard), indent=2), encoding="utf-8")
    serve = ("serve", "--config", str(configuration), "--port", str(port), "--workers", str(guard.workers))
    return process.python("gateway.cli", *serve)


def fill(template: str, places: Mapping[str, str]) -> str:
    """A template with each @NAME@ replaced outside comment lines. Raises `KeyError` for a name not in `places`."""
    return re.sub(r"(?m)^#.*|@([A-Z_]+)@", lambda found: places[found[1]] if found[1] else found[0], template)


def gateway_configuration(port: int, upstream_port: int, guard: Guard) -> dict[str, object]:
    """A gateway with the forbidden word and a list beside it; JSON is YAML."""
    rules: list[dict[str, object]] = [
        {"id": "forbidden", "words": [FORBIDDEN], "action": "redact", "replacement": REPLACEMENT},
        {"id": "listed", "words_file": "words.txt"},
        *(patterns.rules() if guard.patterns else ()),
    ]
    endpoints = {DIALECTS["chat"].endpoint, *(() if guard.way.endswith(OVER_CHAT) else [guard.dialect.endpoint])}
    return {
        "listen": {"host": "127.0.0.1", "port": port},
        "auth": "none",
        "upstreams": {"paced": {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "endpoints": sorted(endpoints)}},
        "routes": [{"model": "*", "upstream": "paced", "policy": "bench"}],
        "policies": {"bench": {"rules": rules}},
        "limits": {"max_streams": 8000},
    }


def wait_until_ready(name: str, started: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    """Ask until it answers 200. Raises `TargetError` with the end of its output."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and started.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.05)
    state = "did not answer" if started.poll() is None else f"ended with status {started.returncode}"
    output = log.read_text(errors="replace")[-800:].strip()
    raise TargetError(f"{name} {state}; the end of its output: {output or 'nothing'}")
