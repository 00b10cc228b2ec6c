"""Shares of a whole, and whether one of two ways to answer the same questions is better."""

from __future__ import annotations

from math import comb, sqrt

Z = 1.959963984540054  # of the normal distribution, 95 % within


def wilson(right: int, of: int) -> tuple[float, float]:
    """The bounds of a share's 95 % interval, after Wilson. Raises ValueError for a share of nothing."""
    if not 0 <= right <= of or not of:
        raise ValueError(f"{right} of {of} is no share")
    share, square = right / of, Z * Z / of
    middle = (share + square / 2) / (1 + square)
    half = Z * sqrt(share * (1 - share) / of + square / (4 * of)) / (1 + square)
    # What rounding leaves at the ends.
    low = 0.0 if right == 0 else max(middle - half, 0.0)
    return low, 1.0 if right == of else min(middle + half, 1.0)


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's test, exact and two-sided: the probability of so uneven a split of the questions that only one of two
    ways answers, if each of them were as likely to go either way."""
    changed = gained + lost
    tail = sum(comb(changed, number) for number in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**changed))
