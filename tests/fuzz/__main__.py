"""`make fuzz`: each target for some seconds, with a table of what was tried. Exit status 1 where one has found
something; the input is then in build/fuzz/findings, and running a target with `--input FILE` shows what it does."""

from __future__ import annotations

import argparse
import os
import re
import sys
from hashlib import sha1
from pathlib import Path
from random import SystemRandom

import atheris

with atheris.instrument_imports(include=["gateway"]):
    from tests.fuzz.targets import TARGETS, findings
    from tests.support.pages import ROOT

FOLDER = ROOT / "build" / "fuzz"
_SLOWEST = 20  # seconds that one input may take


def main() -> int:
    options = _parser().parse_args()
    if options.input:
        for name in options.target:
            TARGETS[name].run(options.input.read_bytes())
        return 0
    bound = f"-runs={options.runs}" if options.runs else f"-max_total_time={options.seconds}"
    print(f"seed {options.seed}, {bound} for each target\n\n| target | executions | found |\n|---|---|---|")
    return max([_run(name, bound, options.seed) for name in options.target or TARGETS])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="*", choices=[[], *TARGETS], help="default: all")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--runs", type=int, metavar="N", help="executions, in the place of seconds: what can be repeated"
    )
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1, 1 << 31), metavar="N")
    parser.add_argument("--input", type=Path, metavar="FILE", help="only run the target with it")
    return parser


def _run(name: str, bound: str, seed: int) -> int:
    """In a process of its own, which libFuzzer ends, forked because instrumenting takes many seconds."""
    log = FOLDER / f"{name}.log"
    FOLDER.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        _fuzz(name, bound, seed)
    failed = os.waitpid(child, 0)[1] != 0
    shown = log.read_text("utf-8", "replace")
    tried = re.search(r"number_of_executed_units: (\d+)", shown)
    wrong = failed or tried is None
    print(f"| {name} | {int(tried[1]) if tried else 0:,} | {'yes' if wrong else 'nothing'} |", flush=True)
    if wrong:
        print(shown[-6000:], file=sys.stderr)
    return int(wrong)


def _fuzz(name: str, bound: str, seed: int) -> None:
    """What libFuzzer has learned in earlier runs is in the target's folder, and is begun with."""
    corpus, found, target = FOLDER / name, FOLDER / "findings", TARGETS[name]
    for folder in (corpus, found):
        folder.mkdir(exist_ok=True)
    for number, data in enumerate([*target.seeds, *(path.read_bytes() for path in findings(name))]):
        (corpus / f"seed-{number}").write_bytes(data)
    bounds = [f"-max_len={target.longest}", bound, f"-timeout={_SLOWEST}", "-rss_limit_mb=4096"]
    written = [f"-seed={seed}", f"-artifact_prefix={found}/{name}-", "-print_final_stats=1", "-verbosity=0"]

    def run(data: bytes) -> None:
        # libFuzzer keeps an input only where its sanitizers run: not one at which Python raises.
        try:
            target.run(data)
        except Exception:
            (found / f"{name}-{sha1(data).hexdigest()}").write_bytes(data)
            raise

    atheris.Setup([sys.argv[0], str(corpus), *bounds, *written], run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
