"""The life of a model server that belongs to the gateway: started, waited for, watched, started again, ended.

A thread does it, beside the event loops, with a keeper (`keeper.py`) around each process: closing a pipe ends the
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TextIO

from gateway.observe.log import RequestLog
from gateway.progress import ProgressMeter
from gateway.serving.vllm import subreaper as keeper
from gateway.serving.vllm.command_line import HOST, Launch
from gateway.serving.vllm.output import LINES, LogFile, Output
from gateway.version import install_hint

LOOK_EVERY = 0.25  # seconds
ASK_PATIENCE = 3.0
READ_PATIENCE = 2.0  # for the last output
SHOWN_LINES = 20  # of the output of a server that did not start
SHOWN_CAUSES = 5  # errors before those
SHOWN_LENGTH = 500  # characters of each
PROGRESS_LENGTH = 100
NO_PLUGIN = "No module named 'gateway"  # what vLLM's Python says if Portcullis is not installed there

_ERROR = re.compile(r"\w(?:Error|Exception): ")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: for a start; for the end after SIGTERM; before the server is started again, doubled from `first_pause`
    to `longest_pause`. After so many `failures` in a row it is not; one that was ready for `steady` begins a new row.
    """

    start: float = 600.0
    grace: float = 10.0
    first_pause: float = 1.0
    longest_pause: float = 30.0
    steady: float = 60.0
    failures: int = 7

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.first_pause * 2.0 ** (failures - 1), self.longest_pause)


def start_progress(seconds: float, doing: str) -> str:
    """The progress line of a start, after so many seconds."""
    return f"vLLM starts: {seconds:.0f} s" + (f", {doing}" if doing else "")


@dataclass(frozen=True, slots=True)
class _Life:
    """How one process of the server ended. `ready_for` is in seconds, None if it never was; `output` is what to show
    of it."""

    problem: str
    ready_for: float | None = None
    output: str = ""


