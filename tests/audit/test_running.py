"""Tasks run one after the other: to the end, stopped, failed."""

from __future__ import annotations

import io
import itertools
import json
import signal
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gateway.audit.model import Floats, LanguageModel, Messages, ModelError
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Bounds
from gateway.audit.run.interrupts import AuditStopped, Ended, InterruptibleModel, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import FinishedTask, SavedAudit, read_saved, save
from gateway.audit.run.runner import Outcome, TaskRun
from gateway.audit.searches.best_first import search
from gateway.audit.searches.checkpoint import CheckpointError
from gateway.automata.vocabulary import Ints
from gateway.files import write_private
from gateway.progress import ProgressMeter
from tests.support.audit_runs import QUERY, RAISED, VOCABULARY, WHOLE, WHOLE_LINES, Eventful, perform, task, texts

# -- to the end --------------------------------------------------------------------------------------------------------


def test_every_string_is_a_line_as_the_contract_has_it() -> None:
    results = list(search(Toy(VOCABULARY), QUERY))
    assert WHOLE.ended is Ended.FINISHED
    assert texts(WHOLE_LINES) == [result.text for result in results]
    for line in WHOLE_LINES.splitlines():
        assert list(json.loads(line)) == [
            "text", "tokens", "logprob", "prefix_logprob", "string_logprob", "encodings",
        ]  # fmt: skip


def test_what_was_found_knows_all_encodings_in_the_end() -> None:
    by_text = {json.loads(line)["text"]: json.loads(line) for line in WHOLE_LINES.splitlines()}
    assert any(each.result.encodings > by_text[each.result.text]["encodings"] for each in WHOLE.found)


def test_a_limit_is_told_from_the_end() -> None:
    outcome, lines = perform(Toy(VOCABULARY), task(replace(QUERY, limit=3)))
    assert (outcome.ended, len(texts(lines))) == (Ended.LIMIT, 3)
    assert outcome.summary()["strings"] == 3


@pytest.mark.parametrize("least", [-2.0, -4.0, -7.5, -1000.0, 0.0])
def test_what_is_not_likely_enough_is_not_looked_for(least: float) -> None:
    outcome, lines = perform(Toy(VOCABULARY), least=least)
    wanted = [found.result.text for found in WHOLE.found if found.result.logprob >= least]
    assert texts(lines) == wanted == [found.result.text for found in outcome.found]
    assert outcome.ended is (Ended.FINISHED if len(wanted) == len(WHOLE.found) else Ended.LEAST)
    assert outcome.nodes <= WHOLE.nodes


@pytest.mark.parametrize("number", [1, 2, 5, 20])
def test_what_was_not_likely_enough_is_found_when_it_is_asked_for_later(number: int) -> None:
    least = WHOLE.found[number].result.logprob
    begun, lines = perform(Toy(VOCABULARY), least=least)
    same, nothing = perform(Toy(VOCABULARY), saved=begun.saved, least=least)
    assert begun.ended is same.ended is Ended.LEAST and not nothing
    went_on, more = perform(Toy(VOCABULARY), saved=same.saved)
    assert went_on.ended is Ended.FINISHED and went_on.found == WHOLE.found
    assert texts(lines) + texts(more) == texts(WHOLE_LINES)


def test_while_prefixes_are_looked_for_nothing_is_too_unlikely() -> None:
    query = replace(QUERY, query="abab[abc]{1,2}", prefix="abab")
    outcome, _ = perform(Toy(VOCABULARY), task(query), least=-3.0)
    best = max(search(Toy(VOCABULARY), query), key=lambda result: result.logprob)
    assert best.logprob >= -3.0
    assert best.text in {found.result.text for found in outcome.found}


def test_several_tasks_are_one_audit() -> None:
    outcome, lines = perform(Toy(VOCABULARY), task(prompt="one"), task(replace(QUERY, limit=2), prompt="two"))
    prompts = [json.loads(line)["prompt"] for line in lines.splitlines()]
    assert prompts == ["one"] * len(WHOLE.found) + ["two"] * 2
    assert outcome.ended is Ended.LIMIT
    assert outcome.nodes > WHOLE.nodes


# -- stopped -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", RAISED)
@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_a_signal_loses_nothing(number: signal.Signals, at: int, tmp_path: Path) -> None:
    stopped, lines = perform(Eventful(at, lambda: signal.raise_signal(number)))
    assert stopped.ended is (Ended.TIMEOUT if number == signal.SIGALRM else Ended.INTERRUPTED)
    assert [found.result.text for found in stopped.found] == texts(lines)
    save(tmp_path / "checkpoint", stopped.saved, "this")
    resumed, rest = perform(Toy(VOCABULARY), saved=read_saved(tmp_path / "checkpoint", "this"))
    assert texts(lines) + texts(rest) == texts(WHOLE_LINES)
    assert_same(resumed, WHOLE)


