"""The scheduler: order of lines, lost workers, and a cluster that is gone, with scripted workers."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import types
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest

from gateway.audit.model import ModelError
from gateway.audit.run import scheduler
from gateway.audit.run.interrupts import Ended, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import SavedAudit
from gateway.audit.run.ray import RayPool
from gateway.audit.run.runner import LocalRunner
from gateway.audit.run.scheduler import Scheduler, WorkerPool
from gateway.audit.run.worker import AuditWorker, Job, ModelLoaded, WorkerLost, WorkerMessage
from gateway.audit.searches.best_first import SearchProgress
from gateway.progress import ProgressMeter
from tests.support import faulty_model
from tests.support.audit_tasks import PATTERNS, TASKS, asked, assert_same, performed, whole
from tests.support.commands import TIMEOUT
from tests.support.faulty_model import FaultyModel

Json = dict[str, Any]


# -- who does what -----------------------------------------------------------------------------------------------------


class Scripted:
    """Workers in this process. Of those that have a job, the one that was given its job last is done first."""

    load_timeout = float(TIMEOUT)

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.said: list[tuple[int, WorkerMessage]] = []
        self.jobs: dict[int, Job] = {}
        self.begun: list[str] = []
        self.killed: list[int] = []
        self._workers = [AuditWorker(faulty_model.load_faulty, number) for number in range(count)]
        self.said += [(number, worker.load()) for number, worker in enumerate(self._workers)]

    def start_job(self, worker: int, job: Job) -> None:
        self.begun.append(job.task.name)
        self.jobs[worker] = job

    def stop(self, worker: int, job: Job) -> None:
        pass

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def wait(self, seconds: float) -> Sequence[tuple[int, WorkerMessage]]:
        if not self.said and self.jobs:
            worker = list(self.jobs)[-1]
            self.said.append((worker, self._workers[worker].perform(self.jobs.pop(worker))))
        now, self.said = self.said, []
        return now


def spread_over(pool: WorkerPool) -> Scheduler:
    over = Scheduler(pool, resumable=True)
    over.load()
    return over


def test_lines_are_in_order_whoever_is_done_first() -> None:
    pool = Scripted()
    outcome, lines = performed(spread_over(pool), TASKS)
    assert pool.begun == list(PATTERNS)
    assert lines == whole()[1]
    assert_same(outcome, whole()[0])


def test_lines_come_as_soon_as_it_is_their_turn() -> None:
    pool = Scripted(count=2)
    out, meter = io.StringIO(), ProgressMeter(io.StringIO())
    seen: dict[str, int] = {}
    begin = pool.start_job

    def noting(worker: int, job: Job) -> None:
        seen[job.task.name] = len(out.getvalue().splitlines())
        begin(worker, job)

    pool.start_job = noting  # type: ignore[method-assign]
    with Interrupts() as interrupts:
        spread_over(pool).perform(TASKS, LineWriter(meter, out), interrupts)
    # The second worker does all but the first task, which is the last to be done.
    assert [seen[name] for name in PATTERNS] == [0] * 5
    pool = Scripted(count=1)
    with Interrupts() as interrupts:
        pool.start_job, begin = noting, pool.start_job  # type: ignore[method-assign]
        seen.clear()
        out.truncate(0)
        out.seek(0)
        spread_over(pool).perform(TASKS, LineWriter(meter, out), interrupts)
    counts = [sum(line["query"] == name for line in whole()[1]) for name in PATTERNS]
    assert [seen[name] for name in PATTERNS] == [sum(counts[:number]) for number in range(5)]


def test_how_far_it_is_adds_up() -> None:
    pool, stream = Scripted(2), io.StringIO()
    now = [100.0]
    meter = ProgressMeter(stream, lambda: now[0])
    over = spread_over(pool)
    wait = pool.wait

    def slowly(seconds: float) -> Sequence[tuple[int, WorkerMessage]]:
        now[0] += 20
        return (
            [(0, SearchProgress(1000, 4, 3, 9, -1.0)), (1, SearchProgress(200, 4, 1, 9, -1.0))]
            if len(pool.begun) == 2 and now[0] < 140
            else wait(seconds)
        )

    pool.wait = slowly  # type: ignore[method-assign]
    with Interrupts() as interrupts:
        over.perform(TASKS, LineWriter(meter, io.StringIO()), interrupts)
    said = stream.getvalue().splitlines()
    assert said[0] == "0 of 5 done, 2 under way, 1,200 nodes, 4 strings (0.2/s)"
    assert said[-1].startswith("5 of 5 done, 0 under way, ") and f" {len(whole()[1])} strings (" in said[-1]


def test_a_worker_without_a_task_may_go() -> None:
    pool = Scripted(2)
    pool.said.append((1, WorkerLost("SIGKILL")))
    assert performed(spread_over(pool), TASKS)[1] == whole()[1]
    pool = Scripted(1)
    pool.said.append((0, WorkerLost("SIGKILL")))
    with pytest.raises(ModelError, match=r"^no worker is left$"):
        spread_over(pool)


def test_a_single_search_goes_on_to_a_higher_limit() -> None:
    few, lines = performed(spread_over(Scripted(1)), [asked(PATTERNS[0], limit=5)])
    assert few.ended is Ended.LIMIT
    outcome, more = performed(spread_over(Scripted(1)), [asked(PATTERNS[0], limit=9)], few.saved)
    alone, alone_lines = performed(LocalRunner(FaultyModel()), [asked(PATTERNS[0], limit=9)])
    assert lines + more == alone_lines
    assert_same(outcome, alone)


class Leaving(Scripted):
    """The worker that did so many tasks is lost with the last of them."""

    def __init__(self, count: int, tasks: int) -> None:
        super().__init__(count)
        self._tasks = tasks

    def wait(self, seconds: float) -> Sequence[tuple[int, WorkerMessage]]:
        said = [*super().wait(seconds)]
        if len(self.begun) == self._tasks and said:
            said.append((said[-1][0], WorkerLost("SIGKILL")))
        return said


def test_a_worker_may_go_when_all_is_done() -> None:
    outcome, lines = performed(spread_over(Leaving(1, tasks=len(TASKS))), TASKS)
    assert lines == whole()[1]
    assert_same(outcome, whole()[0])


class Cluster(types.ModuleType):
    """What is used of Ray, in this process; `gone`: it fails with that, whatever is wanted of it."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.gone: Exception | None = None
        self.done: dict[object, object] = {}

    def init(self, **_: object) -> None:
        pass

    shutdown = kill = init

    def cluster_resources(self) -> Json:
        return {"CPU": 2.0}

    def remote(self, made: Callable[..., object]) -> Any:
        actor = types.SimpleNamespace(remote=lambda *arguments: Actor(self, made(*arguments)))
        return types.SimpleNamespace(options=lambda **_: actor)

    def wait(self, references: list[object], *, num_returns: int, timeout: float) -> tuple[list[object], list[object]]:
        if self.gone is not None:
            raise self.gone
        return references[:num_returns], references[num_returns:]

    def get(self, reference: object) -> object:
        return self.done.pop(reference)


