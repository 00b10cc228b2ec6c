"""The experiments' statistics, against values from tables and against naive ways."""

import math

import pytest

from experiments.pages import verdict
from experiments.statistics import (
    ChiSquare,
    against_exact,
    holm,
    independence,
    least_expected,
    total_variation,
    wilson,
)


@pytest.mark.parametrize(
    ("statistic", "freedom", "p"),
    [
        (3.841459, 1, 0.05),
        (16.918978, 9, 0.05),
        (21.665994, 9, 0.01),
        (2.087901, 9, 0.99),
        (9.0, 9, 0.437274),
        (100.0, 2, math.exp(-50)),
    ],
)
def test_the_tail_of_chi_square(statistic: float, freedom: int, p: float) -> None:
    test = ChiSquare(statistic, freedom)
    assert (test.p, 10**test.log10_p) == pytest.approx((p, p), rel=1e-5)


def test_the_ends_of_the_tail() -> None:
    # With two degrees of freedom it is exp(-x / 2).
    assert ChiSquare(1400, 2).log10_p == pytest.approx(-700 / math.log(10))
    assert ChiSquare(5000, 2).log10_p == -math.inf
    assert ChiSquare(0, 9).log10_p == 0


def test_a_table_worked_out_by_hand() -> None:
    # Expected are 20, 30 and 20, 30; so 4 * (10 * 10) / 20 or 30.
    test, cramers = independence([[30, 20], [10, 40]])
    assert test.statistic == pytest.approx(100 / 20 + 100 / 30 + 100 / 20 + 100 / 30)
    assert test.freedom == 1
    assert cramers == pytest.approx(math.sqrt(test.statistic / 100))
    assert test.p == pytest.approx(4.5e-5, rel=0.02)


def test_columns_and_rows_without_counts_say_nothing() -> None:
    assert independence([[30, 0, 20], [10, 0, 40], [0, 0, 0]]) == independence([[30, 20], [10, 40]])
    with pytest.raises(ValueError, match="two rows"):
        independence([[30, 20], [0, 0]])


def test_a_sample_taken_for_a_law_counts_twice() -> None:
    """Of two samples of one size the statistic is twice that of the table, nearly, where they differ little."""
    one, other = [110, 90, 100], [100, 100, 100]
    test, _ = independence([one, other])
    assert against_exact(one, other).statistic == pytest.approx(2 * test.statistic, rel=0.01)


def test_a_law_that_rules_out_what_was_seen() -> None:
    assert against_exact([1, 2], [0, 3]).statistic == math.inf
    assert against_exact([1, 2], [0, 3]).p == 0
    assert against_exact([1, 2], [0, 3]).log10_p == -math.inf


def test_intervals_and_distances() -> None:
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 10)[0] == 0
    assert total_variation([0.5, 0.5], [0.2, 0.8]) == pytest.approx(0.3)


def test_several_tests() -> None:
    # 3 * 0.01, then 2 * 0.02, and nothing below what came before it.
    assert holm([0.02, 0.03, 0.01]) == pytest.approx([0.04, 0.04, 0.03])
    assert holm([0.9, 0.6]) == [1, 1]
    assert holm([]) == []


def test_what_is_expected_of_a_cell() -> None:
    # 30 of 100 in the row, 10 of 100 in the column.
    assert least_expected([[3, 27], [7, 63]]) == 3
    assert least_expected([[0, 0]]) == 0


def test_a_figure_beside_its_limit() -> None:
    assert verdict("distance", 0.01, 0.05) == "holds         distance: 0.01 (limit 0.05)"
    assert verdict("distance", 0.06, 0.05).startswith("OVER")
    assert verdict("hits", 3.0, 2.5, at_least=True).startswith("holds")
    assert verdict("hits", 2.4, 2.5, at_least=True) == "OVER          hits: 2.4 (limit 2.5, at least)"
