"""`make faults`: every fault against real processes, and an exception at every line of the guard. `--seed N` repeats
a run.

Prints the table, and writes it to docs/faults.md with `--write`. Exit status 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.faults import planted
from tests.faults.fault import Fault, Row
from tests.faults.run import ALL, SAMPLE, not_run, plan, run, shown
from tests.support.pages import ROOT
from tests.support.served import many_sockets

PAGE = ROOT / "docs" / "faults.md"


def main() -> int:
    options = _parser().parse_args()
    many_sockets()
    chosen = [fault for fault in (SAMPLE if options.short else ALL) if options.only in f"{fault.side}: {fault.name}"]
    rows = asyncio.run(_rows(chosen, options.seed))
    print(f"seed {options.seed}, plan {plan(chosen, options.seed)}")
    print("\n".join(shown(rows)))
    bad = [f"{row.fault.side}: {row.fault.name}: {each}" for row in rows for each in row.wrong]
    bad += [f"{row.fault.side}: {row.fault.name}: not good" for row in rows if not row.good and not row.wrong]
    proof = None
    if not options.only:
        proof = asyncio.run(planted.prove(options.seed, planted.SAMPLE if options.short else None))
        print(proof)
        bad += proof.wrong
    for each in [*(f"not run: {each}" for each in not_run(chosen)), *bad]:
        print(each)
    if options.write and proof is not None:
        PAGE.write_text(_page(PAGE.read_text("utf-8"), options.seed, chosen, rows, proof), "utf-8")
    return bool(bad)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32), metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this in their side and name")
    parser.add_argument("--short", action="store_true", help="a sample of each kind")
    parser.add_argument("--write", action="store_true", help="write docs/faults.md")
    return parser


async def _rows(chosen: list[Fault], seed: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async for row in run(chosen, seed, Path(folder)):
            print(f"{len(rows) + 1}/{len(chosen)} {row.fault.side}: {row.fault.name}", file=sys.stderr, flush=True)
            rows.append(row)
    # In the order of the list, whatever gateway each of them needed.
    return sorted(rows, key=lambda row: chosen.index(row.fault))


def _page(text: str, seed: int, chosen: list[Fault], rows: list[Row], proof: planted.Proof) -> str:
    """The page with the part behind its first rule made again."""
    head, rule, _ = text.partition("\n<!-- the run -->\n")
    good = sum(row.good for row in rows)
    table = "\n".join(shown(rows))
    return (
        f"{head}{rule}\nSeed {seed}, plan `{plan(chosen, seed)}`: {good} of {len(chosen)} faults went as they should."
        f"\n\n{table}\n\n{proof}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
