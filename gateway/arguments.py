"""What the parsers of all commands have in common: types of options, and help that ends with an example."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def whole_number(kind: str, low: int, high: int) -> Callable[[str], int]:
    """The `type` of an option: a number from `low` to `high`, called `kind` in the error."""

    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 20 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind} from {low} to {high}")
        return int(text)

    return convert


def with_example(command: str, more: str = "") -> dict[str, Any]:
    """Options of a parser: its help ends with `more` and an example of its use."""
    epilog = f"{more}\n\nexample:\n  {command}".lstrip()
    return {"epilog": epilog, "formatter_class": argparse.RawDescriptionHelpFormatter}
