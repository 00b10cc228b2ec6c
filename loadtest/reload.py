"""What a reload of 100,000 words costs the streams beside it: the longest delay of a token, before and during.

    python -m loadtest.reload

Exit status 1 if the reload did not happen, a stream came out wrong, or, with `--strict`, a token waited too long.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
import urllib.request
from time import perf_counter_ns

import uvloop

from loadtest import run, targets
from loadtest.answer import check, read
from loadtest.client import drive
from loadtest.process import Cores, choose_cores
from loadtest.scenario import Guard, Scenario, load

WORDS = 100_000
STREAMS = 100
SECONDS = 14.0
CHANGED_AT = 5.0  # seconds after the first stream was opened
LIMIT_MS = 20.0


def measure(scenario: Scenario, cores: Cores, workers: int) -> tuple[list[float], list[float], list[str]]:
    """Delays in milliseconds of all tokens before the list changed and after it; and what went wrong."""
    changed_at_us = 0.0
    with (
        run._upstream(scenario, cores) as (upstream_port, _),
        targets.running(Guard(WORDS, workers).name, scenario, upstream_port, cores.target) as running,
    ):

        def change() -> None:
            nonlocal changed_at_us
            changed_at_us = perf_counter_ns() / 1000
            words = running.directory / "words.txt"
            words.write_text(words.read_text(encoding="utf-8") + "anotherlistedword\n", encoding="utf-8")

        gc.disable()
        deadline = run.RAMP + SECONDS + 10
        streams = range(scenario.streams)
        probes = [(CHANGED_AT, change)]
        pieces = uvloop.run(drive(running.port, streams, ramp=run.RAMP, deadline=deadline, probes=probes))
        gc.enable()
        with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
    answers = [read(stream_pieces) for stream_pieces in pieces]
    faults = [check(answer, scenario, stream, guarded=True).fault for stream, answer in enumerate(answers)]
    if 'portcullis_config_reloads_total{outcome="ok"} 1.0' not in metrics:
        faults.append("the configuration was not reloaded once")
    arrivals = [arrival for answer in answers for arrival in answer.arrivals]
    steady = CHANGED_AT - run.RAMP - run.SETTLE
    before = [
        (moment - stamp) / 1000
        for stamp, moment in arrivals
        if changed_at_us - steady * 1e6 <= stamp < changed_at_us - 1e5
    ]
    after = [(moment - stamp) / 1000 for stamp, moment in arrivals if moment >= changed_at_us]
    return before, after, [fault for fault in faults if fault]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.reload", description="The cost of a reload.")
    parser.add_argument("--strict", action="store_true", help=f"exit 1 also when a token waits over {LIMIT_MS:g} ms")
    options = parser.parse_args()
    paced = next(scenario for scenario in load()[0] if scenario.name == "paced-200")
    scenario = dataclasses.replace(paced, streams=STREAMS, tokens=round(SECONDS * paced.rate))
    cores = choose_cores()
    run.pin_self(cores)
    status = 0
    for workers in (1, 2):
        before, after, faults = measure(scenario, cores, workers)
        print(f"{workers} worker(s): longest delay {max(before):.1f} ms before, {max(after):.1f} ms beside the reload")
        for fault in faults:
            print(f"WRONG  {fault}", file=sys.stderr)
        if faults or (options.strict and max(after) > LIMIT_MS):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
