"""The machine of many words against the most naive way to find them, and against pyahocorasick's own search."""

from __future__ import annotations

from typing import Any

import ahocorasick
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata.edges import is_word_char
from gateway.automata.literals import Folded, Literal, LiteralKind, LiteralMachine
from gateway.automata.trie import sorted_words
from tests.support.examples import examples

pytestmark = pytest.mark.usefixtures("steps")

# A lens that fits in the head: capitals are small letters, `-` is invisible, `&` is two letters, `@` is two that
# belong together.
FOLDS = {"-": Folded(""), "&": Folded("ab"), "@": Folded("ab", atomic=True)}
Occurrence = tuple[int, int, int]  # folded start and end, tag


def fold(char: str) -> Folded:
    return FOLDS.get(char, Folded(char.lower()))


def machine_for(literals: list[Literal], max_transitions: int = 100_000) -> LiteralMachine:
    words: dict[str, tuple[LiteralKind, ...]] = {}
    for text, kind in literals:
        words[text] = (*words.get(text, ()), kind)
    return LiteralMachine(words, fold, max_transitions)


def literal(text: str, tag: int, **kind: Any) -> Literal:
    return Literal(text, LiteralKind(tag, **kind))


def plain(*words: str) -> list[Literal]:
    return [literal(word, tag) for tag, word in enumerate(words)]


def whole(*words: str) -> list[Literal]:
    return [literal(word, tag, left=True, right=True) for tag, word in enumerate(words)]


def found(machine: LiteralMachine, text: str) -> list[Occurrence]:
    """The occurrences that are certain within `text` and, with the end as an edge, those pending there."""
    state, length, occurrences = machine.start(), 0, []
    for char in text:
        state = machine.step(state, char)
        length += 1 if state.arrival is None else state.arrival.width
        for literal, back in state.arrival.found if state.arrival else ():
            occurrences.append((length - back - len(literal.text), length - back, literal.kind.tag))
    occurrences += [(length - back - len(word.text), length - back, word.kind.tag) for word, back in state.pending]
    return sorted(occurrences)


def folded(text: str) -> tuple[str, set[int]]:
    """The folded text, and the folded positions inside an atomic expansion, where no word may end."""
    out, inside = "", set()
    for char in text:
        piece, atomic, _ = fold(char)
        if atomic:
            inside |= set(range(len(out) + 1, len(out) + len(piece)))
        out += piece
    return out, inside


def joined(beside: str) -> bool:
    """Does a word character stand there, `_` looked through?"""
    other = beside.lstrip("_")
    return other != "" and is_word_char(other[0])


def is_joined_behind(rest: str) -> bool:
    """Of a run of `_` behind a word, the fourth is an edge."""
    return not rest.startswith("____") and joined(rest)


def may_wait(rest: str) -> bool:
    return len(rest) <= 3 and rest == "_" * len(rest)


def naive(literals: list[Literal], text: str) -> list[Occurrence]:
    seen, inside = folded(text)
    occurrences = []
    for literal in literals:
        for start in range(len(seen)):
            end = start + len(literal.text)
            if seen[start:end] != literal.text or end in inside:
                continue
            if literal.kind.left and joined(seen[:start][::-1]):
                continue
            if literal.kind.right and is_joined_behind(seen[end:]):
                continue
            occurrences.append((start, end, literal.kind.tag))
    return sorted(occurrences)


def naive_live(literals: list[Literal], text: str) -> list[int]:
    """Lengths of the suffixes that may become a word that holds, or are one that waits for its right edge."""
    seen, inside = folded(text)
    lengths = []
    for start in range(len(seen)):
        rest = seen[start:]
        for literal in literals:
            edge = not (literal.kind.left and joined(seen[:start][::-1]))
            end = start + len(literal.text)
            waits = rest.startswith(literal.text) and literal.kind.right and may_wait(seen[end:]) and end not in inside
            begins = rest != literal.text and literal.text.startswith(rest)
            if literal.kind.holds and edge and (waits or begins):
                lengths.append(len(rest))
                break
    return lengths


ALPHABET = "abAB_ .-&@"
words = st.text("ab_ .", min_size=1, max_size=4)
some_literals = st.lists(
    st.builds(literal, words, tag=st.integers(0, 3), left=st.booleans(), right=st.booleans(), holds=st.booleans()),
    min_size=1,
    max_size=5,
    unique=True,
)
texts = st.text(ALPHABET, max_size=20)


