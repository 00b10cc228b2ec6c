"""Schedules tasks over a pool of workers; writes results in task order, and keeps them if a worker fails."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from gateway.audit.model import ModelError
from gateway.audit.run.interrupts import Ended, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import FinishedTask, SavedAudit, TaskState
from gateway.audit.run.runner import LocalRunner, Outcome, Task, combined_ending, ending_of
from gateway.audit.run.worker import STOPPED, Job, ModelLoaded, TaskResult, WorkerLost, WorkerMessage
from gateway.audit.searches.best_first import SearchCounts, SearchProgress
from gateway.policy.model import Rule
from gateway.progress import ProgressMeter
from gateway.version import __version__

POLL_INTERVAL = 0.1  # seconds until it is asked whether the audit is to be stopped
STOP_GRACE = 30.0  # seconds for workers that are stopped to say what they found


class WorkerPool(Protocol):
    """Workers, numbered from 0. Their messages are received by `wait` only."""

    count: int
    load_timeout: float  # seconds until one at least has its model

    def start_job(self, worker: int, job: Job) -> None:
        """Give a job to a worker that is ready and idle."""

    def stop(self, worker: int, job: Job) -> None:
        """Tell a worker to stop its job and report what it found; may be repeated."""

    def kill(self, worker: int) -> None:
        """End a worker; no message of it arrives afterwards."""

    def wait(self, seconds: float) -> Sequence[tuple[int, WorkerMessage]]:
        """The next messages, waiting for at most `seconds` if there are none."""


class Scheduler:
    """Runs tasks on a pool of workers. `resumable`: keep checkpoints of tasks that were stopped, and of a single task
    in any case: it may be resumed with a higher limit."""

    def __init__(self, pool: WorkerPool, resumable: bool) -> None:
        self._pool, self._resumable = pool, resumable
        self._deadline = time.monotonic() + pool.load_timeout
        self._loading = set(range(pool.count))
        self._idle: deque[int] = deque()
        self._busy: dict[int, tuple[int, Job]] = {}  # numbers of tasks, by workers, and what these were told
        self._progress: dict[int, SearchProgress] = {}
        self._tickets = itertools.count()
        self.end: Container[int] = ()

    def load(self) -> None:
        """Returns when a worker is ready. Raises ModelError if one cannot be."""
        while not self._idle:
            for worker, message in self._pool.wait(POLL_INTERVAL):
                if error := self._handle_idle(worker, message):
                    raise error
            self._check_workers_left()

    def perform(
        self, tasks: Sequence[Task], lines: LineWriter, interrupts: Interrupts, saved: SavedAudit | None = None,
        least: float = -math.inf, masked: tuple[Rule, ...] = (),
    ) -> Outcome:  # fmt: skip
        """As `LocalRunner` does. The first task that fails, or worker that is lost or stopped from outside, ends it
        all; the outcome has what all workers found by then."""
        begin = time.monotonic()
        work = _Work(tasks, lines, saved or SavedAudit())
        kept = STOPPED if len(tasks) > 1 else frozenset(Ended)
        job = partial(Job, least=least, masked=masked, checkpoint_on=kept if self._resumable else frozenset())
        ended, error = ending_of(lambda: self._run_tasks(work, job, lines.meter, interrupts))
        self._stop_workers(work)
        try:
            if not isinstance(error, OSError):  # somebody still reads the lines
                work.print_all()
        except OSError as caught:
            ended, error = Ended.FAILED, caught
        work.forget_unprinted()
        return Outcome.of(ended, work.found, work.states, work.parts, time.monotonic() - begin, error)

    def _run_tasks(self, work: _Work, job: Callable[..., Job], meter: ProgressMeter, interrupts: Interrupts) -> Ended:
        waiting = deque(work.open())
        while waiting or self._busy:
            self._check_workers_left()
            while waiting and self._idle:
                self._start_job(waiting.popleft(), work, job)
            errors = [self._handle(work, worker, message) for worker, message in self._pool.wait(POLL_INTERVAL)]
            # Whoever stops an audit with its workers stops them, and not by mistake.
            interrupts.check()
            for error in filter(None, errors):
                raise error
            work.print_ready()
            meter.show(lambda seconds: self._progress_text(work, seconds))
        return combined_ending(work.ends)

    def _start_job(self, number: int, work: _Work, job: Callable[..., Job]) -> None:
        resume = work.states.get(number)
        assert not isinstance(resume, FinishedTask)
        progress = job(task=work.tasks[number], ticket=next(self._tickets), resume=resume)
        worker = self._idle.popleft()
        self._busy[worker] = number, progress
        self._pool.start_job(worker, progress)

    def _check_workers_left(self) -> None:
        """Raises ModelError if no worker is left, or none becomes ready."""
        if self._idle or self._busy:
            return
        if not self._loading:
            raise ModelError("no worker is left")
        if time.monotonic() > self._deadline:
            raise ModelError(f"no worker is ready after {self._pool.load_timeout:.0f} s")

    def _handle(self, work: _Work, worker: int, message: WorkerMessage) -> Exception | None:
        match message:
            case SearchProgress():
                self._progress[worker] = message
            case TaskResult() if worker in self._busy:
                self._progress.pop(worker, None)
                self._idle.append(worker)
                return work.keep(*self._busy.pop(worker), message)
            case WorkerLost(reason) if worker in self._busy:
                self._progress.pop(worker, None)
                _, job = self._busy.pop(worker)
                return ModelError(f"{job.task.name}: its worker has ended: {reason}")
            case _:
                return self._handle_idle(worker, message)
        return None

    def _handle_idle(self, worker: int, message: WorkerMessage) -> Exception | None:
        """Give an idle worker its next job."""
        loading = worker in self._loading
        self._loading.discard(worker)
        match message:
            case ModelLoaded(end, version):
                if version != __version__:
                    return ModelError(f"a worker has version {version} of Portcullis, and this is {__version__}")
                self._idle.append(worker)
                self.end = end
            case ModelError():
                return message
            case WorkerLost(reason):
                if worker in self._idle:
                    self._idle.remove(worker)
                if loading:
                    return ModelError(f"a worker ended while it loaded the model: {reason}")
        return None

    def _stop_workers(self, work: _Work) -> None:
        """Collect what the busy workers have found. They are stopped already, by the first error or by whoever
        stopped the audit, so what fails now is no news."""
        deadline = time.monotonic() + STOP_GRACE
        while self._busy and time.monotonic() < deadline:
            for worker, (_, job) in self._busy.items():
                self._pool.stop(worker, job)
            for worker, message in self._pool.wait(POLL_INTERVAL):
                self._handle(work, worker, message)
        for worker in list(self._busy):
            del self._busy[worker]
            self._pool.kill(worker)

    def _progress_text(self, work: _Work, seconds: float) -> str:
        progress = self._progress.values()
        nodes = sum(part.nodes for part in work.parts) + sum(each.nodes for each in progress)
        strings = sum(map(len, work.found.values())) + sum(each.strings for each in progress)
        return (
            f"{work.done} of {len(work.tasks)} done, {len(self._busy)} under way, {nodes:,} nodes, {strings:,} strings "
            f"({strings / seconds if seconds else 0:.1f}/s)"
        )


TaskRunner: TypeAlias = LocalRunner | Scheduler


class _Work:
    """The tasks to do, and the outcomes of those done."""

    def __init__(self, tasks: Sequence[Task], lines: LineWriter, saved: SavedAudit) -> None:
        self.tasks, self._lines = tasks, lines
        self._before = saved.states()
        self.states: dict[int, TaskState] = dict(self._before)
        self.found = {number: done.found for number, done in saved.done.items()}
        self.parts: list[SearchCounts] = list(saved.done.values())
        self.ends = [done.ended for done in saved.done.values()]
        self._unprinted: dict[int, Sequence[Mapping[str, object]]] = {}
        self._turn = 0

    def open(self) -> list[int]:
        return [number for number in range(len(self.tasks)) if not isinstance(self.states.get(number), FinishedTask)]

    @property
    def done(self) -> int:
        return sum(isinstance(state, FinishedTask) for state in self.states.values())

    def keep(self, number: int, job: Job, performed: TaskResult) -> Exception | None:
        """What came of a task; returns why it is not done if it is not."""
        outcome = performed.outcome
        self.parts.append(outcome)
        self.found[number] = outcome.found
        self._unprinted[number] = performed.lines
        if outcome.ended in job.checkpoint_on and outcome.saved.begun:
            self.states[number] = outcome.saved.begun[0]
        elif outcome.ended not in STOPPED:
            self.states[number] = FinishedTask.of(outcome.found, outcome.ended, outcome)
        if outcome.ended not in STOPPED:
            self.ends.append(outcome.ended)
            return None
        return outcome.error or ModelError(f"{job.task.name}: its worker was stopped")

    def print_ready(self) -> None:
        """Write the lines of finished tasks, up to the first task that is not finished."""
        while isinstance(self.states.get(self._turn), FinishedTask):
            self._print(self._turn)
            self._turn += 1

    def print_all(self) -> None:
        for number in sorted(self._unprinted):
            self._print(number)

    def forget_unprinted(self) -> None:
        """Drop the state of tasks whose lines were not written: a resumed audit repeats them (at-least-once output)."""
        for number in self._unprinted:
            self.states.pop(number, None)
            if number in self._before:
                self.states[number] = self._before[number]

    def _print(self, number: int) -> None:
        for fields in self._unprinted.get(number, ()):
            self._lines.write(fields)
        self._unprinted.pop(number, None)  # now that all of them are out