def assert_same(one: Outcome, other: Outcome) -> None:
    assert (one.ended, one.nodes, one.prefixes_cut) == (other.ended, other.nodes, other.prefixes_cut)
    assert one.exact_to == pytest.approx(other.exact_to)
    assert len(one.found) == len(other.found)
    for here, there in zip(one.found, other.found, strict=True):
        assert (here.result.text, here.result.tokens, here.result.encodings) == (
            there.result.text, there.result.tokens, there.result.encodings,
        )  # fmt: skip
        assert here.result.logprob == pytest.approx(there.result.logprob)
        assert here.result.string_logprob == pytest.approx(there.result.string_logprob)


def test_a_signal_between_two_answers_waits_for_the_next() -> None:
    class Stopping(io.StringIO):
        def write(self, text: str) -> int:
            signal.raise_signal(signal.SIGINT)
            return super().write(text)

    out, meter = Stopping(), ProgressMeter(io.StringIO())
    with Interrupts() as interrupts:
        outcome = TaskRun([task()], LineWriter(meter, out), interrupts).perform(Toy(VOCABULARY))
    assert outcome.ended is Ended.INTERRUPTED
    assert texts(out.getvalue()) == texts(WHOLE_LINES)[:1]


def test_a_second_ctrl_c_does_not_wait() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(AuditStopped):
            interrupts.check()


def test_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the system's; the model waits for it."""
    with Interrupts(timeout=0.01) as interrupts, pytest.raises(AuditStopped) as stopped, interrupts.interruptible():
        signal.pause()
    assert stopped.value.ended is Ended.TIMEOUT


def test_when_time_is_up_after_ctrl_c_it_was_ctrl_c() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGALRM)
        with pytest.raises(AuditStopped) as stopped:
            interrupts.check()
        assert stopped.value.ended is Ended.INTERRUPTED and interrupts.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert not Interrupts().interrupted


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in RAISED]
    with Interrupts(timeout=1000):
        assert [signal.getsignal(number) for number in RAISED] != before
    assert [signal.getsignal(number) for number in RAISED] == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


class Hanging(Toy):
    """Does not answer before it is told to stop."""

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Any:
        self._hang()

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        return self._hang()

    def require_top_k(self, top_k: int | None) -> None:
        self._hang()

    def logprobs_of(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        return self._hang()

    def _hang(self) -> NoReturn:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("was not stopped")


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model([]),
        lambda model: model.context(None),
        lambda model: model.require_top_k(1),
        lambda model: model.logprobs_of([], []),
    ],
)
def test_whatever_a_model_is_asked_can_be_given_up(ask: Callable[[LanguageModel], object]) -> None:
    with Interrupts() as interrupts, pytest.raises(AuditStopped):
        ask(InterruptibleModel(Hanging(VOCABULARY), interrupts))


# -- failed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ModelError("gone"), RuntimeError("a bug"), BrokenPipeError()])
@pytest.mark.parametrize("at", [1, 3, 8])
def test_a_failure_keeps_what_was_found(error: Exception, at: int) -> None:
    def fail() -> None:
        raise error

    failed, lines = perform(Eventful(at, fail))
    assert (failed.ended, failed.error) == (Ended.FAILED, error)
    assert [found.result.text for found in failed.found] == texts(lines)
    resumed, rest = perform(Toy(VOCABULARY), saved=failed.saved)
    assert texts(lines) + texts(rest) == texts(WHOLE_LINES)
    assert_same(resumed, WHOLE)


def test_a_line_that_nobody_read_is_said_again() -> None:
    for read in range(len(WHOLE.found)):
        out = io.StringIO()

        class Left(io.StringIO):
            def write(self, text: str) -> int:
                if out.getvalue().count("\n") == read:
                    raise BrokenPipeError
                return out.write(text)

        meter = ProgressMeter(io.StringIO())
        with Interrupts() as interrupts:
            stopped = TaskRun([task()], LineWriter(meter, Left()), interrupts).perform(Toy(VOCABULARY))
        assert isinstance(stopped.error, BrokenPipeError)
        resumed, rest = perform(Toy(VOCABULARY), saved=stopped.saved)
        assert texts(out.getvalue()) + texts(rest) == texts(WHOLE_LINES)
        assert_same(resumed, WHOLE)


