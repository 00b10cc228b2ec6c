"""Automata against Python's `re`, sets of strings, and graphs searched in the most naive way."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.audit.language import automaton
from gateway.audit.language.automaton import (
    AutomatonTooLarge,
    Regex,
    intersection,
    literal,
    materialized,
    reachable_states,
    walk,
)
from gateway.automata.bytes import ByteAutomaton
from gateway.automata.liveness import Liveness
from gateway.automata.positions import positions
from gateway.automata.regex import RegexError, parse
from tests.support.examples import examples
from tests.support.expressions import Expression, expressions, matches, texts
from tests.support.languages import accepts, every_state_is_live, language, strings, words_of

MIXED = "a é字😀"


@settings(max_examples=examples(150), deadline=None)
@given(expressions(MIXED))
@example(Expression("", ""))
@example(Expression(r"a*\b|é?", r"a*\b|é?"))
@example(Expression("(^a?$)*", r"(^a?\Z)*"))
def test_whole_texts_are_accepted_as_by_re_the_empty_one_too(expression: Expression) -> None:
    regex = Regex(expression.ours)
    for text in texts(MIXED, 3):
        if not text and r"\B" in expression.ours:
            continue  # there re says otherwise of it before Python 3.14
        assert accepts(regex, text.encode()) == matches(expression.pythons, False, text, 0, len(text)), text


@pytest.mark.parametrize(
    ("pattern", "empty"),
    [("a*", True), ("^$", True), (r"\B", True), (r"\b", False), (r"\ba*", False), ("a?b?|c", True), ("a|", True)],
)
def test_the_empty_text_belongs_where_re_says_so(pattern: str, empty: bool) -> None:
    if pattern != r"\B":
        assert (re.fullmatch(pattern, "") is not None) == empty
    regex = Regex(pattern)
    assert regex.accepting(regex.start) == empty


def test_only_the_empty_text_is_a_language_too() -> None:
    assert strings(Regex("")) == strings(literal("")) == {""}


@pytest.mark.parametrize("pattern", [r"[^\s\S]", "a$b", r"a\bb", r"[\ud800-\udfff]+", r"\b"])
def test_an_empty_language_is_dead_from_the_start(pattern: str) -> None:
    regex = Regex(pattern)
    assert regex.start == 0 and not regex.live(0) and not regex.accepting(0)
    assert list(regex.arcs(0)) == [] and regex.step(0, 0x61) == 0


def test_patterns_that_the_gateway_refuses_are_refused() -> None:
    with pytest.raises(RegexError, match="look-around is not supported"):
        Regex("a(?=b)")


@settings(max_examples=examples(50), deadline=None)
@given(expressions(MIXED))
def test_arcs_are_the_steps_of_the_automaton_over_bytes(expression: Expression) -> None:
    bytewise = ByteAutomaton([positions(parse(expression.ours), may_be_empty=True)])
    regex = Regex(expression.ours)
    waiting = [(regex.start, bytewise.start())]
    met: set[int] = set()
    while waiting and len(met) < 30:
        state, theirs = waiting.pop()
        assert regex.accepting(state) == bytewise.accepting(theirs) and bool(state) == bytewise.live(theirs)
        if state in met:
            continue
        met.add(state)
        arcs = list(regex.arcs(state))
        assert arcs == sorted(arcs) and all(low <= high for low, high, _ in arcs)
        by_byte = {byte: target for low, high, target in arcs for byte in range(low, high + 1)}
        assert sum(high - low + 1 for low, high, _ in arcs) == len(by_byte)
        for byte in range(256):
            target = regex.step(state, byte)
            assert target == by_byte.get(byte, 0)
            waiting.append((target, bytewise.step(theirs, byte)))


def test_literals() -> None:
    for text in ("", "a", "été", "a\n字😀"):
        assert strings(literal(text)) == {text}
    assert walk(literal("ab"), literal("ab").start, b"abc") == 0
    with pytest.raises(UnicodeEncodeError):
        literal("\ud800")


@settings(max_examples=examples(100), deadline=None)
@given(words_of("aé😀"), words_of("aé😀"))
def test_both_have_what_is_in_each(one: frozenset[str], other: frozenset[str]) -> None:
    automaton = intersection(language(one), language(other))
    assert strings(automaton) == one & other
    assert every_state_is_live(automaton)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 11), max_size=3), min_size=12, max_size=12),
    st.frozensets(st.integers(1, 11), max_size=3),
    st.lists(st.integers(0, 11), min_size=1, max_size=6),
)
@example([[], [2], [3, 4], [1], [5], [], [], [], [], [], [], []], frozenset({5}), [3, 1])
@example([[], [2], [1, 3], [2, 4], [], [], [], [], [], [], [], []], frozenset(), [2, 1])
def test_a_state_is_live_exactly_if_an_end_is_reached(
    graph: list[list[int]], ends: frozenset[int], asked: list[int]
) -> None:
    """State 0 is dead whatever the graph says."""
    looked_at: list[int] = []

    def targets(state: int) -> list[int]:
        looked_at.append(state)
        return graph[state]

    live = Liveness(0, targets, ends.__contains__)
    for state in asked:
        seen, waiting = {state}, [state] if state else []
        while waiting:
            more = {target for target in graph[waiting.pop()] if target} - seen
            seen |= more
            waiting += more
        assert live(state) == bool((seen - {0}) & ends)
    assert len(looked_at) == len(set(looked_at))


def test_a_long_chain_takes_no_recursion() -> None:
    assert intersection(Regex("a{5000}b"), Regex("a*b")).start
    assert not intersection(Regex("a{5000}b"), Regex("a*c")).start


@settings(max_examples=examples(50), deadline=None)
@given(expressions("ab"))
@example(Expression("(?:ab|ba){1,3}a?", ""))
def test_what_is_worked_out_is_the_same_language(expression: Expression) -> None:
    regex = Regex(expression.ours)
    try:
        states = reachable_states(regex, 500)
    except AutomatonTooLarge:
        assume(False)
    table = materialized(regex, len(states))
    for text in texts("ab\n", 4):
        assert accepts(table, text.encode()) == accepts(regex, text.encode())
    if len(states) > 1:
        with pytest.raises(AutomatonTooLarge, match=f"more than {len(states) - 1} states"):
            materialized(regex, len(states) - 1)


def test_states_and_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_STATES", 1000)
    hostile = Regex("[ab]*a[ab]{20}")
    with pytest.raises(AutomatonTooLarge, match="more than 1,000 states: ask for fewer edits, count less"):
        reachable_states(hostile, 10_000)
    monkeypatch.setattr(automaton, "MAX_STATES", 1_000_000)
    monkeypatch.setattr(automaton, "MAX_ENTRIES", 5000)
    with pytest.raises(AutomatonTooLarge, match=r"first [0-9,]+ states need more than 5,000 entries"):
        reachable_states(Regex("[ab]*a[ab]{20}"), 10_000)
