"""A real gateway process, an upstream that plays faults, and what is looked at after each: counts, gauges, leaks."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from gateway.journal.command import run as journal_command
from tests.faults.client import Client, Seen, request_of
from tests.faults.fault import DEADLINE, Counts, Fault, Row, Trial
from tests.faults.speech import LENGTH, REPLACEMENT, Speech, draw_speech, draw_word, leaks
from tests.support.gateway import Metrics
from tests.support.served import KEY, Served, serving
from tests.support.upstream import MODELS, Call, Upstream, completion, plain, playing

Scene = Callable[[Call, Speech], Awaitable[None]]

GOOD = "good"  # the model of the request that shows that the gateway serves again
GOOD_COUNTS: Counts = {"status 200": 1, "redacted": 1}
PATIENT = {"connect": 30, "first_byte": 30, "idle": 30, "total": 120}
HASTY = {"connect": 1, "first_byte": 0.7, "idle": 0.7, "total": 2.5}
SETTLED = 20.0  # seconds until what is counted must be counted


@dataclass
class World:
    served: Served
    upstream: Upstream
    stage: Stage
    word: str
    folder: Path
    options: Mapping[str, Any]
    parts: dict[str, Any] = field(default_factory=dict)  # what belongs to this gateway besides
    read: int = 0  # lines of the log that were looked at

    async def connect(self, *, narrow: bool = False) -> Client:
        return await Client.connect(self.served.url, narrow=narrow)

    async def ask(self, trial: Trial, model: str = "any", *, stream: bool = False, **fields: object) -> Seen:
        """A request on a connection of its own, read to its end."""
        client = await self.connect()
        try:
            await client.send(request_of(model, stream=stream, **fields))
            answer = await client.read()
        finally:
            client.close()
        trial.got(answer)
        return answer

    async def counts(self) -> Counter[str]:
        """Of the metrics and the log, or where the gateway has ended of the log alone."""
        found: Counter[str] = Counter()
        if not self.ended:
            found.update(counted(await self.served.metrics()))
        for line in self.served.log:
            if line["event"] == "request":
                error = line["error"]
                found[str(line["outcome"]) if error is None else f"{line['outcome']}: {error}"] += 1
                if self.ended:
                    found[f"status {line['status']}"] += 1
        return found

    @property
    def ended(self) -> bool:
        return self.served.process.returncode is not None

    async def gauges(self) -> int:
        return 0 if self.ended else int((await self.served.metrics()).value("portcullis_streams_active"))

    async def settled(self, before: Counter[str], wanted: Counts) -> None:
        """Wait until nothing runs and what is wanted is counted; what does not come shows in the comparison."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED):
                while await self.gauges() or difference(await self.counts(), before).total() < sum(wanted.values()):
                    await asyncio.sleep(0.02)

    def journal_problems(self) -> list[str]:
        """What `portcullis journal verify` says of the journal, if there is one and it is not intact."""
        if not (journals := list(self.folder.glob("journal.jsonl*"))):
            return []
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = journal_command(["verify", "--config", str(self.folder / "portcullis.json")])
        return [] if status == 0 else [f"{len(journals)} files of the journal: {printed.getvalue().strip()}"]

    def log_since(self) -> str:
        lines, self.read = self.served.log[self.read :], len(self.served.log)
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)


@dataclass
class Stage:
    """What the upstream plays: to the good model what is good, to any other the fault."""

    word: str
    scene: Scene | None = None
    speech: Speech | None = None
    calls: list[Call] = field(default_factory=list)

    async def play(self, call: Call) -> None:
        self.calls.append(call)
        if call.body["model"] == GOOD or self.scene is None:
            # The next request gets a connection of its own: what a fault meets does not hang on what was before it.
            await call.send(plain(completion(f"it is {self.word}, they said"), 200, "Connection: close"))
            call.close()
        else:
            assert self.speech is not None
            await self.scene(call, self.speech)


def counted(metrics: Metrics) -> Mapping[str, int]:
    """Metrics by the words of the table; those that stay 0 are no part of it."""
    found: Counter[str] = Counter()
    for family in metrics.families:
        for sample in family.samples:
            labels = sample.labels
            match sample.name.removeprefix("portcullis_"):
                case "requests_total":
                    found[f"status {labels['status']}"] += int(sample.value)
                case "upstream_errors_total":
                    found[f"upstream {labels['kind']}"] += int(sample.value)
                case "guard_failures_total" | "coverage_errors_total" | "retries_total" as name:
                    found[name.removesuffix("_total").replace("_", " ")] += int(sample.value)
    return +found


