"""Files that change: editors that write anew, ConfigMaps that swap a symbolic link, lists beside a configuration."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from watchfiles import awatch

from gateway.policy.files import read_regular

if TYPE_CHECKING:
    from gateway.serving.reload import Reloader

DEBOUNCE_MS = 200  # an editor's several writes are one change
LOOK_ANYWAY_MS = 5_000  # where the system does not report changes, as some network file systems do not


def fingerprint(files: Sequence[str]) -> bytes:
    """The same as long as no file's content changed; one that is not there, or is no file that would be read, has
    none."""
    digest = hashlib.sha256()
    for name in files:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
        try:
            digest.update(hashlib.sha256(read_regular(Path(name))).digest())
        except OSError:
            digest.update(b"absent")
    return digest.digest()


async def watch(reloader: Reloader, on_problem: Callable[[str], None]) -> None:
    """Reload whenever the content of one of its files is not what it last read, until cancelled.

    The directories are watched and not the files, because a file that is replaced is another file. Where the system
    watches nothing more, the files are read every few seconds instead.
    """
    try:
        await _watch(reloader)
    except Exception as error:
        on_problem(f"files cannot be watched ({type(error).__name__}); they are read every {LOOK_ANYWAY_MS // 1000} s")
    while True:
        await asyncio.sleep(LOOK_ANYWAY_MS / 1000)
        if await asyncio.to_thread(fingerprint, reloader.files) != reloader.seen:
            await reloader.reload()


async def _watch(reloader: Reloader) -> None:
    while True:
        directories = sorted({str(Path(name).parent) for name in reloader.files if Path(name).parent.is_dir()})
        if not directories:
            await asyncio.sleep(LOOK_ANYWAY_MS / 1000)
        async for _ in awatch(
            *directories,
            watch_filter=None,
            recursive=False,
            debounce=DEBOUNCE_MS,
            yield_on_timeout=True,
            rust_timeout=LOOK_ANYWAY_MS,
        ):
            if await asyncio.to_thread(fingerprint, reloader.files) != reloader.seen:
                await reloader.reload()
                break  # another list may have been named, in another directory
