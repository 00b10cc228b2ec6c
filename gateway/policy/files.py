"""The files that a configuration is read from, remembered for whoever waits for one of them to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.policy.value import ConfigError
from gateway.policy.yaml_source import read_text


class Files:
    """Reads text files by their names relative to `directory`; an absolute name is taken as it is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._opened: dict[str, None] = {}

    @property
    def opened(self) -> tuple[str, ...]:
        """The absolute path of every file that was asked for, once, in order; symbolic links are not followed."""
        return tuple(self._opened)

    def path(self, name: str) -> Path:
        return (self._directory / name).absolute()

    def text(self, name: str, fail: Callable[[str], ConfigError]) -> str:
        """The file's text without a byte-order mark; `fail` makes the error out of a reason."""
        path = self.path(name)
        # Before the file is opened: one that is missing may come, and is waited for like any other.
        self._opened[str(path)] = None
        return read_text(path, fail)