class _Run:
    """One process of the server, under its keeper, from when it is started."""

    def __init__(self, launch: Launch, file: LogFile | None, grace: float) -> None:
        """Raises OSError."""
        self.began_at = monotonic()
        self.output = Output(file)
        self._grace = grace
        life, self._alive = os.pipe()
        try:
            program = (sys.executable, "-I", "-S", str(Path(keeper.__file__)), str(life), str(grace))
            self._keeper = subprocess.Popen(  # noqa: S603 - the operator's own command
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
        assert self._keeper.stdout is not None
        self._pipe = self._keeper.stdout
        self._reading = threading.Thread(target=self.output.drain, args=(self._pipe,), daemon=True)
        self._reading.start()
        self._lock = threading.Lock()

    def wait(self, patience: float | None = None) -> int | None:
        """The server's status when nothing of it is left, None if something is after `patience` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._keeper.wait(patience)
        return None

    def let_end(self) -> None:
        """Tell the keeper to end it."""
        with self._lock:
            if self._alive >= 0:
                os.close(self._alive)
                self._alive = -1

    def end(self) -> None:
        """Tell the keeper, and wait until it has."""
        self.let_end()
        self.wait(self._grace + keeper.KILL_PATIENCE + READ_PATIENCE)
        self._reading.join(READ_PATIENCE)
        if not self._reading.is_alive():
            self._pipe.close()


class ModelServer:
    """A server that runs from `start` to `stop`.

    `on_failure` is called, in a thread of its own, when it cannot be kept running; `failure` then says why.
    """

    def __init__(
        self,
        launch: Launch,
        log: RequestLog,
        on_failure: Callable[[], None],
        *,
        file: LogFile | None = None,
        pace: Pace | None = None,
        out: TextIO | None = None,
    ) -> None:
        self.failure: str | None = None
        self._launch = launch
        self._log = log
        self._on_failure = on_failure
        self._file = file
        self._pace = pace or Pace()
        self._out = out or sys.stderr
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._thread: threading.Thread | None = None

    def start(self, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called, in a thread of its own, when the server can be asked for the first time."""
        self._thread = threading.Thread(target=self._live, args=(on_ready,), name="vllm", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it with all that it has started, and wait until it has ended; what a device holds on to is left."""
        with self._lock:
            self._stopping.set()
            if self._run is not None:
                self._run.let_end()
        if self._thread is not None:
            self._thread.join(self._pace.grace + keeper.KILL_PATIENCE + 2 * READ_PATIENCE + ASK_PATIENCE)

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _live(self, on_ready: Callable[[], None]) -> None:
        try:
            self.failure = self._keep(on_ready)
        except Exception as error:  # nobody would hear of it
            self.failure = f"vLLM is watched no more: internal error: {type(error).__name__}"
        if self.failure is not None:
            self._on_failure()

    def _keep(self, on_ready: Callable[[], None]) -> str | None:
        """Keep the server running; returns why it cannot be, None when it was stopped."""
        life = self._live_once(ProgressMeter(self._out, terminal_interval=0.0), on_ready)
        if life.ready_for is None and not self._stopping.is_set():
            return f"vLLM did not become ready: it {life.problem}{life.output}"
        failures = 1
        while not self._stopping.is_set():
            if (life.ready_for or 0.0) >= self._pace.steady:
                failures = 1
            if failures >= self._pace.failures:
                return f"vLLM failed {failures} times in a row; the last time it {life.problem}{life.output}"
            pause = self._pace.pause(failures)
            self._log.event("vllm_died", reason=life.problem, restart_in=pause)
            self._stopping.wait(pause)
            life = self._live_once(None, on_ready)
            failures += 1
        return None

    def _live_once(self, progress: ProgressMeter | None, on_ready: Callable[[], None]) -> _Life:
        """Start the server and stay until nothing of it is left."""
        try:
            run = self._begin()
        except OSError as error:
            return _Life(f"could not be started: {error.strerror}")
        if run is None:
            return _Life("was stopped")
        try:
            problem = self._wait_until_ready(run, progress)
            if progress is not None:
                progress.clear()
            if problem:
                run.end()
                return _Life(problem, output=_shown(run.output))
            ready_at = monotonic()
            self._log.event("vllm_ready", after=round(ready_at - run.began_at, 1))
            if progress is not None:
                on_ready()
            problem = f"ended with status {run.wait()}"
            return _Life(problem, ready_for=monotonic() - ready_at)
        finally:
            run.end()

    def _begin(self) -> _Run | None:
        """A new process; None if there is to be none any more. Raises OSError."""
        with self._lock:
            if self._stopping.is_set():
                return None
            self._run = _Run(self._launch, self._file, self._pace.grace)
            return self._run

    def _wait_until_ready(self, run: _Run, progress: ProgressMeter | None) -> str:
        """What went wrong, "" if it is ready."""
        while True:
            status = run.wait(LOOK_EVERY)
            if status is not None:
                return f"ended with status {status}"
            if self._answers("/health", {}) == 200:
                key = {"authorization": f"Bearer {self._launch.key}"}
                return "does not take the gateway's key" if self._answers("/v1/models", key) in (401, 403) else ""
            if monotonic() - run.began_at > self._pace.start:
                return f"took longer than {self._pace.start:g} s (--vllm-timeout)"
            if progress is not None:
                progress.show(partial(start_progress, doing=run.output.latest(PROGRESS_LENGTH)))

    def _answers(self, path: str, headers: dict[str, str]) -> int:
        """The status with which the server answers; 0 if it does not."""
        connection = http.client.HTTPConnection(HOST, self._launch.port, timeout=ASK_PATIENCE)
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


def _shown(output: Output) -> str:
    """The end of what a server wrote that never was ready, so that no client's text can be in it."""
    lines = [line[:SHOWN_LENGTH] for line in output.last(LINES) if any(map(str.isalnum, line))]
    # The cause stands further up: a process of the engine says it, and others that they are without it.
    causes = dict.fromkeys(line for line in lines[:-SHOWN_LINES] if _ERROR.search(line))
    said = []
    if any(NO_PLUGIN in line for line in lines):
        said = [f"For the masks Portcullis has to be installed where vLLM is, too: {install_hint()}, by its pip"]
    if causes:
        said += ["Errors in what it wrote:", *(f"  {line}" for line in [*causes][-SHOWN_CAUSES:])]
    if lines:
        said += ["The last of what it wrote:", *(f"  {line}" for line in lines[-SHOWN_LINES:])]
    return "".join(f"\n{line}" for line in said)
