"""Tasks of an audit, and what one process makes of them."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from gateway.audit.model import LanguageModel
from gateway.audit.query.model import Decoding, Query
from gateway.audit.run.interrupts import Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.processes import ProcessPool
from gateway.audit.run.progress import SavedAudit
from gateway.audit.run.runner import LocalRunner, Outcome, Task
from gateway.audit.run.scheduler import Scheduler, TaskRunner
from gateway.policy.model import Rule
from gateway.progress import ProgressMeter
from tests.support import faulty_model
from tests.support.audit_command import Paused
from tests.support.commands import TIMEOUT
from tests.support.fake_gateway import Json
from tests.support.faulty_model import FaultyModel

PATTERNS = ("[abc]{1,3}", "a[abc]{1,3}", "[ab]{1,5}", "c{1,6}", "(ab|c)[abc]{0,2}")


RULE = Rule(id="r", words=("abba", "cab"))


def asked(pattern: str, prompt: str = "", name: str | None = None, limit: int | None = None) -> Task:
    query = Query(
        query=pattern, prompt=prompt, decoding=Decoding(max_tokens=5), limit=10_000, source=name or pattern
    )  # fmt: skip
    return Task(query=query, limit=limit, batch=4, named=True)


TASKS = [asked(pattern, limit=limit) for pattern, limit in zip(PATTERNS, (None, 7, 9, None, 3), strict=True)]


def performed(
    performer: TaskRunner, tasks: Sequence[Task], saved: SavedAudit | None = None, **more: Any
) -> tuple[Outcome, list[Json]]:
    """What came of it, and the lines."""
    out, meter = io.StringIO(), ProgressMeter(io.StringIO())
    with Interrupts() as interrupts:
        outcome = performer.perform(tasks, LineWriter(meter, out), interrupts, saved, **more)
    return outcome, [json.loads(line) for line in out.getvalue().splitlines()]


@cache
def whole() -> tuple[Outcome, list[Json]]:
    """What one process makes of all tasks."""
    return performed(LocalRunner(FaultyModel()), TASKS)


@contextlib.contextmanager
def processes(load: Callable[[int], LanguageModel] = faulty_model.load_faulty, count: int = 2) -> Iterator[Scheduler]:
    with contextlib.closing(ProcessPool(load, count)) as pool:
        over = Scheduler(pool, resumable=True)
        over.load()
        yield over
    assert multiprocessing.active_children() == []


def assert_same(one: Outcome, other: Outcome) -> None:
    assert one.ended is other.ended
    assert (one.exact_to, one.prefixes_cut) == (other.exact_to, other.prefixes_cut)
    for here, there in zip(one.found, other.found, strict=True):
        assert (here.more, here.result.text, here.result.encodings) == (
            there.more, there.result.text, there.result.encodings,
        )  # fmt: skip
        assert here.result.logprob == pytest.approx(there.result.logprob)
        assert here.result.string_logprob == pytest.approx(there.result.string_logprob)


def names(lines: Sequence[Json]) -> list[tuple[str, str]]:
    return [(line["query"], line["text"]) for line in lines]


SPOKEN = ("[abc]{1,4}", "(ab|c)[abc ]{1,3}", "[bc ]{1,4}")


MANY = (*SPOKEN, "[ab ]{1,3}", "c[abc]{1,3}")


class Halted(Paused):
    """Answers so often, and then nobody until it is told to: `reached` is set when two are waiting."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self._answers, self._waiting, self._counting = answers, 0, threading.Lock()

    def __call__(self, path: str, body: Json) -> tuple[int, bytes]:
        with self._counting:
            self._answers -= 1
            waits = self._answers < 0
            self._waiting += waits
            if self._waiting == 2:
                self.reached.set()
        if waits:
            self.go_on.wait(TIMEOUT)
        return super().__call__(path, body)
