"""Many queries and prompts over many processes: the same lines as from one, whatever ends it, and whoever is lost."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import cli
from gateway.audit.cli import perform as performing
from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.models import loading
from gateway.audit.models.loading import ModelLoader
from gateway.audit.query.model import Decoding, LocalModel, Query, ServedModel
from gateway.audit.run import scheduler as spread
from gateway.audit.run.interrupts import Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.processes import ProcessPool
from gateway.audit.run.progress import Ended, SavedAudit, read_saved, save
from gateway.audit.run.ray import RayPool
from gateway.audit.run.runner import Outcome, Task, TaskRunner
from gateway.audit.run.scheduler import Scheduler, WorkerPool
from gateway.audit.run.tasks import LocalRunner, PolicyTask, QueryTask
from gateway.audit.run.worker import AuditWorker, Job, ModelLoaded, TaskProgress, WorkerLost, WorkerMessage
from gateway.audit.searches.checkpoint import CheckpointError
from gateway.audit.searches.policy import prompt_query
from gateway.policy.model import Rule
from gateway.progress import ProgressMeter
from tests.audit.test_command import QUERY as NUMBER
from tests.audit.test_command import Paused, lines_of
from tests.audit.test_deployed import choices, gateway
from tests.audit.test_models import VOCABULARY as SERVED
from tests.support import faulty_model as moody
from tests.support.commands import COMMAND, PATIENCE, environment, portcullis
from tests.support.faulty_model import NUMBERS, VOCABULARY, Moody
from tests.support.memory import Memory
from tests.support.scripted_model import write_tokenizer

Json = dict[str, Any]

PATTERNS = ("[abc]{1,3}", "a[abc]{1,3}", "[ab]{1,5}", "c{1,6}", "(ab|c)[abc]{0,2}")
RULE = Rule(id="r", words=("abba", "cab"))


def asked(pattern: str, prompt: str = "", name: str | None = None, limit: int | None = None) -> QueryTask:
    query = Query(
        query=pattern, prompt=prompt, decoding=Decoding(max_tokens=5), limit=10_000, source=name or pattern
    )  # fmt: skip
    return QueryTask(query=query, limit=limit, batch=4, named=True)


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
    return performed(LocalRunner(Moody()), TASKS)


@contextlib.contextmanager
def processes(load: Callable[[int], LanguageModel] = moody.moody, count: int = 2) -> Iterator[Scheduler]:
    with ProcessPool(load, count) as pool:
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


# -- to the end --------------------------------------------------------------------------------------------------------


def test_two_processes_say_what_one_does() -> None:
    alone, alone_lines = whole()
    with processes() as over:
        outcome, lines = performed(over, TASKS)
        assert lines == alone_lines and {line["query"] for line in lines} == set(PATTERNS)
        assert_same(outcome, alone)
        assert outcome.nodes == alone.nodes
        assert all(token in over.end for token in VOCABULARY.end) and 0 not in over.end
        # Once more, by the same workers, and kept from some words.
        kept, kept_lines = performed(over, TASKS, masked=(RULE,))
        without, without_lines = performed(LocalRunner(Moody()), TASKS, masked=(RULE,))
        assert kept_lines == without_lines != alone_lines
        assert_same(kept, without)


def test_prompts_are_heard_by_many() -> None:
    tasks = [
        PolicyTask(
            query=prompt_query(prompt, chat=False, decoding=Decoding(max_tokens=4), limit=4, source="prompts"),
            prompt=prompt, number=number, rules=(RULE,), max_hold=64, batch=4,
        )
        for number, prompt in enumerate(("one", "two", "three"), start=1)
    ]  # fmt: skip
    alone, alone_lines = performed(LocalRunner(Moody()), tasks, least=-9.0)
    with processes() as over:
        outcome, lines = performed(over, tasks, least=-9.0)
    assert lines == alone_lines and [line["prompt"] for line in lines[::4]] == ["one", "two", "three"]
    assert {line["rule"] for line in lines} == {"r"} and {line["match"] for line in lines} <= set(RULE.words)
    assert_same(outcome, alone)


def test_a_task_is_plain_data_and_shows_no_text() -> None:
    task = PolicyTask(query=Query(query="x", prompt="a SECRET"), prompt="a SECRET", number=3, rules=(RULE,), max_hold=9)
    job = Job(task=task)
    assert pickle.loads(pickle.dumps(job)) == job
    assert task.name == "prompt 3" and "SECRET" not in repr(job)
    served = ModelLoader(ServedModel("http://127.0.0.1:9/v1", "m", api_key="a SECRET", tokenizer="t"), "cpu")
    assert pickle.loads(pickle.dumps(served)) == served
    assert "SECRET" not in repr(served)


def test_a_model_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    assert loading.with_absolute_paths(LocalModel("./model")) == LocalModel(str(tmp_path / "model"))
    assert loading.with_absolute_paths(LocalModel("some/model")) == LocalModel("some/model")
    served = ServedModel("http://127.0.0.1:9/v1", "m", tokenizer="model")
    assert loading.with_absolute_paths(served) == replace(served, tokenizer=str(tmp_path / "model"))


# -- not to the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("dies", "bad: the worker that was at it has ended: SIGKILL"),
        ("fails", "bad: the server is gone"),
        ("breaks", "bad: internal error: RuntimeError at faulty_model.py line "),
    ],
)
def test_who_fails_is_named_and_what_others_found_is_kept(prompt: str, said: str, tmp_path: Path) -> None:
    bad = asked("a[abc]{1,4}", f"{prompt}:{tmp_path / 'nothing'}", "bad")
    # One worker does one after the other, so it is known what is done by then.
    with processes(count=1) as over:
        outcome, lines = performed(over, [*TASKS[:2], bad, *TASKS[2:]])
    assert outcome.ended is Ended.FAILED and isinstance(outcome.error, ModelError)
    assert str(outcome.error).startswith(said) and "SECRET" not in str(outcome.error)
    assert lines == [line for line in whole()[1] if line["query"] in PATTERNS[:2]]
    assert [(each.more["query"], each.result.text) for each in outcome.found] == names(lines)
    save(tmp_path / "saved", outcome.saved, "this")
    saved = read_saved(tmp_path / "saved", "this")
    assert len(saved.done) == 2
    good = [*TASKS[:2], asked("a[abc]{1,4}", name="good"), *TASKS[2:]]
    with processes() as over:
        resumed, rest = performed(over, good, saved)
    alone, alone_lines = performed(LocalRunner(Moody()), good)
    assert lines + rest == alone_lines
    assert_same(resumed, alone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
def test_a_stop_keeps_what_is_half_done(number: signal.Signals, tmp_path: Path) -> None:
    """It is gone on with where it was, by many or by one."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    tasks = [asked("[abc]{2,4}", f"hangs:{fifo}", "hangs"), *TASKS]

    def stop() -> None:
        fifo.read_text()
        os.kill(os.getpid(), number)

    half_way = threading.Thread(target=stop, daemon=True)
    half_way.start()
    with processes() as over:
        stopped, lines = performed(over, tasks)
        half_way.join()
        fifo.unlink()
        assert stopped.ended is (Ended.TIMEOUT if number == signal.SIGALRM else Ended.INTERRUPTED)
        assert [(each.more["query"], each.result.text) for each in stopped.found] == names(lines)
        save(tmp_path / "saved", stopped.saved, "this")
        saved = read_saved(tmp_path / "saved", "this")
        assert saved.search is not None and saved.search.nodes
        # The same workers go on.
        resumed, rest = performed(over, tasks, saved)
    alone, alone_lines = performed(LocalRunner(Moody()), tasks)
    assert sorted(names(lines + rest)) == sorted(names(alone_lines))
    assert_same(resumed, alone)
    assert len(resumed.saved.done) == len(tasks)
    by_one, by_one_rest = performed(LocalRunner(Moody()), tasks, saved)
    assert names(by_one_rest) == names(rest)
    assert_same(by_one, alone)


