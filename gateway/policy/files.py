"""The files that a configuration is read from, and their paths, which a reload watches."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from gateway.policy.errors import ConfigError

# Bytes. YAML is read at some 300 kB a second, so that a file of this size takes 13 seconds.
MAX_CONFIG = 4 * 1024**2
MAX_LIST = 32 * 1024**2  # bytes of one file of words, prompts or the like


class NotRegular(OSError):
    """A pipe, a socket or a device in the place of a file."""


class FileTooLarge(OSError):
    """A file of more bytes than are read."""


class Files:
    """Reads text files by their names relative to `directory`; an absolute name is taken as it is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._opened: dict[str, None] = {}

    @property
    def opened(self) -> tuple[str, ...]:
        """The absolute path of every file that was opened, once, in order; symbolic links are not followed."""
        return tuple(self._opened)

    def path(self, name: str) -> Path:
        return (self._directory / name).absolute()

    def config(self, name: str, fail: Callable[[str], ConfigError]) -> str:
        """The text of the configuration itself, which may come through a pipe."""
        return read_text(self._recorded(name), fail, MAX_CONFIG)

    def words(self, name: str, fail: Callable[[str], ConfigError]) -> str:
        """The text of a list that the configuration names; `fail` makes the error out of a reason."""
        return read_text(self._recorded(name), fail, MAX_LIST, regular=True)

    def _recorded(self, name: str) -> Path:
        """The path, recorded before the file is opened, so that a missing file is watched too."""
        path = self.path(name)
        self._opened[str(path)] = None
        return path


def read_text(path: Path, fail: Callable[[str], ConfigError], most: int = MAX_LIST, *, regular: bool = False) -> str:
    """The file's text without a byte-order mark, of at most `most` bytes; `fail` makes the error out of a reason.

    `regular`: pipes and devices are refused, which may never end.
    """
    try:
        data = read_regular(path, most) if regular else _read(path, most)
    except FileNotFoundError:
        raise fail("file not found") from None
    except IsADirectoryError:
        raise fail("is a directory, not a file") from None
    except NotRegular:
        raise fail("is a pipe or a device, not a file") from None
    except FileTooLarge:
        raise fail(f"is larger than {most // 1024**2} MiB, and such a file may not be; shorten it") from None
    except (OSError, ValueError) as error:
        raise fail(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise fail(f"line {line}: not valid UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise fail(f"line {line}: holds a NUL character; is the file UTF-16, or binary?")
    return text


def read_regular(path: Path, most: int = MAX_LIST) -> bytes:
    """The bytes of a regular file; never blocks on anything else in its place. Raises OSError, `NotRegular` and
    `FileTooLarge` among them."""

    def at_once(name: str, flags: int) -> int:  # opening a pipe without a writer would block
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    return _read(path, most, at_once)


def _read(path: Path, most: int, opener: Callable[[str, int], int] | None = None) -> bytes:
    with open(path, "rb", opener=opener) as file:
        if opener is not None and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotRegular
        data = file.read(most + 1)
    if len(data) > most:
        raise FileTooLarge
    return data
