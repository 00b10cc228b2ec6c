"""The gateways that faults need, by name; each is started with what belongs to it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.process_faults import CLOCK
from tests.faults.storage_faults import DISK, SLOW_DISK
from tests.faults.world import World, world
from tests.support.redis_servers import RedisServer, executable
from tests.support.served import KEY

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), Path("/nowhere"))
GATEWAY = (sys.executable, "-m", "gateway.cli")
JOURNAL = {"path": "journal.jsonl", "key": "a key of the journal", "chain": True}


def missing(name: str) -> str | None:
    """What this gateway needs and is not installed."""
    if name == "clock" and not FAKETIME.exists():
        return "Debian's package libfaketime is not installed"
    if name == "redis":
        try:
            executable()
        except AssertionError:
            return "Debian's package redis-server is not installed"
    return None


@asynccontextmanager
async def setting(name: str, folder: Path, rng: Random) -> AsyncIterator[World]:
    """The gateway of this name, in a folder of its own."""
    folder.mkdir(parents=True)
    arguments: tuple[str, ...] = ()
    more: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    command = GATEWAY
    match name:
        case "workers":
            arguments = ("--workers", "2", "--no-watch")
            more["journal"] = JOURNAL
        case "clock":
            (folder / CLOCK).write_text("+0", "utf-8")
            variables = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": folder / CLOCK, "FAKETIME_NO_CACHE": 1}
            command = ("env", *(f"{key}={text}" for key, text in variables.items()), "DONT_FAKE_MONOTONIC=1", *GATEWAY)
            more["journal"] = JOURNAL
            more["auth"] = {"keys": [{"name": "app", "key": KEY, "rpm": 1000}]}
        case "journal" | "required":
            (folder / "python").mkdir()
            (folder / "python" / "sitecustomize.py").write_text(SLOW_DISK, "utf-8")
            command = ("env", f"PYTHONPATH={folder / 'python'}", f"FAULTS_DISK={folder / DISK}", *GATEWAY)
            required = name == "required"
            more["journal"] = {**JOURNAL, "required": required, "fsync": "always" if required else "second"}
        case "redis":
            parts["redis"] = server = RedisServer(folder)
            server.start()
            more["redis"] = server.url
            more["auth"] = {"keys": [{"name": "app", "key": KEY, "rpm": 5000, "max_streams": 100}]}
    try:
        async with world(folder, rng, *arguments, command=command, **more) as place:
            place.parts.update(parts)
            yield place
    finally:
        if "redis" in parts:
            parts["redis"].stop()
