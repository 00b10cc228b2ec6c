"""The composition root: everything is made and connected here, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from gateway.censor.compile import CompiledPolicy
from gateway.demo.server import TOKEN_PAUSE, build_demo
from gateway.guard.findings import HELD_BOUNDS, HOLD_BOUNDS
from gateway.journal.writer import JournalWriter
from gateway.limits import Limiter, MemoryLimiter
from gateway.observe.facts import Fact
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics, SharedFiles
from gateway.observe.tracing import make_tracer
from gateway.policy.errors import ConfigError
from gateway.policy.listen import is_loopback
from gateway.policy.model import Config, Listen
from gateway.proxy.asgi import SWITCH_INTERVAL, start_background_task
from gateway.proxy.downstream.browsers import AllowedOrigins, LocalNames
from gateway.proxy.routes import add_admin_routes, add_error_handlers, add_routes
from gateway.proxy.server import Application
from gateway.proxy.snapshot import Snapshot, build_snapshot, compile_policies, keep_startup_sections
from gateway.proxy.state import AppState
from gateway.proxy.steering.vocabularies import read_vocabularies
from gateway.proxy.stored import StoredAnswers
from gateway.proxy.upstreams.client import PROBE_TTL
from gateway.version import TELEMETRY, is_installed, missing_part

TRACES_TIMEOUT = 5.0  # seconds for the last spans at the end
METRICS, LIMITS = "metrics", "limits"  # directories that workers share


class NotAdopted(Exception):
    """A configuration could not be put in force; the message gives the reason, without secrets."""


class Portcullis:
    """One process of the gateway: its applications, and the configuration in force.

    `runtime_dir`: the directory that the workers of one gateway share; `slot`: the number of this worker. Without
    them the process is the only one.
    """

    def __init__(
        self,
        config: Config,
        log: RequestLog,
        *,
        runtime_dir: Path | None = None,
        slot: int = 0,
        demo_pause: float = TOKEN_PAUSE,
    ) -> None:
        self._config = config
        self._log = log
        self._demo_pause = demo_pause
        self._demo_url = ""
        self._resources = contextlib.AsyncExitStack()
        self._policies: Mapping[str, CompiledPolicy] = compile_policies(config, {})
        shared = None if runtime_dir is None else SharedFiles(runtime_dir / METRICS, str(slot))
        metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS, shared)

        def record(fact: Fact) -> None:
            metrics.record(fact)
            log.record(fact)

        journal = None
        if config.journal is not None:
            journal = JournalWriter(config.journal, lambda problem: log.event("journal", problem=problem), slot)
        self.state = AppState(
            metrics=metrics,
            record=record,
            limiter=_limiter(config, runtime_dir, slot),
            journal=journal,
            journal_required=config.journal is not None and config.journal.required,
            stored=_stored_answers(config, runtime_dir, log),
            tracer=make_tracer(config.telemetry, lambda problem: log.event("telemetry", problem=problem)),
        )
        self.public = Application(self._lifespan)
        self.admin = None if config.listen.admin is None else Application()
        add_routes(self.public, self.state)
        add_admin_routes(self.admin or self.public, self.state)
        self._guard_from_browsers(config.listen)
        for app in filter(None, (self.public, self.admin)):
            add_error_handlers(app, self.state)

    def _guard_from_browsers(self, listen: Listen) -> None:
        """Check Host and Origin where no key is required, on listeners that only this machine's browsers can reach."""
        state, names = self.state, frozenset(listen.hosts)

        def keyless() -> bool:
            return not state.current.keys.required

        if names or is_loopback(listen.host):
            self.public.local_names = LocalNames(state.record, names, keyless)
        if listen.cors is not None:
            self.public.entry = AllowedOrigins(self.public.entry, state.record, frozenset(listen.cors.origins))
        if self.admin is not None and listen.admin is not None and is_loopback(listen.admin.host):
            self.admin.local_names = LocalNames(state.record, names, lambda: True)

    @property
    def drain_timeout(self) -> float:
        """Seconds that running answers have when the process gets a signal to stop."""
        return self._config.listen.drain_timeout

    async def adopt(self, config: Config) -> None:
        """Put a configuration in force, from the next request on; running ones keep theirs.

        Raises `NotAdopted`, and then nothing has changed.
        """
        old = self.state.current
        try:
            config, differ = keep_startup_sections(self._config, config)
            log_unapplied_sections(self._log, differ)
            snapshot = await self._build(config, old)
        except (ConfigError, ValueError) as error:
            raise NotAdopted(str(error)) from None
        # A server whose masks have other words now would refuse requests for the new ones.
        await snapshot.masks.refresh()
        self._put_in_force(snapshot)
        start_background_task(old.masks.close(besides=snapshot.masks))
        start_background_task(old.fleet.retire())
        # The new rules live as long as the old ones did; the collector need not go through them again and again.
        gc.freeze()

    async def _build(self, config: Config, old: Snapshot | None) -> Snapshot:
        base_urls = {name: upstream.base_url for name, upstream in config.upstreams.items()}
        for name, upstream in config.upstreams.items():
            if upstream.type == "demo":
                if not self._demo_url:
                    self._demo_url = await self._resources.enter_async_context(_demo_server(self._demo_pause))
                base_urls[name] = self._demo_url
        return await build_snapshot(config, base_urls, self._policies, old, self.state.record_mask_verdict)

    def _put_in_force(self, snapshot: Snapshot) -> None:
        config, metrics = snapshot.config, self.state.metrics
        self.state.current = snapshot
        self._config, self._policies = config, snapshot.policies
        metrics.set_upstreams(config.upstreams)
        metrics.set_masks(snapshot.masks.pairs)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        state = self.state
        sys.setswitchinterval(SWITCH_INTERVAL)
        async with self._resources:
            self._put_in_force(await self._build(self._config, None))
            state.current.masks.start()
            probing = asyncio.create_task(_keep_probing(state))
            if state.journal is not None:
                state.journal.start()
            yield
            probing.cancel()
            await state.current.masks.close()
            await state.current.fleet.close()
            await state.limiter.close()
            if state.journal is not None:
                await asyncio.to_thread(state.journal.close)
            if state.tracer is not None:
                await asyncio.to_thread(state.tracer.close, TRACES_TIMEOUT)


