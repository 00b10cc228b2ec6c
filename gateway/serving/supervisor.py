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

from gateway.app import LIMITS, METRICS, NotAdopted, warn_of_fixed
from gateway.guard.texts import HELD_BOUNDS, HOLD_BOUNDS
from gateway.observe.facts import Reloaded
from gateway.observe.log import RequestLog
from gateway.observe.metrics import Metrics, SharedFiles
from gateway.policy.model import Config
from gateway.proxy.generation import keep_fixed
from gateway.serving.channel import ADMIN, CLIENT, Adopt, Adopted, Closed, Drain, Message, Ready, Start, frame, receive
from gateway.serving.logs import log_servers_to
from gateway.serving.reload import Reloader, Source
from gateway.serving.servers import NotStarted, Stop
from gateway.serving.watch import watch

START_PATIENCE = 120.0  # seconds for a worker to come up, 100,000 words and a slow disk included
ADOPT_PATIENCE = 120.0
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
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(self._keep(slot)) for slot in self._slots]
        try:
            await self._come_up(tasks)
            accepting = [asyncio.create_task(self._accept(kind, listener)) for kind, listener in self._listeners]
            stop = Stop(loop)
            watching = self._watch(source) if source is not None else []
            on_ready()
            name = await stop.wait()
            for task in watching:
                task.cancel()
            await self._drain(tasks, stop.at_once)
            for task in accepting:
                task.cancel()
            return name
        finally:
            self._stopping = True
            for slot in self._slots:
                _kill(slot)
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _come_up(self, tasks: Sequence[asyncio.Task[None]]) -> None:
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
            await self._start(slot)
            process = slot.process
            assert process is not None
            status = await process.wait()
            slot.ready = False
            slot.came_up.set()
            if self._stopping:
                return
            slot.deaths = slot.deaths + 1 if monotonic() - slot.started_at < STEADY else 1
            pause = min(0.1 * 2 ** (slot.deaths - 1), LONGEST_BACKOFF)
            self._log.event("worker_died", worker=slot.number, status=status, restart_in=pause)
            SharedFiles(self._scratch / METRICS, str(slot.number)).forget_present()
            await asyncio.sleep(pause)

    async def _start(self, slot: _Slot) -> None:
        control, their_control = socket.socketpair()
        connections, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        slot.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.serving.worker",
            str(their_control.fileno()),
            str(theirs.fileno()),
            pass_fds=(their_control.fileno(), theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
        )
        their_control.close()
        theirs.close()
        connections.setblocking(False)
        reader, slot.writer = await asyncio.open_connection(sock=control)
        slot.connections, slot.open, slot.started_at = connections, 0, monotonic()
        self._send(slot, Start(self._config, slot.number, self._scratch, self._log_style))
        listening = asyncio.ensure_future(self._listen(slot, reader))
        listening.add_done_callback(lambda _: connections.close())

    async def _listen(self, slot: _Slot, reader: asyncio.StreamReader) -> None:
        while (message := await receive(reader)) is not None:
            match message:
                case Ready():
                    slot.ready = True
                    slot.came_up.set()
                    self._some_ready.set()
                case Closed():
                    slot.open -= 1
                case Adopted(failure):
                    if slot.adopted is not None and not slot.adopted.done():
                        slot.adopted.set_result(failure)
        slot.ready = False
        if slot.adopted is not None and not slot.adopted.done():
            slot.adopted.set_result("")  # its successor starts with the new configuration

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
        return [asyncio.create_task(watch(reloader))] if source.watched else []

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
