"""The parts of a managed vLLM by themselves: what it is started with, how its output is kept, when it is given up."""

from __future__ import annotations

import io
import json
import os
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.decode.maskfile import banned_of, read_masks
from gateway.observe.log import RequestLog
from gateway.policy.errors import ConfigError
from gateway.policy.model import Config, Decode, Policy, Route, Rule, Upstream
from gateway.progress import ProgressMeter
from gateway.serving.vllm import managed
from gateway.serving.vllm.command_line import (
    MASKS,
    PLUGIN,
    VllmLaunch,
    default_upstream,
    exempt_from_proxies,
    prepare,
    read_vllm_options,
    served_names,
)
from gateway.serving.vllm.managed import (
    LINES,
    MAX_LINE,
    LogFile,
    ModelServer,
    OutputTail,
    RestartPolicy,
    start_progress,
)
from tests.support.gateway import TIMEOUT
from tests.support.managed_vllm import MODEL, StandIn, lives

MASKED = Rule(id="password", words=("12MONKEYS",), decode=Decode.MASK)
PLAIN = Rule(id="password", words=("12MONKEYS",))


def config_of(*routes: Route, rule: Rule = PLAIN) -> Config:
    return Config(
        upstreams={
            "local": Upstream(name="local", type="vllm"),
            "other": Upstream(name="other", base_url="http://o/v1"),
        },
        routes=routes or (Route(model="*", upstream="local", policy="default"),),
        policies={"default": Policy(name="default", rules=(rule,))},
    )


def launched(config: Config, arguments: str = "", environ: dict[str, str] | None = None) -> VllmLaunch:
    """What the preparations come to; they are over."""
    wanted = read_vllm_options(MODEL, shlex.quote(sys.executable), arguments)
    with prepare(wanted, config, environ or {}) as launch:
        return launch


# -- what it is started with -------------------------------------------------------------------------------------------


def test_the_command_and_the_environment() -> None:
    launch = launched(config_of(), "--max-model-len 1024 --json '{\"a\": 1}'", {"HOME": "/home", MASKS: "stale"})
    assert launch.command == (
        *(sys.executable, MODEL, "--disable-uvicorn-access-log", "--host", "127.0.0.1", "--port", str(launch.port)),
        *("--max-model-len", "1024", "--json", '{"a": 1}'),
    )
    assert launch.environment == {"HOME": "/home", "VLLM_API_KEY": launch.key}
    assert launch.key not in repr(launch)


def test_every_start_of_the_gateway_has_a_key_of_its_own() -> None:
    assert launched(config_of()).key != launched(config_of()).key


def test_the_access_log_can_be_chosen() -> None:
    given = "--disable_access_log_for_endpoints /health"
    assert "--disable-uvicorn-access-log" not in launched(config_of(), given).command


def test_words_to_mask_go_into_a_file() -> None:
    config = config_of(rule=MASKED)
    wanted = read_vllm_options(MODEL, shlex.quote(sys.executable), "")
    with prepare(wanted, config, {}) as launch:
        path = Path(launch.environment[MASKS])
        assert read_masks(path) == banned_of(config.policies)
        assert (path.stat().st_mode | path.parent.stat().st_mode) & 0o077 == 0
        place = launch.command.index("--logits-processors")
        assert launch.command[place + 1] == PLUGIN
    assert not path.parent.exists()


def test_processors_that_are_chosen_must_have_the_plugin_among_them() -> None:
    config = config_of(rule=MASKED)
    launch = launched(config, f"--logits-processors mine:Own {PLUGIN}")
    assert launch.command.count("--logits-processors") == 1
    with pytest.raises(ConfigError, match=f"--vllm-args: --logits-processors: .*{PLUGIN} must be among them"):
        launched(config, "--logits-processors mine:Own")
    assert "mine:Own" in launched(config_of(), "--logits_processors=mine:Own").command[-1]


@pytest.mark.parametrize(
    ("routes", "names"),
    [
        ([("*", None)], (MODEL,)),
        ([("tiny-*", None)], (MODEL,)),
        ([("tiny", None)], ("tiny",)),
        ([("*", "tiny")], ("tiny",)),
        ([("a", None), ("b", None), ("c", "a")], ("a", "b")),
        ([("tiny", None), ("*", None)], ("tiny", MODEL)),
    ],
)
def test_it_serves_the_names_that_the_routes_ask_for(
    routes: list[tuple[str, str | None]], names: tuple[str, ...]
) -> None:
    made = [Route(model=model, upstream="local", policy="default", rename=rename) for model, rename in routes]
    elsewhere = Route(model="elsewhere", upstream="other", policy="default")
    config = config_of(*made, elsewhere)
    assert served_names(config, MODEL) == names
    command = launched(config).command
    if names == (MODEL,):
        assert "--served-model-name" not in command
    else:
        place = command.index("--served-model-name")
        assert command[place + 1 : place + 1 + len(names)] == names
        assert "--served-model-name" not in launched(config, "--served_model_name=mine").command[:-1]


