"""Guides against the most naive way to know what may come next: all texts, spelled in all ways."""

from __future__ import annotations

import random
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.decode import compiled, guide
from gateway.decode.compiled import CompiledGuide, NotATable, precompile
from gateway.decode.guide import Constraint, DeadLanguage, Guide, NotAllowed, choice, regex, union
from gateway.decode.vocabulary import Vocabulary
from tests.support.examples import examples

FOUR = Vocabulary([b"a", b".", b".2", b"1", None], end=[4])
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
BY_LETTER = Vocabulary([*(letter.encode() for letter in LETTERS), None], end=[len(LETTERS)])
BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), None], end=[256])


def shown(constraint: Constraint[Any], state: Any) -> set[str]:
    """The allowed tokens as text, and the ends as `*`."""
    vocabulary = constraint.vocabulary
    written = (vocabulary.tokens[token] for token in constraint.allowed(state).tolist())
    return {"*" if text is None else text.decode("latin-1") for text in written}


def after(constraint: Constraint[Any], *tokens: bytes) -> Any:
    state = constraint.start()
    for token in tokens:
        state = constraint.advance(state, constraint.vocabulary.tokens.index(token))
    return state


# -- the tables of the seeds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", [lambda lazy: lazy, precompile])
def test_four_tokens_and_a_decimal_number(prepare: Any) -> None:
    number = prepare(Guide(regex(r"[0-9]+\.[0-9]+"), FOUR))
    assert shown(number, number.start()) == {"1"}
    assert shown(number, after(number, b"1")) == {".", ".2", "1"}
    assert shown(number, after(number, b"1", b".")) == {"1"}
    assert shown(number, after(number, b"1", b".2")) == {"1", "*"}


def test_the_machine_of_hot_cold_and_hotel() -> None:
    """States are numbered as they were published: word after word, letter after letter; -1 is the end."""
    words = "hot", "cold", "hotel"
    machine = precompile(Guide(choice(*words), BY_LETTER))
    numbers: dict[int, int] = {machine.start(): 0}
    for word in words:
        state = machine.start()
        for letter in word:
            state = machine.advance(state, LETTERS.index(letter))
            numbers.setdefault(state, len(numbers))
    table = {}
    for state, number in numbers.items():
        for token in machine.allowed(state).tolist():
            target = machine.advance(state, token)
            table[number, (LETTERS + "*")[token]] = -1 if target == compiled.ENDED else numbers[target]
    # The published trie has a state for each word's end; those that only the end follows are one state here.
    published = {
        (0, "h"): 1, (1, "o"): 2, (2, "t"): 3, (3, "*"): -1, (0, "c"): 4, (4, "o"): 5, (5, "l"): 6, (6, "d"): 7,
        (7, "*"): -1, (3, "e"): 8, (8, "l"): 9, (9, "*"): -1,
    }  # fmt: skip
    assert table == published


# -- against brute force -----------------------------------------------------------------------------------------------


class Oracle:
    """All texts of a language, and all ways to spell them in a vocabulary's tokens."""

    def __init__(self, texts: set[bytes], vocabulary: Vocabulary) -> None:
        self.texts = texts
        self.tokens = [(token, text) for token, text in enumerate(vocabulary.tokens) if text]
        self.ends = set(vocabulary.end)
        self.completed = cache(self._completed)

    def _completed(self, text: bytes) -> bool:
        if text in self.texts:
            return True
        if not any(each.startswith(text) for each in self.texts):
            return False
        return any(self.completed(text + more) for _, more in self.tokens)

    def allowed(self, text: bytes) -> set[int]:
        ends = self.ends if text in self.texts else set()
        return ends | {token for token, more in self.tokens if self.completed(text + more)}


