"""The few statistics that the experiments need, and a figure beside its limit. Nothing but the standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SURE = 1.959964  # standard deviations to either side hold 95 % of a normal law


def verdict(what: str, seen: float, limit: float, *, at_least: bool = False) -> str:
    """A line that says whether a figure holds its limit, the most it may be unless `at_least`."""
    held = seen >= limit if at_least else seen <= limit
    return f"{'holds' if held else 'OVER':<13} {what}: {seen:.3g} (limit {limit:g}{', at least' if at_least else ''})"


def total_variation(one: Sequence[float], other: Sequence[float]) -> float:
    """The distance of two laws: the share that would have to move, 0 to 1."""
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / 2


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The interval of 95 % for a share (Wilson 1927)."""
    if not of:
        return 0.0, 1.0
    share, square = hits / of, SURE**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    width = SURE * math.sqrt(share * (1 - share) / of + square / (4 * of**2)) / (1 + square / of)
    return max(middle - width, 0.0), min(middle + width, 1.0)


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """`log10_p`: the logarithm of the probability of a statistic as large, since that can be too small for a float."""

    statistic: float
    freedom: int
    log10_p: float

    @property
    def p(self) -> float:
        return math.pow(10, self.log10_p)


def independence(table: Sequence[Sequence[float]]) -> tuple[ChiSquare, float]:
    """Pearson's test of a contingency table, rows by columns of counts, and Cramér's V. Columns and rows without counts
    say nothing and are left out. Raises ValueError if fewer than two of either are left."""
    rows = [row for row in table if sum(row)]
    columns = [column for column in zip(*rows, strict=True) if sum(column)]
    if len(rows) < 2 or len(columns) < 2:
        raise ValueError("a contingency table needs two rows and two columns with counts")
    by_row = [sum(column[row] for column in columns) for row in range(len(rows))]
    total = sum(by_row)
    statistic = 0.0
    for column in columns:
        for seen, whole in zip(column, by_row, strict=True):
            expected = sum(column) * whole / total
            statistic += (seen - expected) ** 2 / expected
    freedom = (len(rows) - 1) * (len(columns) - 1)
    cramers = math.sqrt(statistic / (total * (min(len(rows), len(columns)) - 1)))
    return ChiSquare(statistic, freedom, log10_above(statistic, freedom)), cramers


def against_exact(seen: Sequence[float], expected: Sequence[float]) -> ChiSquare:
    """Pearson's test of counts against a law that is known, given as weights. Where the law itself is a sample this
    finds differences that are none: the sample's own noise counts as one."""
    scale = sum(seen) / sum(expected)
    pairs = [(count, weight * scale) for count, weight in zip(seen, expected, strict=True) if count or weight]
    freedom = len(pairs) - 1
    if any(not weight for _, weight in pairs):
        return ChiSquare(math.inf, freedom, -math.inf)
    statistic = sum((count - weight) ** 2 / weight for count, weight in pairs)
    return ChiSquare(statistic, freedom, log10_above(statistic, freedom))


def log10_above(statistic: float, freedom: int) -> float:
    """The logarithm of the probability that chi-square is larger: the regularised upper incomplete gamma function, by
    its series or its continued fraction, whichever is quick (Press and others, Numerical Recipes)."""
    if statistic <= 0:
        return 0.0
    a, x = freedom / 2, statistic / 2
    front = a * math.log(x) - x - math.lgamma(a)
    if x < a + 1:
        term = total = 1 / a
        place = a
        while term > total * 1e-16:
            place += 1
            term *= x / place
            total += term
        return math.log10(max(1 - total * math.exp(front), 5e-324))
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    fraction = d
    for step in range(1, 10_000):
        factor = -step * (step - a)
        b += 2
        d = 1 / (factor * d + b or tiny)
        c = b + factor / c or tiny
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return (front + math.log(fraction)) / math.log(10)