def test_who_is_stopped_by_others_is_not_done(tmp_path: Path) -> None:
    """Not the audit is told to stop, but the process that performs a task of it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    tasks = [TASKS[0], asked("[abc]{2,4}", f"hangs:{fifo}", "hangs"), *TASKS[1:]]

    def stop() -> None:
        fifo.read_text()
        [worker] = multiprocessing.active_children()
        worker.terminate()

    half_way = threading.Thread(target=stop, daemon=True)
    half_way.start()
    with processes(count=1) as over:
        stopped, lines = performed(over, tasks)
        half_way.join()
        fifo.unlink()
        assert (stopped.ended, str(stopped.error)) == (Ended.FAILED, "hangs: the worker that was at it was stopped")
        assert len(stopped.saved.done) == 1 and stopped.saved.search is not None
        resumed, rest = performed(over, tasks, stopped.saved)
    alone, alone_lines = performed(LocalRunner(Moody()), tasks)
    assert names(lines + rest) == names(alone_lines)
    assert_same(resumed, alone)


def test_what_one_process_left_many_go_on_with(tmp_path: Path) -> None:
    class Stopping(Moody):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 12:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(prefixes)

    stopped, lines = performed(LocalRunner(Stopping()), TASKS)
    assert stopped.ended is Ended.INTERRUPTED and stopped.saved.search is not None
    with processes() as over:
        resumed, rest = performed(over, TASKS, stopped.saved)
    assert names(lines + rest) == names(whole()[1])
    assert_same(resumed, whole()[0])


def test_a_checkpoint_of_another_query_is_refused() -> None:
    class Failing(Moody):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Any:
            raise ModelError("gone")

    failed, _ = performed(LocalRunner(Failing()), [asked("[ab]{1,4}")])
    with processes(count=1) as over, pytest.raises(CheckpointError, match=r"^\[abc\]\{1,3\}: the checkpoint is one of"):
        performed(over, TASKS, failed.saved)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (moody.missing, "^no such model$"),
        (moody.violation_of, r"^internal error: RuntimeError at moody\.py line [0-9]+$"),
        (moody.dying, "^a worker ended while it loaded the model: SIGKILL$"),
    ],
)
def test_a_model_that_cannot_be_loaded(load: Callable[[int], LanguageModel], said: str) -> None:
    with pytest.raises(ModelError, match=said), processes(load, count=1):
        raise AssertionError("is loaded")


def test_ctrl_c_is_for_who_hands_out_the_tasks(capfd: pytest.CaptureFixture[str]) -> None:
    """Everybody on the terminal hears it, and workers say nothing to it, not even while they begin."""
    with processes(moody.Interrupted()) as over:
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert performed(over, TASKS)[1] == whole()[1]
    assert capfd.readouterr() == ("", "")


def test_more_processes_than_the_system_starts() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as file:
        free = file.fileno()  # the first that is
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 12, before[1]))
    try:
        with pytest.raises(ModelError, match=r"^--processes 50: the system starts [0-9]: Too many open files$"):
            ProcessPool(moody.moody, 50)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("gpus", "spec"), [(1, ["cuda"] * 3), (2, ["cuda:0", "cuda:1", "cuda:0"])])
def test_gpus_are_taken_in_turn(monkeypatch: pytest.MonkeyPatch, gpus: int, spec: list[str]) -> None:
    """There is no GPU here, and no PyTorch: this says only which one would be asked for."""
    asked_for: list[str] = []
    cuda = types.ModuleType("torch.cuda")
    monkeypatch.setattr(cuda, "device_count", lambda: gpus, raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    monkeypatch.setattr(loading, "model_of", lambda _, device: asked_for.append(device))
    for device, worker in (("cuda", 0), ("cuda", 1), ("cuda", 2), ("cuda:5", 1), ("cpu", 1)):
        ModelLoader(LocalModel("m"), device)(worker)
    assert asked_for == [*spec, "cuda:5", "cpu"]


def test_processors_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(12))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with pytest.raises(ModelError, match=r"^threads: 6$"), processes(moody.threads):
        raise AssertionError("is loaded")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with pytest.raises(ModelError, match=r"^threads: 7$"), processes(moody.threads):
        raise AssertionError("is loaded")


# -- who does what -----------------------------------------------------------------------------------------------------


class Scripted:
    """Workers in this process. Of those that have a job, the one that was given its job last is done first."""

    load_timeout = float(PATIENCE)

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.said: list[tuple[int, WorkerMessage]] = []
        self.jobs: dict[int, Job] = {}
        self.begun: list[str] = []
        self.killed: list[int] = []
        self._workers = [AuditWorker(moody.moody, number) for number in range(count)]
        self.said += [(number, worker.load()) for number, worker in enumerate(self._workers)]

    def begin(self, worker: int, job: Job) -> None:
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
    begin = pool.begin

    def noting(worker: int, job: Job) -> None:
        seen[job.task.name] = len(out.getvalue().splitlines())
        begin(worker, job)

    pool.begin = noting  # type: ignore[method-assign]
    with Interrupts() as interrupts:
        spread_over(pool).perform(TASKS, LineWriter(meter, out), interrupts)
    # The second worker does all but the first task, which is the last to be done.
    assert [seen[name] for name in PATTERNS] == [0] * 5
    pool = Scripted(count=1)
    with Interrupts() as interrupts:
        pool.begin, begin = noting, pool.begin  # type: ignore[method-assign]
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
            [(0, TaskProgress(1000, 3)), (1, TaskProgress(200, 1))]
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
    alone, alone_lines = performed(LocalRunner(Moody()), [asked(PATTERNS[0], limit=9)])
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
    with RayPool("auto", moody.moody, 1, 9, "cpu") as pool:
        over = spread_over(pool)
        begun: list[str] = []
        begin = pool.begin

        def going(worker: int, job: Job) -> None:
            if len(begun) == at:
                cluster.gone = RuntimeError("a SECRET")
            begun.append(job.task.name)
            begin(worker, job)

        pool.begin = going  # type: ignore[method-assign]
        outcome, lines = performed(over, TASKS)
    assert str(outcome.error) == f"{PATTERNS[at]}: the worker that was at it has ended: RuntimeError"
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
    monkeypatch.setattr(spread, "STOP_GRACE", 0.0)
    pool = Scripted(2)
    over = spread_over(pool)
    pool.wait = lambda seconds: [(0, WorkerLost("SIGKILL"))] if len(pool.begun) == 2 else []  # type: ignore[method-assign]
    outcome, lines = performed(over, TASKS)
    assert (outcome.ended, lines, outcome.saved, pool.killed) == (Ended.FAILED, [], SavedAudit(), [1])


@pytest.mark.parametrize("read", [0, 20, 39, 50])
def test_nobody_reads_the_lines_any_more(read: int) -> None:
    """What nobody read is said when the audit goes on."""

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


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def queries(tmp_path: Path) -> Callable[..., list[Path]]:
    """Files of queries for a served model."""
    folder = write_tokenizer(SERVED, tmp_path / "model")

    def write(url: str, *patterns: str) -> list[Path]:
        paths = []
        for number, pattern in enumerate(patterns):
            model = {"vllm": f"{url}/v1", "name": "m", "tokenizer": str(folder), "api_key": "${KEY:-none}"}
            content = {"model": model, "query": pattern, "decoding": {"top_k": 5}, "limit": 12}
            paths.append(tmp_path / f"q{number}.yaml")
            paths[-1].write_text(yaml.safe_dump(content), encoding="utf-8")
        return paths

    return write


SPOKEN = ("[abc]{1,4}", "(ab|c)[abc ]{1,3}", "[bc ]{1,4}")


def test_queries_over_processes_say_what_they_say_in_one(queries: Callable[..., list[Path]], tmp_path: Path) -> None:
    with gateway(Paused()) as (url, requests):
        one, other, third = queries(url, *SPOKEN)
        alone = portcullis("audit", one, other, third, "--verify", "mask", no_proxy="*", KEY="a-key")
        rules = tmp_path / "rules.yaml"
        options = ("--processes", "2", "--verify", "mask", "--emit-rules", str(rules))
        many = portcullis("audit", one, *options, other, third, no_proxy="*", KEY="a-key")
    assert (alone.returncode, alone.stderr) == (0, b"")
    assert many.returncode == 0 and many.stderr.decode().startswith(f"portcullis: {rules}: ")
    assert {key for _, _, key in requests} == {"Bearer a-key"}
    *lines, summary = lines_of(alone.stdout)
    *many_lines, many_summary = lines_of(many.stdout)
    assert many_lines == lines
    assert [line["query"] for line in lines] == [str(path) for path in (one, other, third) for _ in range(12)]
    summary["summary"].pop("seconds"), many_summary["summary"].pop("seconds")
    assert many_summary == summary and summary["summary"]["verify"]["still"] == 0


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
            self.go_on.wait(PATIENCE)
        return super().__call__(path, body)


def children_of(process: int) -> list[int]:
    """The workers of an audit; beside them it has a process that tidies up after them."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    return [int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


