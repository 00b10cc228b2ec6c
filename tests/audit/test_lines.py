"""JSON lines, samples as they are drawn, and the progress meter."""

from __future__ import annotations

import errno
import io
import json
import signal
from dataclasses import replace
from typing import Any

import pytest

from gateway.audit.model import LanguageModel
from gateway.audit.models.toy import Toy
from gateway.audit.query.model import Decoding, Random
from gateway.audit.run.interrupts import Ended, Interrupts
from gateway.audit.run.lines import LineWriter, WriteError
from gateway.audit.run.progress import FinishedTask, FoundString, SavedAudit
from gateway.audit.run.runner import SamplingOutcome, TaskRun, run_sampling
from gateway.audit.searches.best_first import Result
from gateway.audit.searches.sample import sample
from gateway.progress import ProgressMeter
from tests.support.audit_runs import QUERY, VOCABULARY, Eventful, Searched, Terminal, texts

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
    assert "secret" not in repr(found) and "secret" not in repr(SavedAudit({0: FinishedTask(found=(found,))}))