def difference(after: Counter[str], before: Counter[str]) -> Counter[str]:
    changed = after.copy()
    changed.subtract(before)
    return Counter({name: count for name, count in changed.items() if count})


def configuration(base_url: str, word: str, **more: Any) -> dict[str, Any]:
    """As JSON, which is YAML."""
    rule = {"id": "word", "words": [word], "replacement": REPLACEMENT, "secret": True}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    common = {"retries": {"attempts": 0}, "health": {"eject_after": 1000}}
    return {
        "listen": {"port": 0, "admin": {"port": 0}, "drain_timeout": 30},
        "auth": {"keys": [KEY]},
        "upstreams": {
            "played": {"base_url": base_url, "timeouts": PATIENT, **common},
            "hasty": {"base_url": base_url, "timeouts": HASTY, **common},
            "again": {
                "base_url": base_url,
                "timeouts": PATIENT,
                "retries": {"attempts": 2},
                "health": {"eject_after": 1000},
            },
            "nowhere": {"base_url": "http://nowhere.invalid/v1", **common},
            "nobody": {"base_url": nobody, **common},
        },
        "routes": [
            *(
                {"model": f"{name}*", "upstream": name, "policy": "default"}
                for name in ("hasty", "again", "nowhere", "nobody")
            ),
            {"model": "*", "upstream": "played", "policy": "default"},
        ],
        "policies": {"default": {"rules": [rule]}},
        "limits": {"max_streams": 500, "send_timeout": 2, "max_event": "64KiB", "max_body": "512KiB"},
        **more,
    }


@asynccontextmanager
async def world(
    folder: Path, rng: Random, *arguments: str, command: tuple[str, ...] | None = None, **more: Any
) -> AsyncIterator[World]:
    """A gateway of its own; `more` are sections of its configuration."""
    word = draw_word(rng)
    stage = Stage(word)
    folder.mkdir(parents=True, exist_ok=True)
    async with playing(stage.play, plain(MODELS, 200, "Connection: close")) as upstream:
        path = folder / "portcullis.json"
        path.write_text(json.dumps(configuration(upstream.base_url, word, **more)), "utf-8")
        options = {} if command is None else {"command": command}
        async with serving(path, *arguments, **options) as served:
            yield World(served, upstream, stage, word, folder, {"arguments": arguments, **options})


async def judged(place: World, fault: Fault, rng: Random) -> Row:
    """Do it, and look at everything."""
    trial = Trial(place, rng, draw_speech(rng, place.word))
    place.stage.speech = trial.speech
    before, hung = await place.counts(), 0
    try:
        async with asyncio.timeout(DEADLINE * (3 if fault.slow else 1)):
            await fault.act(trial)
    except TimeoutError:
        hung = 1
    wanted = Counter(fault.counted) + trial.also
    if fault.ends:
        async with asyncio.timeout(DEADLINE):
            await place.served.process.wait()
        before = Counter({name: count for name, count in before.items() if not name.startswith(("upstream", "status"))})
    await place.settled(before, wanted)
    gauges = await place.gauges()
    place.stage.scene = None
    recovered = await _recovered(trial, ends=fault.ends)
    if not fault.ends:
        wanted += Counter(GOOD_COUNTS)
    await place.settled(before, wanted)
    got = difference(await place.counts(), before)
    if got != +wanted:
        trial.wrong.append(f"counted {dict(got)}, not {dict(wanted)}")
    trial.wrong += place.journal_problems()
    leaked = sum(leaks(each, place.word) for each in [*trial.received, place.log_since()])
    return Row(fault, leaked, hung, got == +wanted, gauges, recovered, tuple(trial.wrong))


async def _recovered(trial: Trial, *, ends: bool) -> bool:
    """Is a good request answered as it should be, by a new start where the gateway has ended?"""
    place = trial.world
    try:
        async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
            if ends:
                options = dict(place.options)
                path = place.folder / "portcullis.json"
                started = await stack.enter_async_context(serving(path, *options.pop("arguments"), **options))
                place = replace(place, served=started)
            answer = await place.ask(trial, GOOD)
            return (answer.summary, answer.content) == ("200", f"it is {REPLACEMENT}, they said")
    except (TimeoutError, OSError, AssertionError):
        return False


__all__ = ["GOOD", "LENGTH", "Scene", "World", "configuration", "judged", "world"]
