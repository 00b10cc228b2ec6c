"""`python -m loadtest`: one run of the bench and its table."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest import censor_bench, pattern_bench, report, verdicts
from loadtest.process import Cores, choose_cores
from loadtest.run import RAMP, SETTLE, measure, pin_self
from loadtest.scenario import BASELINES, SCENARIOS, Guard, Scenario, ScenarioError, load

_LEAST_SECONDS = RAMP + SETTLE + 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench. Exit status 0; 1 if any stream came out wrong or a target did not start; 2 for wrong usage.

    A figure over its limit does not change the status unless `--strict` asks for it: timings depend on the machine.
    """
    options = _parser().parse_args(arguments)
    try:
        scenarios, limits = load(options.scenarios)
        chosen = _choose(scenarios, options)
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    # As an exception it passes through every `finally` that ends a child.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores = choose_cores()
    facts = report.environment(cores)
    pin_self(cores)
    rounds = [_round(chosen, number, cores) for number in range(1 if options.quick else options.rounds)]
    # Only a whole run has time for the censor alone.
    timings = (
        [] if options.quick or options.targets else [censor_bench.time_case(case) for case in censor_bench.cases()]
    )
    hostile = [pattern_bench.time_case(case) for case in pattern_bench.cases()] if timings else []
    rows = verdicts.rows(rounds)
    found = verdicts.verdicts(rounds, limits)
    found += censor_bench.verdicts(timings, limits) + pattern_bench.verdicts(hostile, limits)
    faults = [timing.fault for timing in (*timings, *hostile) if timing.fault]
    alone = "\n\n".join([censor_bench.table(timings), pattern_bench.table(hostile)]) if timings else ""
    page = report.text(facts, rows, alone, found)
    print("\n".join([page, *(f"WRONG  {fault}" for fault in faults)]))
    report.write(options.out, facts, rows, found, page)
    if faults or any(row.faults for row in rows):
        return 1
    return 1 if options.strict and any(verdict.holds is False for verdict in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="20 streams for 2 seconds: checks the counts, not the speed"
    )
    parser.add_argument(
        "--rounds", type=int, choices=range(1, 21), default=2, metavar="N", help="times that everything is run (2)"
    )
    parser.add_argument(
        "--streams", type=int, metavar="N", help="streams in every scenario, in place of its own number"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help=f"length of a stream, {_LEAST_SECONDS:g} or more")
    parser.add_argument("--targets", metavar="A,B", help="only these: direct, bytecopy, nginx, portcullis-WORDS")
    parser.add_argument("--scenarios", type=Path, default=SCENARIOS, metavar="FILE", help="another scenarios.toml")
    parser.add_argument(
        "--out",
        type=Path,
        default=SCENARIOS.with_name("results"),
        metavar="DIR",
        help="where latest.json and latest.md go",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 also when a figure is over its limit")
    return parser


def _choose(scenarios: Sequence[Scenario], options: argparse.Namespace) -> list[Scenario]:
    """The scenarios to run, as the options want them. Raises `ScenarioError` for an option that cannot be met."""
    usable = [scenario for scenario in scenarios if scenario.quick == options.quick]
    if options.targets is not None:
        known = dict.fromkeys(target for scenario in usable for target in scenario.targets)
        for name in options.targets.split(","):
            if name not in known:
                raise ScenarioError(f"--targets: no scenario has {name!r}; they have {', '.join(known)}")
    adapted = [_adapt(scenario, options) for scenario in usable]
    return [scenario for scenario in adapted if scenario.targets]


def _adapt(scenario: Scenario, options: argparse.Namespace) -> Scenario:
    if options.streams is not None:
        if not 1 <= options.streams <= 4000:
            raise ScenarioError(f"--streams: must be from 1 to 4000, is {options.streams}")
        scenario = dataclasses.replace(scenario, streams=options.streams)
    if options.seconds is not None:
        if not _LEAST_SECONDS <= options.seconds <= 600:
            raise ScenarioError(f"--seconds: must be from {_LEAST_SECONDS:g} to 600, is {options.seconds:g}")
        scenario = dataclasses.replace(
            scenario, tokens=max(round(options.seconds * scenario.rate), scenario.planted * 12)
        )
    if options.targets is not None:
        wanted = options.targets.split(",")
        guards = [Guard.of(name) for name in wanted if name not in BASELINES]
        scenario = dataclasses.replace(
            scenario,
            baselines=tuple(name for name in scenario.baselines if name in wanted),
            words=tuple(count for count in scenario.words if count in {guard.words for guard in guards}),
            workers=tuple(
                count for count in scenario.workers if count == 1 or any(f"-x{count}" in name for name in wanted)
            ),
            dialects=tuple(way for way in scenario.dialects if way in {guard.way for guard in guards}),
            patterns=tuple(
                with_them
                for with_them in scenario.patterns
                if not with_them or any(name.endswith("-patterns") for name in wanted)
            ),
        )
    return scenario


def _round(scenarios: Sequence[Scenario], number: int, cores: Cores) -> verdicts.Round:
    """Every scenario through every target; odd rounds backwards, so that a drift of the machine hits all alike."""
    runs: list[tuple[Scenario, tuple[str, ...]]] = []
    for scenario in scenarios:
        runs += [(scenario, names) for names in ([scenario.targets] if scenario.together else zip(scenario.targets))]
    found: verdicts.Round = {}
    for scenario, names in runs[::-1] if number % 2 else runs:
        print(f"round {number + 1}: {scenario.name} {', '.join(names)}", file=sys.stderr, flush=True)
        for name, measurement in measure(scenario, names, cores).items():
            found[scenario.name, name] = measurement
    return found


if __name__ == "__main__":
    sys.exit(main())
