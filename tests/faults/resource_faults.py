"""What the system may refuse the gateway: file descriptors, memory."""

from __future__ import annotations

import asyncio
import re
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.faults.client import request_of
from tests.faults.fault import Fault, Trial, answered, total
from tests.faults.process_faults import workers_of
from tests.faults.speech import Speech, whole_answer
from tests.faults.world import difference
from tests.support.upstream import Call, completion, plain

CLIENTS = 20


class _Limited:
    """A limit of a running process, for a while."""

    def __init__(self, pid: int, kind: int, soft: int) -> None:
        self._pid, self._kind, self._soft = pid, kind, soft

    def __enter__(self) -> None:
        self._before = resource.prlimit(self._pid, self._kind)
        resource.prlimit(self._pid, self._kind, (self._soft, self._before[1]))

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):  # some code of others ends the process when it gets no memory
            resource.prlimit(self._pid, self._kind, self._before)


def _no_descriptors(pid: int) -> _Limited:
    highest = max(int(link.name) for link in Path(f"/proc/{pid}/fd").iterdir())
    return _Limited(pid, resource.RLIMIT_NOFILE, highest + 1)


async def _none_for_an_upstream(trial: Trial) -> None:
    trial.world.stage.scene = whole_answer
    await trial.world.gauges()  # the probe of the upstreams is not due within the next seconds
    # They take what was free below the highest descriptor.
    clients = [await trial.world.connect() for _ in range(CLIENTS)]
    await asyncio.sleep(0.2)
    with _no_descriptors(trial.world.served.process.pid):
        await clients[0].send(request_of("any", stream=trial.rng.random() < 0.5))
        answer = await clients[0].read()
    trial.got(answer)
    trial.expect("answer", answer.summary, "503 overloaded")
    for client in clients:
        client.close()


async def _none_for_clients(trial: Trial) -> None:
    trial.world.stage.scene = whole_answer
    fillers = [await trial.world.connect() for _ in range(CLIENTS)]
    await asyncio.sleep(0.2)
    with _no_descriptors(trial.world.served.process.pid):
        clients = [await trial.world.connect() for _ in range(CLIENTS)]
        for client in clients:
            await client.send(request_of("any"))
        await trial.world.served.logged("server")
    for client in clients:
        answer = await client.read()
        trial.got(answer)
        trial.expect("answer", answer.summary, "200")
        client.close()
    for client in fillers:
        client.close()


async def _no_memory(trial: Trial) -> None:
    """Large prompts and answers, while one of two workers can allocate hardly anything: each is answered, refused or
    cut off. A worker that dies of it is replaced."""
    trial.world.stage.scene = _large
    pid = trial.rng.choice(await workers_of(trial, 2))
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    size = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]
    before = await trial.world.counts()
    with _Limited(pid, resource.RLIMIT_AS, size + (256 << 10)):
        answers = await asyncio.gather(
            *(trial.world.ask(trial, stream=number % 2 == 0, note="x" * 300_000) for number in range(CLIENTS))
        )
    ends = Counter(answer.summary for answer in answers)
    errors = {"500 internal_error", "500 guard_failed", "503 overloaded", "200 event guard_failed"}
    trial.require(ends.keys() <= {*errors, "200", "200 done", "closed", "reset", "200 closed"}, f"answers {ends}")
    await workers_of(trial, 2)
    await trial.world.settled(before, answered(sum(1 for answer in answers if answer.status) // 2))
    # Who was refused what depends on the allocator; that nobody is counted twice does not.
    trial.also = difference(await trial.world.counts(), before)
    counted = sum(count for name, count in trial.also.items() if name.startswith("status"))
    trial.require(counted <= CLIENTS, f"{counted} requests are counted")


async def _large(call: Call, speech: Speech) -> None:
    text = f"{speech.word} filler " * 5000
    await call.send(plain(completion(text)))


def faults() -> Iterator[Fault]:
    refused = {"status 503": 1, "upstream overloaded": 1, "failed: overloaded": 1}
    yield Fault(
        "no descriptor for an upstream",
        "resources",
        "RLIMIT_NOFILE leaves none, a client is connected",
        "503 overloaded",
        _none_for_an_upstream,
        refused,
        sample=True,
    )
    yield Fault(
        "no descriptor for clients",
        "resources",
        "RLIMIT_NOFILE leaves none, twenty clients connect",
        "200, when there are some again",
        _none_for_clients,
        total(answered(CLIENTS)),
    )
    yield Fault(
        "no memory",
        "resources",
        "RLIMIT_AS leaves 256 KiB to one of two workers, twenty clients send 300 KB and get 80 KB",
        "an answer, an error or the end of the connection",
        _no_memory,
        setting="workers",
    )
