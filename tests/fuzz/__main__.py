"""`make fuzz`: each target for some seconds, with a table of what was tried. Exit status 1 where one has found
something; the input is then in build/fuzz/findings."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from random import SystemRandom

from tests.fuzz.targets import TARGETS, findings
from tests.support.pages import ROOT

FOLDER = ROOT / "build" / "fuzz"
_SLOWEST = 20  # seconds that one input may take


def main() -> int:
    options = _parser().parse_args()
    print(f"seed {options.seed}, {options.seconds} s for each target\n\n| target | executions | found |\n|---|---|---|")
    return max([_run(name, options.seconds, options.seed) for name in options.target or TARGETS])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="*", choices=[[], *TARGETS], help="default: all")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1, 1 << 31), metavar="N")
    return parser


def _run(name: str, seconds: int, seed: int) -> int:
    """What libFuzzer has learned in earlier runs is in the target's folder, and is begun with."""
    corpus, found = FOLDER / name, FOLDER / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    for number, data in enumerate([*TARGETS[name].seeds, *(path.read_bytes() for path in findings(name))]):
        (corpus / f"seed-{number}").write_bytes(data)
    command = [sys.executable, "-m", "tests.fuzz.one", name, str(corpus), f"-max_total_time={seconds}"]
    command += [f"-seed={seed}", f"-artifact_prefix={found}/{name}-", f"-timeout={_SLOWEST}"]
    command += ["-print_final_stats=1", "-rss_limit_mb=4096"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    log = ended.stdout + ended.stderr
    tried = re.search(r"number_of_executed_units: (\d+)", log)
    wrong = ended.returncode != 0 or tried is None
    print(f"| {name} | {int(tried[1]) if tried else 0:,} | {'yes' if wrong else 'nothing'} |", flush=True)
    if wrong:
        print(log[-6000:], file=sys.stderr)
    return int(wrong)


sys.exit(main())
