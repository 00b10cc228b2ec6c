"""One measurement: a scenario through a target, or through several at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import socket
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

import uvloop

from loadtest import process, targets
from loadtest.answer import check, read
from loadtest.client import Piece, drive
from loadtest.dialects import DIALECTS, Dialect
from loadtest.process import Cores
from loadtest.scenario import BASELINES, Guard, Scenario
from loadtest.upstream import COUNTERS, LATE, SENT, serve

RAMP = 1.0  # seconds in which the streams are opened
SETTLE = 0.5  # and then left alone, before the steady state begins
WARM_UP_STREAMS = 20
WARM_UP_SECONDS = 1.0
_GRACE = 10.0  # seconds that the last stream may take longer than its script
_SHOWN_FAULTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one target did under one scenario, in the steady state.

    `cpu_us` is microseconds of CPU a chunk that the upstream sent, `delays_ms` the median, the 99th percentile and the
    longest delay of a token, `kb_per_stream` what the target's resident memory grew by for each open stream (1,000
    bytes). None where nothing stands in between. `redactions` and `leaks` are the fewest and the most of any stream.
    `late_share` is the part of the chunks that the upstream sent over 5 ms late, `foreign_share` the part of the
    target's core that went to other processes. `faults` says what came out wrong, `skipped` why nothing was measured.
    """

    scenario: str
    target: str
    streams: int
    expected: int
    guarded: bool = False
    chunks: int = 0
    late_share: float = 0.0
    foreign_share: float = 0.0
    cpu_us: float | None = None
    delays_ms: tuple[float, float, float] | None = None
    kb_per_stream: float | None = None
    redactions: tuple[int, int] = (0, 0)
    leaks: tuple[int, int] = (0, 0)
    faults: tuple[str, ...] = ()
    skipped: str = ""


@dataclass(slots=True)
class _Window:
    """The steady state as the probes saw it: at its beginning, in its middle, at its end."""

    pids: list[list[int]]  # of each target
    cores: frozenset[int]
    counters: MutableSequence[int]
    resident_before: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    moments_us: list[float] = field(default_factory=list)
    cpu: list[list[float]] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def edge(self) -> None:
        self.cpu.append([process.cpu_seconds(pids) for pids in self.pids])
        self.busy.append(process.busy_seconds(self.cores))
        self.sent.append(self.counters[SENT])
        self.late.append(self.counters[LATE])
        self.moments_us.append(perf_counter_ns() / 1000)

    def middle(self) -> None:
        self.resident = self.resident_now()

    def resident_now(self) -> list[int]:
        return [process.resident_kb(pids) for pids in self.pids]


def measure(scenario: Scenario, names: Sequence[str], cores: Cores) -> dict[str, Measurement]:
    """Run one scenario through targets, its streams shared out over them, all in the same seconds.

    The upstream and the targets are started for it alone.
    """
    found: dict[str, Measurement] = {}
    with contextlib.ExitStack() as started:
        try:
            upstream_port, counters = started.enter_context(_upstream(scenario, cores))
            running: dict[str, targets.Running] = {}
            for name in names:
                try:
                    starting = targets.running(name, scenario, upstream_port, cores.target)
                    running[name] = started.enter_context(starting)
                except targets.NotInstalledError as absent:
                    found[name] = _empty(scenario, name, skipped=str(absent))
            if running:
                spans = scenario.spans(list(running))
                asked = [_dialect(name) for name in running]
                window, pieces = _load(scenario, list(running.values()), asked, spans, cores.target, counters)
                for place, (name, target) in enumerate(running.items()):
                    found[name] = _evaluate(scenario, name, target.guarded, window, place, spans, pieces[place])
        except (targets.TargetError, OSError) as error:
            return {name: found.get(name) or _empty(scenario, name, faults=(str(error),)) for name in names}
    return {name: found[name] for name in names}


def _dialect(name: str) -> Dialect:
    """Of the requests to this target."""
    return DIALECTS["chat"] if name in BASELINES else Guard.of(name).dialect


def _empty(scenario: Scenario, target: str, *, skipped: str = "", faults: tuple[str, ...] = ()) -> Measurement:
    return Measurement(
        scenario=scenario.name,
        target=target,
        streams=scenario.streams,
        expected=scenario.redactions,
        skipped=skipped,
        faults=faults,
    )


