"""`python -m loadtest.bounds`: the run and its page. Exit status 1 where a bound is broken, 2 for wrong usage."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import cast

from loadtest import process
from loadtest.bounds import cases, connections, drive, probe, streams
from loadtest.censor_bench import CENSOR_PROSE
from loadtest.script import listed_words
from loadtest.sections import put
from loadtest.targets import free_port

RESULTS = Path(__file__).parent.with_name("results") / "bounds.md"
HEAD = "# Bounds: what hostile input costs the gateway\n"
KEY = "a-key-of-the-run"

# The bounds. CPU time of the loop's own thread is judged: how late a tick comes depends on the machine's other work.
TOTAL = 100.0  # seconds, `timeouts.total`: no exchange takes longer, whatever its scan would take
MAX_CALLBACK = 0.020  # seconds
MAX_LATE = 0.1  # seconds; a thread that keeps the interpreter's lock shows here and not in a callback
WRITTEN_FACTOR, WRITTEN_SLACK = 4, 64 * 1024  # bytes written <= factor × bytes read + slack
MAX_MEMORY = 64 * 1024 * 1024  # bytes of resident memory that one exchange may add
MAX_KEYLESS = 40 * 1024 * 1024  # bytes of resident memory that all connections without a key may add
MAX_DELAY = 0.005  # seconds that those add to the 99th percentile of the delay of other streams' chunks

_LISTED = [word for word in listed_words(CENSOR_PROSE, 1000) if len(word) >= 9]
_POLICY_RULES: dict[str, list[dict[str, object]]] = {
    "words": [{"id": "w", "words": ["12MONKEYS", "secretword", "dragon"]}],
    "patterns": [{"id": "p", "pattern": r"\bPROJ-\d{1,6}\b"}, {"id": "q", "pattern": r"[a-z]{3,8}@corp"}],
    "detectors": [
        {"id": name, "detector": name}
        for name in ("credit_card", "email", "iban", "phone", "ipv6", "private_key", "url")
    ],
    "paranoid": [{"id": "w", "words": ["12MONKEYS", "a" * 19 + "b", *_LISTED], "strength": "paranoid"}],
    "edits-2": [{"id": "w", "words": ["a" * 19 + "b", *_LISTED], "strength": "paranoid", "edits": 2}],
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One case: seconds, bytes; `late` is of the wall clock, `busy` of the loop thread's CPU clock."""

    case: cases.Case
    exchange: drive.Exchange
    late: float
    busy: float
    memory: int
    seconds: float

    @property
    def faults(self) -> list[str]:
        allowed = WRITTEN_FACTOR * self.exchange.read + WRITTEN_SLACK
        found = [] if self.exchange.complete else [f"no end within {drive.TIMEOUT:.0f} s"]
        if self.busy > MAX_CALLBACK:
            found.append(f"a callback of {self.busy * 1000:.0f} ms")
        if self.exchange.written > allowed:
            found.append(f"{self.exchange.written} bytes written for {self.exchange.read} read")
        if self.memory > MAX_MEMORY:
            found.append(f"{self.memory / 1e6:.0f} MB of memory")
        return found


class GatewayUnderTest:
    """The probed process: its port, and what the probe and the kernel know of it."""

    def __init__(self, port: int, pid: int, report: Path) -> None:
        self.port, self._pid, self._report = port, pid, report

    async def observed(self) -> Mapping[str, float]:
        """What the probe wrote, in seconds, since the last call. Raises `TimeoutError`."""
        self._report.unlink(missing_ok=True)
        os.kill(self._pid, probe.REPORT_SIGNAL)
        async with asyncio.timeout(drive.TIMEOUT):
            while not self._report.exists():
                await asyncio.sleep(0.002)
        return cast(Mapping[str, float], json.loads(self._report.read_text()))

    def forget_peak(self) -> int:
        """Begin to measure the peak of resident memory again; the bytes that are resident now."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        return process.resident_kb([self._pid]) * 1024

    def peak(self) -> int:
        """The most bytes that were resident since then."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


@contextlib.asynccontextmanager
async def gateway(upstream_port: int, policy: str, keyed: bool) -> AsyncIterator[GatewayUnderTest]:
    """Raises `RuntimeError` if it does not start."""
    with tempfile.TemporaryDirectory(prefix="portcullis-bounds-") as temporary:
        directory, port = Path(temporary), free_port()
        rules = [{**rule, "apply_to": ["input", "output"]} for rule in _POLICY_RULES[policy]]
        configuration = {
            "listen": {"host": "127.0.0.1", "port": port},
            "auth": {"keys": [KEY]} if keyed else "none",
            "upstreams": {
                "hostile": {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "timeouts": {"total": TOTAL}}
            },
            "routes": [{"model": "*", "upstream": "hostile", "policy": policy}],
            "policies": {policy: {"rules": rules}},
        }
        (directory / "portcullis.yaml").write_text(json.dumps(configuration))
        serve = ("serve", "--config", str(directory / "portcullis.yaml"), "--port", str(port))
        command = process.python("loadtest.bounds.probe", str(directory / "report"), *serve)
        started = process.start(command, cores=frozenset(), log=directory / "log")
        try:
            await _answering(port, directory / "log")
            yield GatewayUnderTest(port, started.pid, directory / "report")
        finally:
            process.stop(started)


async def _answering(port: int, log: Path) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the gateway did not start: {log.read_text(errors='replace')[-800:]}")