def test_the_configuration_gets_address_and_key() -> None:
    launch = launched(config_of())
    config = launch.attach(config_of())
    assert config.upstreams["local"].base_url == f"http://127.0.0.1:{launch.port}/v1"
    assert config.upstreams["local"].api_key == launch.key
    assert config.upstreams["other"] == config_of().upstreams["other"]


def test_the_port_is_kept_for_it() -> None:
    """Another program does not get it by chance; the server does."""
    wanted = read_vllm_options(MODEL, shlex.quote(sys.executable), "")
    with prepare(wanted, config_of(), {}) as launch:
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(("127.0.0.1", launch.port))
        with socket.create_server(("127.0.0.1", launch.port)) as server:
            assert server.getsockname()[1] == launch.port


def test_a_models_folder_is_its_tokenizer(tmp_path: Path) -> None:
    assert default_upstream(str(tmp_path)).tokenizer is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert default_upstream(str(tmp_path)).tokenizer == str(tmp_path)
    assert default_upstream("org/model").tokenizer is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "127.0.0.1"),
        ({"no_proxy": "a.example"}, "a.example,127.0.0.1"),
        ({"NO_PROXY": "a.example"}, "a.example,127.0.0.1"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_no_proxy_stands_between(before: dict[str, str], after: str) -> None:
    environ = dict(before)
    exempt_from_proxies(environ)
    assert environ["no_proxy"] == after


# -- output ------------------------------------------------------------------------------------------------------------


def drained(data: bytes, file: LogFile | None = None) -> OutputTail:
    kept = OutputTail(file)
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb") as pipe:
        kept.drain(pipe)
    writer.join(TIMEOUT)
    return kept


def test_the_last_lines_are_kept_and_no_more() -> None:
    kept = drained(b"".join(b"%d\n" % number for number in range(10 * LINES)))
    assert kept.last(2) == [str(10 * LINES - 2), str(10 * LINES - 1)]
    assert len(kept.last(10 * LINES)) == LINES


def test_a_line_without_an_end_is_bounded() -> None:
    assert drained(b"y" + b"x" * 1_000_000).last(1) == ["y" + "x" * (MAX_LINE - 1)]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"(EngineCore pid=7) INFO 11-21 19:00:46 [core.py:402] init engine", "init engine"),
        (b"(Worker-0 pid=7) WARNING 11-21 19:00:46 [a.py:1] slow", "slow"),
        (b"INFO:     Started server process [1]", "Started server process [1]"),
        (b"Loading:   0%\rLoading:  50%\rLoading: 100%\r", "Loading: 100%"),
        (b"\x1b[1;32mready\x1b[0m \x1b]0;title\x07\x07now\xc2\x9b", "ready  now"),
        ("Grüße".encode() + b"\xff", "Grüße\N{REPLACEMENT CHARACTER}"),
        (b"\xe2\x96\x88 \xe2\x96\x88", ""),
        (b"z" * 50, "z" * 19 + "…"),
    ],
)
def test_the_latest_line_is_for_the_eye(line: bytes, shown: str) -> None:
    assert drained(line + b"\n\n \n").latest(20 if line[:1] == b"z" else 100) == shown


def test_a_progress_bar_goes_on() -> None:
    bar = b"".join(b"Loading: %3d%% of something\r" % (number % 101) for number in range(2000))
    assert drained(bar).latest(100).startswith("Loading: ")


def test_a_log_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managed, "MAX_FILE", 1000)
    path = tmp_path / "log"
    file = LogFile(path)
    for number in range(10):
        file.write(b"%d" % number * 300)
    assert path.read_bytes() == b"9" * 300
    assert Path(f"{path}.1").read_bytes() == b"".join(digit * 300 for digit in (b"6", b"7", b"8"))
    assert {each.name for each in tmp_path.iterdir()} == {"log", "log.1"}


def test_d27_a_log_file_behind_a_link_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"theirs")
    (tmp_path / "log").symlink_to(victim)
    with pytest.raises(OSError, match="it is a symbolic link"):
        LogFile(tmp_path / "log")
    assert victim.read_bytes() == b"theirs"


def test_a_log_that_cannot_go_on_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managed, "MAX_FILE", 1000)
    folder = tmp_path / "folder"
    folder.mkdir()
    file = LogFile(folder / "log")
    file.write(b"x" * 900)
    (folder / "log").unlink()
    folder.rmdir()
    for _ in range(3):
        assert drained(b"line\n" * 100, file).last(1) == ["line"]


