"""`make faults`: every fault, against real processes; a table, and docs/faults.md. `--seed N` repeats a run."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.faults.fault import Fault, Row
from tests.faults.client_faults import faults as client_faults
from tests.faults.process_faults import faults as process_faults
from tests.faults.resource_faults import faults as resource_faults
from tests.faults.settings import setting
from tests.faults.storage_faults import faults as storage_faults
from tests.faults.upstream_faults import faults as upstream_faults
from tests.faults.world import judged


ALL = (upstream_faults, client_faults, process_faults, storage_faults, resource_faults)


async def run(seed: int, only: str, folder: Path) -> list[Row]:
    rows = []
    wanted = [fault for faults in ALL for fault in faults() if only in f"{fault.side}: {fault.name}" and not fault.slow]
    settings = dict.fromkeys((fault.setting, fault.name if fault.ends else "") for fault in wanted)
    for number, (name, alone) in enumerate(settings):
        async with setting(name, folder / str(number), Random(f"{seed}/{name}")) as place:
            for fault in wanted:
                if fault.setting == name and (fault.name if fault.ends else "") == alone:
                    import time

                    t = time.monotonic()
                    row = await judged(place, fault, Random(f"{seed}/{fault.name}"))
                    print(
                        f"{time.monotonic() - t:.1f}", fault.side, fault.name, "good" if row.good else row, flush=True
                    )
                    rows.append(row)
    return rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "", Path(folder)))
