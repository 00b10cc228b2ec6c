"""Results as JSON lines, on several streams at once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO

from gateway.progress import ProgressMeter

STANDARD_OUTPUT = "standard output"


def json_line(fields: Mapping[str, object]) -> str:
    """One JSON object, without a line break. Numbers that JSON has no name for become null."""
    return json.dumps(_finite(fields), ensure_ascii=False, allow_nan=False)


def _finite(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(key): _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value


class WriteError(OSError):
    """A file or a stream cannot be written to."""

    def __str__(self) -> str:
        return f"{self.filename}: cannot be written: {self.strerror}"


class LineWriter:
    """Writes JSON lines to some streams. `meter` shares the terminal with them, so its line is cleared before each."""

    def __init__(self, meter: ProgressMeter, *streams: IO[str]) -> None:
        self.meter, self._streams = meter, streams

    def write(self, fields: Mapping[str, object]) -> None:
        """Write and flush one line on each stream. Raises BrokenPipeError if the reader of one has gone, else
        WriteError for the first stream that fails; the others get the line all the same."""
        text = json_line(fields)
        self.meter.clear()
        failed: OSError | None = None
        for stream in self._streams:
            try:
                _write_line(stream, text)
            except BrokenPipeError as error:
                failed = error
            except OSError as error:
                name = getattr(stream, "name", "<stdout>")
                failed = failed or WriteError(
                    error.errno, error.strerror, STANDARD_OUTPUT if name == "<stdout>" else str(name)
                )
        if failed is not None:
            raise failed


def _write_line(stream: IO[str], text: str) -> None:
    try:
        stream.write(text + "\n")
    except UnicodeEncodeError:  # a stream in another encoding, or half of a surrogate pair in the name of a file
        stream.write(json.dumps(json.loads(text)) + "\n")
    stream.flush()
