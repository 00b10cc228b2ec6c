"""What can happen to the gateway's own processes: killed, stopped, reloaded, told to end; and to their clock."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.serving.workers.supervisor import PING_TIMEOUT
from tests.faults.client import Client, Seen, request_of
from tests.faults.fault import Act, Counts, Fault, Trial, answered
from tests.faults.speech import Speech, censored
from tests.support.upstream import DONE, END, Call, chunk, delta, event, stream_head

STREAMS = 8
CLOCK = "clock"  # the file that says what time it is, in the gateway's folder


@dataclass
class Load:
    """Streams that continue until they are let end."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    answers: list[asyncio.Task[Seen]] = field(default_factory=list)

    async def play(self, call: Call, speech: Speech) -> None:
        await call.send(stream_head())
        while not self.over.is_set():
            await call.send(*(chunk(each) for each in speech.events))
            await asyncio.sleep(0.02)
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)


@asynccontextmanager
async def under_load(trial: Trial, streams: int = STREAMS) -> AsyncIterator[Load]:
    """All streams have begun; they end when the block is left, and every one of them is then looked at."""
    load = Load()
    place = trial.world
    place.stage.scene = load.play
    calls = len(place.stage.calls)
    clients = [await place.connect() for _ in range(streams)]
    for client in clients:
        await client.send(request_of("any", stream=True))
        load.answers.append(asyncio.create_task(_read(client)))
    while len(place.stage.calls) < calls + streams:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    try:
        yield load
    finally:
        load.over.set()
    for answer in await asyncio.gather(*load.answers):
        trial.got(answer)
        said = trial.speech.text * (len(answer.content) // max(1, len(trial.speech.censored) - 40) + 2)
        trial.require(censored(said, trial.speech.word).startswith(answer.content), "something else was streamed")


async def _read(client: Client) -> Seen:
    try:
        return await client.read()
    finally:
        client.close()


def _ends(load: Load) -> list[str]:
    return sorted(answer.result().summary for answer in load.answers)


async def workers_of(trial: Trial, count: int) -> list[int]:
    while len(found := trial.world.served.workers()) != count:
        await asyncio.sleep(0.02)
    return found


async def _worker_killed(trial: Trial) -> None:
    workers = await workers_of(trial, 2)
    async with under_load(trial) as load:
        os.kill(trial.rng.choice(workers), signal.SIGKILL)
        # Its streams break off: no client takes them for complete.
        while not (broken := [each for each in load.answers if each.done()]):
            await asyncio.sleep(0.01)
    await workers_of(trial, 2)
    ends = _ends(load)
    done = ends.count("200 done")
    trial.require(broken and done, f"not both kinds: {ends}")
    trial.require(all(end.endswith(("done", "closed", "reset")) for end in ends), f"{ends}")
    trial.also.update(answered(done))


async def _all_workers_killed(trial: Trial) -> None:
    workers = await workers_of(trial, 2)
    async with under_load(trial) as load:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
    trial.require(all(end in ("200 closed", "200 reset") for end in _ends(load)), f"{_ends(load)}")
    while set(await workers_of(trial, 2)) & set(workers):
        await asyncio.sleep(0.02)


def _worker_stopped(seconds: float) -> Act:
    async def act(trial: Trial) -> None:
        workers = await workers_of(trial, 2)
        async with under_load(trial) as load:
            os.kill(stopped := trial.rng.choice(workers), signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(stopped, signal.SIGCONT)
        trial.expect("streams", _ends(load), ["200 done"] * STREAMS)

    return act


async def _worker_stopped_for_good(trial: Trial) -> None:
    """It is killed after a minute and replaced; the others serve."""
    workers = await workers_of(trial, 2)
    async with under_load(trial) as load:
        # The one with more streams: the other may still be starting, after a pause, and has longer to answer then.
        stopped = max(workers, key=lambda pid: len([*Path(f"/proc/{pid}/fd").iterdir()]))
        os.kill(stopped, signal.SIGSTOP)
        await trial.world.served.logged("worker_hangs", timeout=2 * PING_TIMEOUT)
    await workers_of(trial, 2)
    trial.require(stopped not in trial.world.served.workers(), "it is still there")
    trial.also.update(answered(_ends(load).count("200 done")))


def _reloads(count: int, seconds: float, *, broken: bool = False) -> Act:
    async def act(trial: Trial) -> None:
        place = trial.world
        path = place.folder / "portcullis.json"
        good = path.read_text("utf-8")
        before = await place.served.metrics()
        async with under_load(trial) as load:
            for number in range(count):
                made = json.loads(good)
                rules = made["policies"]["default"]["rules"]
                rules.insert(0, {"id": "more", "words": [f"nobody says this {number} {trial.rng.random()}"]})
                text = "routes: [" if broken and number % 2 else json.dumps(made)
                (place.folder / "new").write_text(text, "utf-8")
                (place.folder / "new").replace(path)
                place.served.process.send_signal(signal.SIGHUP)
                await asyncio.sleep(seconds / count)
            (place.folder / "new").write_text(good, "utf-8")
            (place.folder / "new").replace(path)
            place.served.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.5)
        trial.expect("streams", _ends(load), ["200 done"] * STREAMS)
        after = await place.served.metrics()
        for outcome in ("ok", "failed"):
            name = "portcullis_config_reloads_total"
            more = after.value(name, outcome=outcome) > before.value(name, outcome=outcome)
            trial.require(more == (outcome == "ok" or broken), f"reloads {outcome}")

    return act


async def _told_to_end(trial: Trial) -> None:
    """What runs is finished, what is new is refused, and the exit status is 0."""
    late = await trial.world.connect()
    async with under_load(trial) as load:
        trial.world.served.process.terminate()
        while True:
            await late.send(request_of("good"))
            answer = await late.read()
            trial.got(answer)
            if answer.status != 200:
                break
            trial.also.update(answered())
        trial.expect("new request", answer.summary, "503 overloaded")
    trial.expect("streams", _ends(load), ["200 done"] * STREAMS)
    trial.expect("exit status", await trial.world.served.process.wait(), 0)


async def _told_twice(trial: Trial) -> None:
    async with under_load(trial) as load:
        trial.world.served.process.terminate()
        await asyncio.sleep(0.3)
        trial.world.served.process.terminate()
        await asyncio.wait(load.answers)
    trial.require(all(end in ("200 closed", "200 reset") for end in _ends(load)), f"{_ends(load)}")
    trial.expect("exit status", await trial.world.served.process.wait(), 0)


async def _supervisor_killed(trial: Trial) -> None:
    """Its workers finish what runs."""
    async with under_load(trial) as load:
        trial.world.served.process.kill()
        while not trial.world.ended:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        trial.require(not any(each.done() for each in load.answers), "a stream ended with the supervisor")
    trial.expect("streams", _ends(load), ["200 done"] * STREAMS)


def clock_text(days: int) -> str:
    """What time the gateway is told, in the words of libfaketime."""
    return f"{datetime.now(UTC).astimezone() + timedelta(days=days):@%Y-%m-%d %H:%M:%S}"


async def _clock_jumps(trial: Trial) -> None:
    """A day forth, two days back, within streams: limits, waits and the order of the journal's files do not mind."""
    clock = trial.world.folder / CLOCK
    async with under_load(trial) as load:
        for days in (1, -1, 0):
            clock.write_text(clock_text(days) if days else "+0", "utf-8")
            trial.expect("answer", (await trial.world.ask(trial, "good")).summary, "200")
            trial.require(not any(each.done() for each in load.answers), "a stream ended")
    trial.expect("streams", _ends(load), ["200 done"] * STREAMS)
    times = [line["time"] for line in trial.world.served.log]
    trial.require(len({str(time)[:10] for time in times}) > 1, "the clock did not jump")


def faults() -> Iterator[Fault]:
    def fault(name: str, does: str, gets: str, act: Act, counts: Counts, **more: bool) -> Fault:
        return Fault(name, "process", does, gets, act, counts, setting="workers", **more)

    all_done: Counts = answered(STREAMS)
    yield fault(
        "a worker killed",
        "SIGKILL to one of two workers under eight streams",
        "its streams break off, the others: 200 done",
        _worker_killed,
        {},
        sample=True,
    )
    yield fault("all workers killed", "SIGKILL to both", "all streams break off", _all_workers_killed, {})
    yield fault("a worker stopped", "SIGSTOP to one for 1.5 s", "200 done", _worker_stopped(1.5), all_done, sample=True)
    yield fault(
        "a worker stopped for good",
        "SIGSTOP to one",
        "its streams break off when it is killed after 60 s, the others: 200 done",
        _worker_stopped_for_good,
        {},
        slow=True,
    )
    yield fault(
        "20 reloads in 2 s",
        "a changed file and SIGHUP, twenty times",
        "200 done",
        _reloads(20, 2),
        all_done,
        sample=True,
    )
    yield fault(
        "100 reloads in 10 s", "a changed file and SIGHUP, a hundred times", "200 done", _reloads(100, 10), all_done
    )
    yield fault("50 broken reloads", "every other file is broken", "200 done", _reloads(100, 10, broken=True), all_done)
    yield fault(
        "told to end",
        "SIGTERM under eight streams",
        "200 done; new ones: 503 overloaded",
        _told_to_end,
        {**all_done, "status 503": 1, "failed: overloaded": 1},
        sample=True,
        ends=True,
    )
    yield fault(
        "told to end twice",
        "two SIGTERM under eight streams",
        "all streams break off",
        _told_twice,
        {"status 200": STREAMS, "cancelled: server stops": STREAMS},
        ends=True,
    )
    yield fault(
        "the supervisor killed", "SIGKILL to the supervisor", "200 done", _supervisor_killed, all_done, ends=True
    )
    yield Fault(
        "the clock jumps",
        "process",
        "a day forth, two days back, within eight streams",
        "200 done",
        _clock_jumps,
        answered(STREAMS + 3),
        sample=True,
        setting="clock",
    )
