"""`portcullis audit` of a query: what goes in, what comes out, and with which status it ends."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.cli import perform
from gateway.audit.cli.plan import Plan
from gateway.audit.language.automaton import AutomatonTooLarge
from gateway.files import write_private
from tests.support.audit_command import FULL, NUMBERS, RESULT_FIELDS, Audit
from tests.support.memory import Memory

Json = dict[str, Any]


pytestmark = pytest.mark.usefixtures("own_environment")


# -- a query -----------------------------------------------------------------------------------------------------------


def test_the_likeliest_strings_come_first_and_a_summary_last(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query())
    assert done.status == 0
    assert done.texts == ["My number is 555 0100", "My number is 555 0199", "My number is 212 0000"]
    assert all(list(line) == RESULT_FIELDS for line in done.lines[:-1])
    logprobs = [line["logprob"] for line in done.lines[:-1]]
    assert logprobs == sorted(logprobs, reverse=True)
    assert math.exp(logprobs[1] - logprobs[0]) == pytest.approx(0.5, abs=1e-3)
    assert done.summary == {
        "strings": 3, "ended": "limit", "nodes": done.summary["nodes"], "seconds": done.summary["seconds"],
        "exact_to": None, "prefixes_cut": True,  # of very unlikely spellings of the prefix
    }  # fmt: skip
    assert done.error == ""


def test_the_command_line_goes_before_the_query(audit: Audit, query: Callable[..., Path]) -> None:
    assert len(audit(query(), "--limit", 1).texts) == 1
    least = audit(query(limit=1000), "--least", "0.2")
    assert least.texts == ["My number is 555 0100", "My number is 555 0199"]
    assert least.summary["ended"] == "least"
    one = Memory(NUMBERS)
    audit(query(), "--batch", 1, model=one)
    many = Memory(NUMBERS)
    audit(query(), "--batch", 64, model=many)
    assert one.calls > many.calls


def test_all_there_is_may_be_less_than_the_limit(audit: Audit, query: Callable[..., Path]) -> None:
    done = audit(query(query="My number is (555|212) 0100", limit=100))
    assert (len(done.texts), done.summary["ended"]) == (2, "finished")


def test_findings_can_be_a_failure(audit: Audit, query: Callable[..., Path]) -> None:
    assert audit(query(), "--fail-on-findings").status == 3
    assert audit(query(), "--fail-on-findings", "--least", "0.9").status == 0


def test_samples(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    path = query(traversal={"random": {"samples": 30, "seed": 1}})
    report = tmp_path / "report.html"
    done = audit(path, "--report", report, "--emit-rules", tmp_path / "rules.yaml", "--verify", "mask")
    assert done.status == 0
    assert all(list(line) == ["text", "tokens", "logprob", "prefix_logprob", "weight"] for line in done.lines[:-1])
    assert set(done.texts) <= set(NUMBERS)
    assert done.summary["samples"] == 30
    assert done.summary["estimate"]["probability"] == pytest.approx(1, abs=0.01)
    assert done.summary["verify"]["still"] == 0
    assert "Probability" not in report.read_text("utf-8")
    assert len(audit(path, "--limit", 5).texts) <= 5


def test_a_checkpoint_of_samples_is_refused(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    done = audit(query(traversal={"random": {"samples": 3}}), "--checkpoint", tmp_path / "c")
    assert done.status == 2
    assert "query.yaml: traversal: random has no checkpoint" in done.error


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_lines_in_a_file_are_the_same(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "lines.jsonl"
    done = audit(query(), "--out", out)
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == done.lines
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_report_says_what_was_found(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = audit(query(), "--report", report)
    page = report.read_text("utf-8")
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert '<span class="prefix">My number is</span> 555 0100' in page
    assert "Audit of " in page and "My number is [0-9]{3} [0-9]{4}" in page
    assert "canonical" in page and "Edits" not in page
    assert f"<dd>{done.summary['nodes']}</dd>" in page


def test_a_report_says_where_edits_are(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    path = query(query="My number is 555 0101", preprocess=[{"edits": 1, "alphabet": "digits"}], limit=2)
    done = audit(path, "--report", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert done.texts == ["My number is 555 010", "My number is 555 0100"]
    assert "<title>character 20: 2</title>" in page


@pytest.mark.parametrize("option", ["--out", "--report", "--emit-rules", "--checkpoint"])
def test_where_a_file_cannot_be_nothing_is_asked(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, option: str
) -> None:
    model = Memory(NUMBERS)
    for place in (tmp_path / "nosuch" / "file", tmp_path):
        done = audit(query(), option, place, model=model)
        assert (done.status, done.lines, model.calls) == (2, [], 0)
        assert done.error.startswith(f"{place}: cannot be written: ")


@pytest.mark.parametrize("option", ["--report", "--emit-rules", "--checkpoint", "--resume"])
def test_what_is_no_file_is_not_made_one(audit: Audit, query: Callable[..., Path], tmp_path: Path, option: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = audit(query(), option, pipe)
    assert (done.status, done.lines) == (2, [])
    assert done.error == f"{pipe}: cannot be written: it is a device or a pipe, not a file\n"
    assert pipe.is_fifo()


@pytest.mark.parametrize("option", ["--report", "--emit-rules", "--checkpoint"])
def test_where_no_file_can_be_made_nothing_is_asked(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, option: str
) -> None:
    model, place = Memory(NUMBERS), tmp_path / ("x" * 254)  # there is no room for another name beside it
    done = audit(query(), option, place, model=model)
    assert (done.status, done.lines, model.calls) == (2, [], 0)
    assert done.error == f"{place}: cannot be written: File name too long\n"


def test_no_file_is_written_over_another_of_the_audit(
    audit: Audit, query: Callable[..., Path], asked: list[str], tmp_path: Path
) -> None:
    path, prompts, one = query(), tmp_path / "prompts.txt", tmp_path / "one"
    before = path.read_bytes(), prompts.read_bytes()
    cases: list[tuple[list[object], str]] = [
        ([path, "--out", path], f"{path}: is named twice: as a query, and as --out\n"),
        (
            [path, "--out", tmp_path / ".." / tmp_path.name / "one", "--emit-rules", one],
            "as --out, and as --emit-rules\n",
        ),
        ([path, "--report", one, "--checkpoint", one], f"{one}: is named twice: as --report, and as --checkpoint\n"),
        ([*asked, "--report", prompts], f"{prompts}: is named twice: as --prompts, and as --report\n"),
    ]
    for arguments, said in cases:
        done = audit(*arguments)
        assert (done.status, done.lines) == (2, [])
        assert done.error.endswith(said)
    assert (path.read_bytes(), prompts.read_bytes()) == before and not one.exists()
    audit(path, "--limit", 1, "--checkpoint", one)
    assert audit(path, "--checkpoint", one, "--resume", one, "--limit", 2).status == 0


def test_lines_of_before_stay_when_nothing_is_asked(audit: Audit, query: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    assert audit(query(), "--out", out, "--verify", "http://127.0.0.1:9").status == 2
    assert out.read_text() == "before"


def test_a_file_that_was_there_is_its_owners_only_from_now_on(
    audit: Audit, query: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    out.chmod(0o644)
    done = audit(query(), "--out", out)
    assert (done.status, stat.S_IMODE(out.stat().st_mode)) == (0, 0o600)
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == done.lines


@pytest.mark.parametrize("full", ["report", "emit_rules", "checkpoint"])
def test_a_file_that_finds_no_room_leaves_the_others(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def write(path: Path, data: bytes) -> None:
        if path.name == full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_private(path, data)

    monkeypatch.setattr(perform, "write_private", write)
    monkeypatch.setattr("gateway.audit.run.progress.write_private", write)
    places = {name: tmp_path / name for name in ("report", "emit_rules", "checkpoint")}
    options = [each for name, place in places.items() for each in (f"--{name.replace('_', '-')}", place)]
    done = audit(query(), *options, "--verify", "mask")
    assert (done.status, len(done.texts), done.summary["verify"]["still"]) == (74, 3, 0)
    assert f"portcullis: {places[full]}: cannot be written: No space left on device\n" in done.error
    assert [name for name, place in places.items() if not place.exists()] == [full]


def test_a_report_that_cannot_be_made_is_no_end_of_the_rest(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*_: object) -> None:
        raise AutomatonTooLarge("the language needs more than 7 states")

    monkeypatch.setattr(Plan, "rows", rows)
    done = audit(query(), "--report", tmp_path / "report")
    assert (done.status, len(done.texts), done.summary["ended"]) == (75, 3, "limit")
    assert done.error == "portcullis: the language needs more than 7 states\n"


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_lines_that_find_no_room_are_on_the_other_stream(
    audit: Audit, query: Callable[..., Path], tmp_path: Path
) -> None:
    done = audit(query(), "--out", FULL, "--emit-rules", tmp_path / "rules")
    assert (done.status, done.texts, done.summary["ended"]) == (74, ["My number is 555 0100"], "failed")
    assert done.error.endswith("portcullis: /dev/full: cannot be written: No space left on device\n")
    assert "0100" in (tmp_path / "rules").read_text("utf-8")


def test_ctrl_c_while_the_checkpoint_is_written_leaves_it_written(
    audit: Audit, query: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: bytes) -> None:
        signal.raise_signal(signal.SIGINT)
        write_private(path, data)

    monkeypatch.setattr("gateway.audit.run.progress.write_private", write)
    place, rules = tmp_path / "saved", tmp_path / "rules"
    done = audit(query(), "--checkpoint", place, "--emit-rules", rules, "--verify", "mask")
    assert (done.status, len(done.texts), done.summary["ended"]) == (130, 3, "limit")
    assert "verify" not in done.summary and place.exists() and rules.exists()