@contextlib.contextmanager
def half_way(paths: list[Path], model: Paused, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    """An audit over two processes, one of which waits for its model, or both."""
    process = subprocess.Popen(
        [*COMMAND, "audit", *map(str, paths), "--processes", "2", *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(no_proxy="*"), start_new_session=True,
    )  # fmt: skip
    try:
        assert model.reached.wait(PATIENCE)
        yield process
    finally:
        model.go_on.set()
        process.kill()
        process.wait()


def test_ctrl_c_on_a_terminal_and_later_on(queries: Callable[..., list[Path]], tmp_path: Path) -> None:
    """Everybody in the terminal's group hears it."""
    saved, model = tmp_path / "saved", Paused(at=12)
    with gateway(model) as (url, _):
        paths = queries(url, *SPOKEN)
        with half_way(paths, model, "--checkpoint", saved) as process:
            os.killpg(process.pid, signal.SIGINT)
            output, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        first = lines_of(output)
        assert first[-1]["summary"]["ended"] == "interrupted"
        assert error.decode() == f"portcullis: stopped; strings found: {len(first) - 1}; to go on: --resume {saved}\n"
        rest = lines_of(portcullis("audit", *paths, "--resume", saved, "--processes", "2", no_proxy="*").stdout)
        whole_lines = lines_of(portcullis("audit", *paths, no_proxy="*").stdout)
    assert sorted(names(first[:-1] + rest[:-1])) == sorted(names(whole_lines[:-1]))
    assert rest[-1]["summary"]["strings"] == len(whole_lines) - 1


def test_killed_workers_leave_what_is_done(queries: Callable[..., list[Path]], tmp_path: Path) -> None:
    saved, model = tmp_path / "saved", Halted(8)
    with gateway(model) as (url, _):
        paths = queries(url, *MANY)
        with half_way(paths, model, "--checkpoint", saved) as process:
            workers = children_of(process.pid)
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            output, error = process.communicate(timeout=PATIENCE)
        assert len(workers) == 2 and process.returncode == 75
        first = lines_of(output)
        assert first[-1]["summary"]["ended"] == "failed"
        stopped, why = error.decode().splitlines()
        assert stopped.startswith(f"portcullis: failed; strings found: {len(first) - 1}; to go on: --resume {saved}")
        assert why in {f"portcullis: {path}: the worker that was at it has ended: SIGKILL" for path in paths}
        rest = lines_of(portcullis("audit", *paths, "--resume", saved, no_proxy="*").stdout)
        whole_lines = lines_of(portcullis("audit", *paths, no_proxy="*").stdout)
    assert sorted(names(first[:-1] + rest[:-1])) == sorted(names(whole_lines[:-1]))


def test_nobody_is_left_behind(queries: Callable[..., list[Path]]) -> None:
    """When the audit is killed, while its workers wait for a model."""
    model = Halted(8)
    with gateway(model) as (url, _), half_way(queries(url, *MANY), model) as process:
        assert len(children_of(process.pid)) == 2
        process.kill()
        # They all write to the same pipe, which has an end when the last of them is gone.
        assert process.communicate(timeout=PATIENCE / 2)[1] == b""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = cli.main(["audit", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Files of queries for a model of the test's own, in whatever process it is asked."""
    monkeypatch.setattr(performing, "model_of", lambda *_: Memory(NUMBERS))
    monkeypatch.setattr(performing, "ModelLoader", lambda *_: moody.numbers)

    def write(name: str, **fields: object) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**NUMBER, **fields}), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("options", [(), ("--processes", 2)])
def test_several_queries_are_one_audit(
    numbers: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[object, ...]
) -> None:
    first, second = numbers("first"), numbers("second", query="My number is 212 [0-9]{4}")
    edited = numbers("edited", query="My number is 555 0101", preprocess=[{"edits": 1, "alphabet": "digits"}], limit=2)
    report = tmp_path / "report.html"
    status, out, _ = run(capsys, first, "--report", report, second, edited, "--limit", 2, *options)
    lines = lines_of(out.encode())
    assert status == 0
    assert names(lines[:-1]) == [
        (str(first), "My number is 555 0100"), (str(first), "My number is 555 0199"),
        (str(second), "My number is 212 0000"), (str(second), lines[3]["text"]),
        (str(edited), "My number is 555 010"), (str(edited), "My number is 555 0100"),
    ]  # fmt: skip
    assert lines[-1]["summary"]["strings"] == 6
    page = report.read_text("utf-8")
    assert "<title>character 20: 2</title>" in page and "Probability" not in page and "first.yaml" in page


def test_a_gateway_is_asked_for_each_query_as_it_says(
    numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first = numbers("first", limit=1, decoding={"max_tokens": 5, "temperature": 0.5})
    second = numbers("second", limit=1, decoding={"max_tokens": 7, "temperature": 0.25})
    with gateway(lambda _, body: choices(*["no"] * body.get("n", 1))) as (url, asked_for):
        status, *_ = run(capsys, first, second, "--verify", url, "--verify-samples", 2, "--name", "m")
    assert status == 0
    drawn = [(body["max_tokens"], body["temperature"]) for _, body, _ in asked_for]
    assert drawn == [(5, 0), (5, 0.5), (7, 0), (7, 0.25)]


def test_several_queries_are_counted(numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    counted = run(capsys, numbers("first"), "--count", numbers("second", query="My number is [0-9]+"))
    assert counted == (0, "10000000\ninfinite\n", "")


@pytest.mark.parametrize(
    ("fields", "options", "said"),
    [
        ({"model": {"hf": "./other"}}, [], "model: is another one than that of "),
        ({"model": {"hf": "./other"}}, ["--model", "hf:./model"], None),
        ({"traversal": {"random": {"samples": 3}}}, [], "traversal: random is for a query that is asked alone"),
    ],
)
def test_queries_that_do_not_go_together(
    numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str], fields: Json, options: list[str], said: str | None
) -> None:
    first, second = numbers("first"), numbers("second", **fields)
    status, out, error = run(capsys, first, second, *options)
    assert (status, bool(out)) == ((0, True) if said is None else (2, False))
    assert error.startswith("" if said is None else f"{second}: {said}")


@pytest.mark.parametrize("where", [("--processes", "2"), ("--ray", "local")])
def test_samples_are_drawn_here(
    numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str], where: tuple[str, str]
) -> None:
    path = numbers("drawn", traversal={"random": {"samples": 3}})
    assert run(capsys, path, *where) == (
        2, "", f"{path}: traversal: random draws in this process: leave --processes and --ray out\n",
    )  # fmt: skip


def test_the_part_that_is_missing_is_named(numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        done = run(capsys, numbers("first"), "--ray", "local")
    assert done == (2, "", "command line: --ray: needs a part that is not here: pip install -e '.[ray]'\n")


def test_one_task_needs_no_other_process(numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, numbers("first"), "--processes", 8)
    assert (status, len(out.splitlines())) == (0, 4)
    assert multiprocessing.active_children() == []
