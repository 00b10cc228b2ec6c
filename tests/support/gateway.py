"""The gateway on a real socket and an event loop of its own, beside the test; what a client reads of its answers."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx2
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import build_app
from gateway.observe.log import RequestLog
from gateway.policy.model import (
    Action,
    Auth,
    Balance,
    ClientKey,
    Config,
    Direction,
    Health,
    Journal,
    Limits,
    Policy,
    Retries,
    Route,
    Rule,
    Timeouts,
    Upstream,
)
from gateway.proxy.server import server_config
from tests.support.upstream import MODEL, Json, Play, playing
from tests.support.upstream import Upstream as PlayedUpstream

TIMEOUT = 60  # seconds, generous: it ends a test that hangs
INPUT = frozenset({Direction.INPUT})

LIMITS = Limits()
HEALTH = Health()
PATIENT = Timeouts(connect=TIMEOUT, first_byte=TIMEOUT, idle=TIMEOUT, total=4 * TIMEOUT)
ONCE = Retries(attempts=0)
UPSTREAM_KEY = "sk-of-the-upstream"
PASSWORD = "12MONKEYS"
BLOCKED_WORD = "FORBIDDEN"
RULES = (
    Rule(id="password", words=(PASSWORD,), replacement="[CENSORED]", secret=True),
    Rule(id="stop", words=(BLOCKED_WORD,), action=Action.BLOCK, message=" (stopped)"),
    Rule(id="notable", words=("dragon",), action=Action.FLAG),
    Rule(id="prompt-name", words=("Voldemort",), replacement="[NAME]", apply_to=INPUT),
    Rule(id="prompt-stop", words=("detonator",), action=Action.BLOCK, apply_to=INPUT),
)


def config_for(
    base_url: str,
    *,
    rules: Iterable[Rule] = RULES,
    keys: tuple[str | ClientKey, ...] = (),
    limits: Limits = LIMITS,
    timeouts: Timeouts = PATIENT,
    health: Health = HEALTH,
    retries: Retries = ONCE,
    others: Mapping[str, str] = MappingProxyType({}),
    balance: Balance = Balance.FIRST,
    routes: tuple[Route, ...] | None = None,
    journal: Journal | None = None,
    state: str | None = None,
    upstream: Mapping[str, Any] = MappingProxyType({}),
    **policy: Any,
) -> Config:
    """A configuration with the policies `default`, of `rules`, and `open`, without any.

    `others`: base URLs by name, of upstreams that stand in for `played` unless `routes` say otherwise. Keys in clear
    are named `key-1` and so on by their place. `upstream`: further fields of every upstream.
    """
    fields = {"api_key": UPSTREAM_KEY, "timeouts": timeouts, "health": health, "retries": retries, **upstream}
    urls = {"played": base_url, **others}
    upstreams = {name: Upstream(**{"name": name, "base_url": url, **fields}) for name, url in urls.items()}
    everything = Route(model="*", upstream="played", policy="default", others=tuple(others), balance=balance)
    named = (
        key if isinstance(key, ClientKey) else ClientKey.of(key, f"key-{n}") for n, key in enumerate(keys, start=1)
    )
    return Config(
        upstreams=upstreams,
        routes=(everything,) if routes is None else routes,
        policies={"default": Policy(name="default", rules=tuple(rules), **policy), "open": Policy(name="open")},
        limits=limits,
        auth=Auth(keys=tuple(named)),
        journal=journal,
        state=state,
    )


@dataclass
class RunningGateway:
    url: str
    client: httpx2.AsyncClient
    log: io.StringIO

    async def post(self, body: Json, headers: dict[str, str] | None = None) -> httpx2.Response:
        return await self.client.post("/v1/chat/completions", json=body, headers=headers)

    async def ask(self, said: str = "hello", **fields: Any) -> httpx2.Response:
        """A plain question, answered whole."""
        return await self.post(question(said, **fields))

    async def stream(self, said: str = "hello", **fields: Any) -> Streamed:
        """A question for a stream, which is read to its end."""
        return Streamed(await self.post(question(said, stream=True, **fields)))

    async def metrics(self) -> Metrics:
        answer = await self.client.get("/metrics")
        assert answer.status_code == 200
        return Metrics(answer.text)

    async def logged(self, count: int) -> list[Json]:
        """The first `count` lines of the log, once they are written; there must not be more."""
        while len(lines := self.log.getvalue().splitlines()) < count:
            await asyncio.sleep(0.002)
        assert len(lines) == count, lines
        return [json.loads(line) for line in lines]


def question(said: str = "hello", **fields: Any) -> Json:
    return {"model": MODEL, "messages": [{"role": "user", "content": said}], **fields}


class _PromptServer(uvicorn.Server):
    """A server that stops when it is told to, without uvicorn's pauses: there are hundreds of them in a run."""

    ready = False

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.ready = True
        await self._stop.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=TIMEOUT)
        await self.lifespan.shutdown()


