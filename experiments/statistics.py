"""The statistics that the experiments need: scipy's, put the way they are asked for, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import scipy  # which imports its modules when they are first used: `stats` takes a second


def total_variation(one: Sequence[float], other: Sequence[float]) -> float:
    """The distance of two laws: the share that would have to move, 0 to 1."""
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / 2


def wilson(right: int, of: int) -> tuple[float, float]:
    """The bounds of a share's 95 % interval, after Wilson. Raises ValueError for a share of nothing."""
    if not 0 <= right <= of or not of:
        raise ValueError(f"{right} of {of} is no share")
    low, high = scipy.stats.binomtest(right, of).proportion_ci(method="wilson")
    return float(low), float(high)


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's test, exact and two-sided: the probability of so uneven a split of the questions that only one of two
    ways answers, if each of them were as likely to go either way."""
    changed = gained + lost
    return float(scipy.stats.binomtest(gained, changed).pvalue) if changed else 1.0


def holm(chances: Sequence[float]) -> list[float]:
    """The probabilities of several tests, raised so that one of them below 5 % by chance is no more likely than with
    a single test (Holm 1979), which scipy does not have."""
    found = [0.0] * len(chances)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[number]))
        found[number] = highest
    return found


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """A statistic of Pearson's test and its degrees of freedom."""

    statistic: float
    freedom: int

    @property
    def p(self) -> float:
        """The probability of a statistic as large."""
        return float(scipy.stats.chi2.sf(self.statistic, self.freedom))

    @property
    def log10_p(self) -> float:
        """Its logarithm; minus infinity for probabilities below those of floats, some 10 to the power of -308."""
        return float(scipy.stats.chi2.logsf(self.statistic, self.freedom)) / math.log(10)


def independence(table: Sequence[Sequence[float]]) -> tuple[ChiSquare, float]:
    """Pearson's test of a contingency table, rows by columns of counts, and Cramér's V. Columns and rows without counts
    say nothing and are left out. Raises ValueError if fewer than two of either are left."""
    rows = [row for row in table if sum(row)]
    columns = [column for column in zip(*rows, strict=True) if sum(column)]
    if len(rows) < 2 or len(columns) < 2:
        raise ValueError("a contingency table needs two rows and two columns with counts")
    test = scipy.stats.chi2_contingency(columns, correction=False)
    cramers = math.sqrt(test.statistic / (sum(map(sum, columns)) * (min(len(rows), len(columns)) - 1)))
    return ChiSquare(float(test.statistic), test.dof), cramers


def least_expected(table: Sequence[Sequence[float]]) -> float:
    """The smallest count that Pearson's test expects in a cell. It is trusted where that is 5 or more (Cochran)."""
    return float(scipy.stats.contingency.expected_freq(table).min()) if any(map(any, table)) else 0.0


def against_exact(seen: Sequence[float], expected: Sequence[float]) -> ChiSquare:
    """Pearson's test of counts against a law that is known, given as weights. Where the law itself is a sample this
    finds differences that are none: the sample's own noise counts as one."""
    scale = sum(seen) / sum(expected)
    pairs = [(count, weight * scale) for count, weight in zip(seen, expected, strict=True) if count or weight]
    freedom = len(pairs) - 1
    if any(not weight for _, weight in pairs):
        return ChiSquare(math.inf, freedom)
    return ChiSquare(float(scipy.stats.chisquare(*zip(*pairs, strict=True)).statistic), freedom)