def test_a_later_task_is_taken_up_where_it_failed(tmp_path: Path) -> None:
    # One ends at its limit and one drops paths, which the others do not make good.
    limits = {5: QUERY.bounds, 6: Bounds(batch=4, max_nodes=12), 10_000: QUERY.bounds}
    tasks = [task(replace(QUERY, limit=limit, bounds=bounds), prompt=str(limit)) for limit, bounds in limits.items()]
    whole, all_lines = perform(Toy(VOCABULARY), *tasks)
    assert whole.ended is Ended.LIMIT and whole.exact_to is not None
    wanted = [json.loads(line) for line in all_lines.splitlines()]
    done = set()
    for at in itertools.count(1):
        stopped, lines = perform(Eventful(at, lambda: signal.raise_signal(signal.SIGINT)), *tasks)
        if stopped.ended is not Ended.INTERRUPTED:
            break
        done.add(len(stopped.saved.done))
        save(tmp_path / "saved", stopped.saved, "this")
        resumed, rest = perform(Toy(VOCABULARY), *tasks, saved=read_saved(tmp_path / "saved", "this"))
        found = [json.loads(line) for line in (lines + rest).splitlines()]
        assert [(each["prompt"], each["text"]) for each in found] == [(each["prompt"], each["text"]) for each in wanted]
        assert [each.more for each in resumed.found] == [each.more for each in whole.found]
        assert_same(resumed, whole)
    assert done == {0, 1, 2}


def test_it_goes_on_up_to_another_limit(tmp_path: Path) -> None:
    first, lines = perform(Toy(VOCABULARY), task(replace(QUERY, limit=7)))
    save(tmp_path / "saved", first.saved, "this")
    resumed, rest = perform(Toy(VOCABULARY), saved=read_saved(tmp_path / "saved", "this"))
    assert texts(lines) + texts(rest) == texts(WHOLE_LINES)
    assert_same(resumed, WHOLE)
    again, nothing = perform(Toy(VOCABULARY), saved=resumed.saved)
    assert nothing == ""
    assert_same(again, WHOLE)


def test_a_checkpoint_of_another_query_is_refused() -> None:
    stopped, _ = perform(Eventful(3, lambda: signal.raise_signal(signal.SIGINT)))
    with pytest.raises(CheckpointError):
        perform(Toy(VOCABULARY), task(replace(QUERY, query="[ab]{1,4}")), saved=stopped.saved)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no", b"[]", b"{}", b'{"portcullis_audit": 1}',
        b'{"portcullis_audit": 1, "audit": "this", "saved": {}}',
        b'{"portcullis_audit": 2, "audit": "this", "saved": {"done": 3}}',
        b'{"portcullis_audit": 2, "audit": "this", "saved": {"done": {"0": {"found": [{"more": {}}]}}}}',
        b'{"portcullis_audit": 2, "audit": "this", "saved": {"begun": {"0": {}}}}',
        b'{"portcullis_audit": 2, "audit": "another", "saved": {}}',
        b"\xff\xfe", b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        read_saved(path, "this")


def test_what_a_model_said_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o644)
    write_private(path, b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def changed(change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Changes a checkpoint in its file."""

    def write(path: Path) -> None:
        content = json.loads(path.read_bytes())
        change(content["saved"]["begun"]["0"])
        path.write_text(json.dumps(content))

    return write


@pytest.mark.parametrize(
    "change",
    [
        changed(lambda search: search.update(width=0)),
        changed(lambda search: search.update(nodes=-1)),
        changed(lambda search: search["families"][0].update(logprobs=[-1.0])),
        changed(lambda search: search["families"][0]["logprobs"].__setitem__(0, 1e30)),
        changed(lambda search: search["families"][0]["tokens"].__setitem__(0, 10**30)),
        changed(lambda search: search["families"][0]["tokens"].__setitem__(0, 77)),
        changed(lambda search: search["families"][0]["parent"].update(tokens=[-1])),
        changed(lambda search: search["families"][0]["parent"].update(inside=7)),
        changed(lambda search: search["strings"][0]["best"].update(logprob=-1e308)),
        changed(lambda search: search["strings"][0]["best"].update(logprob=0.5)),
        changed(lambda search: search["strings"][0]["encodings"][0].__setitem__(1, 1e30)),
    ],
)
def test_a_checkpoint_that_no_search_left_is_refused(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    stopped, _ = perform(Eventful(5, lambda: signal.raise_signal(signal.SIGINT)))
    save(path, stopped.saved, "this")
    change(path)
    with pytest.raises(CheckpointError):
        perform(Toy(VOCABULARY), saved=read_saved(path, "this"))


@pytest.mark.parametrize("name", ["text", "tokens", "logprob", "encodings"])
def test_what_was_found_is_of_its_types(name: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    save(path, SavedAudit({0: FinishedTask(found=WHOLE.found)}), "this")
    content = json.loads(path.read_bytes())
    content["saved"]["done"]["0"]["found"][0]["result"][name] = [[None]]
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError):
        read_saved(path, "this")
