"""`portcullis audit` as a process, with a served model: signals, time, closed and full streams."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit_command import FULL, Paused, lines_of
from tests.support.commands import COMMAND, TIMEOUT, environment, portcullis
from tests.support.fake_gateway import gateway

Json = dict[str, Any]


pytestmark = pytest.mark.usefixtures("own_environment")


# -- as a process, with a served model ---------------------------------------------------------------------------------


def test_a_served_model_is_asked(served_query: Callable[..., Path]) -> None:
    with gateway(Paused()) as (url, asked):
        done = portcullis("audit", served_query(url), "--batch", "8", KEY="a-key", no_proxy="*")
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(lines_of(done.stdout)) == 61
    assert {key for _, _, key in asked} == {"Bearer a-key"}


def test_ctrl_c_keeps_what_was_found_and_it_goes_on_later(served_query: Callable[..., Path], tmp_path: Path) -> None:
    with gateway(Paused()) as (url, _):
        whole = lines_of(portcullis("audit", served_query(url), "--batch", "8", no_proxy="*").stdout)
    saved = tmp_path / "saved"
    model = Paused(at=6)
    with gateway(model) as (url, _):
        path = served_query(url)
        process = subprocess.Popen(
            [*COMMAND, "audit", str(path), "--batch", "8", "--checkpoint", str(saved)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(no_proxy="*"),
        )  # fmt: skip
        try:
            assert model.reached.wait(TIMEOUT)
            process.send_signal(signal.SIGINT)
            output, error = process.communicate(timeout=TIMEOUT)
        finally:
            model.go_on.set()
            process.kill()
            process.wait()
        assert process.returncode == 130
        first = lines_of(output)
        assert first[-1]["summary"]["ended"] == "interrupted"
        assert error.decode() == (
            f"portcullis: stopped; strings found: {len(first) - 1}; to continue: --resume {saved}\n"
        )
        rest = lines_of(portcullis("audit", path, "--batch", "8", "--resume", saved, no_proxy="*").stdout)
    found, spec = first[:-1] + rest[:-1], whole[:-1]
    assert [line["text"] for line in found] == [line["text"] for line in spec]
    assert [line["logprob"] for line in found] == pytest.approx([line["logprob"] for line in spec])


def test_time_is_up_while_a_model_does_not_answer(served_query: Callable[..., Path], tmp_path: Path) -> None:
    model = Paused(at=6)
    with gateway(model) as (url, _):
        done = portcullis(
            "audit", served_query(url), "--timeout", "2", "--checkpoint", tmp_path / "saved", no_proxy="*"
        )
        model.go_on.set()
    assert done.returncode == 0
    assert lines_of(done.stdout)[-1]["summary"]["ended"] == "timeout"
    assert b"portcullis: stopped after 2.0 s; strings found: " in done.stderr
    assert (tmp_path / "saved").exists()


def test_a_reader_that_leaves_ends_the_audit_but_not_the_checkpoint(
    served_query: Callable[..., Path], tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    with gateway(Paused()) as (url, _), os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [*COMMAND, "audit", str(served_query(url)), "--checkpoint", str(tmp_path / "saved")],
            stdout=closed, stderr=subprocess.PIPE, env=environment(no_proxy="*"), timeout=TIMEOUT,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (74, b"")
    assert (tmp_path / "saved").exists()


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
def test_standard_output_may_be_full(served_query: Callable[..., Path], tmp_path: Path) -> None:
    said = b"portcullis: standard output: cannot be written: No space left on device\n"
    out, kept = tmp_path / "out", tmp_path / "saved"
    with gateway(Paused()) as (url, _), FULL.open("wb") as full:
        path = served_query(url)
        for more in (["--count"], ["--out", str(out), "--checkpoint", str(kept)]):
            done = subprocess.run(
                [*COMMAND, "audit", str(path), *more],
                stdout=full, stderr=subprocess.PIPE, env=environment(no_proxy="*"), timeout=TIMEOUT,
            )  # fmt: skip
            assert done.returncode == 74
            assert done.stderr.endswith(said)
    assert done.stderr == f"portcullis: failed; strings found: 1; to continue: --resume {kept}\n".encode() + said
    assert [line.get("summary", {}).get("ended") for line in lines_of(out.read_bytes())] == [None, "failed"]
    assert kept.exists()


@pytest.mark.parametrize("closed", [1, 2])
def test_streams_may_be_closed(served_query: Callable[..., Path], tmp_path: Path, closed: int) -> None:
    out, rules = tmp_path / "out", tmp_path / "rules"
    with gateway(Paused()) as (url, _):
        command = [*COMMAND, "audit", str(served_query(url)), "--out", str(out), "--emit-rules", str(rules)]
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command],
            capture_output=True, env=environment(no_proxy="*"), timeout=TIMEOUT,
        )  # fmt: skip
    assert done.returncode == 0
    lines = lines_of(out.read_bytes())
    assert lines[-1]["summary"]["strings"] == len(lines) - 1 == 60
    assert lines_of(done.stdout) == ([] if closed == 1 else lines)
    assert rules.exists()


def test_standard_output_may_be_in_another_encoding(served_query: Callable[..., Path]) -> None:
    with gateway(Paused()) as (url, _):
        path = served_query(url, query="a?é", limit=2)
        done = portcullis("audit", path, no_proxy="*", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert {line["text"] for line in lines_of(done.stdout)[:-1]} == {"é", "aé"}


def test_a_server_that_goes_away_half_way(served_query: Callable[..., Path]) -> None:
    plays = Paused()

    def refusing() -> Iterator[bool]:
        for _ in range(20):
            yield False
        while True:
            yield True

    refuses = refusing()

    def play(path: str, body: Json) -> tuple[int, bytes]:
        return (403, b'{"error": {"message": "no more"}}') if next(refuses) else plays(path, body)

    with gateway(play) as (url, _):
        done = portcullis("audit", served_query(url), "--batch", "2", no_proxy="*")
    assert done.returncode == 75
    lines = lines_of(done.stdout)
    assert lines[-1]["summary"]["ended"] == "failed"
    assert lines[-1]["summary"]["strings"] == len(lines) - 1 > 0
    failed, why = done.stderr.decode().splitlines()
    assert failed.startswith("portcullis: failed; strings found: ")
    assert why.startswith(f"portcullis: {url}/v1: the server refuses: status 403")


def test_a_servers_tokenizer_is_needed(served_query: Callable[..., Path]) -> None:
    path = served_query("http://127.0.0.1:9", model={"vllm": "http://127.0.0.1:9/v1", "name": "m"})
    done = portcullis("audit", path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"{path}: model.tokenizer: is required: ")
