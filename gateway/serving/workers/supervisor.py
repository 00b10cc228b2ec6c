"""Several workers behind one address: connections spread evenly, a dead worker replaced, all of them reloaded together.

The supervisor accepts and hands each connection to the worker that has the fewest; `SO_REUSEPORT` would leave that to a
hash, and a shared listener to a race between workers. It touches no request. Each worker is a program of its own that
gets its configuration from the supervisor, so a replacement starts with the last good one, whatever the file says by
then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from gateway.app import LIMITS, METRICS, NotAdopted, log_unapplied_sections
from gateway.guard.findings import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.facts import Reloaded
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics, SharedFiles
from gateway.policy.model import Config
from gateway.proxy.snapshot import keep_startup_sections
from gateway.serving.acceptor import AcceptFailureReporter, Acceptor
from gateway.serving.reload import ConfigSource, start_reloading
from gateway.serving.runtime_dir import runtime_directory
from gateway.serving.servers import NotStarted, StopSignals, redirect_server_logs
from gateway.serving.workers.handle import WorkerHandle
from gateway.serving.workers.ipc import (
    Reload,
    ReloadResult,
    Signal,
    Start,
    read_message,
)

START_TIMEOUT = 120.0  # seconds for a worker to come up, 100,000 words and a slow disk included
RELOAD_TIMEOUT = 120.0
PING_INTERVAL = 5.0  # seconds
PING_TIMEOUT = 60.0  # seconds after which a worker that answers no ping is killed
STOP_TIMEOUT = 10.0  # beyond drain_timeout, for a worker that was ordered to drain
FIRST_BACKOFF = 0.1  # seconds between two starts of a worker; doubled while it keeps dying, up to MAX_BACKOFF
MAX_BACKOFF = 10.0
STABLE_AFTER = 30.0  # seconds a worker must live for its next death to count as the first


class Supervisor:
    """Starts, replaces, reloads and drains `count` workers. `listeners` are the public one and, if configured, the
    admin's. More than 15 methods: they are the stages of one life, around the same state."""

    def __init__(
        self,
        config: Config,
        count: int,
        log: RequestLog,
        listeners: Sequence[tuple[bytes, socket.socket]],
        runtime_dir: Path,
    ) -> None:
        self._config = config
        self._log = log
        self._listeners = listeners
        self._runtime_dir = runtime_dir
        self._workers = [WorkerHandle(number) for number in range(count)]
        self._stopping = asyncio.Event()
        self._acceptors: list[Acceptor] = []
        self._closing: asyncio.Task[None] | None = None
        self._closed = False
        for name in (METRICS, LIMITS):
            (runtime_dir / name).mkdir()
        self._metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS, SharedFiles(runtime_dir / METRICS, "supervisor"))

    async def run(self, source: ConfigSource | None, on_ready: Callable[[], None]) -> signal.Signals:
        """Serve until SIGTERM or SIGINT; returns which. Raises `NotStarted` if the workers do not come up at first."""
        stop = StopSignals(asyncio.get_running_loop())
        tasks = [asyncio.create_task(self._keep_running(worker)) for worker in self._workers]
        pinging = asyncio.create_task(self._kill_silent())
        try:
            starting, stopping = asyncio.create_task(self._wait_for_start()), asyncio.create_task(stop.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                starting.cancel()
                return await stopping
            await starting
            on_failure = AcceptFailureReporter(self._metrics.record, self._log)
            self._acceptors = [
                Acceptor(listener, partial(self._hand_over, kind), on_failure) for kind, listener in self._listeners
            ]
            watching = [] if source is None else start_reloading(source, self._reload, self._record, self._log)
            on_ready()
            name = await stopping
            for task in watching:
                task.cancel()
            await self._drain(tasks, stop.at_once)
            return name
        finally:
            self._stopping.set()
            pinging.cancel()
            for worker in self._workers:
                worker.kill()
            await asyncio.gather(*tasks, pinging, return_exceptions=True)
            if self._closing is not None:
                self._closing.cancel()
            for acceptor in self._acceptors:
                acceptor.abort()

    async def _wait_for_start(self) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT):
                for worker in self._workers:
                    await worker.started.wait()
        except TimeoutError:
            raise NotStarted(f"the workers did not start within {START_TIMEOUT:g} seconds") from None
        if any(worker.deaths for worker in self._workers):
            raise NotStarted("a worker ended while it was starting")

    # -- a worker's life -----------------------------------------------------------------------------------------------

    async def _keep_running(self, worker: WorkerHandle) -> None:
        """Start a worker, and again whenever it dies."""
        while not self._stopping.is_set():
            status: int | str
            try:
                process = await self._start(worker)
                status = await process.wait()
            except OSError as error:
                # No descriptors or no memory just now.
                status = f"could not be started: {error.strerror}"
                worker.started_at = monotonic()
            worker.ready = False
            worker.started.set()
            if self._stopping.is_set():
                return
            worker.process = None
            worker.deaths = worker.deaths + 1 if monotonic() - worker.started_at < STABLE_AFTER else 1
            pause = min(FIRST_BACKOFF * 2 ** (worker.deaths - 1), MAX_BACKOFF)
            self._log.event("worker_died", worker=worker.number, status=status, restart_in=pause)
            SharedFiles(self._runtime_dir / METRICS, str(worker.number)).forget_present()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _start(self, worker: WorkerHandle) -> asyncio.subprocess.Process:
        """Raises OSError."""
        config = self._config
        reader = await worker.start(config)
        process, connections = worker.process, worker.connections
        assert process is not None
        assert connections is not None
        worker.send(Start(config, worker.number, self._runtime_dir, self._log.style))
        if self._stopping.is_set():
            worker.send(Signal.DRAIN)
        reading = asyncio.ensure_future(self._read_messages(worker, reader))
        reading.add_done_callback(lambda _: connections.close())
        return process

    async def _read_messages(self, worker: WorkerHandle, reader: asyncio.StreamReader) -> None:
        while (message := await read_message(reader)) is not None:
            worker.last_message_at = monotonic()
            match message:
                case Signal.READY:
                    self._on_started(worker)
                case Signal.CONNECTION_CLOSED:
                    worker.open -= 1
                case Signal.DRAINED:
                    worker.drained = True
                    self._release_drained()
                case ReloadResult(failure) if worker.catching_up and failure:
                    # It would serve with old rules; its successor starts with the new ones.
                    self._log.event("reload", outcome="failed", reason=f"worker {worker.number}: {failure}")
                    worker.kill()
                case ReloadResult() if worker.catching_up:
                    self._on_started(worker)
                case ReloadResult(failure):
                    if worker.reload_result is not None and not worker.reload_result.done():
                        worker.reload_result.set_result(failure)
        worker.ready = False
        if worker.reload_result is not None and not worker.reload_result.done():
            worker.reload_result.set_result("")  # its successor starts with the new configuration

    def _on_started(self, worker: WorkerHandle) -> None:
        """A worker has started. If there was a reload in the meantime, it has to reload first."""
        worker.catching_up = worker.config is not self._config
        if worker.catching_up:
            worker.config = self._config
            worker.send(Reload(self._config))
            return
        worker.ready = True
        worker.started.set()
        self._release_drained()

    async def _kill_silent(self) -> None:
        """Kill a worker that answers no ping any more: it holds connections and does not serve them."""
        while not self._stopping.is_set():
            await asyncio.sleep(PING_INTERVAL)
            for worker in self._workers:
                timeout = PING_TIMEOUT if worker.ready else START_TIMEOUT
                if not worker.running:
                    continue
                if monotonic() - worker.last_message_at > timeout:
                    self._log.event("worker_hangs", worker=worker.number, silent_for=round(timeout))
                    worker.kill()
                worker.send(Signal.PING)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _hand_over(self, kind: bytes, connection: socket.socket) -> bool:
        """Whether a worker takes the connection; the one with the fewest is tried first."""
        ready = sorted((worker for worker in self._workers if worker.ready), key=lambda worker: worker.open)
        return any(worker.hand_over(kind, connection) for worker in ready)

    def _release_drained(self) -> None:
        """Let drained workers end, but keep the last one that serves at all: it refuses who still comes.

        It stays until another one serves, or until the listeners are closed.
        """
        for worker in self._workers:
            if not (worker.ready and worker.drained):
                continue
            if self._closed or any(other.ready for other in self._workers if other is not worker):
                worker.end_handover()
            elif self._stopping.is_set() and self._closing is None:
                self._closing = asyncio.create_task(self._close_acceptors())

    async def _close_acceptors(self) -> None:
        await asyncio.gather(*(acceptor.close() for acceptor in self._acceptors))
        self._closed = True
        self._release_drained()

    # -- reload and end ------------------------------------------------------------------------------------------------

    def _record(self, fact: Reloaded) -> None:
        self._metrics.record(fact)
        self._log.record(fact)

    async def _reload(self, config: Config) -> None:
        """Put a configuration in force in all workers. Raises `NotAdopted` if one refuses it; then none keeps it.

        Raises `ConfigError` where what stays of the old one forbids it.
        """
        config, differ = keep_startup_sections(self._config, config)
        log_unapplied_sections(self._log, differ)
        before, self._config = self._config, config
        failures = await self._send_reload(config)
        if failures:
            self._config = before
            await self._send_reload(before)
            raise NotAdopted(failures[0])

    async def _send_reload(self, config: Config) -> list[str]:
        """The reasons of the workers that did not put it in force."""
        loop = asyncio.get_running_loop()
        results: list[tuple[WorkerHandle, asyncio.Future[str]]] = []
        for worker in self._workers:
            if worker.ready:
                worker.config, worker.reload_result = config, loop.create_future()
                worker.send(Reload(config))
                results.append((worker, worker.reload_result))
        failures: list[str] = []
        for worker, result in results:
            try:
                failures.append(await asyncio.wait_for(result, RELOAD_TIMEOUT))
            except TimeoutError:
                failures.append(f"worker {worker.number} did not answer within {RELOAD_TIMEOUT:g} seconds")
            worker.reload_result = None
        return [failure for failure in failures if failure]

    async def _drain(self, tasks: Sequence[asyncio.Task[None]], at_once: asyncio.Event) -> None:
        """Workers refuse new requests and finish what runs; a second signal ends them at once."""
        self._stopping.set()
        for worker in self._workers:
            worker.send(Signal.DRAIN)
        self._release_drained()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        second_signal = asyncio.create_task(at_once.wait())
        timeout = self._config.listen.drain_timeout + STOP_TIMEOUT
        await asyncio.wait((ended, second_signal), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if second_signal.done():
            for worker in self._workers:
                worker.send(Signal.DRAIN)
            await asyncio.wait((ended,), timeout=STOP_TIMEOUT)
        second_signal.cancel()
        drained = all(worker.process is None or worker.process.returncode == 0 for worker in self._workers)
        self._log.event("stopped", drained=drained)


def run(
    config: Config,
    source: ConfigSource | None,
    count: int,
    log: RequestLog,
    listeners: Sequence[tuple[bytes, socket.socket]],
    on_ready: Callable[[], None],
) -> signal.Signals:
    """Supervise in an event loop of its own; what the workers share is removed at the end."""
    redirect_server_logs(log)
    with runtime_directory() as runtime_dir:

        async def supervise() -> signal.Signals:
            return await Supervisor(config, count, log, listeners, runtime_dir).run(source, on_ready)

        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(runtime_dir / METRICS)
        return asyncio.run(supervise())