class Actor:
    def __init__(self, cluster: Cluster, made: object) -> None:
        self._cluster, self._made = cluster, made

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: object) -> object:
            if self._cluster.gone is not None:
                raise self._cluster.gone
            reference = object()
            self._cluster.done[reference] = getattr(self._made, name)(*arguments)
            return reference

        return types.SimpleNamespace(remote=remote)


@pytest.mark.parametrize("at", [0, 2])
def test_a_cluster_that_is_gone(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """What was found before is kept, whatever it is that Ray fails with."""
    cluster = Cluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with contextlib.closing(RayPool("auto", faulty_model.load_faulty, 1, 9, "cpu")) as pool:
        over = spread_over(pool)
        begun: list[str] = []
        begin = pool.start_job

        def going(worker: int, job: Job) -> None:
            if len(begun) == at:
                cluster.gone = RuntimeError("a SECRET")
            begun.append(job.task.name)
            begin(worker, job)

        pool.start_job = going  # type: ignore[method-assign]
        outcome, lines = performed(over, TASKS)
    assert str(outcome.error) == f"{PATTERNS[at]}: its worker has ended: RuntimeError"
    assert (outcome.ended, len(outcome.saved.done)) == (Ended.FAILED, at)
    assert lines == [line for line in whole()[1] if line["query"] in PATTERNS[:at]]


def test_who_loads_for_ever_is_not_waited_for() -> None:
    """Where the others have gone."""
    pool = Leaving(2, tasks=2)
    pool.said.pop()
    pool.load_timeout = 0.0
    outcome, _ = performed(spread_over(pool), TASKS)
    assert (outcome.ended, str(outcome.error)) == (Ended.FAILED, "no worker is ready after 0 s")
    assert len(outcome.saved.done) == 2


def test_of_another_version_nobody_is_asked() -> None:
    pool = Scripted(1)
    pool.said = [(0, ModelLoaded(frozenset(), "0.0.0"))]
    with pytest.raises(ModelError, match=r"^a worker has version 0\.0\.0 of Portcullis"):
        spread_over(pool)


def test_who_does_not_stop_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "STOP_GRACE", 0.0)
    pool = Scripted(2)
    over = spread_over(pool)
    pool.wait = lambda seconds: [(0, WorkerLost("SIGKILL"))] if len(pool.begun) == 2 else []  # type: ignore[method-assign]
    outcome, lines = performed(over, TASKS)
    assert (outcome.ended, lines, outcome.saved, pool.killed) == (Ended.FAILED, [], SavedAudit(), [1])


@pytest.mark.parametrize("read", [0, 20, 39, 50])
def test_nobody_reads_the_lines_any_more(read: int) -> None:
    """What nobody read is said when the audit continues."""

    class Closing(io.StringIO):
        def write(self, text: str) -> int:
            if len(self.getvalue().splitlines()) == read:
                raise BrokenPipeError
            return super().write(text)

    out, meter = Closing(), ProgressMeter(io.StringIO())
    with Interrupts() as interrupts:
        outcome = spread_over(Scripted(2)).perform(TASKS, LineWriter(meter, out), interrupts)
    assert isinstance(outcome.error, BrokenPipeError)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    ends = list(accumulate(sum(line["query"] == name for line in whole()[1]) for name in PATTERNS))
    assert len(outcome.saved.done) == sum(end <= read for end in ends)
    resumed, rest = performed(spread_over(Scripted(2)), TASKS, outcome.saved)
    # Of the task in the middle some are said once more.
    begin = max(end for end in (0, *ends) if end <= read)
    assert lines == whole()[1][:read] and rest == whole()[1][begin:]
    assert_same(resumed, whole()[0])
