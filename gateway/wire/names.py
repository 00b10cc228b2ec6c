"""The words of the protocols, which names.toml has: names of fields, values that only the protocol gives, and what
becomes of fields."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))


def named(table: str, key: str) -> frozenset[str]:
    """One list of names.toml."""
    return frozenset(_tables()[table][key])


def reasons(table: str, key: str) -> Mapping[str, str]:
    """One table of names.toml: fields, each with why it is dropped, refused or kept."""
    found: Mapping[str, str] = _tables()[table][key]
    return found
