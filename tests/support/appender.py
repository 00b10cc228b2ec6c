"""A process that journals until it is killed: `python -m tests.support.appender PATH WORKER FIRST`.

It commits entries with growing offsets, beginning with FIRST, and prints each offset once it is committed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.journal.writer import JournalWriter
from tests.support.journal_samples import journal_at, matches


async def append(path: Path, worker: int, first: int) -> None:
    writer = JournalWriter(journal_at(path, max_size=20_000, keep=1000), print, worker)
    writer.start()
    offset = first
    while await writer.committed(matches(1, offset)):
        print(offset, flush=True)
        # Entries that nobody waits for keep the file busy when the kill comes.
        writer.write(matches(50, offset + 1))
        offset += 51


if __name__ == "__main__":
    asyncio.run(append(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
