"""Several workers behind one address: connections spread evenly, a dead worker replaced, all of them reloaded together.

The supervisor accepts and hands each connection to the worker that has the fewest; `SO_REUSEPORT` would leave that to a
hash, and a race between workers to whoever wakes first. It touches no request. No worker is a fork of the supervisor
(see `births.py`); each is told its configuration, so one that must be replaced gets the last good one, whatever the
file says by then.
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
from gateway.guard.channels import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.facts import Reloaded
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics, SharedFiles
from gateway.policy.model import Config
from gateway.proxy.snapshot import keep_startup_sections
from gateway.serving.logs import log_servers_to
from gateway.serving.reload import Reloader, Source
from gateway.serving.servers import NotStarted, Stop
from gateway.serving.watch import watch
from gateway.serving.workers.acceptor import Address, NotAccepted
from gateway.serving.workers.ipc import (
    ADMIN,
    CLIENT,
    Adopt,
    Adopted,
    Closed,
    Done,
    Drain,
    Ping,
    Ready,
    Start,
    receive,
)
from gateway.serving.workers.runtime_dir import scratch_folder
from gateway.serving.workers.slot import Slot
from gateway.serving.workers.spawn import Births, Child

START_PATIENCE = 120.0  # seconds for a worker to come up, 100,000 words and a slow disk included
ADOPT_PATIENCE = 120.0
PING_EVERY = 5.0  # seconds
SILENCE = 60.0  # seconds after which a worker that answers no ping is ended
STOP_PATIENCE = 10.0  # beyond drain_timeout, for a worker that was told to stop
FIRST_BACKOFF = 0.1  # seconds between two starts of a worker; doubled while it keeps dying, up to LONGEST_BACKOFF
LONGEST_BACKOFF = 10.0
STEADY = 30.0  # seconds a worker must live for its next death to count as the first


class Supervisor:
    """See the module. `listeners` are the public one and, if there is one, the admin's."""

    def __init__(
        self,
        config: Config,
        workers: int,
        log: RequestLog,
        log_style: str,
        listeners: Sequence[tuple[bytes, socket.socket]],
        scratch: Path,
    ) -> None:
        self._config = config
        self._log = log
        self._log_style = log_style
        self._listeners = listeners
        self._scratch = scratch
        self._slots = [Slot(number) for number in range(workers)]
        self._stopping = asyncio.Event()
        self._addresses: list[Address] = []
        self._closing: asyncio.Task[None] | None = None
        self._closed = False
        for name in (METRICS, LIMITS):
            (scratch / name).mkdir()
        self._metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS, SharedFiles(scratch / METRICS, "supervisor"))

    async def run(self, source: Source | None, on_ready: Callable[[], None]) -> signal.Signals:
        """Serve until SIGTERM or SIGINT; returns which. Raises `NotStarted` if the workers do not come up at first."""
        stop = Stop(asyncio.get_running_loop())
        self._births = Births()
        tasks = [asyncio.create_task(self._keep(slot)) for slot in self._slots]
        listening_for_life = asyncio.create_task(self._listen_for_life())
        try:
            coming_up, stopping = asyncio.create_task(self._come_up()), asyncio.create_task(stop.wait())
            await asyncio.wait((coming_up, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                coming_up.cancel()
                return await stopping
            await coming_up
            self._addresses = [
                Address(listener, partial(self._hand_over, kind), NotAccepted(self._metrics.record, self._note_problem))
                for kind, listener in self._listeners
            ]
            watching = self._watch(source) if source is not None else []
            on_ready()
            name = await stopping
            for task in watching:
                task.cancel()
            await self._drain(tasks, stop.at_once)
            return name
        finally:
            self._stopping.set()
            listening_for_life.cancel()
            for slot in self._slots:
                slot.kill()
            await asyncio.gather(*tasks, listening_for_life, return_exceptions=True)
            if self._closing is not None:
                self._closing.cancel()
            for address in self._addresses:
                address.abort()

    async def _come_up(self) -> None:
        waits = [asyncio.create_task(slot.came_up.wait()) for slot in self._slots]
        try:
            async with asyncio.timeout(START_PATIENCE):
                for wait in waits:
                    await wait
        except TimeoutError:
            raise NotStarted(f"the workers did not come up within {START_PATIENCE:g} seconds") from None
        finally:
            for wait in waits:
                wait.cancel()
        if any(slot.deaths for slot in self._slots):
            raise NotStarted("a worker ended while it was starting")

    # -- a worker's life -----------------------------------------------------------------------------------------------

    async def _keep(self, slot: Slot) -> None:
        """Start the worker of a slot, and again whenever it dies."""
        while not self._stopping.is_set():
            status: int | str
            try:
                process = await self._start(slot)
                status = await process.wait()
            except OSError as error:
                # No descriptors or no memory just now.
                status = f"could not be started: {error.strerror}"
                slot.started_at = monotonic()
            slot.ready = False
            slot.came_up.set()
            if self._stopping.is_set():
                return
            slot.process = None
            slot.deaths = slot.deaths + 1 if monotonic() - slot.started_at < STEADY else 1
            pause = min(FIRST_BACKOFF * 2 ** (slot.deaths - 1), LONGEST_BACKOFF)
            self._log.event("worker_died", worker=slot.number, status=status, restart_in=pause)
            SharedFiles(self._scratch / METRICS, str(slot.number)).forget_present()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _start(self, slot: Slot) -> Child:
        """Raises OSError."""
        config = self._config
        reader = await slot.start(config, self._births)
        process, connections = slot.process, slot.connections
        assert process is not None and connections is not None
        slot.send(Start(config, slot.number, self._scratch, self._log_style))
        if self._stopping.is_set():
            slot.send(Drain())
        listening = asyncio.ensure_future(self._listen(slot, reader))
        listening.add_done_callback(lambda _: connections.close())
        return process

    async def _listen(self, slot: Slot, reader: asyncio.StreamReader) -> None:
        while (message := await receive(reader)) is not None:
            slot.heard_at = monotonic()
            match message:
                case Ready():
                    self._came_up(slot)
                case Closed():
                    slot.open -= 1
                case Done():
                    slot.done = True
                    self._let_go_of_done()
                case Adopted(failure) if slot.catching_up and failure:
                    # It would serve with old rules; its successor starts with the new ones.
                    self._log.event("reload", outcome="failed", reason=f"worker {slot.number}: {failure}")
                    slot.kill()
                case Adopted() if slot.catching_up:
                    self._came_up(slot)
                case Adopted(failure):
                    if slot.adopted is not None and not slot.adopted.done():
                        slot.adopted.set_result(failure)
        slot.ready = False
        if slot.adopted is not None and not slot.adopted.done():
            slot.adopted.set_result("")  # its successor starts with the new configuration

    def _came_up(self, slot: Slot) -> None:
        """It serves, or, if there was a reload while it was starting, will when it has caught up."""
        slot.catching_up = slot.config is not self._config
        if slot.catching_up:
            slot.config = self._config
            slot.send(Adopt(self._config))
            return
        slot.ready = True
        slot.came_up.set()
        self._let_go_of_done()

    async def _listen_for_life(self) -> None:
        """End a worker that says nothing any more: it holds connections that nobody serves."""
        while not self._stopping.is_set():
            await asyncio.sleep(PING_EVERY)
            for slot in self._slots:
                patience = SILENCE if slot.ready else START_PATIENCE
                if slot.process is None or slot.process.returncode is not None:
                    continue
                if monotonic() - slot.heard_at > patience:
                    self._log.event("worker_hangs", worker=slot.number, silent_for=round(patience))
                    slot.kill()
                slot.send(Ping())

    # -- connections ---------------------------------------------------------------------------------------------------

    def _hand_over(self, kind: bytes, connection: socket.socket) -> bool:
        """Did a worker take it? The one with the fewest is asked first."""
        ready = sorted((slot for slot in self._slots if slot.ready), key=lambda slot: slot.open)
        return any(slot.hand(kind, connection) for slot in ready)

    def _note_problem(self, text: str) -> None:
        self._log.event("server", level="warning", message=text)

    def _let_go_of_done(self) -> None:
        """Workers that are done may end, but the last one that serves at all: somebody must answer who still comes.

        It stays until another one serves, or until nobody can come any more.
        """
        for slot in self._slots:
            if not (slot.ready and slot.done):
                continue
            if self._closed or any(other.ready for other in self._slots if other is not slot):
                slot.let_go()
            elif self._stopping.is_set() and self._closing is None:
                self._closing = asyncio.create_task(self._close_addresses())

    async def _close_addresses(self) -> None:
        await asyncio.gather(*(address.close() for address in self._addresses))
        self._closed = True
        self._let_go_of_done()

    # -- reload and end ------------------------------------------------------------------------------------------------

    def _watch(self, source: Source) -> list[asyncio.Task[None]]:
        reloader = Reloader(source, self._adopt, self._record)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(reloader.reload()))
        if not source.watched:
            return []
        return [asyncio.create_task(watch(reloader, lambda text: self._log.event("watch", problem=text)))]

    def _record(self, fact: Reloaded) -> None:
        self._metrics.record(fact)
        self._log.record(fact)

    async def _adopt(self, config: Config) -> None:
        """Put a configuration in force in all workers. Raises `NotAdopted` if one refuses it; then none keeps it.

        Raises `ConfigError` where what stays of the old one forbids it.
        """
        config, differ = keep_startup_sections(self._config, config)
        log_unapplied_sections(self._log, differ)
        before, self._config = self._config, config
        failures = await self._tell(config)
        if failures:
            self._config = before
            await self._tell(before)
            raise NotAdopted(failures[0])

    async def _tell(self, config: Config) -> list[str]:
        loop = asyncio.get_running_loop()
        told = [slot for slot in self._slots if slot.ready]
        for slot in told:
            slot.adopted = loop.create_future()
            slot.config = config
            slot.send(Adopt(config))
        answers: list[str] = []
        for slot in told:
            assert slot.adopted is not None
            try:
                answers.append(await asyncio.wait_for(slot.adopted, ADOPT_PATIENCE))
            except TimeoutError:
                answers.append(f"worker {slot.number} did not answer within {ADOPT_PATIENCE:g} seconds")
            slot.adopted = None
        return [answer for answer in answers if answer]

    async def _drain(self, tasks: Sequence[asyncio.Task[None]], at_once: asyncio.Event) -> None:
        """Workers refuse new requests and finish what runs; a second signal ends them at once."""
        self._stopping.set()
        for slot in self._slots:
            slot.send(Drain())
        self._let_go_of_done()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        hurry = asyncio.create_task(at_once.wait())
        patience = self._config.listen.drain_timeout + STOP_PATIENCE
        await asyncio.wait((ended, hurry), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            for slot in self._slots:
                slot.send(Drain())
            await asyncio.wait((ended,), timeout=STOP_PATIENCE)
        hurry.cancel()
        whole = all(slot.process is None or slot.process.returncode == 0 for slot in self._slots)
        self._log.event("stopped", drained=whole)


def run(
    config: Config,
    source: Source | None,
    workers: int,
    log: RequestLog,
    log_style: str,
    listener: socket.socket,
    admin_listener: socket.socket | None,
    on_ready: Callable[[], None],
) -> signal.Signals:
    """Supervise in an event loop of its own; what the workers share is removed at the end."""
    log_servers_to(log)
    with scratch_folder() as scratch:
        listeners = [(CLIENT, listener)]
        if admin_listener is not None:
            listeners.append((ADMIN, admin_listener))

        async def supervise() -> signal.Signals:
            return await Supervisor(config, workers, log, log_style, listeners, scratch).run(source, on_ready)

        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(scratch / METRICS)
        return asyncio.run(supervise())