def http_client(base_url: str = "") -> httpx2.AsyncClient:
    """A client for this machine: no proxies of the environment, and no certificates, which take 20 ms to read."""
    return httpx2.AsyncClient(base_url=base_url, timeout=TIMEOUT, trust_env=False, verify=False)


@asynccontextmanager
async def listening(config: uvicorn.Config) -> AsyncIterator[str]:
    """A server on a socket and an event loop of its own; gives its URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = _PromptServer(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        while not server.ready and thread.is_alive():
            await asyncio.sleep(0.002)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        await asyncio.to_thread(thread.join, TIMEOUT)
    assert not thread.is_alive(), "the server does not stop"


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[RunningGateway]:
    log = io.StringIO()
    app = build_app(config, RequestLog("json", log))
    async with (
        listening(server_config(app, app.state.portcullis.state.record)) as url,
        http_client(url) as client,
    ):
        yield RunningGateway(url, client, log)


@asynccontextmanager
async def before(
    play: Play, *, models: bytes | None = None, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, PlayedUpstream]]:
    """A gateway in front of an upstream that plays `play`; `settings` are those of `config_for`."""
    async with playing(play, models) as upstream, running(config_for(upstream.base_url, **settings)) as gateway:
        yield gateway, upstream


def error_of(response: httpx2.Response, status: int) -> dict[str, Any]:
    """The error object, after everything that every error has was looked at."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert response.headers["x-portcullis-policy"]
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() >= {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
    error: dict[str, Any] = body["error"]
    return error


def quick(**seconds: float) -> Timeouts:
    """Only what is given is short."""
    return Timeouts(**{"connect": TIMEOUT, "first_byte": TIMEOUT, "idle": TIMEOUT, "total": TIMEOUT, **seconds})


class Streamed:
    """A streamed answer as a strict client reads it."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        self.blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
        assert all(block.startswith("data: ") and "\n" not in block for block in self.blocks), response.text
        payloads = [block.removeprefix("data: ") for block in self.blocks]
        self.done = payloads[-1:] == ["[DONE]"]
        self.chunks: list[Json] = [json.loads(payload) for payload in payloads if payload != "[DONE]"]

    @property
    def error(self) -> Json | None:
        last = self.chunks[-1] if self.chunks else {}
        found: Json | None = last.get("error")
        return found

    def deltas(self, index: int = 0) -> list[Json]:
        return [
            choice["delta"] for each in self.chunks for choice in each.get("choices", ()) if choice["index"] == index
        ]

    def pieces(self, index: int = 0, field: str = "content") -> list[str]:
        return [delta[field] for delta in self.deltas(index) if delta.get(field)]

    def content(self, index: int = 0, field: str = "content") -> str:
        return "".join(self.pieces(index, field))

    def finish(self, index: int = 0) -> str | None:
        reasons = [
            choice["finish_reason"]
            for each in self.chunks
            for choice in each.get("choices", ())
            if choice["index"] == index and choice["finish_reason"]
        ]
        assert len(reasons) <= 1, reasons
        return reasons[0] if reasons else None


class Metrics:
    """A scrape, with sums over the labels that are not asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.names = {sample.name for family in self.families for sample in family.samples}

    def value(self, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def labels(self, name: str) -> list[dict[str, str]]:
        return [sample.labels for family in self.families for sample in family.samples if sample.name == name]

    def channels(self) -> set[str]:
        return {labels["channel"] for labels in self.labels("portcullis_scanned_chars_total")}

    def assert_covered(self) -> None:
        """scanned = forwarded + replaced + withheld, for each channel."""
        for channel in self.channels():
            parts = [
                self.value(f"portcullis_{part}_chars_total", channel=channel)
                for part in ("forwarded", "replaced", "withheld")
            ]
            assert self.value("portcullis_scanned_chars_total", channel=channel) == sum(parts), (channel, parts)
        assert self.value("portcullis_coverage_errors_total") == 0
