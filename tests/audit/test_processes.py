"""Many queries and prompts over many processes: the same lines as from one, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.models import loading
from gateway.audit.models.loading import ModelLoader
from gateway.audit.query.model import Decoding, LocalModel, Query, ServedModel
from gateway.audit.run.interrupts import Ended
from gateway.audit.run.processes import ProcessPool
from gateway.audit.run.progress import read_saved, save
from gateway.audit.run.runner import LocalRunner, PolicyTask
from gateway.audit.run.worker import Job
from gateway.audit.searches.checkpoint import CheckpointError
from gateway.audit.searches.policy import prompt_query
from tests.support import faulty_model
from tests.support.audit_tasks import PATTERNS, RULE, TASKS, asked, assert_same, names, performed, processes, whole
from tests.support.faulty_model import VOCABULARY, FaultyModel

Json = dict[str, Any]


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
        without, without_lines = performed(LocalRunner(FaultyModel()), TASKS, masked=(RULE,))
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
    alone, alone_lines = performed(LocalRunner(FaultyModel()), tasks, least=-9.0)
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
        ("dies", "bad: its worker has ended: SIGKILL"),
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
    alone, alone_lines = performed(LocalRunner(FaultyModel()), good)
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
        assert saved.begun and all(each.nodes for each in saved.begun.values())
        # The same workers continue.
        resumed, rest = performed(over, tasks, saved)
    alone, alone_lines = performed(LocalRunner(FaultyModel()), tasks)
    assert sorted(names(lines + rest)) == sorted(names(alone_lines))
    assert_same(resumed, alone)
    assert len(resumed.saved.done) == len(tasks)
    by_one, by_one_rest = performed(LocalRunner(FaultyModel()), tasks, saved)
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
        assert (stopped.ended, str(stopped.error)) == (Ended.FAILED, "hangs: its worker was stopped")
        assert len(stopped.saved.done) == 1 and stopped.saved.begun
        resumed, rest = performed(over, tasks, stopped.saved)
    alone, alone_lines = performed(LocalRunner(FaultyModel()), tasks)
    assert names(lines + rest) == names(alone_lines)
    assert_same(resumed, alone)


def test_what_one_process_left_many_go_on_with(tmp_path: Path) -> None:
    class Stopping(FaultyModel):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 12:
                signal.raise_signal(signal.SIGINT)
            return super().__call__(prefixes)

    stopped, lines = performed(LocalRunner(Stopping()), TASKS)
    assert stopped.ended is Ended.INTERRUPTED and stopped.saved.begun
    with processes() as over:
        resumed, rest = performed(over, TASKS, stopped.saved)
    assert names(lines + rest) == names(whole()[1])
    assert_same(resumed, whole()[0])


def test_a_checkpoint_of_another_query_is_refused() -> None:
    class Failing(FaultyModel):
        def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Any:
            raise ModelError("gone")

    failed, _ = performed(LocalRunner(Failing()), [asked("[ab]{1,4}")])
    with (
        processes(count=1) as over,
        pytest.raises(CheckpointError, match=r"^\[abc\]\{1,3\}: the checkpoint belongs to a different query"),
    ):
        performed(over, TASKS, failed.saved)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (faulty_model.missing, "^no such model$"),
        (faulty_model.fails_to_load, r"^internal error: RuntimeError at faulty_model\.py line [0-9]+$"),
        (faulty_model.dying, "^a worker ended while it loaded the model: SIGKILL$"),
    ],
)
def test_a_model_that_cannot_be_loaded(load: Callable[[int], LanguageModel], said: str) -> None:
    with pytest.raises(ModelError, match=said), processes(load, count=1):
        raise AssertionError("is loaded")


def test_ctrl_c_is_for_who_hands_out_the_tasks(capfd: pytest.CaptureFixture[str]) -> None:
    """Everybody on the terminal hears it, and workers say nothing to it, not even while they begin."""
    with processes(faulty_model.Interrupted()) as over:
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
            ProcessPool(faulty_model.load_faulty, 50)
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
    with pytest.raises(ModelError, match=r"^threads: 6$"), processes(faulty_model.threads):
        raise AssertionError("is loaded")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with pytest.raises(ModelError, match=r"^threads: 7$"), processes(faulty_model.threads):
        raise AssertionError("is loaded")
