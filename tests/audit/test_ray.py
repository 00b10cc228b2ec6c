"""The same audits by workers of Ray, which is started here for each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.audit.model import ModelError
from gateway.audit.models.loading import ModelLoader
from gateway.audit.query.model import LocalModel
from gateway.audit.run.ray import RayPool
from tests.support.audit_command import Paused, lines_of
from tests.support.audit_tasks import MANY, SPOKEN, Halted, names
from tests.support.commands import COMMAND, environment
from tests.support.fake_gateway import Json, gateway

pytestmark = pytest.mark.ray

TIMEOUT = 240  # seconds until a test that hangs fails; Ray takes its time to start

RAY = ("--ray", "local", "--processes", "2")


def audit(*arguments: object, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, "audit", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, timeout=TIMEOUT, env=environment(no_proxy="*", **variables)
    )  # fmt: skip


def test_two_workers_say_what_one_process_does(queries: Callable[..., list[Path]]) -> None:
    with gateway(Paused()) as (url, requests):
        paths = queries(url, *SPOKEN)
        alone = audit(*paths, "--verify", "mask", KEY="a-key")
        many = audit(*paths, *RAY, "--verify", "mask", KEY="a-key")
    assert (alone.returncode, alone.stderr) == (0, b"")
    assert (many.returncode, many.stderr) == (0, b"")
    assert {key for _, _, key in requests} == {"Bearer a-key"}
    *lines, summary = lines_of(alone.stdout)
    *many_lines, many_summary = lines_of(many.stdout)
    assert many_lines == lines and len(lines) == 36
    assert without_time(many_summary) == without_time(summary)


def without_time(line: Json) -> Json:
    return {name: value for name, value in line["summary"].items() if name != "seconds"}


def descendants(process: int) -> Iterator[tuple[int, str]]:
    """The processes that it started, and those that they started, with what they are called."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (thread / "children").read_text("utf-8").split()):
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
            yield from descendants(child)


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_what_is_done_is_kept(queries: Callable[..., list[Path]], tmp_path: Path, ends: str) -> None:
    saved, model = tmp_path / "saved", Halted(8)
    with gateway(model) as (url, _):
        paths = queries(url, *MANY)
        process = subprocess.Popen(
            [*COMMAND, "audit", *map(str, paths), *RAY, "--checkpoint", str(saved)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(no_proxy="*"), start_new_session=True,
        )  # fmt: skip
        try:
            assert model.reached.wait(TIMEOUT)
            if ends == "killed":
                workers = [number for number, name in descendants(process.pid) if name.startswith("ray::Worker")]
                assert len(workers) == 2
                for worker in workers:
                    os.kill(worker, signal.SIGKILL)
            else:
                # A call of the model is not given up, so it is answered afterwards.
                os.killpg(process.pid, signal.SIGINT)
                model.go_on.set()
            output, error = process.communicate(timeout=TIMEOUT)
        finally:
            model.go_on.set()
            process.kill()
            process.wait()
        first = lines_of(output)
        stopped, *why = (line for line in error.decode().splitlines() if line.startswith("portcullis: "))
        if ends == "killed":
            assert (process.returncode, first[-1]["summary"]["ended"]) == (75, "failed")
            assert why in [
                [f"portcullis: {path}: its worker has ended: ActorDiedError"] for path in paths
            ]  # fmt: skip
        else:
            assert (process.returncode, first[-1]["summary"]["ended"], why) == (130, "interrupted", [])
        assert stopped.endswith(f"; strings found: {len(first) - 1}; to continue: --resume {saved}")
        rest = lines_of(audit(*paths, "--resume", saved).stdout)
        whole_lines = lines_of(audit(*paths).stdout)
    assert sorted(names(first[:-1] + rest[:-1])) == sorted(names(whole_lines[:-1]))


def test_there_is_no_ray_to_connect_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Ray says of it may name what it likes, and is not repeated."""
    import ray

    def refuses(**_: object) -> None:
        raise ConnectionError("a SECRET")

    monkeypatch.setattr(ray, "init", refuses)
    before = sys.stdout
    with pytest.raises(ModelError, match=r"^--ray auto: Ray cannot be reached, or started: ConnectionError$"):
        RayPool("auto", ModelLoader(LocalModel("m"), "cpu"), 2, 2, "cpu")
    assert sys.stdout is before


def test_a_model_that_no_worker_can_load(queries: Callable[..., list[Path]], tmp_path: Path) -> None:
    """There is no PyTorch here, or no such folder."""
    [path] = queries("http://127.0.0.1:9", "a")
    done = audit(path, *RAY, "--model", f"hf:{tmp_path / 'nothing'}")
    assert (done.returncode, done.stdout) == (75, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"portcullis: {tmp_path / 'nothing'}: ")
