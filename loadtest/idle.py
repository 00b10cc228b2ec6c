"""What thousands of streams cost that are open and say next to nothing: resident memory of one worker.

    python -m loadtest.idle [--streams N] [--strict]

Every stream has a thousand words to be guarded against and a chunk each ten seconds, on a connection of its own; all of
them have to come back complete. Exit status 1 if one did not, if not all were open at the moment of the measurement,
or, with `--strict`, if the process has more than its limit. A loaded machine does not change what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import urllib.request

import uvloop

from loadtest import process, targets
from loadtest.process import choose_cores
from loadtest.request_bench import Row, _Load, upstream
from loadtest.request_upstream import PROMPT, PROSE, WITH_PAUSE
from loadtest.run import pin_self

STREAMS = 5000
CHUNKS = 6
PAUSE = 10  # seconds between two chunks
MEASURED_AT = 0.75  # of a stream's time
LIMIT_MB = 300.0  # of the whole process
_OPEN = re.compile(r"^portcullis_streams_active (\S+)", re.MULTILINE)


async def measure(target: targets.Running, streams: int) -> tuple[int, int, int]:
    """Resident kilobytes before and while all of them are open, and how many were. Raises `TargetError`."""
    assert target.pid is not None
    asked = f"{PROMPT} {WITH_PAUSE % PAUSE}"
    load = _Load(Row("idle", CHUNKS, kept=False, requests=streams, at_once=streams, asked=asked), target.port, True)
    pids = process.tree(target.pid)
    before = process.resident_kb(pids)
    running = asyncio.create_task(load.run())
    await asyncio.sleep(CHUNKS * PAUSE * MEASURED_AT)
    resident, seen = process.resident_kb(pids), await asyncio.to_thread(_open_streams, target.port)
    await running
    return before, resident, seen


def _open_streams(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found = _OPEN.search(answer.read().decode())
    return int(float(found[1])) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.idle", description="Memory of open streams.")
    parser.add_argument("--streams", type=int, default=STREAMS, metavar="N")
    parser.add_argument("--strict", action="store_true", help=f"exit 1 also with more than {LIMIT_MB:g} MB")
    options = parser.parse_args()
    cores = choose_cores()
    pin_self(cores)
    with upstream(cores) as port, targets.running("portcullis-1000", PROSE, port, cores.target) as target:
        try:
            before, resident, seen = uvloop.run(measure(target, options.streams))
        except targets.TargetError as error:
            print(error, file=sys.stderr)
            return 1
    each = (resident - before) * 1.024 / options.streams
    print(f"{seen} streams open: {resident * 1.024e-3:.0f} MB, {before * 1.024e-3:.0f} before, {each:.1f} kB each")
    if seen != options.streams:
        print("WRONG  not all streams were open", file=sys.stderr)
    return 1 if seen != options.streams or (options.strict and resident * 1.024e-3 > LIMIT_MB) else 0


if __name__ == "__main__":
    sys.exit(main())