# -- progress ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_written_over_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal, times = Terminal(), iter([0.0, 2.4, 23.0])
    progress = ProgressMeter(terminal, lambda: next(times), terminal_interval=0.0)
    progress.show(partial(start_progress, doing=""))
    progress.show(partial(start_progress, doing="loading weights, of which there are many"))
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[KvLLM starts: 2 s\r\x1b[KvLLM starts: 23 s, loading weights, of \r\x1b[K"


def test_elsewhere_progress_is_a_line_now_and_then() -> None:
    out, times = io.StringIO(), iter([0.0, 1.0, 10.0, 19.0, 21.0])
    progress = ProgressMeter(out, lambda: next(times), terminal_interval=0.0)
    for doing in ("one", "two", "three", "four"):
        progress.show(partial(start_progress, doing=doing))
    progress.clear()
    assert out.getvalue() == "vLLM starts: 10 s, two\nvLLM starts: 21 s, four\n"


def test_nobody_has_to_look() -> None:
    out = Terminal()
    progress = ProgressMeter(out, terminal_interval=0.0)
    out.close()
    progress.show(partial(start_progress, doing="loading"))
    progress.clear()


# -- life --------------------------------------------------------------------------------------------------------------

FAST = RestartPolicy(start_timeout=TIMEOUT, stop_timeout=TIMEOUT, first_backoff=0.01, max_backoff=0.04, max_failures=5)


@contextmanager
def living(
    stand_in: StandIn, pace: RestartPolicy
) -> Iterator[tuple[ModelServer, io.StringIO, threading.Event, threading.Event]]:
    """The server, its log, and what it has reported: ready, given up."""
    wanted = read_vllm_options(MODEL, stand_in.command, "")
    log, ready, given_up = io.StringIO(), threading.Event(), threading.Event()
    with prepare(wanted, config_of()) as launch:
        server = ModelServer(launch, RequestLog("json", log), given_up.set, policy=pace, out=io.StringIO())
        server.start(ready.set)
        try:
            yield server, log, ready, given_up
        finally:
            server.stop()


def events(log: io.StringIO, name: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == name]


@pytest.mark.parametrize(("failures", "pause"), [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (7, 30.0)])
def test_pauses_double(failures: int, pause: float) -> None:
    assert RestartPolicy().backoff(failures) == pause


def test_one_that_fails_again_and_again_is_given_up(stand_in: StandIn) -> None:
    with living(stand_in, FAST) as (server, log, ready, given_up):
        assert ready.wait(TIMEOUT)
        stand_in.will(writes=["broken"], exits=4)
        os.kill(stand_in.starts[0]["pid"], 9)
        assert given_up.wait(TIMEOUT)
        assert server.failure == (
            "vLLM failed 5 times in a row; the last time it ended with status 4\nThe last of what it wrote:\n  broken"
        )
    assert [died["restart_in"] for died in events(log, "vllm_died")] == [0.01, 0.02, 0.04, 0.04]
    assert len(stand_in.starts) == 5


def test_one_that_was_ready_for_long_begins_anew(stand_in: StandIn) -> None:
    steady = RestartPolicy(
        start_timeout=TIMEOUT, stop_timeout=TIMEOUT, first_backoff=0.01, stable_after=0.0, max_failures=2
    )
    with living(stand_in, steady) as (server, log, _, given_up):
        for count in range(1, 5):
            wait_for(log, "vllm_ready", count)
            os.kill(stand_in.starts[-1]["pid"], 9)
        wait_for(log, "vllm_ready", 5)
        assert not given_up.is_set()
    assert {died["restart_in"] for died in events(log, "vllm_died")} == {0.01}
    assert server.failure is None


def test_what_it_wrote_when_it_was_ready_is_not_shown(stand_in: StandIn) -> None:
    """It may be a client's text."""
    stand_in.will(writes=["a prompt"])
    once = RestartPolicy(start_timeout=TIMEOUT, stop_timeout=TIMEOUT, max_failures=1)
    with living(stand_in, once) as (server, _, ready, given_up):
        assert ready.wait(TIMEOUT)
        os.kill(stand_in.starts[0]["pid"], 9)
        assert given_up.wait(TIMEOUT)
        assert server.failure == "vLLM failed 1 times in a row; the last time it ended with status 137"


def test_one_that_does_not_want_to_end_is_killed_with_its_children(stand_in: StandIn) -> None:
    stand_in.will(ignores_sigterm=True, children=True)
    impatient = RestartPolicy(start_timeout=TIMEOUT, stop_timeout=0.1)
    with living(stand_in, impatient) as (server, _, ready, _):
        assert ready.wait(TIMEOUT)
        (start,) = stand_in.starts
    assert server.failure is None
    assert not any(map(lives, (start["pid"], *start["children"])))


def test_a_stop_before_the_start_is_one(stand_in: StandIn) -> None:
    with prepare(read_vllm_options(MODEL, stand_in.command, ""), config_of()) as launch:
        server = ModelServer(launch, RequestLog("json", io.StringIO()), lambda: None, out=io.StringIO())
        server.stop()
        server.start(lambda: None)
        server.stop()
    assert not stand_in.starts


def wait_for(log: io.StringIO, name: str, count: int) -> None:
    for _ in range(TIMEOUT * 100):
        if len(events(log, name)) == count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(log.getvalue())
