"""The process of a managed vLLM: started, waited for, monitored, restarted and stopped.

A thread does it, beside the event loops, with a subreaper (`subreaper.py`) around each process: closing a pipe ends the
server with everything that it started, and so does the end of the gateway, whatever ends it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, TextIO

from gateway.files import open_private
from gateway.observe.log import RequestLog
from gateway.progress import ProgressMeter
from gateway.serving.vllm import subreaper
from gateway.serving.vllm.command_line import HOST, VllmLaunch
from gateway.version import install_hint

POLL_INTERVAL = 0.25  # seconds
PROBE_TIMEOUT = 3.0
READ_TIMEOUT = 2.0  # for the last output
SHOWN_LINES = 20  # of the output of a server that did not start
SHOWN_CAUSES = 5  # errors before those
SHOWN_LENGTH = 500  # characters of each
PROGRESS_LENGTH = 100
NO_PLUGIN = "No module named 'gateway"  # vLLM's error if Portcullis is not installed beside it
LINES = 200  # of output that are kept in memory
MAX_LINE = 2000  # bytes of a line that are kept
MAX_FILE = 50 * 1024 * 1024  # bytes of a log; then the file becomes FILE.1, in place of an older one
READ = 65_536

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# What vLLM puts before its messages: the process, and level, time and place in the code.
_PREFIX = re.compile(r"^(?:\([\w -]+ pid=\d+\) *)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^]]*\] *|[A-Z]+: +)?")
_ERROR = re.compile(r"\w(?:Error|Exception): ")


class LogFile:
    """A log file of bounded size, readable by its owner only. Data that cannot be written is dropped: a full disk must
    not block the program."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if it cannot be written."""
        self._path = path
        self._open()

    def write(self, data: bytes) -> None:
        try:
            if self._file.tell() + len(data) > MAX_FILE:
                self._file.close()
                self._path.replace(f"{self._path}.1")
                self._open()
            self._file.write(data)
        except (OSError, ValueError):
            return

    def _open(self) -> None:
        self._file = os.fdopen(open_private(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)


class OutputTail:
    """The last lines of a pipe, drained by one thread so that the program never blocks, and read by others."""

    def __init__(self, file: LogFile | None = None) -> None:
        self._file = file
        self._lines: deque[bytes] = deque(maxlen=LINES)
        self._partial = b""  # a line without its end yet
        self._lock = threading.Lock()

    def drain(self, pipe: IO[bytes]) -> None:
        """Read to the end."""
        while data := os.read(pipe.fileno(), READ):
            if self._file is not None:
                self._file.write(data)
            self._append(data)

    def last(self, count: int) -> list[str]:
        """The last lines that are not blank, without control characters, the oldest first."""
        with self._lock:
            lines = (*self._lines, self._partial)
        return [text for line in lines if (text := _visible(line))][-count:]

    def latest(self, length: int) -> str:
        """The message of the last line with a letter or digit, cut to so many characters."""
        lines = (line for line in reversed(self.last(LINES)) if any(map(str.isalnum, line)))
        text = _PREFIX.sub("", next(lines, ""))
        return text if len(text) <= length else text[: max(length - 1, 0)] + "…"

    def _append(self, data: bytes) -> None:
        *lines, rest = (self._partial + data).split(b"\n")
        with self._lock:
            self._lines.extend(_cut(line) for line in lines)
            self._partial = _cut(rest)


def _cut(line: bytes) -> bytes:
    """The end of a line that is drawn again and again, as progress bars are; the beginning of another."""
    if len(line) <= MAX_LINE:
        return line
    return line[-MAX_LINE:] if b"\r" in line[-MAX_LINE:] else line[:MAX_LINE]


def _visible(line: bytes) -> str:
    """What a terminal would show of the line in the end."""
    text = _ESCAPE.sub("", line.decode(errors="replace"))
    drawn = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    return "".join(char if char.isprintable() else " " for char in drawn).strip()


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """All in seconds but `max_failures`: so many failures in a row are the last. The backoff between two starts doubles
    from `first_backoff` to `max_backoff`; a server that was ready for `stable_after` begins a new row of failures.
    """

    start_timeout: float = 600.0
    stop_timeout: float = 10.0  # after SIGTERM
    first_backoff: float = 1.0
    max_backoff: float = 30.0
    stable_after: float = 60.0
    max_failures: int = 7

    def backoff(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row."""
        return min(self.first_backoff * 2.0 ** (failures - 1), self.max_backoff)


def start_progress(seconds: float, doing: str) -> str:
    """The progress line of a start, after so many seconds."""
    return f"vLLM starts: {seconds:.0f} s" + (f", {doing}" if doing else "")


@dataclass(frozen=True, slots=True)
class _ProcessResult:
    """How one process of the server ended. `ready_for` is in seconds, None if it never was ready; `output` is the
    excerpt of its output that an error shows."""

    problem: str
    ready_for: float | None = None
    output: str = ""


class _VllmProcess:
    """One process of the server, under its subreaper, from its start on."""

    def __init__(self, launch: VllmLaunch, file: LogFile | None, stop_timeout: float) -> None:
        """Raises OSError."""
        self.began_at = monotonic()
        self.output = OutputTail(file)
        self._stop_timeout = stop_timeout
        life, self._alive = os.pipe()
        try:
            program = (sys.executable, "-I", "-S", str(Path(subreaper.__file__)), str(life), str(stop_timeout))
            self._subreaper = subprocess.Popen(  # noqa: S603 - the operator's own command
                [*program, *launch.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(launch.environment),
                pass_fds=(life,),
                start_new_session=True,
            )
        except OSError:
            os.close(self._alive)
            raise
        finally:
            os.close(life)
        assert self._subreaper.stdout is not None
        self._pipe = self._subreaper.stdout
        self._reading = threading.Thread(target=self.output.drain, args=(self._pipe,), daemon=True)
        self._reading.start()
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int | None:
        """The server's status when nothing of it is left, None if something is after `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._subreaper.wait(timeout)
        return None

    def request_stop(self) -> None:
        """Make the subreaper end it."""
        with self._lock:
            if self._alive >= 0:
                os.close(self._alive)
                self._alive = -1

    def stop(self) -> None:
        """Make the subreaper end it, and wait until it has."""
        self.request_stop()
        self.wait(self._stop_timeout + subreaper.KILL_TIMEOUT + READ_TIMEOUT)
        self._reading.join(READ_TIMEOUT)
        if not self._reading.is_alive():
            self._pipe.close()


class ModelServer:
    """A server that is kept running from `start` to `stop`.

    `on_failure` is called in a thread of its own when that fails; `failure` is then the reason.
    """

    def __init__(
        self,
        launch: VllmLaunch,
        log: RequestLog,
        on_failure: Callable[[], None],
        *,
        file: LogFile | None = None,
        policy: RestartPolicy | None = None,
        out: TextIO | None = None,
    ) -> None:
        self.failure: str | None = None
        self._launch = launch
        self._log = log
        self._on_failure = on_failure
        self._file = file
        self._policy = policy or RestartPolicy()
        self._out = out or sys.stderr
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: _VllmProcess | None = None
        self._thread: threading.Thread | None = None

    def start(self, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called in a thread of its own when the server is ready for the first time."""
        self._thread = threading.Thread(target=self._run, args=(on_ready,), name="vllm", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it with all its children, and wait for that; a process that hangs in a device is left behind."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.request_stop()
        if self._thread is not None:
            self._thread.join(self._policy.stop_timeout + subreaper.KILL_TIMEOUT + 2 * READ_TIMEOUT + PROBE_TIMEOUT)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _run(self, on_ready: Callable[[], None]) -> None:
        try:
            self.failure = self._keep_running(on_ready)
        except Exception as error:  # an exception in a thread would go unnoticed
            self.failure = f"stopped monitoring vLLM: internal error: {type(error).__name__}"
        if self.failure is not None:
            self._on_failure()

    def _keep_running(self, on_ready: Callable[[], None]) -> str | None:
        """Keep the server running; returns why it cannot be, None when it was stopped."""
        ended = self._run_once(ProgressMeter(self._out, terminal_interval=0.0), on_ready)
        if ended.ready_for is None and not self._stopping.is_set():
            return f"vLLM did not become ready: it {ended.problem}{ended.output}"
        failures = 1
        while not self._stopping.is_set():
            if (ended.ready_for or 0.0) >= self._policy.stable_after:
                failures = 1
            if failures >= self._policy.max_failures:
                return f"vLLM failed {failures} times in a row; the last time it {ended.problem}{ended.output}"
            pause = self._policy.backoff(failures)
            self._log.event("vllm_died", reason=ended.problem, restart_in=pause)
            self._stopping.wait(pause)
            ended = self._run_once(None, on_ready)
            failures += 1
        return None

    def _run_once(self, progress: ProgressMeter | None, on_ready: Callable[[], None]) -> _ProcessResult:
        """Start the server and stay until nothing of it is left."""
        try:
            process = self._start_process()
        except OSError as error:
            return _ProcessResult(f"could not be started: {error.strerror}")
        if process is None:
            return _ProcessResult("was stopped")
        try:
            problem = self._wait_until_ready(process, progress)
            if progress is not None:
                progress.clear()
            if problem:
                process.stop()
                return _ProcessResult(problem, output=_excerpt(process.output))
            ready_at = monotonic()
            self._log.event("vllm_ready", after=round(ready_at - process.began_at, 1))
            if progress is not None:
                on_ready()
            problem = f"ended with status {process.wait()}"
            return _ProcessResult(problem, ready_for=monotonic() - ready_at)
        finally:
            process.stop()

    def _start_process(self) -> _VllmProcess | None:
        """A new process; None once `stop` was called. Raises OSError."""
        with self._lock:
            if self._stopping.is_set():
                return None
            self._process = _VllmProcess(self._launch, self._file, self._policy.stop_timeout)
            return self._process

    def _wait_until_ready(self, process: _VllmProcess, progress: ProgressMeter | None) -> str:
        """Wait; returns what went wrong, "" if it is ready."""
        while True:
            status = process.wait(POLL_INTERVAL)
            if status is not None:
                return f"ended with status {status}"
            if self._status_of("/health", {}) == 200:
                key = {"authorization": f"Bearer {self._launch.key}"}
                return "does not take the gateway's key" if self._status_of("/v1/models", key) in (401, 403) else ""
            if monotonic() - process.began_at > self._policy.start_timeout:
                return f"took longer than {self._policy.start_timeout:g} s (--vllm-timeout)"
            if progress is not None:
                progress.show(partial(start_progress, doing=process.output.latest(PROGRESS_LENGTH)))

    def _status_of(self, path: str, headers: dict[str, str]) -> int:
        """The HTTP status of the server's answer; 0 if there is none."""
        connection = http.client.HTTPConnection(HOST, self._launch.port, timeout=PROBE_TIMEOUT)
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


def _excerpt(output: OutputTail) -> str:
    """The errors and last lines of a server that never was ready, so that no client's text can be in them."""
    lines = [line[:SHOWN_LENGTH] for line in output.last(LINES) if any(map(str.isalnum, line))]
    # The cause stands further up: an engine process logs it, then others log that the engine is gone.
    causes = dict.fromkeys(line for line in lines[:-SHOWN_LINES] if _ERROR.search(line))
    shown = []
    if any(NO_PLUGIN in line for line in lines):
        shown = [f"For the masks Portcullis has to be installed where vLLM is, too: {install_hint()}, by its pip"]
    if causes:
        shown += ["Errors in what it wrote:", *(f"  {line}" for line in [*causes][-SHOWN_CAUSES:])]
    if lines:
        shown += ["The last of what it wrote:", *(f"  {line}" for line in lines[-SHOWN_LINES:])]
    return "".join(f"\n{line}" for line in shown)
