"""The composition root: everything is made and wired here, where it can be seen, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from gateway.censor.compile import CompiledPolicy
from gateway.demo import PASSWORD, TOKEN_PAUSE, build_demo
from gateway.guard.channels import HELD_BOUNDS, HOLD_BOUNDS
from gateway.journal.writer import JournalWriter
from gateway.limits import Limiter, MemoryLimiter
from gateway.observe.facts import Fact
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics, SharedFiles
from gateway.observe.tracing import make_tracer
from gateway.policy.listen import is_loopback
from gateway.policy.model import Action, Auth, Config, Listen, Policy, Route, Rule, Upstream
from gateway.policy.value import ConfigError
from gateway.proxy.asgi import SWITCH_INTERVAL, in_background
from gateway.proxy.downstream.browsers import LocalNames
from gateway.proxy.routes import add_admin_routes, add_error_handlers, add_routes
from gateway.proxy.snapshot import Generation, compile_policies, gently, keep_fixed
from gateway.proxy.state import Gateway
from gateway.proxy.steering.entries import Wanted, wanted_masks
from gateway.proxy.steering.mask_probe import Masks
from gateway.proxy.steering.vocabularies import read_vocabularies
from gateway.proxy.upstreams.balancer import Fleet
from gateway.proxy.upstreams.client import PROBE_TTL
from gateway.version import TELEMETRY, is_installed, missing_part

TRACES_PATIENCE = 5.0  # seconds for the last spans at the end
METRICS, LIMITS = "metrics", "limits"  # directories that workers share


class NotAdopted(Exception):
    """A configuration could not be put in force; the message says why, without secrets."""


def demo_policy() -> Policy:
    """What `portcullis demo` enforces: the password stays in, however Gandalf spells it."""
    rule = Rule(id="password", words=(PASSWORD,), action=Action.REDACT, replacement="[CENSORED]", secret=True)
    return Policy(name="default", rules=(rule,))


def demo_config(upstream: Upstream | None, listen: Listen, auth: Auth) -> Config:
    """The configuration that needs no file: the demo policy in front of the demo upstream, or of `upstream`."""
    behind = upstream if upstream is not None else Upstream(name="demo", type="demo")
    policy = demo_policy()
    return Config(
        upstreams={behind.name: behind},
        routes=(Route(model="*", upstream=behind.name, policy=policy.name),),
        policies={policy.name: policy},
        listen=listen,
        auth=auth,
        source="<demo>",
    )


class Portcullis:
    """One process of the gateway: its applications, and how a configuration comes into force.

    `scratch` and `slot` are the directory that the workers of one gateway share, and this process's place among them;
    without them it is alone.
    """

    def __init__(
        self,
        config: Config,
        log: RequestLog,
        *,
        scratch: Path | None = None,
        slot: int = 0,
        demo_pause: float = TOKEN_PAUSE,
    ) -> None:
        self._log = log
        self._demo_pause = demo_pause
        self._demo_url = ""
        self._policies: Mapping[str, CompiledPolicy] = compile_policies(config, {})
        self._config = config
        shared = None if scratch is None else SharedFiles(scratch / METRICS, str(slot))
        metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS, shared)

        def record(fact: Fact) -> None:
            metrics.record(fact)
            log.record(fact)

        self.gateway = Gateway(
            metrics=metrics,
            record=record,
            limiter=_limiter(config, scratch, slot),
            journal=None if config.journal is None else JournalWriter(config.journal, self._journal_problem, slot),
            journal_required=config.journal is not None and config.journal.required,
            tracer=make_tracer(config.telemetry, self._telemetry_problem),
        )
        self.public = _application(self._lifespan)
        self.admin = None if config.listen.admin is None else _application()
        add_routes(self.public, self.gateway)
        add_admin_routes(self.admin or self.public, self.gateway)
        self._keep_pages_out(config.listen)
        for app in filter(None, (self.public, self.admin)):
            add_error_handlers(app, self.gateway)

    def _keep_pages_out(self, listen: Listen) -> None:
        """Where no key is asked for, of the listeners that only this machine, and so its browsers, can reach."""
        gateway, names = self.gateway, frozenset(listen.hosts)

        def keyless() -> bool:
            return not gateway.current.keys.asked_for

        if names or is_loopback(listen.host):
            self.public.add_middleware(LocalNames, gateway=gateway, names=names, guarded=keyless)
        if self.admin is not None and listen.admin is not None and is_loopback(listen.admin.host):
            self.admin.add_middleware(LocalNames, gateway=gateway, names=names, guarded=lambda: True)

    @property
    def drain_timeout(self) -> float:
        """Seconds for running answers when the process is told to stop."""
        return self._config.listen.drain_timeout

    async def adopt(self, config: Config) -> None:
        """Put a configuration in force: from the next request on, while running ones keep theirs.

        Raises `NotAdopted`, and then nothing has changed.
        """
        try:
            config, differ = keep_fixed(self._config, config)
            warn_of_fixed(self._log, differ)
            policies = await gently(compile_policies, config, self._policies)
            vocabularies = await gently(read_vocabularies, config)
            wanted = await gently(_wanted_masks, config)
            fleet = await self._fleet(config, self.gateway.current.fleet)
        except (ConfigError, ValueError) as error:
            raise NotAdopted(str(error)) from None
        old = self.gateway.current
        masks = Masks.build(wanted, fleet.clients, old.masks, self.gateway.judged)
        # A server that has other words now would refuse the requests that ask for them.
        await masks.look()
        self.gateway.current = Generation.of(config, policies, fleet, vocabularies, masks)
        self._config, self._policies = config, policies
        self.gateway.metrics.know_upstreams(config.upstreams)
        self.gateway.metrics.know_masks(masks.pairs)
        in_background(old.masks.close(besides=masks))
        in_background(old.fleet.retire())
        # The new rules live as long as the old ones did; the collector need not go through them again and again.
        gc.freeze()

    async def _fleet(self, config: Config, previous: Fleet | None) -> Fleet:
        base_urls = {name: upstream.base_url for name, upstream in config.upstreams.items()}
        for name, upstream in config.upstreams.items():
            if upstream.type == "demo":
                self._demo_url = self._demo_url or await self._stack.enter_async_context(_demo_server(self._demo_pause))
                base_urls[name] = self._demo_url
        return Fleet.build(config.upstreams, base_urls, config.limits.max_streams + 64, previous)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        gateway = self.gateway
        sys.setswitchinterval(SWITCH_INTERVAL)
        async with contextlib.AsyncExitStack() as self._stack:
            fleet = await self._fleet(self._config, None)
            vocabularies = read_vocabularies(self._config)
            masks = Masks.build(_wanted_masks(self._config), fleet.clients, on_verdict=gateway.judged)
            gateway.current = Generation.of(self._config, self._policies, fleet, vocabularies, masks)
            gateway.metrics.know_upstreams(self._config.upstreams)
            gateway.metrics.know_masks(masks.pairs)
            masks.begin()
            probing = asyncio.create_task(_keep_probing(gateway))
            if gateway.journal is not None:
                gateway.journal.start()
            yield
            probing.cancel()
            await gateway.current.masks.close()
            await gateway.current.fleet.close()
            await gateway.limiter.close()
            if gateway.journal is not None:
                await asyncio.to_thread(gateway.journal.close)
            if gateway.tracer is not None:
                await asyncio.to_thread(gateway.tracer.close, TRACES_PATIENCE)

    def _journal_problem(self, text: str) -> None:
        self._log.event("journal", problem=text)

    def _telemetry_problem(self, text: str) -> None:
        self._log.event("telemetry", problem=text)


def build_app(config: Config, log: RequestLog, *, demo_pause: float = TOKEN_PAUSE) -> FastAPI:
    """The gateway as one ASGI application, to be run by any server."""
    portcullis = Portcullis(config, log, demo_pause=demo_pause)
    portcullis.public.state.portcullis = portcullis
    return portcullis.public


def warn_of_fixed(log: RequestLog, differ: Sequence[str]) -> None:
    """Say which parts of a new configuration are not in force."""
    if differ:
        log.event("reload", warning=f"{', '.join(differ)}: changed, which only a restart puts in force")


async def _keep_probing(gateway: Gateway) -> None:
    """Keep what the metrics say about upstreams true, also in a worker that nobody asks."""
    while True:
        await asyncio.sleep(PROBE_TTL)
        with contextlib.suppress(Exception):  # the next one may succeed
            await gateway.probe()


def _application(lifespan: Any = None) -> FastAPI:
    # A redirect's address would be made of the client's Host header.
    return FastAPI(
        title="Portcullis", lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )


def check_parts(config: Config) -> None:
    """Raises `ConfigError` for what the configuration wants of optional packages that are absent or do not take it, and
    for tokenizers that cannot be read."""
    read_vocabularies(config)
    _check_masks(config)
    try:
        _limiter(config, None, 0)
    except (ImportError, ValueError) as error:
        raise ConfigError(config.source, config.state_key, str(error)) from None
    if config.telemetry is not None and not is_installed(*TELEMETRY):
        raise ConfigError(config.source, "telemetry", missing_part("otel"))


def _wanted_masks(config: Config) -> tuple[Wanted, ...]:
    """Raises `ConfigError` as `check_parts` does."""
    _check_masks(config)
    return wanted_masks(config)


def _check_masks(config: Config) -> None:
    for name, policy in config.policies.items() if find_spec("numpy") is None else ():
        for rule in policy.masked:
            at = f"policies.{name}.rules[{policy.rules.index(rule)}].decode"
            raise ConfigError(config.source, at, missing_part("decode"))


def _limiter(config: Config, scratch: Path | None, slot: int) -> Limiter:
    if config.state is not None:
        from gateway.limits.redis import RedisLimiter  # an optional package

        return RedisLimiter(config.state)
    if scratch is None:
        return MemoryLimiter()
    from gateway.limits.shared import SharedLimiter  # Unix only

    return SharedLimiter(scratch / LIMITS, slot)


class _QuietServer(uvicorn.Server):
    """A server within a server: signals belong to the outer one."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _demo_server(pause: float) -> AsyncIterator[str]:
    """The demo upstream on a real socket of its own, because an in-process transport would not stream."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _QuietServer(uvicorn.Config(build_demo(pause), log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
