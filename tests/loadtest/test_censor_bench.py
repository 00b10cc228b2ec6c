"""The bench of the censor alone counts what it finds, and says so when it is not what was expected."""

import dataclasses

from loadtest.censor_bench import Case, table, time_case, verdicts
from loadtest.scenario import load

CASE = Case("small", "prose", ("abab",), (("aba", "bab"), ("ab",) * 9), 2 + 8)
COLD = Case("cold", "cold", ("a" * 50 + "b",), (("aaaa",) * 40,), 0)
HOSTILE = Case("hostile", "live", ("a" * 50 + "b",), (("aaaa",) * 40,), 0)


def test_overlapping_words_are_counted_and_judged() -> None:
    timings = [time_case(CASE), time_case(HOSTILE), time_case(COLD)]
    assert [timing.fault for timing in timings] == ["", "", ""]
    assert "10/10" in table(timings)
    judged = [verdict.what for verdict in verdicts(timings, load()[1])]
    assert sum("hostile" in name for name in judged) == 3
    assert [verdict.holds is None for verdict in verdicts(timings, load()[1])] == [False] * 5


def test_a_wrong_count_is_a_fault() -> None:
    timing = time_case(dataclasses.replace(CASE, matches=11))
    assert timing.fault == "the censor alone, small: 10 matches, expected 11"


def test_nothing_measured_is_nothing_to_show() -> None:
    assert table([]) == ""
    assert verdicts([], load()[1]) == []
