"""Errors of a configuration: one, and those of a file together."""

from __future__ import annotations

import sys

MAX_ERRORS = 50  # of one file that are reported


class ConfigError(ValueError):
    """A configuration that is refused; `source` is its file, `key_path` is "" where the whole file is at fault.

    `line` is that of its key, counted from 1, where the file has lines and it is known. `others` are what else is
    wrong. `files` are the absolute paths that were opened before it was refused, of which one has to change.
    """

    def __init__(self, source: str, key_path: str, reason: str) -> None:
        super().__init__(source, key_path, reason)
        self.source = source
        self.key_path = key_path
        self.reason = reason
        self.line: int | None = None
        self.others: tuple[ConfigError, ...] = ()
        self.files: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[ConfigError, ...]:
        """Each error by itself, in the order of lines."""
        return (self, *self.others)

    def __str__(self) -> str:
        stated = ": ".join(part for part in (self.source, self.key_path, self.reason) if part)
        return stated if self.line is None else f"{stated} (line {self.line})"


class TooManyErrors(Exception):
    """The file has `MAX_ERRORS` errors and is not read to the end."""


class Errors:
    """The errors of one file, collected by code that reads on after one. `lines`: of keys by key path, where it is not
    that of the mapping or list around it."""

    def __init__(self) -> None:
        self.found: list[ConfigError] = []
        self.lines: dict[str, int] = {}
        self._seen: set[tuple[str, str]] = set()
        self._unread: set[str] = set()

    def note(self, error: ConfigError, *, unread: bool = False) -> None:
        """Add an error, each once. `unread`: the value is unreadable, and later errors about it are dropped. Raises
        `TooManyErrors`."""
        if error.key_path in self._unread or (error.key_path, error.reason) in self._seen:
            return
        if unread:
            self._unread.add(error.key_path)
        self._seen.add((error.key_path, error.reason))
        self.found.append(error)
        if len(self.found) >= MAX_ERRORS:
            raise TooManyErrors

    def within(self, *parts: str) -> bool:
        """Whether there is an error below one of these keys, or of the whole file."""
        return any(error.key_path.partition(".")[0].partition("[")[0] in ("", *parts) for error in self.found)

    def as_one(self) -> ConfigError:
        """The first error by line, with the others; those without a line come last."""
        for error in self.found:
            error.line = self._line_of(error.key_path)
        first, *others = sorted(self.found, key=lambda error: error.line or sys.maxsize)
        if len(self.found) >= MAX_ERRORS:
            others.append(ConfigError(first.source, "", f"is not read further, after {MAX_ERRORS} errors"))
        first.others = tuple(others)
        return first

    def _line_of(self, path: str) -> int | None:
        """The line of the key, or of the nearest mapping or list around it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)