def agrees(constraint: Constraint[Any], oracle: Oracle, depth: int) -> int:
    """Compare after every sequence of allowed tokens up to a length; returns how many were compared."""
    compared = 0
    waiting: list[tuple[Any, bytes, int]] = [(constraint.start(), b"", 0)]
    while waiting:
        state, text, length = waiting.pop()
        allowed = constraint.allowed(state)
        assert allowed.dtype == np.int32 and allowed.tolist() == sorted(allowed.tolist())
        assert set(allowed.tolist()) == oracle.allowed(text), text
        assert constraint.accepting(state) == (text in oracle.texts)
        compared += 1
        for token, more in oracle.tokens:
            if token not in allowed:
                with pytest.raises(NotAllowed, match=f"token {token} may not come here"):
                    constraint.advance(state, token)
            elif length < depth:
                waiting.append((constraint.advance(state, token), text + more, length + 1))
    return compared


WORDS = st.text("ab", min_size=1, max_size=5)


@settings(max_examples=examples(150), deadline=None)
@given(st.sets(WORDS, min_size=1, max_size=5), st.lists(st.text("ab", max_size=3), max_size=5))
def test_choices_in_vocabularies_that_cannot_spell_everything(options: set[str], tokens: list[str]) -> None:
    vocabulary = Vocabulary([*(token.encode() for token in tokens), None, None], end=[len(tokens)])
    oracle = Oracle({option.encode() for option in options}, vocabulary)
    if not oracle.completed(b""):
        with pytest.raises(DeadLanguage, match="no sequence of this vocabulary's tokens"):
            Guide(choice(*options), vocabulary)
        return
    lazy = Guide(choice(*options), vocabulary)
    agrees(lazy, oracle, depth=5)
    agrees(precompile(lazy), oracle, depth=5)


@pytest.mark.parametrize(
    "pattern, alphabet, tokens",
    [
        (r"(?:ab|ba){1,3}a?", "ab", ["a", "ab", "ba", "aba", "bb"]),
        (r"a+b{2,3}|b.*a", "ab", ["aa", "bb", "ba", "abb"]),
        (r"[0-2]+\.[0-2]+", "012.", ["1", "2", ".2", "0.", ".", "01"]),
        (r"\b\w+ \w+\b|!\B.", "a !", ["a", " ", "a ", " a", "!", "!!", "aa"]),
        (r"(?i)été?|[^a-z]", "éÉtT!", ["é", "É", "t", "té", "T", "!", "tÉ"]),
    ],
)
def test_patterns(pattern: str, alphabet: str, tokens: list[str]) -> None:
    """The texts are long enough to complete whatever three tokens begin."""
    longest = 12 if len(alphabet) == 2 else 8
    texts = ("".join(chars) for length in range(1, longest + 1) for chars in product(alphabet, repeat=length))
    matching = {text.encode() for text in texts if re.fullmatch(pattern, text)}
    vocabulary = Vocabulary([*(token.encode() for token in tokens), None], end=[len(tokens)])
    assert agrees(Guide(regex(pattern), vocabulary), Oracle(matching, vocabulary), depth=2) > 5


def test_tokens_may_cut_characters_anywhere() -> None:
    words = ["é", "日本", "日", "😀é"]
    whole = "".join(words).encode()
    cuts = {whole[begin:end] for begin in range(len(whole)) for end in range(begin + 1, begin + 4)}
    vocabulary = Vocabulary([*sorted(cuts), None], end=[len(cuts)])
    assert agrees(Guide(choice(*words), vocabulary), Oracle({word.encode() for word in words}, vocabulary), 8) > 20


def test_a_byte_that_no_character_has_is_never_allowed() -> None:
    anything = Guide(regex("(?s).+"), BYTES)
    state = anything.start()
    for byte, allowed in (
        (0xE2, range(0x80, 0xC0)),
        (0x82, range(0x80, 0xC0)),
        (0xAC, [*range(0x80), *range(0xC2, 0xF5), 256]),
    ):
        state = anything.advance(state, byte)
        assert anything.allowed(state).tolist() == [*allowed]


