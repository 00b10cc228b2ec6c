"""Where strings were edited, against the table of all distances."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.language import aligned
from gateway.audit.language.aligned import edited_at
from gateway.audit.language.automaton import Regex
from tests.support.languages import language, levenshtein, words_of

ALPHABET = "abé😀"


@given(words_of(ALPHABET), st.text(ALPHABET, max_size=5), st.integers(0, 4))
def test_there_are_as_many_edits_as_the_distance(words: frozenset[str], text: str, most: int) -> None:
    nearest = min(levenshtein(text, word) for word in words)
    places = edited_at(language(words), text, most)
    if nearest > most:
        assert places is None
    else:
        assert places is not None and len(places) == nearest
        assert list(places) == sorted(places)
        assert all(0 <= place <= len(text) for place in places)


@given(words_of(ALPHABET, longest=6, most=1), st.text(ALPHABET, max_size=6))
def test_what_stands_between_edits_is_the_words(words: frozenset[str], text: str) -> None:
    """The pieces of the text between its edits come in the word, in that order."""
    places = edited_at(language(words), text, 99)
    assert places is not None
    (word,) = words
    at, begin = 0, 0
    for place in (*places, len(text)):
        piece = text[begin:place]
        at = word.find(piece, at)
        assert at >= 0
        at += len(piece)
        begin = place + 1 if begin <= place else begin


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("The dog", ()),
        ("The cat", ()),
        ("Thee dog", (3,)),  # which of the two was put in, nobody can tell
        ("The dg", (5,)),
        ("Tha dog", (2,)),
        ("tha dog", (0, 2)),
        ("The d\U0001f600g", (5,)),
        ("xyz dog", None),
    ],
)
def test_where_a_string_was_edited(text: str, places: tuple[int, ...] | None) -> None:
    assert edited_at(Regex("The (?:dog|cat)"), text, 2) == places


def test_an_endless_language() -> None:
    assert edited_at(Regex("[a-c]*x"), "abcabcabc", 1) == (8,)


def test_it_gives_up_where_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "MAX_MET", 10)
    assert edited_at(Regex("[a-z]{20}"), "a" * 19, 2) is None


def test_of_no_language_nothing_is_near() -> None:
    assert edited_at(Regex("a[^\\x00-\\U0010ffff]"), "a", 3) is None
