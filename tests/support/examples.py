"""How many examples a property is tried with."""

from __future__ import annotations

import os

# `make test EXAMPLES=3` tries three times as many, `EXAMPLES=0.3` a third: new ones each time.
SHARE = float(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> int:
    """`count`, or the share of it that the environment asks for; one at least."""
    return max(1, round(count * SHARE))
