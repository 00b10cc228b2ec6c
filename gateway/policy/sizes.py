"""Sizes in bytes, as an operator writes them: `1048576`, `1MiB`, `1 MB`."""

from __future__ import annotations

import re

from gateway.policy.value import WHOLE_NUMBER, Kind, Scalar, Value

MAX_SIZE = 1024**4
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
SIZE = re.compile(rf"([0-9]{{1,15}}) ?({'|'.join(UNITS)})")


def read_size(value: Value) -> int:
    """Bytes, written as a number or as text with a unit. Raises `ConfigError`."""
    wanted = f"a size from 1 B to 1024 GiB: a whole number of bytes, or one with a unit out of {', '.join(UNITS)}"
    match value.node:
        case Scalar(text=text, kind=Kind.TEXT) if found := SIZE.fullmatch(text):
            size = int(found[1]) * UNITS[found[2]]
        case Scalar(text=text, kind=kind, substituted=substituted) if (
            kind is Kind.INTEGER or substituted
        ) and WHOLE_NUMBER.fullmatch(text):
            size = int(text)
        case _:
            raise value.wrong(wanted)
    if not 0 < size <= MAX_SIZE:
        raise value.wrong(wanted)
    return size
