"""Preprocessors against what they mean, string by string."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import product
from math import comb

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.audit.language import automaton, prefix_language
from gateway.audit.language.automaton import AutomatonTooLarge, Dfa, Regex, intersection, literal
from gateway.audit.language.count import cardinality
from gateway.audit.language.prefix_language import changed_before, changed_behind, matching_prefixes, with_prefix
from gateway.audit.language.preprocess import edits, synonyms, without_matches, without_words
from gateway.automata.charset import ANY, CharSet
from gateway.automata.regex import RegexError
from tests.support.examples import examples
from tests.support.expressions import texts
from tests.support.languages import (
    Words,
    accepts,
    distance,
    edited,
    edits_in,
    every_state_is_live,
    holds,
    language,
    replaced,
    strings,
    without,
    words_of,
)

# -- edits -------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(words_of("abé", 3, 3), st.integers(0, 2), st.sampled_from(["ab", "b", "é", "é😀", "xéy"]))
@example(frozenset({""}), 2, "a")
@example(frozenset({"é😀", "éé"}), 2, "é😁")
def test_edits_are_the_neighbourhood(words: Words, most: int, alphabet: str) -> None:
    automaton = edits(language(words), most, CharSet.of(alphabet))
    found = strings(automaton)
    assert found == edited(words, most, alphabet)
    assert cardinality(automaton) == len(found)
    assert every_state_is_live(automaton)


@settings(max_examples=examples(30), deadline=None)
@given(words_of("ab", 4, 2), st.integers(1, 3))
def test_edits_are_the_strings_at_a_distance(words: Words, most: int) -> None:
    found = strings(edits(language(words), most, CharSet.of("ab")))
    longest = max(map(len, words)) + most
    assert found == {text for text in texts("ab", longest) if any(distance(word, text, "ab") <= most for word in words)}


@settings(max_examples=examples(40), deadline=None)
@given(words_of("abé", 3, 3), st.integers(0, 2), st.integers(0, 2))
def test_edits_chain(words: Words, one: int, other: int) -> None:
    """One after the other they are as many at once: with different alphabets, too, they mean what they mean."""
    twice = edits(edits(language(words), one, CharSet.of("aé")), other, CharSet.of("aé"))
    assert strings(twice) == strings(edits(language(words), one + other, CharSet.of("aé")))
    mixed = edits(edits(language(words), one, CharSet.of("a")), min(other, 1), CharSet.of("é"))
    assert strings(mixed) == edited(edited(words, one, "a"), min(other, 1), "é")


@settings(max_examples=examples(100), deadline=None)
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20))
def test_the_strings_at_one_edit_are_as_many_as_counted_by_hand(word: str) -> None:
    length, letters = len(word), 95
    runs = sum(1 for at in range(length) if at == 0 or word[at] != word[at - 1])
    insertions = (length + 1) * letters - length
    assert cardinality(edits(literal(word), 1)) == 1 + runs + length * (letters - 1) + insertions


@pytest.mark.parametrize(("word", "most"), [("abc", 1), ("aaaa", 2), ("My number is", 2), ("", 3), ("zyzzy", 3)])
def test_the_strings_that_hold_a_word_do_not_depend_on_it(word: str, most: int) -> None:
    """Of the strings that are `most` longer, those at `most` edits are those that hold the word as a subsequence
    (Levenshtein 1966): sum of C(n + k, i) (q - 1)^i over i to k, with q letters."""
    longer = edits(literal(word), most)
    length = len(word) + most
    expected = sum(comb(length, i) * 94**i for i in range(most + 1))
    assert cardinality(intersection(longer, Regex(f"[ -~]{{{length}}}"))) == expected


@pytest.mark.parametrize("pattern", ["a*", "(?:ab)+", "a+b?|b+", "(?:é|a)*b", "a.a|b"])
@pytest.mark.parametrize("most", [1, 2])
def test_languages_without_end_are_edited(pattern: str, most: int) -> None:
    """A string of the language that is near is not longer than the text and the edits together."""
    automaton = edits(Regex(pattern), most, CharSet.of("ab"))
    inside = [text for text in texts("abé", 4 + most) if re.fullmatch(pattern, text)]
    for text in texts("abé", 4):
        near = any(abs(len(each) - len(text)) <= most and distance(each, text, "ab") <= most for each in inside)
        assert accepts(automaton, text.encode()) == near, text


def test_any_character_can_be_written_in() -> None:
    automaton = edits(literal("é"), 1, ANY)
    scalars = 0x110000 - 0x800
    assert cardinality(automaton) == 1 + 1 + (scalars - 1) + (2 * scalars - 1)
    assert accepts(automaton, "字é".encode()) and not accepts(automaton, b"\xc3\x28")


def test_an_alphabet_of_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="the alphabet has no character that a text can hold"):
        edits(literal("a"), 1, CharSet(((0xD800, 0xDFFF),)))


def test_no_edits_and_no_language() -> None:
    assert strings(edits(literal("ab"), 0)) == {"ab"}
    assert edits(Regex("a$b"), 2).start == 0


# -- filters -----------------------------------------------------------------------------------------------------------

UNWANTED = st.frozensets(st.sampled_from(["a", "ab", "a b", "é", "+", "a+", "_", "字", "ba", "e\u0301"]), min_size=1)


@settings(max_examples=examples(50), deadline=None)
@given(words_of("ab é+_字\u0301", 5, 6), UNWANTED, words_of("ab é", 2, 3) | st.none())
@example(frozenset({"cab", "ca b", "b"}), frozenset({"ab", "b"}), frozenset({"c", "ca"}))
@example(frozenset({"字a", "a字", "a字b"}), frozenset({"字"}), None)
def test_words_are_taken_out(words: Words, unwanted: Words, prefixes: Words | None) -> None:
    prefix = None if prefixes is None else language(prefixes)
    automaton = without_words(language(words), unwanted, prefix)
    assert strings(automaton) == without(words, lambda text: holds(text, unwanted), prefixes or [""])
    assert every_state_is_live(automaton)


PATTERNS = [
    "a",
    "ab?a",
    r"\bab",
    r"b\b",
    r"a\Bb",
    "^a",
    "b$",
    "(?i)A.",
    r"\w\W\w",
    r"^\w+$",
    "é|字a",
    r"a\b.|b",
    r"x$y",
]


@settings(max_examples=examples(50), deadline=None)
@given(words_of("ab é字", 5, 6), st.sampled_from(PATTERNS), words_of("ab é", 2, 3) | st.none())
def test_matches_are_taken_out(words: Words, pattern: str, prefixes: Words | None) -> None:
    prefix = None if prefixes is None else language(prefixes)
    automaton = without_matches(language(words), pattern, prefix)
    searched = re.compile(pattern.replace("$", r"\Z"))
    expected = without(words, lambda text: searched.search(text) is not None, prefixes or [""])
    assert strings(automaton) == expected
    assert every_state_is_live(automaton)


def test_a_language_without_end_is_filtered() -> None:
    automaton = without_words(Regex("[ab ]*"), ["a", "bb"])
    for text in texts("ab ", 6):
        assert accepts(automaton, text.encode()) == (not holds(text, ["a", "bb"])), text
    assert not without_matches(Regex("a+"), "a").start


@pytest.mark.parametrize("word", ["", "a" * 101])
def test_words_are_not_empty_and_not_too_long(word: str) -> None:
    with pytest.raises(ValueError, match=f"a word has {len(word)} characters, and 1 to 100 are allowed"):
        without_words(literal("a"), [word])
    with pytest.raises(ValueError, match="1 to 100 are allowed"):
        synonyms(literal("a"), {"a": [word]})


def test_words_that_begin_each_other_nest_as_deep_as_they_may() -> None:
    words = ["a" * length for length in range(1, 101)]
    automaton = without_words(Regex("a{1,150}"), words)
    assert strings(automaton, 150) == {"a" * length for length in range(101, 151)}


def test_a_pattern_that_every_text_matches_is_refused() -> None:
    with pytest.raises(RegexError, match="the pattern matches the empty string"):
        without_matches(literal("a"), "b*")


# -- synonyms ----------------------------------------------------------------------------------------------------------

OTHERS = st.dictionaries(
    st.sampled_from(["a", "ab", "a b", "é", "+", "a+", "字", "b"]),
    st.lists(st.sampled_from(["x", "xy", "a", "é", "ab", "+"]), min_size=1, max_size=2),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(80), deadline=None)
@given(words_of("ab é+字\u0301", 5, 5), OTHERS)
@example(frozenset({"woman and man, man"}), {"man": ["guy", "fellow"]})
@example(frozenset({"a+a", "++", "a b"}), {"a": ["x"], "+": ["y"], "a b": ["z"]})
def test_synonyms_may_stand_for_whole_words(words: Words, others: dict[str, list[str]]) -> None:
    automaton = synonyms(language(words), others)
    found = strings(automaton)
    assert found == replaced(words, others)
    assert cardinality(automaton) == len(found)
    assert every_state_is_live(automaton)


def test_synonyms_in_a_language_without_end() -> None:
    automaton = synonyms(Regex("(?:man |woman )*"), {"man": ["guy"]})
    for parts_of_it in product(["man ", "woman ", "guy ", "woguy "], repeat=3):
        text = "".join(parts_of_it)
        assert accepts(automaton, text.encode()) == ("woguy" not in text)


# -- prefixes ----------------------------------------------------------------------------------------------------------

DOUBLED = {"a": ["x", "aa"]}
CHANGES: dict[str, tuple[Callable[[Dfa], Dfa], Callable[[Iterable[str]], Words]]] = {
    "edits": (edits_in("ab", 1), lambda words: edited(words, 1, "ab")),
    "synonyms": (lambda automaton: synonyms(automaton, DOUBLED), lambda words: replaced(words, DOUBLED)),
    "without": (
        lambda automaton: without_matches(automaton, "ab"),
        lambda words: without(words, lambda text: "ab" in text),
    ),
    "even": (
        lambda automaton: intersection(automaton, Regex("(?s)(?:..)*")),
        lambda words: frozenset(word for word in words if len(word) % 2 == 0),
    ),
}


def split(words: Words, prefixes: Words) -> list[tuple[str, str]]:
    """Prefixes and what comes behind them."""
    return [(prefix, word.removeprefix(prefix)) for word in words for prefix in prefixes if word.startswith(prefix)]


@settings(max_examples=examples(100), deadline=None)
@given(words_of("abé", 4, 5), words_of("abé", 2, 3))
def test_the_strings_that_begin_with_a_prefix_and_the_prefixes(words: Words, prefixes: Words) -> None:
    whole, prefix = language(words), language(prefixes)
    assert strings(with_prefix(whole, prefix)) == {before + behind for before, behind in split(words, prefixes)}
    assert strings(matching_prefixes(whole, prefix)) == {before for before, _ in split(words, prefixes)}
    assert every_state_is_live(with_prefix(whole, prefix)) and every_state_is_live(matching_prefixes(whole, prefix))


@pytest.mark.parametrize("name", CHANGES)
@settings(max_examples=examples(40), deadline=None)
@given(words_of("ab é", 4, 5), words_of("ab", 2, 3))
def test_what_stands_before_or_behind_is_changed_alone(name: str, words: Words, prefixes: Words) -> None:
    change, meaning = CHANGES[name]
    whole, prefix = language(words), language(prefixes)
    behind = changed_behind(whole, prefix, change)
    before = changed_before(whole, prefix, change)
    pairs = split(words, prefixes)
    assert strings(behind) == {first + other for first, rest in pairs for other in meaning([rest])}
    assert strings(before) == {other + rest for first, rest in pairs for other in meaning([first])}
    assert every_state_is_live(behind) and every_state_is_live(before)


@pytest.mark.parametrize("name", ["edits", "synonyms"])
def test_prefixes_without_end(name: str) -> None:
    """What a short text comes from is not much longer."""
    change, meaning = CHANGES[name]
    whole, prefix = Regex("(?:ab )+(?:x|a{2})"), Regex("(?:ab )+")
    prefixes = frozenset("ab " * count for count in range(1, 5))
    pairs = split(frozenset(first + rest for first in prefixes for rest in ("x", "aa")), prefixes)
    behind = {first + other for first, rest in pairs for other in meaning([rest])}
    before = {other + rest for first, rest in pairs for other in meaning([first])}
    changed = changed_behind(whole, prefix, change), changed_before(whole, prefix, change)
    for text in texts("abx ", 6):
        assert accepts(changed[0], text.encode()) == (text in behind), text
        assert accepts(changed[1], text.encode()) == (text in before), text


def test_prefixes_followed_in_too_many_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_language, "MAX_REMAINDERS", 3)
    whole, prefix = Regex("a{0,9}b{9}"), Regex("a*")
    reason = "what follows the prefix differs in more than 3 ways, and each is changed apart: use a narrower prefix"
    with pytest.raises(AutomatonTooLarge, match=reason):
        changed_before(whole, prefix, edits_in("z", 1))
    with pytest.raises(AutomatonTooLarge, match=reason):
        cardinality(changed_behind(whole, prefix, edits_in("z", 1)))


# -- one after the other -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), list(product(CHANGES, repeat=2)))
@settings(max_examples=examples(15), deadline=None)
@given(words_of("ab é", 4, 3))
def test_preprocessors_in_every_order_of_two(one: str, other: str, words: Words) -> None:
    automaton = CHANGES[other][0](CHANGES[one][0](language(words)))
    found = strings(automaton)
    assert found == CHANGES[other][1](CHANGES[one][1](words))
    assert cardinality(automaton) == len(found)


def test_hostile_languages_are_refused_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_ENTRIES", 50_000)
    for hostile in (
        edits(Regex("|".join(f"{number * number}" for number in range(1000))), 2),
        edits(Regex("(?:[ab]{0,9}a[ab]{9}){3}"), 2),
        without_matches(Regex("[ab]{1,99}"), "a[ab]{30}b"),
    ):
        with pytest.raises(AutomatonTooLarge, match="50,000 entries"):
            cardinality(hostile)
