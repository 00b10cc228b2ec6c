"""An audit that is stopped, fails or is taken up again loses nothing; and what it says of itself while it runs."""

from __future__ import annotations

import errno
import io
import itertools
import json
import math
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gateway.audit.model import Floats, LanguageModel, Messages, ModelError
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Bounds, Decoding, Query, Random
from gateway.audit.run.interrupts import AuditStopped, InterruptibleModel, Interrupts, StopReason
from gateway.audit.run.lines import LineWriter, WriteError
from gateway.audit.run.progress import Ended, FinishedTask, FoundString, SavedAudit, read_saved, save
from gateway.audit.run.runner import Outcome, SamplingOutcome, Task, TaskRun, run_sampling
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchProgress, search
from gateway.audit.searches.checkpoint import Checkpoint, CheckpointError
from gateway.audit.searches.sample import sample
from gateway.automata.vocabulary import Ints
from gateway.files import write_private
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
    assert stopped.value.reason is StopReason.TIMEOUT


def test_when_time_is_up_after_ctrl_c_it_was_ctrl_c() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGALRM)
        with pytest.raises(AuditStopped) as stopped:
            interrupts.check()
        assert stopped.value.reason is StopReason.INTERRUPTED and interrupts.interrupted
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
        b"", b"no", b"[]", b"{}", b'{"portcullis_audit": 2}',
        b'{"portcullis_audit": 1, "audit": "this", "done": 3, "search": null}',
        b'{"portcullis_audit": 1, "audit": "this", "done": [[{"more": {}}]], "search": null}',
        b'{"portcullis_audit": 1, "audit": "this", "done": [], "search": {}}',
        b'{"portcullis_audit": 1, "audit": "another", "done": [], "search": null}',
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
        change(content["search"])
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
    save(path, SavedAudit((FinishedTask(found=WHOLE.found),), None), "this")
    content = json.loads(path.read_bytes())
    content["done"][0]["found"][0][name] = [[None]]
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError):
        read_saved(path, "this")


# -- lines -------------------------------------------------------------------------------------------------------------


class Full(io.StringIO):
    name = "full"

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


class Gone(Full):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_stream_that_takes_no_line_keeps_it_from_no_other() -> None:
    meter, out = ProgressMeter(io.StringIO()), io.StringIO()
    with pytest.raises(WriteError, match=r"^full: cannot be written: No space left on device$"):
        LineWriter(meter, Full(), out).write({"text": "x"})
    for streams in ((Full(), Gone(), out), (Gone(), Full(), out)):
        with pytest.raises(BrokenPipeError):
            LineWriter(meter, *streams).write({"text": "x"})
    assert texts(out.getvalue()) == ["x"] * 3


@pytest.mark.parametrize(("encoding", "text"), [("ascii", "é😀"), ("latin-1", "é😀"), ("utf-8", "\udcff")])
def test_a_line_is_json_in_any_encoding(encoding: str, text: str) -> None:
    kept = io.BytesIO()
    stream = io.TextIOWrapper(kept, encoding)
    LineWriter(ProgressMeter(io.StringIO()), stream).write({"text": text, "logprob": -1.5})
    assert json.loads(kept.getvalue().decode(encoding)) == {"text": text, "logprob": -1.5}


# -- drawn -------------------------------------------------------------------------------------------------------------

DRAWING = replace(QUERY, traversal=Random(samples=40, seed=1), decoding=Decoding(max_tokens=4, end_of_text=True))


def drawn(model: LanguageModel) -> tuple[SamplingOutcome, list[dict[str, Any]]]:
    out, meter = io.StringIO(), ProgressMeter(io.StringIO())
    with Interrupts() as interrupts:
        found = run_sampling(
            lambda attended: sample(attended, DRAWING, batch=4), model, LineWriter(meter, out), interrupts
        )
    return found, [json.loads(line) for line in out.getvalue().splitlines()]


def test_every_sample_is_a_line() -> None:
    found, lines = drawn(Toy(VOCABULARY))
    assert len(lines) == 40
    assert list(lines[0]) == ["text", "tokens", "logprob", "prefix_logprob", "weight"]
    assert [each.result.text for each in found.found] == [line["text"] for line in lines if line["text"] is not None]
    estimate = sample(Toy(VOCABULARY), DRAWING)
    list(estimate)
    assert found.summary()["estimate"] == {
        "probability": estimate.estimate().probability,
        "low": estimate.estimate().low,
        "high": estimate.estimate().high,
        "samples": 40,
        "effective": estimate.estimate().effective,
    }


def test_samples_are_kept_when_it_is_stopped() -> None:
    _, lines = drawn(Toy(VOCABULARY))
    found, some = drawn(Eventful(20, lambda: signal.raise_signal(signal.SIGINT)))
    assert found.ended is Ended.INTERRUPTED
    assert 0 < len(some) < 40 and some == lines[: len(some)]
    assert found.estimate is not None and found.estimate.samples == len(some)


def test_nothing_drawn_is_no_estimate() -> None:
    found, lines = drawn(Eventful(1, lambda: signal.raise_signal(signal.SIGINT)))
    assert (found.estimate, found.samples, lines) == (None, 0, [])
    assert found.summary()["estimate"] is None


# -- how far it is -----------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    meter = ProgressMeter(stream, clock)
    for second in range(35):
        clock.now = 100.0 + second
        meter.show(lambda seconds: f"after {seconds:.0f} s")
    meter.clear()
    assert stream.getvalue() == "after 10 s\nafter 20 s\nafter 30 s\n"


def test_a_terminal_has_one_line_that_makes_room() -> None:
    stream, clock = Terminal(), Clock()
    meter = ProgressMeter(stream, clock)
    lines = LineWriter(meter, stream)
    for _ in range(3):
        clock.now += 0.25
        meter.show(lambda seconds: f"after {seconds}")
    lines.write({"text": "x"})
    lines.write({"text": "y"})
    assert stream.getvalue() == (
        "\r\x1b[Kafter 0.25\r\x1b[Kafter 0.5\r\x1b[Kafter 0.75" "\r\x1b[K" '{"text": "x"}\n{"text": "y"}\n'
    )  # fmt: skip


def test_nobody_need_read_how_far_it_is() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    clock = Clock()
    meter = ProgressMeter(Closed(), clock)
    clock.now += 60
    meter.show(lambda _: "x")


def test_progress_says_numbers_only() -> None:
    stream, clock = io.StringIO(), Clock()
    meter = ProgressMeter(stream, clock)

    def later() -> None:
        clock.now += 11

    with Interrupts() as interrupts:
        run = TaskRun(
            [Searched(replace(QUERY, limit=20), seen=later)] * 2, LineWriter(meter, io.StringIO()), interrupts
        )
        run.perform(Toy(VOCABULARY))
    said = stream.getvalue().splitlines()
    assert said[0].startswith("search 1 of 2, 1 nodes, batch 1, 0 strings (0.0/s), best pending -")
    assert all(set(line) <= set("search of nodes, batch strings (./s), best pending -inf0123456789") for line in said)


def test_what_was_found_shows_no_text() -> None:
    found = FoundString(Result("a secret", (1,), 0.0, 0.0, 0.0, 1, 0), {"prompt": "a secret"})
    assert "secret" not in repr(found) and "secret" not in repr(SavedAudit((FinishedTask(found=(found,)),), None))
