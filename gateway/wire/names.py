"""The words of the protocols: names of fields, and values that only the protocol gives. names.toml has them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path


@cache
def _tables() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))


def named(table: str, key: str) -> frozenset[str]:
    """One list of names.toml."""
    return frozenset(_tables()[table][key])
