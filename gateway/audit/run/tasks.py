"""The tasks of an audit as picklable data, and the runner for this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.audit.matcher import RuleMatcher
from gateway.audit.model import LanguageModel
from gateway.audit.models.masked import MaskedModel
from gateway.audit.query.model import Query
from gateway.audit.run.interrupts import Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import SavedAudit
from gateway.audit.run.runner import Outcome, Task, TaskRun
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchProgress, search
from gateway.audit.searches.checkpoint import Checkpoint
from gateway.audit.searches.policy import search_violations, violation_of
from gateway.policy.model import Rule

# A few policies are looked for at a time, and one is the rule: that of the audit, for each of its prompts.
matcher_of = lru_cache(4)(RuleMatcher)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTask:
    """The strings of a query. `limit` and `batch` stand in place of the query's own. `named`: each line says which
    query it is about, since there are others."""

    query: Query = field(repr=False)
    limit: int | None = None
    batch: int | None = None
    named: bool = False

    @property
    def name(self) -> str:
        return self.query.source

    def start(
        self, model: LanguageModel, progress: Callable[[SearchProgress], None], resume: Checkpoint | None
    ) -> BestFirstSearch:
        return search(model, self.query, limit=self.limit, batch=self.batch, progress=progress, resume=resume)

    def more(self, result: Result) -> Mapping[str, str]:
        return {"query": self.query.source} if self.named else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTask:
    """What breaks `rules` when a model is asked `prompt`, the `number`-th of the audit, counted from 1. `max_hold`: the
    policy's."""

    query: Query = field(repr=False)
    prompt: str = field(repr=False)
    number: int
    rules: tuple[Rule, ...]
    max_hold: int
    batch: int | None = None

    @property
    def name(self) -> str:
        return f"prompt {self.number}"

    def start(
        self, model: LanguageModel, progress: Callable[[SearchProgress], None], resume: Checkpoint | None
    ) -> BestFirstSearch:
        return search_violations(model, self.query, self._matcher(), batch=self.batch, progress=progress, resume=resume)

    def more(self, result: Result) -> Mapping[str, str]:
        what = violation_of(self._matcher(), result)
        return {"prompt": self.prompt, "rule": what.rule, "match": what.match}

    def _matcher(self) -> RuleMatcher:
        return matcher_of(self.rules, self.max_hold)


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
        return self.model.vocabulary.end

    def perform(
        self, tasks: Sequence[Task], lines: LineWriter, interrupts: Interrupts, saved: SavedAudit | None = None,
        least: float = -math.inf, masked: tuple[Rule, ...] = (),
    ) -> Outcome:  # fmt: skip
        return TaskRun(tasks, lines, interrupts, saved, least, WordMasks(masked)).perform(self.model)
