"""A pool of worker processes on this machine."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess, parent_process

from gateway.audit.model import ModelError
from gateway.audit.run.worker import THREADS, AuditWorker, Job, Load, WorkerLost, WorkerMessage, processors

KILL_TIMEOUT = 5.0  # seconds for a process that was killed to be gone


@dataclass(frozen=True, slots=True)
class _Started:
    process: BaseProcess
    connection: Connection


class ProcessPool:
    """`count` processes, each with the model that `load` makes in it. The processors of this machine are divided among
    them, unless the environment says how many threads there are to be. Raises ModelError if the system does not start
    so many."""

    load_timeout = math.inf  # a process that loads is alive, or is lost

    def __init__(self, load: Load, count: int) -> None:
        self.count = count
        self._workers: dict[int, _Started] = {}
        threads = None if THREADS in os.environ else max(1, processors() // count)
        try:
            with _no_interrupts():
                for number in range(count):
                    self._start(number, AuditWorker(load, number, threads, (signal.SIGTERM,)))
        except BaseException as error:
            started = len(self._workers)
            self.close()
            if not isinstance(error, OSError):
                raise
            raise ModelError(f"--processes {count}: the system starts {started}: {error.strerror}") from None

    def start_job(self, worker: int, job: Job) -> None:
        with contextlib.suppress(OSError):  # it has ended, as `wait` will say
            self._workers[worker].connection.send(job)

    def stop(self, worker: int, job: Job) -> None:
        self._workers[worker].process.terminate()

    def kill(self, worker: int) -> None:
        started = self._workers.pop(worker)
        started.process.kill()
        started.process.join(KILL_TIMEOUT)
        started.connection.close()

    def wait(self, seconds: float) -> list[tuple[int, WorkerMessage]]:
        numbers = {started.connection: number for number, started in self._workers.items()}
        sentinels = [started.process.sentinel for started in self._workers.values()]
        wait([*numbers, *sentinels], seconds)
        return [(number, message) for number in list(self._workers) for message in self._messages(number)]

    def close(self) -> None:
        """End the workers without waiting: their results are no longer needed."""
        for worker in list(self._workers):
            self.kill(worker)

    def _start(self, number: int, worker: AuditWorker) -> None:
        # A process that is forked would have this one's locks and signal handlers, and could not use a GPU.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        with there:
            process = context.Process(target=_serve, args=(there, worker), daemon=True)
            process.start()
        self._workers[number] = _Started(process, here)

    def _messages(self, number: int) -> Iterator[WorkerMessage]:
        """The pending messages of a worker; the last says that it is lost, if it is."""
        connection = self._workers[number].connection
        try:
            while connection.poll():
                yield connection.recv()
            lost = not self._workers[number].process.is_alive() and not connection.poll()
        except (EOFError, OSError):
            lost = True
        if lost:
            process = self._workers[number].process
            process.join(KILL_TIMEOUT)
            code = process.exitcode
            self.kill(number)
            yield WorkerLost(_status(code))


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"status {code}"


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Within, SIGINT waits. What is started never gets it: on a terminal Ctrl-C goes to everybody, and whoever hands
    out the tasks says what becomes of them."""
    # It takes SIGINT out of the mask when it starts, which the first process would be too late for.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, worker: AuditWorker) -> None:
    """The main function of a worker process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Standard output has the audit's lines only.
    os.dup2(2, 1)
    try:
        message = worker.load()
        # Heard during a task only; before, there is nothing to be kept.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        connection.send(message)
        while not isinstance(message, ModelError):
            connection.send(worker.perform(connection.recv(), connection.send))
    except (EOFError, OSError):
        # Whoever started it has gone.
        sys.exit(1)


def _end_with_parent() -> None:
    """End this worker with its parent, even while a model is loading or does not answer."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
