"""What the pages of the experiments have in common: paragraphs, figures beside their limits, charts."""

from __future__ import annotations

import textwrap
from typing import Any


def paragraphs(*texts: str) -> str:
    """Texts in lines of a page's width, an empty line between them."""
    return "\n\n".join(textwrap.fill(text, 118, break_on_hyphens=False) for text in texts)


def judged(holds: bool, what: str) -> str:
    """A line that says whether something is as it has to be."""
    return f"{'holds' if holds else 'OVER':<13} {what}"


def verdict(what: str, seen: float, limit: float, *, at_least: bool = False) -> str:
    """A line that says whether a figure holds its limit, the most it may be unless `at_least`."""
    least = ", at least" if at_least else ""
    return judged(seen >= limit if at_least else seen <= limit, f"{what}: {seen:.3g} (limit {limit:g}{least})")


def counted(what: str, seen: int, expected: int) -> str:
    """A line that says whether there are as many as there have to be."""
    return judged(seen == expected, f"{what}: {seen:,} (expected {expected:,})")


def ratio(one: float, other: float) -> float:
    """How many times the other; 0 where there is nothing to compare with, so that no limit holds."""
    return one / other if other else 0.0


def pyplot() -> Any:
    """What draws charts into files, without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as found

    return found
