"""Languages × vocabularies against tokens read byte by byte."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.audit.language import product
from gateway.audit.language.automaton import AutomatonTooLarge, Dfa, Regex, literal, reachable_states, walk
from gateway.audit.language.preprocess import edits
from gateway.audit.language.product import TokenArcs
from gateway.automata.vocabulary import Vocabulary
from gateway.decode import guide
from tests.support.examples import examples
from tests.support.expressions import Expression, expressions
from tests.support.languages import language, words_of

BYTES = [bytes([byte]) for byte in range(256)]


def read(arcs: TokenArcs, state: int, at_text_start: bool = False) -> dict[int, int]:
    tokens, targets = arcs.arcs(state, at_text_start)
    assert tokens.dtype == np.int32 and targets.dtype == np.int64 and tokens.shape == targets.shape
    assert len(set(tokens.tolist())) == len(tokens)
    for array in (tokens, targets):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    return dict(zip(tokens.tolist(), targets.tolist(), strict=True))


def expected(automaton: Dfa, vocabulary: Vocabulary, state: int) -> dict[int, int]:
    """Token by token, those left out behind which no tokens lead to an end."""

    @cache
    def completed(state: int, depth: int) -> bool:
        if automaton.accepting(state):
            return True
        return depth > 0 and any(
            completed(target, depth - 1) for target in {walk(automaton, state, text) for text in written.values()} - {0}
        )

    written = {token: text for token, text in enumerate(vocabulary.tokens) if text}
    found = {token: walk(automaton, state, text) for token, text in written.items()}
    return {token: target for token, target in found.items() if target and completed(target, 30)}


@settings(max_examples=examples(80), deadline=None)
@given(
    expressions("abé"),
    st.lists(st.binary(min_size=1, max_size=3) | st.text("abé", max_size=3).map(str.encode), max_size=12),
)
@example(Expression("(?:ab|é)*a?", ""), [b"a", b"ab", b"aba", b"\xc3", b"\xa9", b"\xa9a", "éa".encode(), b""])
def test_tokens_are_read_as_their_bytes(expression: Expression, tokens: list[bytes]) -> None:
    regex = Regex(expression.ours)
    vocabulary = Vocabulary([*BYTES, *tokens, None, b"ab"], end=[256 + len(tokens)])
    assert vocabulary.spells_all
    arcs = TokenArcs(regex, vocabulary)
    try:
        states = reachable_states(regex, 200)
    except AutomatonTooLarge:
        assume(False)
    for state in states[:15]:
        assert read(arcs, state) == expected(regex, vocabulary, state)
        assert arcs.live(state)
    assert read(arcs, 0) == {} and not arcs.live(0)


@settings(max_examples=examples(150), deadline=None)
@given(words_of("abé", 5, 5), st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b"\xc3", b"\xa9", b"\xa9b", b"abb"])))
@example(frozenset({"abab", "abb"}), [b"ab"])
def test_what_tokens_cannot_complete_is_left_out(words: frozenset[str], tokens: list[bytes]) -> None:
    vocabulary = Vocabulary([*tokens, None], end=[len(tokens)])
    automaton = language(words)
    arcs = TokenArcs(automaton, vocabulary)
    for state in reachable_states(automaton, 100):
        found = expected(automaton, vocabulary, state)
        assert read(arcs, state) == found
        assert arcs.live(state) == (bool(found) or automaton.accepting(state))


def test_cycles_that_tokens_never_leave_are_left_out() -> None:
    regex = Regex("a*b|c")
    arcs = TokenArcs(regex, Vocabulary([b"a", b"aa", b"c", None], end=[3]))
    assert set(read(arcs, regex.start)) == {2}
    assert not arcs.live(regex.step(regex.start, ord("a")))


def test_the_end_is_allowed_exactly_where_the_language_accepts() -> None:
    """It is no token of the arcs; whoever walks asks the automaton."""
    vocabulary = Vocabulary([*BYTES, b"end", None], end=[256, 257])
    arcs = TokenArcs(Regex("a|ab|end"), vocabulary)
    found = read(arcs, arcs.automaton.start)
    assert set(found) == {ord("a"), ord("e")}
    assert arcs.automaton.accepting(found[ord("a")]) and not arcs.automaton.accepting(found[ord("e")])


def test_a_text_loses_its_first_space_where_the_vocabulary_strips_it() -> None:
    tokens = [b" hot", b"hot", b" ", b"  hot", None]
    strips = TokenArcs(literal("hot"), Vocabulary([*BYTES, *tokens], end=[260], strips_first_space=True))
    start = strips.automaton.start
    assert set(read(strips, start, at_text_start=True)) == {256, 257, 258, ord("h"), ord(" ")}
    assert read(strips, start, at_text_start=True)[258] == start
    assert set(read(strips, start)) == {257, ord("h")}
    keeps = TokenArcs(literal("hot"), Vocabulary([*BYTES, *tokens], end=[260]))
    assert set(read(keeps, start, at_text_start=True)) == {257, ord("h")}


@pytest.mark.parametrize("bounds", [(0, 0), (3, 5), (16, 100)])
def test_small_caches_change_nothing(bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    automaton = edits(Regex("[0-9]{3}(?:é|ab)"), 1)
    vocabulary = Vocabulary([*BYTES, b"00", b"12", b"1a", "é1".encode(), b"\xa9 ", b"abc", None], end=[262])
    plain = TokenArcs(automaton, vocabulary)
    states = reachable_states(automaton, 10_000)
    found = {state: read(plain, state) for state in states}
    monkeypatch.setattr(guide, "MAX_ROWS", bounds[0])
    monkeypatch.setattr(product, "MAX_CACHED", bounds[1])
    small = TokenArcs(automaton, vocabulary)
    for state in [*states, *states[::-1], *states[::7]]:
        assert read(small, state) == found[state]


def test_what_was_worked_out_is_kept() -> None:
    arcs = TokenArcs(Regex("a*"), Vocabulary([*BYTES, None], end=[256]))
    assert arcs.arcs(arcs.automaton.start)[0] is arcs.arcs(arcs.automaton.start)[0]