@settings(max_examples=examples(600), deadline=None)
@given(some_literals, texts)
def test_the_machine_finds_what_a_naive_search_finds(literals: list[Literal], text: str) -> None:
    assert found(machine_for(literals), text) == naive(literals, text)


@settings(max_examples=examples(400), deadline=None)
@given(some_literals, texts)
def test_exactly_the_suffixes_that_can_still_matter_are_live(literals: list[Literal], text: str) -> None:
    machine = machine_for(literals)
    state = machine.start()
    for read, char in enumerate(text, start=1):
        state = machine.step(state, char)
        lengths = naive_live(literals, text[:read])
        assert list(machine.live_lengths(state)) == lengths
        assert machine.live(state) == max(lengths, default=0)
        assert list(machine.live_lengths(state, at_most=2)) == [length for length in lengths if length <= 2]


@settings(max_examples=examples(300), deadline=None)
@given(some_literals, st.lists(texts, min_size=1, max_size=4), st.integers(1, 5))
def test_a_cache_that_is_emptied_again_and_again_changes_nothing(
    literals: list[Literal], streams: list[str], max_transitions: int
) -> None:
    # Streams share the machine and take turns, so each meets a cache that the others have emptied.
    small, large = machine_for(literals, max_transitions), machine_for(literals)
    states = [(small.start(), large.start()) for _ in streams]
    for at in range(max(map(len, streams))):
        for number, text in enumerate(streams):
            if at < len(text):
                one, other = (
                    machine.step(state, text[at]) for machine, state in zip((small, large), states[number], strict=True)
                )
                assert (one.node, one.left, one.pending, one.arrival) == (
                    other.node,
                    other.left,
                    other.pending,
                    other.arrival,
                )
                assert small.live(one) == large.live(other)
                states[number] = (one, other)


@settings(max_examples=examples(300), deadline=None)
@given(st.sets(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=8), st.text("abc", max_size=40))
def test_plain_words_are_found_where_pyahocorasick_finds_them(words: set[str], text: str) -> None:
    automaton = ahocorasick.Automaton()
    for word in words:
        automaton.add_word(word, word)
    automaton.make_automaton()
    theirs = sorted((last + 1 - len(word), last + 1, word) for last, word in automaton.iter(text))
    chosen = sorted(words)
    ours = sorted((start, end, chosen[tag]) for start, end, tag in found(machine_for(plain(*chosen)), text))
    assert ours == theirs


@settings(max_examples=examples(600), deadline=None)
@given(some_literals, st.lists(st.text(ALPHABET, max_size=6), max_size=8), st.integers(1, 40))
def test_a_walk_ends_where_the_steps_end_and_stops_at_what_is_remarkable(
    literals: list[Literal], pieces: list[str], max_transitions: int
) -> None:
    walked, stepped = machine_for(literals, max_transitions), machine_for(literals)
    one, other, text = walked.start(), stepped.start(), ""
    for piece in pieces:
        remarkable = blocked = False
        waited = bool(other.pending)
        for char in piece:
            text += char
            other = stepped.step(other, char)
            remarkable = remarkable or other.arrival is not None or bool(other.pending)
            blocked = blocked or any(folded(text)[0].endswith(literal.text) for literal in literals)
        end = walked.walk(one, piece)
        if end is None:
            assert remarkable or waited or blocked
            for char in piece:
                one = walked.step(one, char)
        else:
            assert not remarkable
            one = end
        assert (one.node, one.left, one.pending) == (other.node, other.left, other.pending)
        assert walked.live(one) == stepped.live(other)


def test_cached_transitions_are_bounded() -> None:
    machine = machine_for(plain("ab"), max_transitions=3)
    first = machine.start()
    state = first
    for char in "abcdefgh":
        state = machine.step(state, char)
    assert len(first) <= 3
    assert len(machine._states) <= 4


def test_a_transition_is_worked_out_once() -> None:
    machine = machine_for(plain("ab"))
    state = machine.start()
    assert machine.step(state, "a") is machine.step(state, "a") is state["a"]
    assert machine.step(state, "x") is machine.step(state, "y")


