"""A changed configuration comes into force, or, if anything is wrong with it, does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.app import NotAdopted
from gateway.observe.facts import Reloaded
from gateway.policy.model import Config
from gateway.policy.value import ConfigError
from gateway.proxy.snapshot import run_in_background_thread
from gateway.serving.watch import fingerprint


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration comes from: how to read it again, raising ConfigError, and which files it was in.

    `watched`: their changes are taken over without being told.
    """

    load: Callable[[], Config]
    files: tuple[str, ...]
    seen: bytes  # the fingerprint of the files, when they were read
    watched: bool = True


class Reloader:
    """Reads the configuration again when told to. One at a time; what is in force stays until the new one is whole."""

    def __init__(
        self, source: Source, adopt: Callable[[Config], Awaitable[None]], record: Callable[[Reloaded], None]
    ) -> None:
        self.files = source.files
        self.seen = source.seen
        self._load = source.load
        self._adopt = adopt
        self._record = record
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> bool:
        """Whether the configuration as it is now came into force. Never raises."""
        async with self._one_at_a_time:
            # Taken before reading: what changes meanwhile is a change.
            self.seen = await asyncio.to_thread(fingerprint, self.files)
            try:
                config = await run_in_background_thread(self._load)
                await self._look_at(config.files)
                await self._adopt(config)
            except ConfigError as error:
                # What it was read from is watched too: the mistake may be in a list that was named just now.
                await self._look_at(tuple(dict.fromkeys((*self.files, *error.files))))
                more = f" (and {len(error.others)} more, which portcullis check prints)" if error.others else ""
                return self._failed(str(error) + more)
            except NotAdopted as error:
                return self._failed(str(error))
            except Exception as error:
                return self._failed(f"internal error: {type(error).__name__}")
            self._record(Reloaded("ok"))
            return True

    async def _look_at(self, files: tuple[str, ...]) -> None:
        if files != self.files:
            self.files = files
            self.seen = await asyncio.to_thread(fingerprint, files)

    def _failed(self, reason: str) -> bool:
        self._record(Reloaded("failed", reason))
        return False