def build_app(config: Config, log: RequestLog, *, demo_pause: float = TOKEN_PAUSE) -> FastAPI:
    """The gateway as one ASGI application, to be run by any server."""
    portcullis = Portcullis(config, log, demo_pause=demo_pause)
    portcullis.public.state.portcullis = portcullis
    return portcullis.public


def log_unapplied_sections(log: RequestLog, differ: Sequence[str]) -> None:
    """Name the sections of a new configuration that are not in force."""
    if differ:
        log.event("reload", warning=f"{', '.join(differ)}: changed, which only a restart puts in force")


async def _keep_probing(state: AppState) -> None:
    """Keep the metrics about upstreams true, also in a worker that gets no probes of its own."""
    while True:
        await asyncio.sleep(PROBE_TTL)
        with contextlib.suppress(Exception):  # the next one may succeed
            await state.probe()


def check_parts(config: Config) -> None:
    """Raises `ConfigError` where the configuration needs an optional package that is absent or refuses it, and for
    tokenizers that cannot be read."""
    read_vocabularies(config)
    try:
        _limiter(config, None, 0)
    except (ImportError, ValueError) as error:
        raise ConfigError(config.source, config.state_key, str(error)) from None
    if config.telemetry is not None and not is_installed(*TELEMETRY):
        raise ConfigError(config.source, "telemetry", missing_part("otel"))


def _stored_answers(config: Config, runtime_dir: Path | None, log: RequestLog) -> StoredAnswers | None:
    """Not beside other workers: any of them may get the request that refers to an answer."""
    capacity = config.limits.stored_responses
    if capacity is None or runtime_dir is None:
        return None if capacity is None else StoredAnswers(capacity)
    log.event("stored_responses", problem="nothing is kept: that takes one worker")
    return None


def _limiter(config: Config, runtime_dir: Path | None, slot: int) -> Limiter:
    if config.state is not None:
        from gateway.limits.redis import RedisLimiter  # an optional package

        return RedisLimiter(config.state)
    if runtime_dir is None:
        return MemoryLimiter()
    from gateway.limits.shared import SharedLimiter  # Unix only

    return SharedLimiter(runtime_dir / LIMITS, slot)


class QuietServer(uvicorn.Server):
    """Leaves signals alone: a process may have several servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def _demo_server(pause: float) -> AsyncIterator[str]:
    """The demo upstream on a real socket of its own, because an in-process transport would not stream."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = QuietServer(uvicorn.Config(build_demo(pause), log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
