"""Glushkov's automaton against Python's `re`, on every part of all short texts."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.automata.contexts import ALL
from gateway.automata.positions import Positions, Region, positions
from gateway.automata.regex import RegexError, parse
from tests.support.examples import examples
from tests.support.expressions import Expression, expressions, matches, spans, texts

PLAIN = "a_ \n"
CASED = "kKKsSſßẞiIİıµμΜσςΣ"


def automaton(body: str, before: str = "", after: str = "", ignore_case: bool = False) -> Positions:
    first, middle, last = (parse(part, ignore_case=ignore_case) for part in (before, body, after))
    return positions(middle, first, last)


def never_empty(expression: Expression, ignore_case: bool = False) -> Positions:
    try:
        return automaton(expression.ours, ignore_case=ignore_case)
    except RegexError as error:
        assert "matches the empty string" in error.reason
        assume(False)
        raise


@settings(max_examples=examples(400), deadline=None)
@given(expressions(PLAIN))
@example(Expression(r"(?:a|\b)+_", r"(?:a|\b)+_"))
@example(Expression(r"(?:\b|a){2,3} ", r"(?:\b|a){2,3} "))
@example(Expression(r"(?:a?_?){2,}\n", r"(?:a?_?){2,}\n"))
def test_every_substring_in_the_language_is_found(expression: Expression) -> None:
    machine = never_empty(expression)
    for text in texts(PLAIN, 4):
        parts = combinations(range(len(text) + 1), 2)
        assert spans(machine, text) == {part for part in parts if matches(expression.pythons, False, text, *part)}, text


@settings(max_examples=examples(200), deadline=None)
@given(expressions(CASED))
def test_case_is_ignored_as_re_does(expression: Expression) -> None:
    machine = never_empty(expression, ignore_case=True)
    for text in texts(CASED, 2):
        parts = combinations(range(len(text) + 1), 2)
        assert spans(machine, text) == {part for part in parts if matches(expression.pythons, True, text, *part)}, text


@settings(max_examples=examples(100), deadline=None)
@given(
    expressions(PLAIN), expressions(PLAIN), st.sampled_from(["", "$", "$|a", r"[^a]", r"_(?:$| )", r"\b", r"\B[a ]"])
)
def test_contexts_stand_around_a_match(before: Expression, body: Expression, after: str) -> None:
    never_empty(body)
    machine = automaton(body.ours, before.ours, after)
    behind = after.replace("$", r"\Z")
    for text in texts(PLAIN, 3):
        found = set()
        for begin, start, end, stop in combinations_with_replacement(range(len(text) + 1), 4):
            parts = (before.pythons, begin, start), (body.pythons, start, end), (behind, end, stop)
            if all(matches(each, False, text, *part) for each, *part in parts):
                found.add((start, end))
        assert spans(machine, text) == found, text


def test_regions_and_distances() -> None:
    machine = automaton("b+c", before="^|[^a]", after=r"$|\.(?:$|\d)")
    chars = [chr(each.ranges[0][0]) for each in machine.sets]
    assert chars == ["\0", "b", "c", ".", "0"]
    assert machine.region == (Region.BEFORE, Region.SPAN, Region.SPAN, Region.AFTER, Region.AFTER)
    assert machine.past == (0, 0, 0, 1, 2)
    assert machine.null == 0
    assert machine.follow[1] == {1: ALL, 2: ALL}


@pytest.mark.parametrize("after", ["x*", "x?y", "x|yx?z|yz", "(?:xy)+"])
def test_what_stands_behind_a_match_has_a_fixed_distance(after: str) -> None:
    with pytest.raises(ValueError, match=r"may be the \d\. or the \d\."):
        automaton("a", after=after)


@pytest.mark.parametrize(
    "pattern", ["", "a*", "a?|b", "(a*)+", r"\b", "^", "$", r"a?\b", r"(?:a|\B){3}", "a{0}", "(?#a)"]
)
def test_the_empty_string_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError, match="matches the empty string"):
        automaton(pattern)


@pytest.mark.parametrize("pattern", [r"a\b\Bb|a\b\B", r"\b\B", "(?:)^a", r"[^\s\S]", r"$\b^|a"])
def test_what_is_empty_in_no_context_is_none_of_that(pattern: str) -> None:
    assert automaton(pattern).null == 0


def test_optional_copies_are_linked_one_to_the_next() -> None:
    assert sum(map(len, automaton("xa{0,500}y").follow)) == 500 + 499 + 2
    assert sum(map(len, automaton("x(?:a?b?){0,500}y").follow)) < 20 * 500


@pytest.mark.parametrize(
    "pattern, needed, allowed",
    [
        ("(?:a{100}){1000}", "at least 100000 states", "100 "),
        ("a{60}b{60}", "at least 120 states", "100 "),
        ("(?:(?:a{99}){99}b|c){1000000}", "at least 9801 states", "100 "),
        (f"(?:{'|'.join('abcdefgh' * 6)})*x", "at least 2016 steps", "2000 "),
        # Counted no further than to the first that are too many.
        ("a{99}" * 1000, "at least 198 states", "100 "),
        ("|".join(["(?:b?){99}"] * 900), "at least 198 states", "100 "),
    ],
)
def test_a_budget_is_refused_with_its_numbers(pattern: str, needed: str, allowed: str) -> None:
    with pytest.raises(RegexError) as refused:
        positions(parse(pattern), max_positions=100)
    assert needed in refused.value.reason
    assert f"and {allowed}" in refused.value.reason


def test_a_budget_is_used_up_to_its_last_state() -> None:
    assert len(positions(parse("(?:a{10}b?){9}c"), max_positions=100).sets) == 100


def test_the_deepest_pattern_is_built() -> None:
    deepest = "(?:" * 100 + "a" + "|b?)+" * 100
    with pytest.raises(RegexError, match="empty string"):
        automaton(deepest)
    assert len(automaton(deepest + "c").sets) == 102


def test_repeating_what_has_no_characters_costs_nothing() -> None:
    assert len(automaton(r"(?:(?:\b|^){1000000}){1000000}a").sets) == 1
