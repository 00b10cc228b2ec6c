"""What goes wrong around the workers: at their start, in their directory, with the watch."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import load
from gateway.policy.model import Config
from gateway.serving import reload as module
from gateway.serving.reload import ConfigSource, Reloader
from tests.support.gateway import TIMEOUT
from tests.support.served import Served, configuration, serving, sockets_of, write
from tests.support.upstream import completion, plain, playing, sending


async def answers_of(served: Served, count: int) -> set[str]:
    answers = await asyncio.gather(*(served.ask() for _ in range(count)))
    return {answer.json()["choices"][0]["message"]["content"] for answer in answers}


async def test_a_worker_that_starts_beside_a_reload_catches_up(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("12MONKEYS")))) as upstream:
        write(path, configuration(upstream.base_url, "[OLD]"))
        async with serving(path, "--workers", "2", "--no-watch") as served:
            os.kill(served.workers()[0], signal.SIGKILL)
            await served.logged("worker_died")
            async with asyncio.timeout(TIMEOUT):
                while len(served.workers()) < 2:
                    await asyncio.sleep(0.01)
            # Its successor has been given the old rules and needs a while to import everything.
            write(path, configuration(upstream.base_url, "[NEW]"))
            served.process.send_signal(signal.SIGHUP)
            assert (await served.logged("reload"))[0]["outcome"] == "ok"
            async with asyncio.timeout(TIMEOUT):
                while min(open_connections(pid) for pid in served.workers()) < 2:
                    assert await answers_of(served, 8) == {"[NEW]"}
            assert await answers_of(served, 16) == {"[NEW]"}


def open_connections(pid: int) -> int:
    """Without the two to the supervisor: a worker has some when it serves."""
    return sockets_of(pid) - 2


async def test_workers_import_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "gateway").mkdir(parents=True)
    write(elsewhere / "gateway" / "__init__.py", "raise RuntimeError('of the working directory')")
    write(elsewhere / "uvloop.py", "raise RuntimeError('of the working directory')")
    path = tmp_path / "portcullis.yaml"
    async with playing(sending(plain(completion("12MONKEYS")))) as upstream:
        write(path, configuration(upstream.base_url))
        script = Path(sys.executable).with_name("portcullis")
        async with serving(path, "--workers", "2", command=(str(script),), directory=elsewhere) as served:
            assert await answers_of(served, 4) == {"[CENSORED]"}


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_stop_while_starting_is_a_stop(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "portcullis.yaml"
    words = [f"word number {number}" for number in range(60_000)]
    rules = {"default": {"rules": [{"id": "many", "words": words}]}}
    write(path, configuration("http://127.0.0.1:9/v1", policies=rules))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(path), "--workers", str(workers)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    try:
        # Once it ignores SIGHUP, as it does from its first moments on, it also knows what SIGTERM means.
        async with asyncio.timeout(TIMEOUT):
            while not ignores(process.pid, signal.SIGHUP):
                await asyncio.sleep(0.005)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
        assert not list(scratch.iterdir())
    finally:
        if process.returncode is None:
            process.kill()


def ignores(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    return bool(ignored >> (number - 1) & 1)


async def test_files_that_cannot_be_watched_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*directories: str, **options: object) -> None:
        raise OSError("inotify watch limit reached")

    monkeypatch.setattr(module, "awatch", refuses)
    monkeypatch.setattr(module, "POLL_MS", 20)
    path = tmp_path / "portcullis.yaml"
    write(path, configuration("http://127.0.0.1:9/v1", "[OLD]"))
    files = load(path).files
    adopted: list[Config] = []
    problems: list[str] = []

    async def adopt(config: Config) -> None:
        adopted.append(config)

    source = ConfigSource(lambda: load(path), files, module.fingerprint(files))
    task = asyncio.create_task(module.watch(Reloader(source, adopt, lambda fact: None), problems.append))
    try:
        async with asyncio.timeout(TIMEOUT):
            while not problems:
                await asyncio.sleep(0.01)
            write(tmp_path / "new", configuration("http://127.0.0.1:9/v1", "[NEW]"))
            (tmp_path / "new").replace(path)
            while not adopted:
                await asyncio.sleep(0.01)
        assert adopted[0].policies["default"].rules[0].replacement == "[NEW]"
        assert len(problems) == 1
        assert "cannot be watched" in problems[0]
    finally:
        task.cancel()


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_state_that_redis_does_not_take_is_an_error_of_the_configuration(tmp_path: Path, command: str) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration("http://127.0.0.1:9/v1", state="redis://:hidden@127.0.0.1/0?nonsense=1"))
    options = ["--config", str(path)] if command == "serve" else [str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", command, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert ": state: " in done.stderr
    assert "hidden" not in done.stderr