def test_what_tokens_cannot_spell_is_a_dead_end_and_not_entered() -> None:
    vocabulary = Vocabulary([b"h", b"o", b"t", b"e", b"ot", None], end=[5])
    hotels = Guide(choice("hot", "hotel", "cold"), vocabulary)  # there is no l, c or d
    assert shown(hotels, hotels.start()) == {"h"}
    assert shown(hotels, after(hotels, b"h", b"ot")) == {"*"}


# -- ends, spaces, unions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", [lambda lazy: lazy, precompile])
def test_every_end_of_text_is_allowed_where_the_text_may_end_and_nothing_after_it(prepare: Any) -> None:
    vocabulary = Vocabulary([b"a", None, None, None], end=[3, 1])
    constraint = prepare(Guide(regex("a{2,3}"), vocabulary))
    state = after(constraint, b"a", b"a")
    assert constraint.allowed(state).tolist() == [0, 1, 3]
    ended = constraint.advance(state, 3)
    assert constraint.allowed(ended).tolist() == []
    assert not constraint.accepting(ended)
    for token in range(4):
        with pytest.raises(NotAllowed):
            constraint.advance(ended, token)
    with pytest.raises(NotAllowed):
        constraint.advance(after(constraint, b"a"), 1)


@pytest.mark.parametrize("prepare", [lambda lazy: lazy, precompile])
def test_a_text_that_loses_its_first_space_is_spelled_with_it(prepare: Any) -> None:
    tokens = [b" hot", b"hot", b" ", b"el", b"  hot", None]
    vocabulary = Vocabulary(tokens, end=[5], strips_first_space=True)
    begins = prepare(Guide(choice("hot", "hotel", " hot"), vocabulary, at_text_start=True))
    assert shown(begins, begins.start()) == {" hot", "hot", " ", "  hot"}
    assert shown(begins, after(begins, b" ")) == {" hot", "hot", " "}
    assert shown(begins, after(begins, b" hot")) == {"el", "*"}
    assert shown(begins, after(begins, b"  hot")) == {"*"}
    goes_on = prepare(Guide(choice("hot", "hotel", " hot"), vocabulary))
    assert shown(goes_on, goes_on.start()) == {" hot", "hot", " "}
    assert shown(goes_on, after(goes_on, b" hot")) == {"*"}


def test_a_union_takes_patterns_and_options() -> None:
    either = Guide(union(["[0-9]{2}"], ["no", "none"]), BYTES)
    assert shown(either, either.start()) == {*"0123456789n"}
    assert shown(either, after(either, b"4", b"2")) == {"*"}
    assert shown(either, after(either, b"n", b"o")) == {"n", "*"}


def test_states_that_mean_the_same_are_equal() -> None:
    numbers = Guide(regex("[0-9]+"), BYTES)
    one, other = after(numbers, b"1"), after(numbers, b"2", b"3")
    assert one == other and hash(one) == hash(other)
    assert one != numbers.start() and one != "1"


def test_full_caches_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "MAX_CACHED_TOKENS", 4)
    monkeypatch.setattr(guide, "MAX_ROWS", 3)
    monkeypatch.setattr(guide, "MAX_SEARCHED", 8)
    options = {f"{word}{number}" for word in ("ab", "b") for number in (1, 2)}
    vocabulary = Vocabulary([b"a", b"b", b"1", b"2", b"b2", None], end=[5])
    constraint = Guide(choice(*options), vocabulary)
    for _ in range(3):
        agrees(constraint, Oracle({option.encode() for option in options}, vocabulary), depth=4)
    letters = Vocabulary([b"a", b"aa", None], end=[2])
    oracle = Oracle({b"a" * length for length in range(1, 31)}, letters)
    agrees(Guide(regex("a{1,30}"), letters), oracle, depth=12)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "MAX_SEARCHED", 50)
    vocabulary = Vocabulary([b"aa", None], end=[1])
    with pytest.raises(DeadLanguage, match="too many to look at all"):
        Guide(regex("a{1001}"), vocabulary)


