"""Tasks over workers: who does what, lines in the order of the tasks, and what is kept when one of them fails."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gateway.audit.attended import Stop, Watch
from gateway.audit.checkpoint import CheckpointError
from gateway.audit.law import ModelError
from gateway.audit.running import Ended, Lines, Meter, Outcome, Task, whole
from gateway.audit.saved import Found, Saved, State
from gateway.audit.worker import STOPPED, Job, Lost, Performed, Ready, Said, Told, Unloaded
from gateway.policy.model import Rule
from gateway.version import __version__

OFTEN = 0.1  # seconds until it is asked whether the audit is to be stopped
GRACE = 30.0  # seconds for workers that are stopped to say what they found


class Place(Protocol):
    """Workers, by their numbers from 0. What they say is heard by `wait` only."""

    count: int
    patience: float  # seconds until one at least has its model

    def begin(self, worker: int, job: Job) -> None:
        """For one that is ready, and has no job."""

    def stop(self, worker: int, job: Job) -> None:
        """It is to give the job up, and say what it found; it may not have heard it the first time."""

    def kill(self, worker: int) -> None:
        """It is not heard of again."""

    def wait(self, seconds: float) -> Sequence[tuple[int, Said]]:
        """What they said, at once if they did, else within so many seconds."""


class Spread:
    """Performs tasks at a place with workers. `keeps`: where tasks stand when they are stopped is wanted."""

    def __init__(self, place: Place, keeps: bool) -> None:
        self._place, self._keeps = place, keeps
        self._loading = set(range(place.count))
        self._idle: deque[int] = deque()
        self._busy: dict[int, Job] = {}
        self._told: dict[int, Told] = {}
        self._tickets = itertools.count()
        self.end: Container[int] = ()

    def load(self) -> None:
        """Returns when a worker is ready. Raises ModelError if one cannot be."""
        deadline = time.monotonic() + self._place.patience
        while not self._idle:
            for worker, said in self._place.wait(OFTEN):
                if error := self._joins(worker, said):
                    raise error
            self._check_left()
            if time.monotonic() > deadline:
                raise ModelError(f"no worker is ready after {self._place.patience:.0f} s")

    def perform(
        self, tasks: Sequence[Task], lines: Lines, meter: Meter, watch: Watch, saved: Saved | None = None,
        least: float = -math.inf, masked: tuple[Rule, ...] = (),
    ) -> Outcome:  # fmt: skip
        """As `Run` does. The first task that fails, and the first worker that is lost, end the audit; what all have
        found by then is in the outcome."""
        begin = time.monotonic()
        work = _Work(tasks, lines, saved or Saved())
        error: Exception | None = None
        try:
            self._work_off(work, Job(task=tasks[0], least=least, masked=masked, keeps=self._keeps), meter, watch)
            ended = whole(work.ends)
        except Stop as stop:
            ended = Ended.of(stop)
        except CheckpointError:
            raise
        except Exception as caught:
            ended, error = Ended.FAILED, caught
        self._give_up(work)
        if not isinstance(error, OSError):  # somebody still reads the lines
            try:
                work.print_all()
            except OSError as caught:
                ended, error = Ended.FAILED, caught
        return Outcome.of(ended, work.found, work.states, work.outcomes, time.monotonic() - begin, error)

    def _work_off(self, work: _Work, job: Job, meter: Meter, watch: Watch) -> None:
        waiting = deque(work.open())
        while waiting or self._busy:
            while waiting and self._idle:
                number = waiting.popleft()
                resume = work.states.get(number)
                assert not isinstance(resume, tuple)
                self._begin(work, number, replace(job, task=work.tasks[number], resume=resume))
            self._listen(work)
            work.print_ready()
            watch.check()
            meter.show(lambda seconds: self._said(work, seconds))

    def _begin(self, work: _Work, number: int, job: Job) -> None:
        worker, job = self._idle.popleft(), replace(job, ticket=next(self._tickets))
        self._busy[worker] = job
        work.handed_out[job.ticket] = number
        self._place.begin(worker, job)

    def _listen(self, work: _Work) -> None:
        """Hear what workers say. Raises the first failure among it, when all was heard."""
        errors = [self._hear(work, worker, said) for worker, said in self._place.wait(OFTEN)]
        for error in filter(None, errors):
            raise error
        self._check_left()

    def _check_left(self) -> None:
        if not (self._idle or self._busy or self._loading):
            raise ModelError("no worker is left")

    def _hear(self, work: _Work, worker: int, said: Said) -> Exception | None:
        match said:
            case Told():
                self._told[worker] = said
            case Performed() if worker in self._busy:
                self._told.pop(worker, None)
                self._idle.append(worker)
                return work.keep(self._busy.pop(worker), said)
            case Lost(reason) if worker in self._busy:
                self._told.pop(worker, None)
                return ModelError(f"{self._busy.pop(worker).task.name}: the worker that was at it has ended: {reason}")
            case _:
                return self._joins(worker, said)
        return None

    def _joins(self, worker: int, said: Said) -> Exception | None:
        """A worker that has no job."""
        loading = worker in self._loading
        self._loading.discard(worker)
        match said:
            case Ready(end, version):
                if version != __version__:
                    return ModelError(f"a worker has version {version} of Portcullis, and this is {__version__}")
                self._idle.append(worker)
                self.end = end
            case Unloaded(reason):
                return ModelError(reason)
            case Lost(reason):
                if worker in self._idle:
                    self._idle.remove(worker)
                if loading:
                    return ModelError(f"a worker ended while it loaded the model: {reason}")
        return None

    def _give_up(self, work: _Work) -> None:
        """Take what those who are still at work have found. They are stopped already, by the first error or by whoever
        stopped the audit, so what fails now is no news."""
        deadline = time.monotonic() + GRACE
        while self._busy and time.monotonic() < deadline:
            for worker, job in self._busy.items():
                self._place.stop(worker, job)
            for worker, said in self._place.wait(OFTEN):
                self._hear(work, worker, said)
        for worker in list(self._busy):
            del self._busy[worker]
            self._place.kill(worker)

    def _said(self, work: _Work, seconds: float) -> str:
        told = self._told.values()
        nodes = sum(outcome.nodes for outcome in work.outcomes) + sum(each.nodes for each in told)
        strings = sum(map(len, work.found.values())) + sum(each.strings for each in told)
        return (
            f"{work.done} of {len(work.tasks)} done, {len(self._busy)} under way, {nodes:,} nodes, {strings:,} strings "
            f"({strings / seconds if seconds else 0:.1f}/s)"
        )


class _Work:
    """What is to be done, and what was."""

    def __init__(self, tasks: Sequence[Task], lines: Lines, saved: Saved) -> None:
        self.tasks, self._lines = tasks, lines
        self.states: dict[int, State] = saved.states()
        self.found: dict[int, tuple[Found, ...]] = {
            number: state for number, state in self.states.items() if isinstance(state, tuple)
        }
        self.handed_out: dict[int, int] = {}  # numbers of tasks by the tickets of their jobs
        self.outcomes: list[Outcome] = []
        self.ends: list[Ended] = []
        self._unprinted: dict[int, Sequence[Mapping[str, object]]] = {}
        self._turn = 0

    def open(self) -> list[int]:
        return [number for number in range(len(self.tasks)) if not isinstance(self.states.get(number), tuple)]

    @property
    def done(self) -> int:
        return sum(isinstance(state, tuple) for state in self.states.values())

    def keep(self, job: Job, performed: Performed) -> Exception | None:
        """What came of a job; returns why it failed if it did."""
        number, outcome = self.handed_out[job.ticket], performed.outcome
        self.outcomes.append(outcome)
        self.found[number] = outcome.found
        self._unprinted[number] = performed.lines
        if outcome.ended not in STOPPED:
            self.states[number] = outcome.found
            self.ends.append(outcome.ended)
        elif outcome.saved.search is not None:
            self.states[number] = outcome.saved.search
        failure = performed.failure
        if failure is None:
            return None
        return (CheckpointError if failure.refused else ModelError)(f"{job.task.name}: {failure.reason}")

    def print_ready(self) -> None:
        """The lines of tasks that are done, as far as all before them are."""
        while isinstance(self.states.get(self._turn), tuple):
            self._print(self._turn)
            self._turn += 1

    def print_all(self) -> None:
        for number in sorted(self._unprinted):
            self._print(number)

    def _print(self, number: int) -> None:
        for fields in self._unprinted.pop(number, ()):
            self._lines.write(fields)
