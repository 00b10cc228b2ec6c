"""Reload: reads the configuration again on SIGHUP or when a file changes, and puts it in force if it is valid.

Watches for editors that replace a file, ConfigMaps that swap a symbolic link, and word lists beside a configuration.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from watchfiles import awatch

from gateway.app import NotAdopted
from gateway.observe.facts import Reloaded
from gateway.observe.log import RequestLog
from gateway.policy.errors import ConfigError
from gateway.policy.files import read_regular
from gateway.policy.model import Config
from gateway.proxy.snapshot import run_in_background_thread

DEBOUNCE_MS = 200  # an editor's several writes are one change
POLL_MS = 5_000  # where the system does not report changes, as some network file systems do not


def fingerprint(files: Sequence[str]) -> bytes:
    """A digest of the files' names and contents; a missing or unreadable file has a mark in place of its content."""
    digest = hashlib.sha256()
    for name in files:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
        try:
            digest.update(hashlib.sha256(read_regular(Path(name))).digest())
        except OSError:
            digest.update(b"absent")
    return digest.digest()


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """How to read the configuration again (`load` raises ConfigError), and the files it was read from.

    `seen` is their fingerprint at that time. `watched`: a change of a file reloads, not only SIGHUP.
    """

    load: Callable[[], Config]
    files: tuple[str, ...]
    seen: bytes
    watched: bool = True


class Reloader:
    """Reloads one at a time; the configuration in force stays until the new one is complete."""

    def __init__(
        self, source: ConfigSource, adopt: Callable[[Config], Awaitable[None]], record: Callable[[Reloaded], None]
    ) -> None:
        self.files, self._seen, self._load = source.files, source.seen, source.load
        self._adopt, self._record = adopt, record
        self._lock = asyncio.Lock()

    async def has_changed(self) -> bool:
        """Whether a file's content is not what was read last."""
        return await asyncio.to_thread(fingerprint, self.files) != self._seen

    async def reload(self) -> bool:
        """Whether the configuration as it is now came into force. Never raises."""
        async with self._lock:
            # Taken before reading: what changes meanwhile is a change.
            self._seen = await asyncio.to_thread(fingerprint, self.files)
            try:
                config = await run_in_background_thread(self._load)
                await self._follow(config.files)
                await self._adopt(config)
            except ConfigError as error:
                # Files named for the first time are watched too: the mistake may be in one of them.
                await self._follow(tuple(dict.fromkeys((*self.files, *error.files))))
                more = f" (and {len(error.others)} more, which portcullis check prints)" if error.others else ""
                return self._failed(str(error) + more)
            except NotAdopted as error:
                return self._failed(str(error))
            except Exception as error:
                return self._failed(f"internal error: {type(error).__name__}")
            self._record(Reloaded("ok"))
            return True

    async def _follow(self, files: tuple[str, ...]) -> None:
        if files != self.files:
            self.files = files
            self._seen = await asyncio.to_thread(fingerprint, files)

    def _failed(self, reason: str) -> bool:
        self._record(Reloaded("failed", reason))
        return False


def start_reloading(
    source: ConfigSource,
    adopt: Callable[[Config], Awaitable[None]],
    record: Callable[[Reloaded], None],
    log: RequestLog,
) -> list[asyncio.Task[None]]:
    """Reload on SIGHUP, and when a watched file changes; returns the tasks to cancel at the end."""
    reloader = Reloader(source, adopt, record)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(reloader.reload()))
    if not source.watched:
        return []
    return [asyncio.create_task(watch(reloader, lambda text: log.event("watch", problem=text)))]


async def watch(reloader: Reloader, on_problem: Callable[[str], None]) -> None:
    """Reload whenever the content of a file has changed, until cancelled.

    Watches the directories and not the files, because a file that is replaced is another file. Falls back to reading
    the files every `POLL_MS` where the system has no watch to give.
    """
    try:
        await _watch(reloader)
    except Exception as error:
        on_problem(f"files cannot be watched ({type(error).__name__}); they are read every {POLL_MS // 1000} s")
    while True:
        await asyncio.sleep(POLL_MS / 1000)
        if await reloader.has_changed():
            await reloader.reload()


async def _watch(reloader: Reloader) -> None:
    while True:
        directories = sorted({str(Path(name).parent) for name in reloader.files if Path(name).parent.is_dir()})
        if not directories:
            await asyncio.sleep(POLL_MS / 1000)
        async for _ in awatch(
            *directories,
            watch_filter=None,
            recursive=False,
            debounce=DEBOUNCE_MS,
            yield_on_timeout=True,
            rust_timeout=POLL_MS,
        ):
            if await reloader.has_changed():
                await reloader.reload()
                break  # another list may have been named, in another directory
