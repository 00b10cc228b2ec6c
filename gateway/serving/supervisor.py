"""Several workers behind one address: connections spread evenly, a dead worker replaced, all of them reloaded together.

The supervisor accepts and hands each connection to the worker that has the fewest; `SO_REUSEPORT` would leave that to a
hash, and a race between workers to whoever wakes first. It touches no request. Every worker is started anew as a
program of its own and is told its configuration, so one that must be replaced gets the last good one, whatever the file
says by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import gateway
from gateway.app import LIMITS, METRICS, NotAdopted, warn_of_fixed
from gateway.guard.texts import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.facts import Reloaded
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics, SharedFiles
from gateway.policy.model import Config
from gateway.proxy.generation import keep_fixed
from gateway.serving.channel import (
    ADMIN,
    CLIENT,
    Adopt,
    Adopted,
    Closed,
    Drain,
    Message,
    Ping,
    Ready,
    Start,
    frame,
    receive,
)
from gateway.serving.logs import log_servers_to
from gateway.serving.reload import Reloader, Source
from gateway.serving.servers import NotStarted, Stop
from gateway.serving.watch import watch

START_PATIENCE = 120.0  # seconds for a worker to come up, 100,000 words and a slow disk included
ADOPT_PATIENCE = 120.0
PING_EVERY = 5.0  # seconds
SILENCE = 60.0  # seconds after which a worker that answers no ping is ended
STOP_PATIENCE = 10.0  # beyond drain_timeout, for a worker that was told to stop
LONGEST_BACKOFF = 10.0  # seconds between two starts of a worker that keeps dying
STEADY = 30.0  # seconds a worker must live for its next death to count as the first


@dataclass
class _Slot:
    """A worker's place. `open` counts the connections that were handed to it and are not gone."""

    number: int
    process: asyncio.subprocess.Process | None = None
    writer: asyncio.StreamWriter | None = None
    connections: socket.socket | None = None
    open: int = 0
    ready: bool = False
    started_at: float = 0.0
    deaths: int = 0
    config: Config | None = None  # what it was told last
    catching_up: bool = False
    heard_at: float = 0.0
    adopted: asyncio.Future[str] | None = None
    came_up: asyncio.Event = field(default_factory=asyncio.Event)


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
        self._slots = [_Slot(number) for number in range(workers)]
        self._stopping = False
        self._some_ready = asyncio.Event()
        for name in (METRICS, LIMITS):
            (scratch / name).mkdir()
        self._metrics = Metrics(HELD_BOUNDS, HOLD_BOUNDS, SharedFiles(scratch / METRICS, "supervisor"))

    async def run(self, source: Source | None, on_ready: Callable[[], None]) -> signal.Signals:
        """Serve until SIGTERM or SIGINT; returns which. Raises `NotStarted` if the workers do not come up at first."""
        stop = Stop(asyncio.get_running_loop())
        tasks = [asyncio.create_task(self._keep(slot)) for slot in self._slots]
        listening_for_life = asyncio.create_task(self._listen_for_life())
        try:
            coming_up, stopping = asyncio.create_task(self._come_up()), asyncio.create_task(stop.wait())
            await asyncio.wait((coming_up, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                coming_up.cancel()
                return await stopping
            await coming_up
            accepting = [asyncio.create_task(self._accept(kind, listener)) for kind, listener in self._listeners]
            watching = self._watch(source) if source is not None else []
            on_ready()
            name = await stopping
            for task in watching:
                task.cancel()
            await self._drain(tasks, stop.at_once)
            for task in accepting:
                task.cancel()
            return name
        finally:
            self._stopping = True
            listening_for_life.cancel()
            for slot in self._slots:
                _kill(slot)
            await asyncio.gather(*tasks, listening_for_life, return_exceptions=True)

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

    async def _keep(self, slot: _Slot) -> None:
        """Start the worker of a slot, and again whenever it dies."""
        while not self._stopping:
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
            if self._stopping:
                return
            slot.deaths = slot.deaths + 1 if monotonic() - slot.started_at < STEADY else 1
            pause = min(0.1 * 2 ** (slot.deaths - 1), LONGEST_BACKOFF)
            self._log.event("worker_died", worker=slot.number, status=status, restart_in=pause)
            SharedFiles(self._scratch / METRICS, str(slot.number)).forget_present()
            await asyncio.sleep(pause)

    async def _start(self, slot: _Slot) -> asyncio.subprocess.Process:
        """Raises OSError."""
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            control, their_control = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(their_control)
            connections, their_connections = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(connections)
            theirs.enter_context(their_connections)
            descriptors = their_control.fileno(), their_connections.fileno()
            slot.process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # nothing is imported from the working directory
                "-m",
                "gateway.serving.worker",
                *map(str, descriptors),
                pass_fds=descriptors,
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _import_path()},
            )
            ours.pop_all()
        connections.setblocking(False)
        reader, slot.writer = await asyncio.open_connection(sock=control)
        slot.connections, slot.open, slot.started_at, slot.heard_at = connections, 0, monotonic(), monotonic()
        slot.config, slot.catching_up = self._config, False
        self._send(slot, Start(self._config, slot.number, self._scratch, self._log_style))
        if self._stopping:
            self._send(slot, Drain())
        listening = asyncio.ensure_future(self._listen(slot, reader))
        listening.add_done_callback(lambda _: connections.close())
        return process

    async def _listen(self, slot: _Slot, reader: asyncio.StreamReader) -> None:
        while (message := await receive(reader)) is not None:
            slot.heard_at = monotonic()
            match message:
                case Ready():
                    self._came_up(slot)
                case Closed():
                    slot.open -= 1
                case Adopted(failure) if slot.catching_up and failure:
                    # It would serve with old rules; its successor starts with the new ones.
                    self._log.event("reload", outcome="failed", reason=f"worker {slot.number}: {failure}")
                    _kill(slot)
                case Adopted() if slot.catching_up:
                    self._came_up(slot)
                case Adopted(failure):
                    if slot.adopted is not None and not slot.adopted.done():
                        slot.adopted.set_result(failure)
        slot.ready = False
        if slot.adopted is not None and not slot.adopted.done():
            slot.adopted.set_result("")  # its successor starts with the new configuration

    def _came_up(self, slot: _Slot) -> None:
        """It serves, or, if there was a reload while it was starting, will when it has caught up."""
        slot.catching_up = slot.config is not self._config
        if slot.catching_up:
            slot.config = self._config
            self._send(slot, Adopt(self._config))
            return
        slot.ready = True
        slot.came_up.set()
        self._some_ready.set()

    async def _listen_for_life(self) -> None:
        """End a worker that says nothing any more: it holds connections that nobody serves."""
        while not self._stopping:
            await asyncio.sleep(PING_EVERY)
            for slot in self._slots:
                patience = SILENCE if slot.ready else START_PATIENCE
                if slot.process is None or slot.process.returncode is not None:
                    continue
                if monotonic() - slot.heard_at > patience:
                    self._log.event("worker_hangs", worker=slot.number, silent_for=round(patience))
                    _kill(slot)
                self._send(slot, Ping())

    def _send(self, slot: _Slot, message: Message) -> None:
        if slot.writer is not None and not slot.writer.is_closing():
            slot.writer.write(frame(message))

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _accept(self, kind: bytes, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, or the client has left already.
                self._log.event("server", level="warning", message=f"accept: {error.strerror}")
                await asyncio.sleep(0.05)
                continue
            with connection:
                await self._hand_over(kind, connection)

    async def _hand_over(self, kind: bytes, connection: socket.socket) -> None:
        while True:
            for slot in sorted((slot for slot in self._slots if slot.ready), key=lambda slot: slot.open):
                assert slot.connections is not None
                try:
                    socket.send_fds(slot.connections, [kind], [connection.fileno()])
                except BlockingIOError:
                    continue  # it has not taken those before; another one may
                except OSError:
                    slot.ready = False
                    continue
                slot.open += 1
                return
            self._some_ready.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._some_ready.wait(), 0.05)

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
        config, differ = keep_fixed(self._config, config)
        warn_of_fixed(self._log, differ)
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
            self._send(slot, Adopt(config))
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
        self._stopping = True
        for slot in self._slots:
            self._send(slot, Drain())
        ended = asyncio.gather(*tasks, return_exceptions=True)
        hurry = asyncio.create_task(at_once.wait())
        patience = self._config.listen.drain_timeout + STOP_PATIENCE
        await asyncio.wait((ended, hurry), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            for slot in self._slots:
                self._send(slot, Drain())
            await asyncio.wait((ended,), timeout=STOP_PATIENCE)
        hurry.cancel()
        self._log.event("stopped", drained=all(slot.process and slot.process.returncode == 0 for slot in self._slots))


def _import_path() -> str:
    """So that a worker finds the package that this is, installed or not."""
    here = str(Path(gateway.__file__).parent.parent)
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


def _kill(slot: _Slot) -> None:
    if slot.process is not None and slot.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            slot.process.kill()


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
    with tempfile.TemporaryDirectory(prefix="portcullis-") as scratch:
        listeners = [(CLIENT, listener)]
        if admin_listener is not None:
            listeners.append((ADMIN, admin_listener))

        async def supervise() -> signal.Signals:
            return await Supervisor(config, workers, log, log_style, listeners, Path(scratch)).run(source, on_ready)

        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(Path(scratch) / METRICS)
        return asyncio.run(supervise())
