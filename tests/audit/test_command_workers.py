"""`portcullis audit` of several queries over several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import cli
from gateway.audit.cli import perform
from tests.support import faulty_model
from tests.support.audit_command import QUERY as NUMBER
from tests.support.audit_command import Paused, lines_of
from tests.support.audit_tasks import MANY, SPOKEN, Halted, names
from tests.support.commands import COMMAND, TIMEOUT, environment, portcullis
from tests.support.fake_gateway import choices, gateway
from tests.support.faulty_model import NUMBERS
from tests.support.memory import Memory

Json = dict[str, Any]


# -- the command -------------------------------------------------------------------------------------------------------


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
        assert model.reached.wait(TIMEOUT)
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
            output, error = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 130
        first = lines_of(output)
        assert first[-1]["summary"]["ended"] == "interrupted"
        assert (
            error.decode() == f"portcullis: stopped; strings found: {len(first) - 1}; to continue: --resume {saved}\n"
        )
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
            output, error = process.communicate(timeout=TIMEOUT)
        assert len(workers) == 2 and process.returncode == 75
        first = lines_of(output)
        assert first[-1]["summary"]["ended"] == "failed"
        stopped, why = error.decode().splitlines()
        assert stopped.startswith(f"portcullis: failed; strings found: {len(first) - 1}; to continue: --resume {saved}")
        assert why in {f"portcullis: {path}: its worker has ended: SIGKILL" for path in paths}
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
        assert process.communicate(timeout=TIMEOUT / 2)[1] == b""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = cli.main(["audit", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Files of queries for a model of the test's own, in whatever process it is asked."""
    monkeypatch.setattr(perform, "model_of", lambda *_: Memory(NUMBERS))
    monkeypatch.setattr(perform, "ModelLoader", lambda *_: faulty_model.numbers)

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
        ({"model": {"hf": "./other"}}, [], "model: differs from that of "),
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
    assert done == (2, "", "command line: --ray: needs an optional dependency: pip install -e '.[ray]'\n")


def test_one_task_needs_no_other_process(numbers: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, numbers("first"), "--processes", 8)
    assert (status, len(out.splitlines())) == (0, 4)
    assert multiprocessing.active_children() == []