async def run_cases(drawn: Sequence[cases.Case]) -> list[Measured]:
    upstream = drive.HostileUpstream()
    found: list[Measured] = []
    async with upstream.serving():
        for policy in cases.POLICIES:
            mine = [case for case in drawn if case.policy == policy]
            if not mine:
                continue
            async with gateway(upstream.port, policy, keyed=False) as target:
                await drive.exchange(mine[0], target.port, upstream)  # lazy imports belong to no case
                for number, case in enumerate(mine):
                    found.append(await _measure(case, target, upstream))
                    print(f"\r{policy} {number + 1}/{len(mine)}", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
    return found


async def _measure(case: cases.Case, target: GatewayUnderTest, upstream: drive.HostileUpstream) -> Measured:
    await target.observed()
    resident = target.forget_peak()
    started = perf_counter()
    try:
        exchange = await drive.exchange(case, target.port, upstream)
    except TimeoutError:
        exchange = drive.Exchange()
    seconds = perf_counter() - started
    seen = await target.observed()
    return Measured(case, exchange, seen["late"], seen["busy"], max(0, target.peak() - resident), seconds)


@dataclass(frozen=True, slots=True)
class Attacked:
    """One attack of connections without a key: bytes sent, bytes of memory, seconds that a chunk of other streams takes
    through the gateway at the 99th percentile, before and meanwhile, and of these the CPU time of the loop's thread
    before the chunk has its turn."""

    name: str
    sent: int
    memory: int
    quiet: float
    attacked: float
    wait: float

    @property
    def added(self) -> float:
        return self.attacked - self.quiet

    @property
    def faults(self) -> list[str]:
        return [f"{self.memory / 1e6:.0f} MB of memory"] if self.memory > MAX_KEYLESS else []


async def run_attacks(names: Sequence[str]) -> list[Attacked]:
    """Each attack on a gateway of its own, beside streams of a client that has a key."""
    found = []
    async with streams.paced_upstream(connections.SECONDS) as upstream_port:
        for name in names:
            print(f"attack: {name}", file=sys.stderr, flush=True)
            async with gateway(upstream_port, "words", keyed=True) as target:
                await streams.percentile(target.port, KEY)
                quiet = await streams.percentile(target.port, KEY)
                resident = target.forget_peak()
                command = process.python("loadtest.bounds.connections", str(target.port), name)
                attacker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
                await target.observed()
                delay = await streams.percentile(target.port, KEY)
                wait = (await target.observed())["wait"]
                sent, _ = await attacker.communicate()
                found.append(Attacked(name, int(sent), max(0, target.peak() - resident), quiet, delay, wait))
    return found


def case_table(found: Sequence[Measured]) -> Iterator[str]:
    """For each shape and policy the worst of each figure."""
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for measured in found:
        groups[measured.case.shape.value, measured.case.policy].append(measured)
    yield "| in | rules | cases | longest callback | latest tick | most memory | most written / read |"
    yield "|---|---|---|---|---|---|---|"
    for (shape, policy), group in groups.items():
        ratio = max((m.exchange.written - WRITTEN_SLACK) / max(1, m.exchange.read) for m in group)
        yield (
            f"| {shape} | {policy} | {len(group)} | {max(m.busy for m in group) * 1000:.1f} ms "
            f"| {max(m.late for m in group) * 1000:.0f} ms | {max(m.memory for m in group) / 1e6:.1f} MB "
            f"| {max(0.0, ratio):.2f} |"
        )


def attack_table(found: Sequence[Attacked]) -> Iterator[str]:
    count = connections.CONNECTIONS
    yield f"| {count} connections without a key | MB sent | memory | p99 of a chunk before | meanwhile | wait for CPU |"
    yield "|---|---|---|---|---|---|"
    for each in found:
        yield (
            f"| {each.name} | {each.sent / 1e6:.1f} | {each.memory / 1e6:.1f} MB | {each.quiet * 1000:.1f} ms "
            f"| {each.attacked * 1000:.1f} ms | {each.wait * 1000:.1f} ms |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bounds", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="cases drawn from all (1000; 0: none)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which cases are drawn (0)")
    parser.add_argument("--attacks", default="all", metavar="A;B", help="attacks of connections: all, none, or names")
    parser.add_argument("--strict", action="store_true", help="judge by the wall clock, too: wants an idle machine")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help="the page that is written")
    options = parser.parse_args(arguments)
    every = {"all": list(connections.ATTACKS), "none": []}
    names = every.get(options.attacks, options.attacks.split(";"))
    if unknown := [name for name in names if name not in connections.ATTACKS]:
        parser.error(f"--attacks: no attack is called {unknown[0]!r}; there are {', '.join(connections.ATTACKS)}")
    measured = asyncio.run(run_cases(cases.drawn(options.cases, options.seed))) if options.cases else []
    attacked = asyncio.run(run_attacks(names))
    if measured:
        text = "\n".join(case_table(measured))
        put(options.out, f"{len(measured)} cases, seed {options.seed}", text, HEAD)
        print(text)
    if attacked:
        text = "\n".join(attack_table(attacked))
        put(options.out, "Connections without a key", text, HEAD)
        print(text)
    broken = [f"{m.case}: {fault}" for m in measured for fault in m.faults]
    broken += [f"{a.name}: {fault}" for a in attacked for fault in a.faults]
    if options.strict:
        broken += [f"{m.case}: a tick {m.late * 1000:.0f} ms late" for m in measured if m.late > MAX_LATE]
        broken += [f"{a.name}: {a.added * 1000:.1f} ms of delay" for a in attacked if a.added > MAX_DELAY]
    for line in sorted(broken):
        print(f"BROKEN  {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