def test_long_ways_are_found_by_bytes() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"ab", None], end=[3])
    constraint = Guide(regex("[ab]{4000}c|[ab]{4000}"), vocabulary)
    assert shown(constraint, constraint.start()) == {"a", "b", "ab"}


@pytest.mark.parametrize("prepare", [lambda lazy: lazy, precompile])
@pytest.mark.parametrize(
    ("language", "first"),
    [
        (regex(r"([0-9]*)?\.?[0-9]*"), {"1", ".", ".2", "*"}),
        (regex("^$|1"), {"1", "*"}),
        (choice("1", ""), {"1", "*"}),
        (regex("a{0}"), {"*"}),
        (choice(""), {"*"}),
    ],
)
def test_e11_a_language_may_have_the_empty_text(prepare: Any, language: Any, first: set[str]) -> None:
    constraint = prepare(Guide(language, FOUR))
    begin = constraint.start()
    assert constraint.accepting(begin) and shown(constraint, begin) == first
    ended = constraint.advance(begin, FOUR.end[0])
    assert not constraint.accepting(ended) and shown(constraint, ended) == set()


def test_languages_and_vocabularies_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="no token that ends a text"):
        Guide(choice("a"), Vocabulary([b"a"]))
    with pytest.raises(ValueError, match="surrogates not allowed"):
        choice("\ud83d")
    with pytest.raises(ValueError, match="at least one pattern or option"):
        union([], [])


# -- tables ------------------------------------------------------------------------------------------------------------


def test_tables_are_saved_and_loaded(tmp_path: Path) -> None:
    made = precompile(Guide(regex("(?:ab?){1,4}"), BYTES))
    made.save(tmp_path / "guide.npz")
    loaded = compiled.load(tmp_path / "guide.npz", BYTES)
    for name in ("offsets", "tokens", "targets", "accepting"):
        assert np.array_equal(getattr(loaded.tables, name), getattr(made.tables, name))
    assert shown(loaded, after(loaded, b"a")) == {"a", "b", "*"}


def test_files_that_are_no_tables_of_this_vocabulary_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "guide.npz"
    precompile(Guide(choice("a"), BYTES)).save(file)
    with pytest.raises(NotATable, match=r"guide.npz: made for another vocabulary: precompile it for this one"):
        compiled.load(file, FOUR)
    for content in (b"", b"no table", file.read_bytes()[:100]):
        file.write_bytes(content)
        with pytest.raises(NotATable, match=r"guide.npz: not a compiled guide"):
            compiled.load(file, BYTES)
    np.savez(file, offsets=np.zeros(1))
    with pytest.raises(NotATable, match="not a compiled guide"):
        compiled.load(file, BYTES)


def test_too_many_states_for_tables() -> None:
    with pytest.raises(ValueError, match="more than 5 states or 20000000 transitions"):
        precompile(Guide(regex("a{6}"), BYTES), max_states=5)
    with pytest.raises(ValueError, match="more than 10000 states or 9 transitions"):
        precompile(Guide(regex("[a-z]{2}"), BYTES), max_transitions=9)


def test_tables_and_guide_are_one_language() -> None:
    lazy = Guide(regex(r"[a-c]+(?:, [a-c]+)*|\d{2}-\d{2}"), BYTES)
    tables: CompiledGuide = precompile(lazy)
    for seed in range(50):
        draw = random.Random(seed)
        state, number = lazy.start(), tables.start()
        for _ in range(12):
            allowed = lazy.allowed(state)
            assert np.array_equal(allowed, tables.allowed(number))
            if not len(allowed):
                break
            token = draw.choice(allowed.tolist())
            state, number = lazy.advance(state, token), tables.advance(number, token)
