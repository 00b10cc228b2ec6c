"""The modules in C. Each takes the place of something in Python, which defines the result and is used where there is no
compiler, or with `PORTCULLIS_NATIVE=0` in the environment."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

SWITCH = "PORTCULLIS_NATIVE"


def load_native(name: str) -> Any:
    """The module of this name; None where it was not built or is switched off."""
    if os.environ.get(SWITCH, "1") == "0":
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
