"""The few statistics that the experiments need, of nothing but the standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SURE = 1.959963984540054  # standard deviations to either side hold 95 % of a normal law


def total_variation(one: Sequence[float], other: Sequence[float]) -> float:
    """The distance of two laws: the share that would have to move, 0 to 1."""
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / 2


def wilson(right: int, of: int) -> tuple[float, float]:
    """The bounds of a share's 95 % interval, after Wilson. Raises ValueError for a share of nothing."""
    if not 0 <= right <= of or not of:
        raise ValueError(f"{right} of {of} is no share")
    share, square = right / of, SURE * SURE / of
    middle = (share + square / 2) / (1 + square)
    half = SURE * math.sqrt(share * (1 - share) / of + square / (4 * of)) / (1 + square)
    # What rounding leaves at the ends.
    low = 0.0 if right == 0 else max(middle - half, 0.0)
    return low, 1.0 if right == of else min(middle + half, 1.0)


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's test, exact and two-sided: the probability of so uneven a split of the questions that only one of two
    ways answers, if each of them were as likely to go either way."""
    changed = gained + lost
    tail = sum(math.comb(changed, number) for number in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def holm(chances: Sequence[float]) -> list[float]:
    """The probabilities of several tests, raised so that one of them below 5 % by chance is no more likely than with
    a single test (Holm 1979)."""
    found = [0.0] * len(chances)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[number]))
        found[number] = highest
    return found


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


def least_expected(table: Sequence[Sequence[float]]) -> float:
    """The smallest count that Pearson's test expects in a cell. It is trusted where that is 5 or more (Cochran)."""
    by_row, by_column = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    return float(min(by_row) * min(by_column) / (sum(by_row) or 1))


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