@contextlib.contextmanager
def _upstream(scenario: Scenario, cores: Cores) -> Iterator[tuple[int, MutableSequence[int]]]:
    spawn = multiprocessing.get_context("spawn")
    counters: MutableSequence[int] = spawn.RawArray("q", COUNTERS)
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        sender = spawn.Process(target=serve, args=(listener, scenario, counters, cores.upstream), daemon=True)
        sender.start()
        try:
            yield listener.getsockname()[1], counters
        finally:
            sender.kill()
            sender.join()


def _load(
    scenario: Scenario,
    running: Sequence[targets.Running],
    asked: Sequence[Dialect],
    spans: Sequence[range],
    cores: frozenset[int],
    counters: MutableSequence[int],
) -> tuple[_Window, list[list[list[Piece]]]]:
    """The probes' findings, and for each target the pieces of each of its streams."""
    # The first requests pay for lazy imports and buffers; those belong to the process and not to a stream.
    for target, dialect, span in zip(running, asked, spans, strict=True):
        first = range(min(WARM_UP_STREAMS, len(span)))
        uvloop.run(drive(target.port, first, ramp=0.2, deadline=WARM_UP_SECONDS, dialect=dialect))
    window = _Window([process.tree(target.pid) if target.pid else [] for target in running], cores, counters)
    window.resident_before = window.resident_now()
    begin, end = RAMP + SETTLE, max(scenario.seconds - 0.1, RAMP + SETTLE + 0.1)
    probes = [(begin, window.edge), ((begin + end) / 2, window.middle), (end, window.edge)]
    deadline = RAMP + scenario.seconds + _GRACE

    async def drive_all() -> list[list[list[Piece]]]:
        return await asyncio.gather(
            *(
                drive(
                    target.port,
                    spans[place],
                    ramp=RAMP,
                    deadline=deadline,
                    dialect=asked[place],
                    probes=() if place else probes,
                )
                for place, target in enumerate(running)
            )
        )

    gc.collect()
    gc.disable()
    try:
        pieces = uvloop.run(drive_all())
    finally:
        gc.enable()
    return window, pieces


def _evaluate(
    scenario: Scenario,
    target: str,
    guarded: bool,
    window: _Window,
    place: int,
    spans: Sequence[range],
    pieces: list[list[Piece]],
) -> Measurement:
    """What one target did, the `place`-th of those that ran together."""
    span = spans[place]
    answers = [read(stream_pieces, _dialect(target)) for stream_pieces in pieces]
    checks = [check(answer, scenario, number, guarded=guarded) for number, answer in zip(span, answers, strict=True)]
    faults = [found.fault for found in checks if found.fault]
    if len(window.moments_us) < 2:
        faults.append("the streams ended before the steady state did")
        return _empty(scenario, target, faults=_first(faults))
    begin, end = window.moments_us
    sent = max(1, window.sent[1] - window.sent[0])
    chunks = max(1, sent * len(span) // sum(map(len, spans)))  # all streams have the same rate
    cpu = window.cpu[1][place] - window.cpu[0][place]
    foreign = max(0.0, window.busy[1] - window.busy[0] - sum(window.cpu[1]) + sum(window.cpu[0]))
    arrivals = [arrival for answer in answers for arrival in answer.arrivals if begin <= arrival[0] < end]
    delays = sorted((moment - stamp) / 1000 for stamp, moment in arrivals)
    is_process = bool(window.pids[place])
    grown = window.resident[place] - window.resident_before[place] if is_process else 0
    return Measurement(
        scenario=scenario.name,
        target=target,
        streams=len(span),
        expected=scenario.redactions,
        guarded=guarded,
        chunks=chunks,
        late_share=(window.late[1] - window.late[0]) / sent,
        foreign_share=foreign * 1e6 / (end - begin),
        cpu_us=cpu / chunks * 1e6 if is_process else None,
        delays_ms=(delays[len(delays) // 2], delays[len(delays) * 99 // 100], delays[-1]) if delays else None,
        kb_per_stream=grown * 1.024 / len(span) if is_process else None,
        redactions=(min(found.redactions for found in checks), max(found.redactions for found in checks)),
        leaks=(min(found.leaks for found in checks), max(found.leaks for found in checks)),
        faults=_first(faults),
    )


def _first(faults: list[str]) -> tuple[str, ...]:
    more = len(faults) - _SHOWN_FAULTS
    return (*faults[:_SHOWN_FAULTS], f"and {more} streams more") if more > 0 else tuple(faults)


def pin_self(cores: Cores) -> None:
    """Move the load generator, which is this process, to its core."""
    if cores.client:
        os.sched_setaffinity(0, cores.client)
