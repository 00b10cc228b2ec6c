"""Types of command-line options."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(kind: str, low: int, high: int) -> Callable[[str], int]:
    """The `type` of an option: a number from `low` to `high`, called `kind` in the error."""

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 20 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind} from {low} to {high}")
        return int(text)

    return convert
