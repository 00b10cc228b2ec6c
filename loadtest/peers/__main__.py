"""`python -m loadtest.peers`: install each gateway that is missing, load one after the other, write the figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from loadtest.peers.bench import PEERS, Load, measure, table, write
from loadtest.process import choose_cores
from loadtest.report import environment
from loadtest.run import pin_self


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if the forbidden word came out of ours, or a target of ours did not run."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.peers", description=__doc__)
    parser.add_argument("--only", metavar="A,B", help=f"only these of {', '.join(peer.name for peer in PEERS)}")
    parser.add_argument("--streams", type=int, default=Load().streams, metavar="N", help="streams at once (40)")
    parser.add_argument("--chunks", type=int, default=Load().chunks, metavar="N", help="chunks of each stream (200)")
    parser.add_argument("--requests", type=int, default=Load().requests, metavar="N", help="plain requests (400)")
    results = Path(__file__).parents[1] / "results"
    parser.add_argument("--out", type=Path, default=results, metavar="DIR", help="where peers.csv, .md, .png go")
    options = parser.parse_args(arguments)
    wanted = [peer for peer in PEERS if options.only is None or peer.name in options.only.split(",")]
    load = Load(streams=options.streams, chunks=options.chunks, requests=options.requests)
    cores = choose_cores()
    facts = {"date": f"{datetime.now(UTC):%Y-%m-%d}", **environment(cores), "load": str(load)}
    pin_self(cores)
    found = []
    for peer in wanted:
        print(f"{peer.name} …", file=sys.stderr, flush=True)
        found.append(measure(peer, cores, load))
    head = "\n".join(f"{key:<9} {fact}" for key, fact in facts.items())
    print(shown := f"{head}\n\n{table(found)}")
    write(options.out, found, f"# The latest `make bench-peers`\n\n```text\n{shown}\n```\n")
    ours = [result for result in found if result.target.startswith("portcullis")]
    return 1 if any(result.came_out != 0 or result.note for result in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
