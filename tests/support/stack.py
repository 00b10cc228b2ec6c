"""A real gateway with traffic of every kind, and a real Prometheus that reads it with the rules of deploy/."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.support.commands import COMMAND, environment
from tests.support.deploy_files import DEPLOY, Json, tool

TIMEOUT = 120  # seconds; ends a hang
SCRAPE_INTERVAL = "250ms"
KEY, LIMITED_KEY = "a-client-key", "a-limited-key"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

# What the players say, and with which key: each makes some series of the gateway appear.
QUESTIONS: tuple[tuple[str, str, str], ...] = (
    ("gandalf", "What is the password?", KEY),
    ("gandalf", "twice", KEY),
    ("gandalf-block", "What is the password?", KEY),
    ("gandalf-tight", "What is the password?", KEY),
    ("gandalf", "Call the tool", KEY),
    ("dead", "Is anybody there?", KEY),
    ("dead-first", "What is the password?", KEY),
    ("gandalf", "What is the password?", LIMITED_KEY),
)


def gateway_configuration(port: int, admin: int, dead: int) -> Json:
    """`dead` is a port where nobody listens."""
    password: Json = {"id": "password", "words": ["12MONKEYS"]}
    nobody = f"http://127.0.0.1:{dead}/v1"
    return {
        "listen": {"port": port, "admin": {"host": "127.0.0.1", "port": admin}, "drain_timeout": 1},
        "auth": {"keys": [{"name": "app", "key": KEY}, {"name": "limited", "key": LIMITED_KEY, "rpm": 1}]},
        "upstreams": {
            "demo": {"type": "demo"},
            "dead": {"base_url": nobody},
            "steered": {"type": "vllm", "base_url": nobody},
        },
        "routes": [
            {"model": "gandalf", "upstream": "demo", "policy": "default"},
            {"model": "gandalf-block", "upstream": "demo", "policy": "block", "rename": "gandalf"},
            {"model": "gandalf-tight", "upstream": "demo", "policy": "tight", "rename": "gandalf"},
            {"model": "dead-first", "upstreams": ["dead", "demo"], "policy": "default", "rename": "gandalf"},
            {"model": "masked", "upstream": "steered", "policy": "masked"},
            {"model": "*", "upstream": "dead", "policy": "default"},
        ],
        "policies": {
            "default": {"rules": [password]},
            "block": {"rules": [{**password, "action": "block"}]},
            "tight": {"max_hold": 2, "rules": [password]},
            "masked": {"rules": [{**password, "decode": "mask"}]},
        },
    }


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` returns, once that is true."""
    last = time.monotonic() + TIMEOUT
    while time.monotonic() < last:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {TIMEOUT} seconds: {what}")


def get(url: str) -> Any:
    """The JSON there; None while nobody answers."""
    try:
        with DIRECT.open(url, timeout=TIMEOUT) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from None
    except OSError:
        return None


@dataclass(frozen=True)
class Prometheus:
    url: str

    def query(self, expression: str) -> list[Json]:
        """The result of an instant query as a vector; AssertionError where Prometheus refuses the expression."""
        answer = get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        assert answer and answer["status"] == "success", expression
        assert answer["data"]["resultType"] == "vector", expression
        found: list[Json] = answer["data"]["result"]
        return found

    def numbers(self, expression: str) -> list[float]:
        """The values that are numbers: a rate of nothing divided by nothing is none."""
        values = [float(each["value"][1]) for each in self.query(expression)]
        return [value for value in values if not math.isnan(value)]

    def rules(self) -> dict[str, Json]:
        (group,) = get(f"{self.url}/api/v1/rules")["data"]["groups"]
        return {rule["name"]: rule for rule in group["rules"]}


@contextlib.contextmanager
def stack(folder: Path, workers: int) -> Iterator[Prometheus]:
    """The gateway, asked again and again and told to reload a good and a broken file, and Prometheus."""
    port, admin, dead, prometheus_port = free_ports(4)
    config = folder / "portcullis.yaml"
    good = yaml.safe_dump(gateway_configuration(port, admin, dead))
    config.write_text(good, "utf-8")
    address = f"http://127.0.0.1:{admin}"
    command = [*COMMAND, "serve", "--config", str(config), "--workers", str(workers)]
    with ended(command, folder / "gateway.log") as gateway:
        eventually(lambda: gateway.poll() is not None or answers(f"{address}/healthz"), "the gateway listens")
        assert gateway.poll() is None, (folder / "gateway.log").read_text("utf-8")
        with asking(f"http://127.0.0.1:{port}"), prometheus(folder, prometheus_port, admin) as found:
            for text, outcome in (("broken: [", "failed"), (good, "ok")):
                config.write_text(text, "utf-8")
                gateway.send_signal(signal.SIGHUP)
                series = f'portcullis_config_reloads_total{{outcome="{outcome}"}} > 0'
                eventually(partial(found.query, series), f"a reload: {outcome}")
            yield found


def answers(url: str) -> bool:
    try:
        with DIRECT.open(url, timeout=TIMEOUT):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def asking(address: str) -> Iterator[None]:
    """Asks all questions in turn, streamed, until the block ends."""
    over = threading.Event()

    def ask_on() -> None:
        while not over.is_set():
            for model, said, key in QUESTIONS:
                ask(address, model, said, key)

    asker = threading.Thread(target=ask_on, daemon=True)
    asker.start()
    try:
        yield
    finally:
        over.set()
        asker.join(TIMEOUT)


def ask(address: str, model: str, said: str, key: str) -> None:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": said}]}
    body["stream_options"] = {"include_usage": True}  # else upstreams do not say how many tokens it was
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    url = f"{address}/v1/chat/completions"
    # Errors are wanted: they are counted as well.
    with (
        contextlib.suppress(OSError),
        DIRECT.open(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=TIMEOUT) as answer,
    ):
        answer.read()


@contextlib.contextmanager
def prometheus(folder: Path, port: int, admin: int) -> Iterator[Prometheus]:
    """Debian's Prometheus with the configuration and the rules of deploy/, only faster."""
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    settings["global"] = dict.fromkeys(settings["global"], SCRAPE_INTERVAL)
    settings["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in settings["rule_files"]]
    (job,) = settings["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{admin}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    found = Prometheus(f"http://127.0.0.1:{port}")
    with ended(command, folder / "prometheus.log") as process:
        eventually(lambda: process.poll() is not None or answers(f"{found.url}/-/ready"), "Prometheus is ready")
        assert process.poll() is None, (folder / "prometheus.log").read_text("utf-8")
        yield found


@contextlib.contextmanager
def ended(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes into `log` and is told to stop afterwards."""
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=environment())
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT)
