"""A process that performs tasks, as others hand them out: what it is told, what it says, and what it does between."""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from gateway.audit.language.automaton import AutomatonTooLarge
from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.query.model import Query
from gateway.audit.run.interrupts import Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import Ended, SavedAudit
from gateway.audit.run.runner import Outcome, Task, TaskRun
from gateway.audit.run.tasks import WordMasks
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchProgress
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.policy.model import Rule
from gateway.policy.value import ConfigError
from gateway.progress import TERMINAL_INTERVAL, ProgressMeter
from gateway.version import __version__

STOPPED = frozenset({Ended.TIMEOUT, Ended.INTERRUPTED, Ended.FAILED})
THREADS = "OMP_NUM_THREADS"

# Makes the model, in the worker of this number; it is plain data itself, or a function with a name.
Load: TypeAlias = Callable[[int], LanguageModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task for a worker. `ticket`: unique among all jobs. `resume`: where the task stood; `least`: as in `TaskRun`;
    `masked`: rules whose words are masked; `checkpoint_on`: the endings after which a checkpoint is wanted."""

    task: Task
    ticket: int = 0
    resume: Checkpoint | None = field(default=None, repr=False)
    least: float = -math.inf
    masked: tuple[Rule, ...] = ()
    checkpoint_on: frozenset[Ended] = frozenset()


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model is loaded. `end`: the tokens that end a text; `version`: of Portcullis."""

    end: frozenset[int]
    version: str = __version__


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """It cannot be loaded."""

    reason: str


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far the task is."""

    nodes: int = 0
    strings: int = 0


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task failed, in words that quote nothing. `refused`: its checkpoint is one of something else."""

    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a task. `lines`: of the strings, each as it was known when it was found."""

    lines: tuple[Mapping[str, object], ...] = field(repr=False)
    outcome: Outcome
    failure: TaskFailure | None = None


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker has ended."""

    reason: str


WorkerMessage: TypeAlias = ModelLoaded | LoadFailed | TaskProgress | TaskResult | WorkerLost


class AuditWorker:
    """Loads a model once and performs tasks, one at a time. `threads`: of PyTorch; None leaves them to it. `signals`
    stop a task. Its methods may be called from several threads."""

    def __init__(self, load: Load, number: int, threads: int | None = None, signals: tuple[int, ...] = ()) -> None:
        self._load, self._number, self._threads, self._signals = load, number, threads, signals
        self._model: LanguageModel | None = None
        self._current: tuple[int, Interrupts] | None = None
        self._masks = WordMasks(())
        self._progress = TaskProgress()

    def load(self) -> ModelLoaded | LoadFailed:
        if self._threads is not None:
            # Read when PyTorch is imported, which a model does.
            os.environ[THREADS] = str(self._threads)
        try:
            self._model = self._load(self._number)
        except Exception as error:
            return LoadFailed(describe_error(error))
        return ModelLoaded(frozenset(self._model.vocabulary.end))

    def perform(self, job: Job, report: Callable[[TaskProgress], None] = lambda _: None) -> TaskResult:
        """Whatever ends it, what was found is in the outcome. `report` is told from time to time how far it is."""
        assert self._model is not None
        if self._masks.rules != job.masked:
            self._masks = WordMasks(job.masked)
        meter, self._progress = _NoProgress(), TaskProgress()
        lines = _CollectedLines(meter)

        def note(progress: TaskProgress) -> None:
            self._progress = progress
            report(progress)

        with Interrupts(signals=self._signals) as interrupts:
            self._current = job.ticket, interrupts
            run = TaskRun(
                [_ReportingTask(job.task, note)], lines, interrupts, SavedAudit(search=job.resume), job.least,
                self._masks, job.checkpoint_on,
            )  # fmt: skip
            try:
                outcome = run.perform(self._model)
            except CheckpointError as error:
                return TaskResult((), _failed(), TaskFailure(str(error), refused=True))
            finally:
                self._current = None
        failure = None if outcome.error is None else TaskFailure(describe_error(outcome.error))
        # An error may not survive the way to another process.
        return TaskResult(tuple(lines.kept), replace(outcome, error=None), failure)

    def stop(self, ticket: int) -> None:
        """The job of this ticket, if it is under way, when it asks its model next."""
        if (under_way := self._current) is not None and under_way[0] == ticket:
            under_way[1].stop()

    def progress(self) -> TaskProgress:
        """How far the task is that is under way."""
        return self._progress


def processors() -> int:
    """Those that this process may use; where a system does not tell, all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_error(error: Exception) -> str:
    """What may be said of an error; most of them may quote text."""
    if isinstance(error, ModelError | AutomatonTooLarge | ConfigError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"internal error: {type(error).__name__} at {Path(frame.filename).name} line {frame.lineno}"


def _failed() -> Outcome:
    return Outcome.of(Ended.FAILED, {}, {}, (), 0.0, None)


class _CollectedLines(LineWriter):
    """Keeps lines in place of writing them."""

    def __init__(self, meter: ProgressMeter) -> None:
        super().__init__(meter)
        self.kept: list[Mapping[str, object]] = []

    def write(self, fields: Mapping[str, object]) -> None:
        self.kept.append(fields)


class _NoProgress(ProgressMeter):
    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def show(self, text: Callable[[float], str]) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _ReportingTask:
    """A task that tells how far it is."""

    task: Task
    report: Callable[[TaskProgress], None]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def query(self) -> Query:
        return self.task.query

    def start(
        self, model: LanguageModel, progress: Callable[[SearchProgress], None], resume: Checkpoint | None
    ) -> BestFirstSearch:
        last = time.monotonic()

        def both(now: SearchProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= TERMINAL_INTERVAL:
                last = time.monotonic()
                self.report(TaskProgress(now.nodes, now.strings))
            progress(now)

        return self.task.start(model, both, resume)

    def more(self, result: Result) -> Mapping[str, str]:
        return self.task.more(result)
