"""The tasks of an audit as picklable data, and their run one after the other in this process: it writes results, shows
progress, and saves state when stopped early."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial

from gateway.audit.matcher import RuleMatcher
from gateway.audit.model import LanguageModel
from gateway.audit.models.masked import MaskedModel
from gateway.audit.query.model import Query
from gateway.audit.run.interrupts import AuditStopped, Ended, InterruptibleModel, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import FinishedTask, FoundString, SavedAudit, TaskState
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchCounts, SearchProgress, search
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.audit.searches.policy import search_violations, violation_of
from gateway.audit.searches.sample import Estimate, RandomSearch, Sample
from gateway.policy.model import Rule

# A few policies are looked for at a time, and one is the rule: that of the audit, for each of its prompts.
matcher_of = lru_cache(4)(RuleMatcher)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One search: for the strings of a query. `limit` and `batch` stand in place of the query's own. `named`: each line
    says which query it is about, since there are others."""

    query: Query = field(repr=False)
    limit: int | None = None
    batch: int | None = None
    named: bool = False

    @property
    def name(self) -> str:
        """Says in an error which one it is."""
        return self.query.source

    def start(
        self, model: LanguageModel, progress: Callable[[SearchProgress], None], resume: Checkpoint | None
    ) -> BestFirstSearch:
        """Begin it, or continue with it."""
        return search(model, self.query, limit=self.limit, batch=self.batch, progress=progress, resume=resume)

    def more(self, result: Result) -> Mapping[str, str]:
        """What a line says besides its result."""
        return {"query": self.query.source} if self.named else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTask(Task):
    """What breaks `rules` when a model is asked `prompt`, the `number`-th of the audit, counted from 1. `max_hold`: the
    policy's."""

    prompt: str = field(repr=False)
    number: int
    rules: tuple[Rule, ...]
    max_hold: int

    @property
    def name(self) -> str:
        return f"prompt {self.number}"

    def start(
        self, model: LanguageModel, progress: Callable[[SearchProgress], None], resume: Checkpoint | None
    ) -> BestFirstSearch:
        return search_violations(model, self.query, self._matcher(), batch=self.batch, progress=progress, resume=resume)

    def more(self, result: Result) -> Mapping[str, str]:
        return {"prompt": self.prompt, **violation_of(self._matcher(), result)}

    def _matcher(self) -> RuleMatcher:
        return matcher_of(self.rules, self.max_hold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(SearchCounts):
    """The outcome of an audit. `found`: of all tasks, in order; `saved`: what to resume from; `error`: what failed. The
    counts are of all tasks, the worst of each."""

    ended: Ended
    found: tuple[FoundString, ...]
    saved: SavedAudit
    seconds: float
    error: Exception | None = None

    @staticmethod
    def of(
        ended: Ended, found: Mapping[int, tuple[FoundString, ...]], states: Mapping[int, TaskState],
        parts: Iterable[SearchCounts], seconds: float, error: Exception | None,
    ) -> Outcome:  # fmt: skip
        """From what tasks found and where they stand, by their numbers, and what they did."""
        parts = list(parts)
        return Outcome(
            ended=ended,
            found=tuple(each for number in sorted(found) for each in found[number]),
            saved=SavedAudit.of(states),
            nodes=sum(part.nodes for part in parts),
            seconds=seconds,
            exact_to=max((part.exact_to for part in parts if part.exact_to is not None), default=None),
            prefixes_cut=any(part.prefixes_cut for part in parts),
            error=error,
        )

    def summary(self) -> dict[str, object]:
        return {
            "strings": len(self.found),
            "ended": str(self.ended),
            "nodes": self.nodes,
            "seconds": round(self.seconds, 3),
            "exact_to": self.exact_to,
            "prefixes_cut": self.prefixes_cut,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOutcome:
    """The outcome of sampling. `found`: the samples that are strings of the language; `estimate`: of the probability
    that the model writes one, None before anything was drawn."""

    ended: Ended
    found: tuple[FoundString, ...]
    samples: int
    seconds: float
    estimate: Estimate | None
    error: Exception | None = None

    def summary(self) -> dict[str, object]:
        return {
            "samples": self.samples,
            "strings": len({found.result.text for found in self.found}),
            "ended": str(self.ended),
            "seconds": round(self.seconds, 3),
            "estimate": None if self.estimate is None else asdict(self.estimate),
        }


class _Enough(Exception):
    """The remaining strings are not likely enough."""


class TaskRun:
    """Runs tasks one after the other. `saved`: an earlier run to resume. `least`: the lowest log-probability wanted.
    `wrap`: puts a wrapper around a task's model. `checkpoint_on`: the endings after which the last search is saved as a
    checkpoint; that of a finished one is large, and of use for a higher limit only. `report` is called with the
    progress of the current search, in place of showing it on the meter."""

    def __init__(
        self,
        tasks: Sequence[Task],
        lines: LineWriter,
        interrupts: Interrupts,
        saved: SavedAudit | None = None,
        least: float = -math.inf,
        wrap: Callable[[LanguageModel, Task], LanguageModel] = lambda model, _: model,
        checkpoint_on: Container[Ended] = frozenset(Ended),
        report: Callable[[SearchProgress], None] | None = None,
    ) -> None:
        self._tasks, self._lines, self._interrupts, self._least = tasks, lines, interrupts, least
        self._wrap, self._checkpoint_on = wrap, checkpoint_on
        self._report = report or self._show
        self._unlikely = False
        self._states = (saved or SavedAudit()).states()
        self._current: tuple[int, BestFirstSearch] | None = None
        self._ended = Ended.FINISHED  # the current one
        self._number = 0
        self._printed = sum(len(done.found) for done in self._done().values())

    def perform(self, model: LanguageModel) -> Outcome:
        """Whatever ends it, what was found is in the outcome. Raises CheckpointError for a checkpoint of something
        else, and KeyboardInterrupt where a second Ctrl-C arrives."""
        begin = time.monotonic()
        ended, error = ending_of(lambda: self._run_tasks(model))
        return self._outcome(ended, time.monotonic() - begin, error)

    def _run_tasks(self, model: LanguageModel) -> Ended:
        for number, task in enumerate(self._tasks):
            if not isinstance(self._states.get(number), FinishedTask):
                self._finish_current()
                self._search(number, task, model)
        return combined_ending([*(done.ended for done in self._done().values()), self._ended])

    def _search(self, number: int, task: Task, model: LanguageModel) -> None:
        self._number, self._unlikely = number, False
        resume = self._states.get(number)
        assert not isinstance(resume, FinishedTask)
        attended = InterruptibleModel(self._wrap(model, task), self._interrupts)
        try:
            search = task.start(attended, self._progress, resume)
        except (LookupError, ArithmeticError):
            if resume is None:
                raise
            raise CheckpointError("the checkpoint has a state that no search leaves") from None
        self._current = number, search
        try:
            for result in search:
                if result.logprob < self._least:
                    search.put_back()  # a resumed run may want less likely ones
                    raise _Enough
                self._printed += 1
                try:
                    self._lines.write(FoundString(result, task.more(result)).fields())
                except BrokenPipeError:
                    search.put_back()  # at-least-once output
                    raise
                self._interrupts.check()
            self._ended = Ended.FINISHED if search.summary().finished else Ended.LIMIT
        except _Enough:
            self._ended = Ended.LEAST

    def _finish_current(self) -> None:
        """Before the next task, drop the state of the current one. The last task may be resumed with a higher limit."""
        if self._current is not None:
            number, search = self._current
            self._states[number] = FinishedTask.of(
                self._found_by(search, self._tasks[number]), self._ended, search.summary()
            )
            self._current = None

    def _done(self) -> dict[int, FinishedTask]:
        return {number: state for number, state in self._states.items() if isinstance(state, FinishedTask)}

    def _found_by(self, search: BestFirstSearch, task: Task) -> tuple[FoundString, ...]:
        return tuple(FoundString(result, task.more(result)) for result in search.found if result.logprob >= self._least)

    def _progress(self, progress: SearchProgress) -> None:
        self._report(progress)
        self._interrupts.check()
        # While prefixes are looked for nothing is pending. And strings that came with these paths are given before the
        # next are asked about: so it is enough the second time.
        if progress.pending and progress.best < self._least:
            if self._unlikely:
                raise _Enough
            self._unlikely = True

    def _show(self, progress: SearchProgress) -> None:
        self._lines.meter.show(lambda seconds: self._progress_text(progress, seconds))

    def _progress_text(self, progress: SearchProgress, seconds: float) -> str:
        of = f"search {self._number + 1} of {len(self._tasks)}, " if len(self._tasks) > 1 else ""
        return (
            f"{of}{progress.nodes:,} nodes, batch {progress.batch}, {self._printed:,} strings "
            f"({self._printed / seconds if seconds else 0:.1f}/s), best pending {progress.best:.3f}"
        )

    def _outcome(self, ended: Ended, seconds: float, error: Exception | None) -> Outcome:
        # A task that was about to continue stands where it stood.
        states, done = dict(self._states), self._done()
        found = {number: state.found for number, state in done.items()}
        parts: list[SearchCounts] = list(done.values())
        if self._current is not None:
            number, search = self._current
            found[number] = self._found_by(search, self._tasks[number])
            parts.append(search.summary())
            if ended in self._checkpoint_on:
                states[number] = search.checkpoint()
        return Outcome.of(ended, found, states, parts, seconds, error)


def combined_ending(ends: Collection[Ended]) -> Ended:
    """How an audit ended, from how its searches ended."""
    return next((each for each in (Ended.LIMIT, Ended.LEAST) if each in ends), Ended.FINISHED)


def ending_of(run: Callable[[], Ended]) -> tuple[Ended, Exception | None]:
    """How a run ended, and what failed if something did. Raises CheckpointError for a checkpoint of something else."""
    try:
        return run(), None
    except AuditStopped as stop:
        return stop.ended, None
    except CheckpointError:
        raise
    except Exception as error:
        return Ended.FAILED, error


class WordMasks:
    """Wraps the model of a task in a word mask, if there are rules; keeps the last mask."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._last: tuple[object, MaskedModel] | None = None

    def __call__(self, model: LanguageModel, task: Task) -> LanguageModel:
        if not self.rules:
            return model
        query = task.query
        # Prompts have no prefix, and one mask serves them all; to compile it costs as much as many answers.
        key = model, query if query.prefix is not None else bool(query.prompt)
        if self._last is None or self._last[0] != key:
            self._last = key, MaskedModel.of(model, self.rules, query)
        return self._last[1]


class LocalRunner:
    """Runs tasks in this process, one after the other."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @property
    def end(self) -> Container[int]:
        """The tokens that end a text."""
        return self.model.vocabulary.end

    def perform(
        self, tasks: Sequence[Task], lines: LineWriter, interrupts: Interrupts, saved: SavedAudit | None = None,
        least: float = -math.inf, masked: tuple[Rule, ...] = (),
    ) -> Outcome:  # fmt: skip
        """As `TaskRun` does. `masked`: the model is kept from the words of these rules."""
        return TaskRun(tasks, lines, interrupts, saved, least, WordMasks(masked)).perform(self.model)


def run_sampling(
    begin: Callable[[LanguageModel], RandomSearch],
    model: LanguageModel,
    lines: LineWriter,
    interrupts: Interrupts,
) -> SamplingOutcome:
    """Perform a sampling. However it ends, the samples that were drawn are kept."""
    since = time.monotonic()
    found: list[FoundString] = []
    drawn = 0
    ended, error, sampling = Ended.FINISHED, None, None
    try:
        sampling = begin(InterruptibleModel(model, interrupts))
        for sample in sampling:
            drawn += 1
            lines.write({name: value for name, value in asdict(sample).items() if name != "prefix"})
            if sample.text is not None:
                found.append(FoundString(_drawn(sample, sample.text)))
            lines.meter.show(partial(_drawing, drawn))
            interrupts.check()
    except AuditStopped as stop:
        ended = stop.ended
    except Exception as caught:
        ended, error = Ended.FAILED, caught
    return SamplingOutcome(
        ended=ended,
        found=tuple(found),
        samples=drawn,
        seconds=time.monotonic() - since,
        estimate=sampling.estimate() if sampling is not None and drawn else None,
        error=error,
    )


def _drawing(drawn: int, seconds: float) -> str:
    return f"{drawn:,} samples ({drawn / seconds if seconds else 0:.1f}/s)"


def _drawn(sample: Sample, text: str) -> Result:
    return Result(text, sample.tokens, sample.logprob, sample.prefix_logprob, sample.logprob, 1, sample.prefix)
