"""`portcullis serve --vllm` as a process, around a program that stands in for vLLM on real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.commands import environment, portcullis
from tests.support.forked import AsyncForked
from tests.support.gateway import TIMEOUT, http_client
from tests.support.managed_vllm import MODEL, StandIn, lives
from tests.support.served import Served, write

RULE = {"id": "password", "words": ["12MONKEYS"], "replacement": "[CENSORED]"}


@dataclass
class Started(Served):
    """A gateway that listens, whether its model is ready or not; what it has printed."""

    printed: list[str] = field(default_factory=list)

    async def announced(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not any(" listens on " in line for line in self.printed):
                await asyncio.sleep(0.01)

    async def status(self, path: str) -> int:
        return (await self.client.get(f"{self.admin}{path}")).status_code

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), TIMEOUT)

    @property
    def said(self) -> str:
        """What stands between the lines of the log."""
        return "".join(str(line["text"]) for line in self.log if line["event"] == "text")


def configuration(**more: object) -> dict[str, object]:
    return {
        "listen": {"port": 0, "admin": {"port": 0}},
        "upstreams": {"local": {"type": "vllm"}},
        "routes": [{"model": "tiny", "upstream": "local", "policy": "default"}],
        "policies": {"default": {"rules": [RULE]}},
        **more,
    }


@asynccontextmanager
async def starting(stand_in: StandIn, *arguments: str, **variables: str) -> AsyncIterator[Started]:
    """`portcullis serve --vllm …`, from when it listens; killed at the end if it still runs."""
    command = ("serve", "--log", "json", "--vllm", MODEL, "--vllm-command", stand_in.command, *arguments)
    process = await AsyncForked.start(*command, env=environment(**variables))
    async with http_client() as client:
        started = Started(process, "", "", [], client)
        reading = [
            asyncio.create_task(follow(process.stderr, started.log)),
            asyncio.create_task(follow(process.stdout, [], started.printed)),
        ]
        try:
            (listening,) = await started.logged("listening")
            started.url = str(listening["url"])
            started.admin = str(listening["admin"] or listening["url"])
            yield started
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await asyncio.wait_for(asyncio.gather(*reading), TIMEOUT)


async def follow(pipe: asyncio.StreamReader, log: list[dict[str, object]], lines: list[str] | None = None) -> None:
    while line := (await pipe.readline()).decode():
        if lines is not None:
            lines.append(line)
        else:
            log.append(json.loads(line) if line.startswith("{") else {"event": "text", "text": line})


async def answer_of(started: Started, model: str = "tiny") -> str:
    """The answer, when there is one."""
    async with asyncio.timeout(TIMEOUT):
        while (answer := await started.ask(model=model)).status_code != 200:
            await asyncio.sleep(0.01)
    return str(answer.json()["choices"][0]["message"]["content"])


# -- start -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_gateway_is_up_before_its_model_and_ready_with_it(
    tmp_path: Path, stand_in: StandIn, workers: str
) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration())
    stand_in.will(waits_for="weights")
    async with starting(stand_in, "--config", str(path), "--workers", workers) as started:
        told = await stand_in.started()
        assert await started.status("/healthz") == 200
        if workers == "1":  # the answer holds for ten seconds, which once is enough to wait for
            assert await started.status("/readyz") == 503
        assert (await started.ask(model="tiny")).status_code == 502
        assert not started.printed
        (stand_in.folder / "weights").touch()
        await started.announced()
        assert await answer_of(started) == "tiny says [CENSORED]."
        async with asyncio.timeout(TIMEOUT):
            while await started.status("/readyz") != 200:
                await asyncio.sleep(0.01)
        key = told["environment"]["VLLM_API_KEY"]
        assert len(key) > 40
        assert key not in "".join([*told["arguments"], *started.printed, *map(str, started.log)])
        assert told["arguments"][1:4] == [MODEL, "--served-model-name", "tiny"]
        started.process.send_signal(signal.SIGTERM)
        assert await started.ended() == 0
        await stand_in.gone()


async def test_without_a_file_every_model_is_the_one_that_runs(stand_in: StandIn) -> None:
    async with starting(stand_in, "--port", "0", HTTP_PROXY="http://127.0.0.1:9") as started:
        assert await answer_of(started, "whatever") == f"{MODEL} says [CENSORED]."
        started.process.send_signal(signal.SIGINT)
        assert await started.ended() == 130
        await stand_in.gone()


async def test_a_chosen_name_and_port_are_used(stand_in: StandIn) -> None:
    names = "--served-model-name mine"
    async with starting(stand_in, "--port", "0", "--vllm-args", names) as first:
        told = await stand_in.started()
        assert await answer_of(first, "whatever") == "mine says [CENSORED]."
        port = told["arguments"][told["arguments"].index("--port") + 1]
        # Taken as long as the server is there, whoever has started it.
        done = portcullis(
            *("serve", "--port", "0", "--vllm", MODEL, "--vllm-command", stand_in.command),
            *("--vllm-args", f"--port {port}"),
        )
        assert done.returncode == 73
        assert done.stderr.startswith(f"portcullis: vLLM cannot listen on 127.0.0.1:{port}: Address".encode())
        first.process.send_signal(signal.SIGTERM)
        assert await first.ended() == 0
    async with starting(stand_in, "--port", "0", "--vllm-args", f"--port={port}") as second:
        assert "says" in await answer_of(second)
        await second.announced()
        assert f"127.0.0.1:{port}/v1" in second.printed[0]


async def test_output_that_nobody_reads_stops_nothing(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.will(writes=["Loading"], floods=30_000)
    log = tmp_path / "vllm.log"
    async with starting(stand_in, "--port", "0", "--vllm-log", str(log)) as started:
        assert "says" in await answer_of(started)
    assert log.read_text().startswith("Loading\n")
    assert log.stat().st_size > 30_000_000
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_start_that_fails_ends_the_gateway_and_shows_the_last_lines(stand_in: StandIn, workers: str) -> None:
    lines = [f"line \x1b[31m{number}\x1b[0m\a" for number in range(30)]
    stand_in.will(writes=["RuntimeError: the cause", "^^^^", *lines], exits=3)
    async with starting(stand_in, "--port", "0", "--workers", workers) as started:
        assert await started.ended() == 73
    shown = "".join(f"  line {number}\n" for number in range(10, 30))
    assert started.said.endswith(
        "portcullis: vLLM did not become ready: it ended with status 3\n"
        f"Errors in what it wrote:\n  RuntimeError: the cause\nThe last of what it wrote:\n{shown}"
    )
    assert not started.printed
    assert len(stand_in.starts) == 1


async def test_a_start_that_takes_too_long_ends_the_gateway(stand_in: StandIn) -> None:
    stand_in.will(writes=["INFO 11-21 18:50:01 [loader.py:1] Loading"], waits_for="never", children=True)
    async with starting(stand_in, "--port", "0", "--vllm-timeout", "1") as started:
        assert await started.ended() == 73
    assert "did not become ready: it took longer than 1 s (--vllm-timeout)" in started.said
    assert "  INFO 11-21 18:50:01 [loader.py:1] Loading\n" in started.said
    await stand_in.gone()


async def test_a_server_that_wants_another_key_is_not_taken(stand_in: StandIn) -> None:
    stand_in.will(key="another")
    async with starting(stand_in, "--port", "0") as started:
        assert await started.ended() == 73
    assert "did not become ready: it does not take the gateway's key" in started.said


async def test_what_is_no_program_ends_the_gateway(stand_in: StandIn, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\0")
    program.chmod(0o700)
    async with starting(stand_in, "--port", "0", "--vllm-command", str(program)) as started:
        assert await started.ended() == 73
    assert f"cannot start {program}: Exec format error" in started.said


async def test_where_the_plugin_is_missing_it_is_said(stand_in: StandIn) -> None:
    stand_in.will(writes=["ModuleNotFoundError: No module named 'gateway'"], exits=1)
    async with starting(stand_in, "--port", "0") as started:
        assert await started.ended() == 73
    assert "Portcullis has to be installed where vLLM is, too" in started.said


# -- life and end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_server_that_ends_is_started_again(stand_in: StandIn, workers: str) -> None:
    stand_in.will(children=True)
    async with starting(stand_in, "--port", "0", "--workers", workers) as started:
        await started.announced()
        first = await stand_in.started()
        os.kill(first["pid"], signal.SIGKILL)
        (died,) = await started.logged("vllm_died")
        assert (died["reason"], died["restart_in"]) == ("ended with status 137", 1.0)
        assert not any(map(lives, first["children"]))
        second = await stand_in.started(2)
        assert second["arguments"] == first["arguments"]
        assert second["environment"] == first["environment"]
        await started.logged("vllm_ready", 2)
        assert "says [CENSORED]" in await answer_of(started)
        assert sum(" listens on " in line for line in started.printed) == 1
        started.process.send_signal(signal.SIGTERM)
        assert await started.ended() == 0
        await stand_in.gone()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_killed_gateway_leaves_nothing_behind(stand_in: StandIn, workers: str) -> None:
    stand_in.will(children=True)
    async with starting(stand_in, "--port", "0", "--workers", workers) as started:
        await started.announced()
        started.process.kill()
        await started.ended()
        await stand_in.gone()


async def test_a_server_without_its_keeper_is_ended_and_started_again(stand_in: StandIn) -> None:
    async with starting(stand_in, "--port", "0") as started:
        await started.announced()
        first = await stand_in.started()
        os.kill(keeper_of(started), signal.SIGKILL)
        await stand_in.started(2)
        assert "says" in await answer_of(started)
        async with asyncio.timeout(TIMEOUT):
            while lives(first["pid"]):
                await asyncio.sleep(0.01)


async def test_a_stop_while_it_starts_is_a_stop(stand_in: StandIn) -> None:
    stand_in.will(waits_for="never", children=True)
    async with starting(stand_in, "--port", "0") as started:
        await stand_in.started()
        started.process.send_signal(signal.SIGTERM)
        assert await started.ended() == 0
        assert "did not become ready" not in started.said
        await stand_in.gone()


async def test_a_terminals_signals_do_not_reach_it(stand_in: StandIn) -> None:
    """The gateway decides when its model ends: after the answers that run."""
    async with starting(stand_in, "--port", "0") as started:
        await started.announced()
        pid = (await stand_in.started())["pid"]
        assert os.getpgid(pid) == pid
        keeper = keeper_of(started)
        assert os.getpgid(keeper) == keeper
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(keeper, number)
        assert "says" in await answer_of(started)
        assert lives(pid)


def keeper_of(started: Started) -> int:
    """The only child of a gateway with one worker."""
    threads = Path(f"/proc/{started.process.pid}/task").iterdir()
    (keeper,) = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return keeper


async def test_a_reload_keeps_it(tmp_path: Path, stand_in: StandIn) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration())
    async with starting(stand_in, "--config", str(path), "--no-watch") as started:
        assert await answer_of(started) == "tiny says [CENSORED]."
        rule = {**RULE, "replacement": "[NEW]"}
        write(path, configuration(policies={"default": {"rules": [rule]}}))
        started.process.send_signal(signal.SIGHUP)
        await started.logged("reload")
        assert await answer_of(started) == "tiny says [NEW]."
        write(path, configuration(upstreams={"local": {"type": "demo"}}))
        started.process.send_signal(signal.SIGHUP)
        refused = (await started.logged("reload", 2))[1]
        assert "upstreams: --vllm starts a server, but none of these is it" in str(refused["reason"])
        assert len(stand_in.starts) == 1


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vllm", ""], "command line: --vllm: names no model"),
        (["--vllm-args", "--enforce-eager"], "command line: --vllm-args: means nothing without --vllm MODEL"),
        (["--vllm-timeout", "1"], "command line: --vllm-timeout: means nothing without --vllm MODEL"),
        (
            ["--vllm", "m", "--vllm-command", "no-such-program"],
            "--vllm-command: does not begin with an executable program",
        ),
        (["--vllm", "m", "--vllm-command", "'"], "--vllm-command: cannot be split into words: No closing quotation"),
        (["--vllm", "m", "--vllm-args", "--host 0.0.0.0"], "--vllm-args: --host: cannot be given here: it listens on"),
        (["--vllm", "m", "--vllm-args", "--api_key=hush"], "--vllm-args: --api-key: cannot be given here: vLLM gets"),
        (["--vllm", "m", "--vllm-args", "--api-k hush"], "--vllm-args: --api-key: cannot be given here: vLLM gets"),
        (["--vllm", "m", "--vllm-args", "--port x"], "--vllm-args: --port: must be a port from 1 to 65535"),
        (["--vllm", "m", "--vllm-log", "/no/such/folder/log"], "--vllm-log: cannot be written: No such file"),
        (["--vllm", "m", "--vllm-timeout", "0"], "'0' is not a number of seconds from 1 to 86400"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], message: str) -> None:
    given = ["--vllm-command", sys.executable] if "--vllm" in arguments and "--vllm-command" not in arguments else []
    done = portcullis("serve", "--port", "0", *given, *arguments)
    assert message in done.stderr.decode()
    assert b"hush" not in done.stderr
    assert (done.stdout, done.returncode) == (b"", 2)


def test_two_servers_are_one_too_many() -> None:
    given = ["--vllm", "m", "--vllm-command", sys.executable]
    done = portcullis("serve", "--port", "0", *given, UPSTREAM_BASE_URL="http://127.0.0.1:9/v1")
    assert done.stderr.startswith(b"environment: UPSTREAM_BASE_URL: names another server than --vllm")
    assert done.returncode == 2


def test_where_there_is_no_vllm_it_is_said_how_to_get_one(tmp_path: Path) -> None:
    done = portcullis("serve", "--port", "0", "--vllm", "m", PATH=str(tmp_path))
    assert done.stderr.startswith(b"command line: --vllm: there is no vllm beside the Python that runs Portcullis")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("upstream", "arguments", "message"),
    [
        ({"type": "vllm"}, [], "upstreams.local.base_url: is required, unless the gateway starts the server"),
        ({"type": "demo"}, ["--vllm", "m"], "upstreams: --vllm starts a server, but none of these is it: write `local"),
        ({"type": "vllm", "api_key": "hush"}, ["--vllm", "m"], "upstreams.local.api_key: means nothing with --vllm"),
    ],
)
def test_file_and_command_line_have_to_agree(
    tmp_path: Path, upstream: dict[str, str], arguments: list[str], message: str
) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration(upstreams={"local": upstream}))
    command = ["--vllm-command", sys.executable] if arguments else []
    done = portcullis("serve", "--config", path, *arguments, *command)
    assert done.stderr.decode().startswith(f"{path}: {message}")
    assert b"hush" not in done.stderr
    assert (done.stdout, done.returncode) == (b"", 2)


def test_check_takes_a_file_for_it(tmp_path: Path) -> None:
    path = tmp_path / "portcullis.yaml"
    write(path, configuration())
    done = portcullis("check", path)
    assert b"\nupstream local: managed, since it has no base_url; start it with serve --vllm MODEL\n" in done.stdout
    assert done.returncode == 0


def test_the_keeper_needs_nothing_of_ours() -> None:
    """It runs without site-packages, so that it is small."""
    keeper = Path(__file__).parents[2] / "gateway" / "serving" / "vllm" / "subreaper.py"
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(keeper), str(reading), "1", "sh", "-c", "exit 7"],
            pass_fds=(reading,),
            timeout=TIMEOUT,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 7
