"""A task that runs in this process, and a model to which something happens."""

from __future__ import annotations

import io
import json
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.audit.model import LanguageModel
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Decoding, Query
from gateway.audit.run.interrupts import Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import SavedAudit
from gateway.audit.run.runner import Outcome, Task, TaskRun
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchProgress, search
from gateway.audit.searches.checkpoint import Checkpoint
from gateway.progress import ProgressMeter
from tests.support.naive_search import vocabulary_of

VOCABULARY = vocabulary_of("a", "b", "ab", "ba", "c")


QUERY = Query(query="[abc]{1,4}", decoding=Decoding(max_tokens=4), limit=10_000)


RAISED = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


class Eventful(Toy):
    """A toy that does something when it is asked for the n-th time."""

    def __init__(self, at: int, event: Callable[[], object], seed: int = 0) -> None:
        super().__init__(VOCABULARY, seed)
        self._left, self._event = at, event

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Any:
        self._left -= 1
        if self._left == 0:
            self._event()
        return super().__call__(prefixes)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Searched:
    """A query as a task. `seen` is told how far it is before the audit is."""

    query: Query
    said: Mapping[str, str] = field(default_factory=dict)
    seen: Callable[[], None] = lambda: None
    name: str = "a query"

    def start(
        self, model: LanguageModel, progress: Callable[[SearchProgress], None], resume: Checkpoint | None
    ) -> BestFirstSearch:
        def both(now: SearchProgress) -> None:
            self.seen()
            progress(now)

        return search(model, self.query, batch=4, progress=both, resume=resume)

    def more(self, result: Result) -> Mapping[str, str]:
        return self.said


def task(query: Query = QUERY, **more: str) -> Task:
    return Searched(query, more)


def perform(
    model: LanguageModel, *tasks: Task, saved: SavedAudit | None = None, least: float = -math.inf
) -> tuple[Outcome, str]:
    """What came of it, and the lines."""
    out = io.StringIO()
    meter = ProgressMeter(io.StringIO())
    with Interrupts() as interrupts:
        outcome = TaskRun(tasks or (task(),), LineWriter(meter, out), interrupts, saved, least).perform(model)
    return outcome, out.getvalue()


def texts(lines: str) -> list[str]:
    return [json.loads(line)["text"] for line in lines.splitlines()]


WHOLE, WHOLE_LINES = perform(Toy(VOCABULARY))
