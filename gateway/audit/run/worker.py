"""A worker that runs tasks one at a time, and the messages between it and the scheduler."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from gateway.audit.language.automaton import AutomatonTooLarge
from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.run.interrupts import Ended, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import SavedAudit
from gateway.audit.run.runner import Outcome, Task, TaskRun, WordMasks
from gateway.audit.searches.best_first import SearchProgress
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.exits import error_place
from gateway.policy.errors import ConfigError
from gateway.policy.model import Rule
from gateway.progress import TERMINAL_INTERVAL, ProgressMeter
from gateway.version import __version__

STOPPED = frozenset({Ended.TIMEOUT, Ended.INTERRUPTED, Ended.FAILED})
THREADS = "OMP_NUM_THREADS"

# Loads the model in the worker of this number; picklable.
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
class TaskResult:
    """What came of a task. `lines`: of the strings, each as it was known when it was found. An error of the outcome is
    a ModelError, or a CheckpointError for a checkpoint of something else; it names the task and quotes nothing."""

    lines: tuple[Mapping[str, object], ...] = field(repr=False)
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker has ended."""

    reason: str


# A ModelError: the model cannot be loaded.
WorkerMessage: TypeAlias = ModelLoaded | ModelError | SearchProgress | TaskResult | WorkerLost


_NO_PROGRESS = SearchProgress(0, 0, 0, 0, -math.inf)


class AuditWorker:
    """Loads a model once and runs tasks. `threads`: of PyTorch, None for its default. `signals` stop a task. Its
    methods may be called from several threads."""

    def __init__(self, load: Load, number: int, threads: int | None = None, signals: tuple[int, ...] = ()) -> None:
        self._load, self._number, self._threads, self._signals = load, number, threads, signals
        self._model: LanguageModel | None = None
        self._current: tuple[int, Interrupts] | None = None
        self._masks = WordMasks(())
        self._progress = _NO_PROGRESS

    def load(self) -> ModelLoaded | ModelError:
        if self._threads is not None:
            # Read when PyTorch is imported, which a model does.
            os.environ[THREADS] = str(self._threads)
        try:
            self._model = self._load(self._number)
        except Exception as error:
            return ModelError(describe_error(error))
        return ModelLoaded(frozenset(self._model.vocabulary.end))

    def perform(self, job: Job, report: Callable[[SearchProgress], None] = lambda _: None) -> TaskResult:
        """Run a task. However it ends, the outcome has what was found. `report` is called now and then."""
        assert self._model is not None
        if self._masks.rules != job.masked:
            self._masks = WordMasks(job.masked)
        lines, self._progress = _CollectedLines(), _NO_PROGRESS
        last = time.monotonic()

        def note(progress: SearchProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= TERMINAL_INTERVAL:
                last = time.monotonic()
                self._progress = progress
                report(progress)

        with Interrupts(signals=self._signals) as interrupts:
            self._current = job.ticket, interrupts
            saved = SavedAudit(begun={0: job.resume} if job.resume is not None else {})
            run = TaskRun([job.task], lines, interrupts, saved, job.least, self._masks, job.checkpoint_on, note)
            try:
                outcome = run.perform(self._model)
            except CheckpointError as error:
                outcome = Outcome.of(Ended.FAILED, {}, {}, (), 0.0, error)
            finally:
                self._current = None
        if outcome.error is not None:
            # Not every error can be pickled.
            kind = CheckpointError if isinstance(outcome.error, CheckpointError) else ModelError
            outcome = replace(outcome, error=kind(f"{job.task.name}: {describe_error(outcome.error)}"))
        return TaskResult(tuple(lines.kept), outcome)

    def stop(self, ticket: int) -> None:
        """Stop the job of this ticket, if it is the current one, before its next model call."""
        if (current := self._current) is not None and current[0] == ticket:
            current[1].stop()

    def progress(self) -> SearchProgress:
        """Progress of the current task."""
        return self._progress


def processors() -> int:
    """The number of processors that this process may use; where the system does not say, of all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_error(error: Exception) -> str:
    """An error's message, if it is known to quote no text of the audit; else its type and place."""
    if isinstance(error, ModelError | AutomatonTooLarge | ConfigError | CheckpointError):
        return str(error)
    return f"internal error: {error_place(error)}"


class _CollectedLines(LineWriter):
    """Collects lines instead of writing them."""

    def __init__(self) -> None:
        super().__init__(ProgressMeter(sys.stderr))  # which is never shown
        self.kept: list[Mapping[str, object]] = []

    def write(self, fields: Mapping[str, object]) -> None:
        self.kept.append(fields)
