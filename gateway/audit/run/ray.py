"""A pool of workers that are Ray actors, on this machine or a cluster: https://docs.ray.io."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.audit.model import ModelError
from gateway.audit.run.worker import THREADS, AuditWorker, Job, Load, WorkerLost, WorkerMessage, processors
from gateway.policy.errors import ConfigError
from gateway.version import missing_part

LOCAL = "local"
LOAD_TIMEOUT = 1800.0  # seconds until a worker has its place and its model
POLL_INTERVAL = 1.0  # seconds between two questions how far a task is
CALLS = 4  # of one worker at a time: a task, how far it is, and to stop


class RayPool:
    """`count` actors (None: one for each processor, or each GPU if `device` is one; at most `most`) on the Ray at
    `address`: `local` starts one here, `auto` and `ray://HOST:PORT` are there already. Each has the model that `load`
    makes in it, and a processor; GPUs are shared where there are fewer of them.

    Raises ConfigError if Ray is not installed, ModelError if it cannot be reached.
    """

    load_timeout = LOAD_TIMEOUT

    def __init__(self, address: str, load: Load, count: int | None, most: int, device: str) -> None:
        self._ray = _installed()
        # Standard output has the audit's lines only, and Ray tells there of workers that died.
        self._quiet = contextlib.ExitStack()
        self._quiet.enter_context(contextlib.redirect_stdout(sys.stderr))
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, tuple[int, bool]] = {}  # by reference: whose answer, and is it to be passed on?
        self._polled: dict[int, float] = {}  # when those at work were asked how far they are
        self._lost: list[tuple[int, WorkerMessage]] = []  # of whom that is to be said yet
        try:
            self._connect(address, count)
            self._start(load, address, count, most, device)
        except BaseException:
            self.close()
            raise

    def start_job(self, worker: int, job: Job) -> None:
        with self._lost_on_error(worker):
            self._waiting[self._actors[worker].perform.remote(job)] = worker, True
            self._polled[worker] = time.monotonic()

    def stop(self, worker: int, job: Job) -> None:
        with self._lost_on_error(worker):
            self._actors[worker].stop.remote(job.ticket)

    def kill(self, worker: int) -> None:
        actor = self._actors.pop(worker)
        self._polled.pop(worker, None)
        self._waiting = {reference: whose for reference, whose in self._waiting.items() if whose[0] != worker}
        with contextlib.suppress(Exception):  # it may be gone, and Ray with it
            self._ray.kill(actor)

    def wait(self, seconds: float) -> Sequence[tuple[int, WorkerMessage]]:
        message: list[tuple[int, WorkerMessage]] = []
        with self._lost_on_error(*self._actors):
            self._poll_progress()
            for reference in self._answered(0 if self._lost else seconds):
                message += self._messages(reference)
        message += self._lost
        self._lost.clear()
        return message

    def close(self) -> None:
        for worker in list(self._actors):
            self.kill(worker)
        with contextlib.suppress(Exception):  # Ray may be gone
            self._ray.shutdown()
        self._quiet.close()

    @contextlib.contextmanager
    def _lost_on_error(self, *workers: int) -> Iterator[None]:
        """Treat an error of Ray itself within the block as the loss of all workers."""
        try:
            yield
        except Exception as error:
            for worker in sorted(self._actors.keys() & workers):
                self._mark_lost(worker, error)

    def _mark_lost(self, worker: int, error: Exception) -> None:
        self.kill(worker)
        # Its message holds whatever was said where it failed.
        self._lost.append((worker, WorkerLost(type(getattr(error, "cause", None) or error).__name__)))

    def _answered(self, seconds: float) -> list[Any]:
        references = list(self._waiting)
        if not references:
            time.sleep(seconds)
            return []
        self._ray.wait(references, num_returns=1, timeout=seconds)
        ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return list(ready)

    def _poll_progress(self) -> None:
        """Request the progress of the busy workers."""
        for worker, polled in self._polled.items():
            if time.monotonic() - polled >= POLL_INTERVAL:
                self._polled[worker] = math.inf  # until it has answered
                self._waiting[self._actors[worker].progress.remote()] = worker, False

    def _messages(self, reference: Any) -> list[tuple[int, WorkerMessage]]:
        whose = self._waiting.pop(reference, None)
        if whose is None:  # of a worker that was found lost just now
            return []
        worker, is_result = whose
        try:
            message: WorkerMessage = self._ray.get(reference)
        except Exception as error:
            self._mark_lost(worker, error)
            return []
        if is_result:
            self._polled.pop(worker, None)
        elif worker in self._polled:
            self._polled[worker] = time.monotonic()
        else:
            return []  # it is done in the meantime
        return [(worker, message)]

    # -- to begin with -------------------------------------------------------------------------------------------------

    def _connect(self, address: str, count: int | None) -> None:
        # Nothing of an audit is anybody else's business.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        more: dict[str, Any] = {}
        if address == LOCAL:
            more = {"num_cpus": count or processors(), "include_dashboard": False}
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **more)
        except Exception as error:
            raise ModelError(f"--ray {address}: Ray cannot be reached, or started: {type(error).__name__}") from None

    def _start(self, load: Load, address: str, count: int | None, most: int, device: str) -> None:
        resources = self._ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        on_gpu = device.startswith("cuda")
        if on_gpu and not gpus:
            raise ModelError(f"--ray {address}: Ray has no GPU for --device {device}")
        self.count = min(count or max(1, gpus if on_gpu else cpus), most)
        share = 1 / math.ceil(self.count / gpus) if on_gpu else 0
        # Elsewhere Ray says how many threads a worker has: as many as it has processors.
        threads = max(1, processors() // self.count) if address == LOCAL and THREADS not in os.environ else None
        actor = self._ray.remote(AuditWorker).options(num_cpus=1, num_gpus=share, max_concurrency=CALLS)
        for number in range(self.count):
            self._actors[number] = actor.remote(load, number, threads)
            self._waiting[self._actors[number].load.remote()] = number, True


def _installed() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("command line", "--ray", missing_part("ray")) from None
    return ray
