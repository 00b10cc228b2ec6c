"""The censor against the oracle: random rules, random texts, every way of cutting them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import Fold, Overflow, Policy, Rule
from tests.support.examples import examples
from tests.support.random_policies import (
    ALPHABETS,
    BOUNDS,
    Case,
    assert_equal_to_the_oracle,
    assert_nothing_more_is_held,
    assert_the_same_in_two,
    policies,
)

pytestmark = pytest.mark.usefixtures("steps")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    alphabet = draw(st.sampled_from(ALPHABETS))
    return draw(policies(alphabet)), draw(st.text(alphabet, max_size=14)), draw(BOUNDS)


INSIDE_AN_EXPANSION = (
    Policy(
        name="p",
        rules=(Rule(id="r", words=("iß",), fold=frozenset({Fold.CASE})),),
        max_hold=1,
        on_overflow=Overflow.REDACT,
    ),
    "ﬁs",
    MAX_UNSEEN,
)

INSIDE_A_SYLLABLE = (
    Policy(
        name="p",
        rules=(Rule(id="r", words=("ᆨ가",), fold=frozenset({Fold.ACCENTS})),),
        max_hold=1,
        on_overflow=Overflow.REDACT,
    ),
    "각ᄀ",
    MAX_UNSEEN,
)
# The word that is found is as long as what the bound blocks.
BLOCKED_AT_A_MATCH = (
    Policy(name="p", rules=(Rule(id="r", words=("b", "ba")),), max_hold=1, on_overflow=Overflow.BLOCK),
    "ba",
    MAX_UNSEEN,
)


@settings(max_examples=examples(1500), deadline=None)
@given(cases(), st.lists(st.integers(0, 14), max_size=4))
@example(INSIDE_AN_EXPANSION, [])
@example(INSIDE_A_SYLLABLE, [])
@example(BLOCKED_AT_A_MATCH, [])
def test_output_report_and_verdict_equal_the_oracle_for_every_cut(case: Case, cuts: list[int]) -> None:
    assert_equal_to_the_oracle(case, cuts)


@settings(max_examples=examples(1500), deadline=None)
@given(cases())
def test_nothing_is_held_that_no_rule_could_want(case: Case) -> None:
    if case[0].rules:
        assert_nothing_more_is_held(case)


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_every_two_way_split_gives_the_same(case: Case) -> None:
    assert_the_same_in_two(case)