def test_whole_words_wait_for_their_right_edge() -> None:
    machine = machine_for(whole("cat"))
    state = machine.start()
    for char in "cat":
        state = machine.step(state, char)
    assert state.arrival is None
    assert [(literal.text, back) for literal, back in state.pending] == [("cat", 0)]
    assert machine.live(state) == 3
    # An invisible character is no edge, and none is decided by it.
    assert machine.step(state, "-").pending == state.pending
    for edge in ". \n€":
        after = machine.step(state, edge)
        assert after.arrival is not None
        assert [(literal.text, back) for literal, back in after.arrival.found] == [("cat", 1)]
        assert after.pending == ()
    for letter in "s9é\u0301":
        after = machine.step(state, letter)
        assert after.arrival is None
        assert machine.live(after) == 0
    for waited in range(1, 4):
        state = machine.step(state, "_")
        assert machine.live(state) == machine.length(state) == 3 + waited
        assert [(literal.text, back) for literal, back in state.pending] == [("cat", waited)]
        assert machine.step(state, "s").pending == ()
    after = machine.step(state, "_")
    assert after.arrival is not None
    assert [(literal.text, back) for literal, back in after.arrival.found] == [("cat", 4)]


def test_a_word_character_before_a_whole_word_undoes_it() -> None:
    machine = machine_for(whole("cat"))
    for before, count in [
        ("", 1),
        (".", 1),
        ("a", 0),
        ("_", 1),
        ("a_", 0),
        ("._", 1),
        ("ca", 0),
        ("cat.", 2),
        ("é", 0),
    ]:
        assert len(found(machine, f"{before}cat")) == count


def test_words_with_one_edge() -> None:
    machine = machine_for([literal("c++", 0, left=True), literal("++c", 1, right=True)])
    assert found(machine, "c++c") == [(0, 3, 0), (1, 4, 1)]
    assert found(machine, "ac++ca") == []


def test_words_that_do_not_hold_are_found_and_keep_nothing_live() -> None:
    machine = machine_for([literal("flag", 0, holds=False), literal("fl", 1)])
    state = machine.step(machine.start(), "f")
    assert machine.live(state) == 1
    state = machine.step(state, "l")
    assert machine.live(state) == 0
    assert found(machine, "flag") == [(0, 2, 1), (0, 4, 0)]


def test_beginnings_are_the_words_that_guard_the_end() -> None:
    machine = machine_for([literal("secret", 0, guard=3), literal("red", 1, guard=2), literal("retro", 2, guard=9)])

    def beginnings(text: str) -> list[tuple[str, int]]:
        state = machine.start()
        for char in text:
            state = machine.step(state, char)
        return sorted((literal.text, length) for literal, length in machine.beginnings(state))

    assert beginnings("se") == []
    assert beginnings("sec") == [("secret", 3)]
    assert beginnings("secre") == [("red", 2), ("secret", 5)]
    assert beginnings("secret") == []


def test_a_whole_word_guards_the_end_only_from_an_edge() -> None:
    machine = machine_for([literal("cats", 0, left=True, guard=2)])
    for text, count in [("ca", 1), (" ca", 1), ("aca", 0)]:
        state = machine.start()
        for char in text:
            state = machine.step(state, char)
        assert len(list(machine.beginnings(state))) == count


def test_wanted_names_the_rules_that_hold_the_text() -> None:
    machine = machine_for([literal("abc", 2), literal("abd", 1), literal("abe", 0, holds=False)])
    state = machine.step(machine.step(machine.start(), "a"), "b")
    assert list(machine.wanted(state, 1)) == [(2, {1, 2})]
    assert list(machine.wanted(state, 2)) == []


def test_one_word_may_belong_to_several_rules() -> None:
    machine = machine_for([*plain("abc", "de"), literal("abc", 7)])
    assert machine.longest == 3
    assert found(machine, "abc") == [(0, 3, 0), (0, 3, 7)]


@pytest.mark.parametrize("literals", [[], [literal("", 0)], [literal("a", 0), literal("", 1)]])
def test_no_word_and_an_empty_word_are_refused(literals: list[Literal]) -> None:
    with pytest.raises(ValueError, match="at least one word, and no empty one"):
        machine_for(literals)


@pytest.mark.parametrize(
    ("char", "is_one"), [*((char, True) for char in "aß9_é\u0301ⅷ"), *((c, False) for c in " .+-€\u200b字가²ₙ\u20e3")]
)
def test_word_characters(char: str, is_one: bool) -> None:
    assert is_word_char(char) == is_one


@given(st.sets(st.text("ab\u00e9\U0001f600", min_size=1, max_size=5), max_size=30))
def test_words_sorted_by_their_beginnings_are_in_order(words: set[str]) -> None:
    assert sorted_words(words) == sorted(words)
