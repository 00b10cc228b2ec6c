"""Sets of characters against Python's own sets, and against `re` for all of Unicode."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.automata import charset
from gateway.automata.charset import ANY, NONE, CharSet, UnknownProperty, property_set

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=6)


@cache
def everything() -> list[str]:
    return [chr(code) for code in range(sys.maxunicode + 1)]


def ranges_of(chars: str) -> tuple[tuple[int, int], ...]:
    """The characters of a class of `re`: where they stand in a text of all there are."""
    return tuple((run.start(), run.end() - 1) for run in re.finditer(f"{chars}+", "".join(everything())))


def within(ranges: list[tuple[int, int]]) -> set[str]:
    return {chr(code) for low, high in ranges for code in range(low, high + 1)}


def chars_of(chars: CharSet) -> set[str]:
    return within(list(chars.ranges))


@given(RANGES, RANGES)
def test_sets_combine_as_sets_do(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    mine, theirs = CharSet.within(left), CharSet.within(right)
    assert chars_of(mine) == within(left)
    assert len(mine) == len(within(left))
    assert bool(mine) == bool(left)
    assert chars_of(mine | theirs) == within(left) | within(right)
    assert chars_of(mine & theirs) == within(left) & within(right)
    assert chars_of(mine - theirs) == within(left) - within(right)
    assert ~~mine == mine
    assert all((chr(code) in mine) == (chr(code) in within(left)) for code in range(40))
    assert CharSet.of("".join(within(left))) == mine
    assert all(high + 1 < low for (_, high), (low, _) in zip(mine.ranges, mine.ranges[1:], strict=False))


def test_the_ends_of_unicode() -> None:
    assert ~NONE == ANY
    assert ~ANY == NONE
    ends = CharSet.of("\0\U0010ffff")
    assert (~ends).ranges == ((1, 0x10FFFE),)
    assert "\0" in ends
    assert "\U0010ffff" in ends
    assert "\ud800" in ANY


@pytest.mark.parametrize(
    "name, belongs",
    [("WORD", lambda char: char.isalnum() or char == "_"), ("DIGIT", str.isdecimal), ("SPACE", str.isspace)],
)
def test_classes_are_those_of_re(name: str, belongs: object) -> None:
    assert callable(belongs)
    chars = getattr(charset, name)
    assert chars_of(chars) == {char for char in everything() if belongs(char)}
    letter = name[0].lower()
    assert chars_of(chars) == set(re.findall(rf"\{letter}", "".join(everything())))
    assert getattr(charset, name) is chars


def test_no_other_name_is_made_up() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'WORDS'"):
        getattr(charset, "WORDS")  # noqa: B009


def test_case_is_ignored_as_re_does_in_all_of_unicode() -> None:
    with_case = [char for char in everything() if {char.lower(), char.upper(), char.casefold()} != {char}]
    text = "".join(with_case)
    for char in with_case:
        assert chars_of(CharSet.of(char).ignoring_case()) == set(re.findall(f"(?i){re.escape(char)}", text)), char
    without = ~CharSet.of(text)
    assert without.ignoring_case() == without


@pytest.mark.parametrize("chars", ["a-z", "A-k", "ı-ſ", "Ā-ž", "Α-ω", "ࠀ-\uffff", "\0-\U0010ffff", "0-9", "K"])
def test_ranges_ignore_case_as_res_classes_do(chars: str) -> None:
    low, high = chars[0], chars[-1]
    ignoring = CharSet.within([(ord(low), ord(high))]).ignoring_case()
    assert ignoring.ranges == ranges_of(f"(?i)[{low}-{high}]")
    assert (~ignoring).ranges == ranges_of(f"(?i)[^{low}-{high}]")
    assert ignoring.ignoring_case() == ignoring


@pytest.mark.parametrize(
    "name, inside, outside",
    [
        ("Lu", "AÉΣЖ", "aé1ß字"),
        ("L", "aΣ字ß", "1_ "),
        ("Nd", "09٣", "a½"),
        ("Greek", "αΩ", "aж"),
        ("Script=Cyrillic", "жЯ", "aα"),
        ("Alphabetic", "aα字", "1-"),
        ("White_Space", " \u00a0\n", "a"),
    ],
)
def test_properties(name: str, inside: str, outside: str) -> None:
    chars = property_set(name)
    assert all(char in chars for char in inside)
    assert not any(char in chars for char in outside)


def test_categories_are_unicodes() -> None:
    """For the Latin blocks: two tables of different versions agree on them."""
    for name in ("Lu", "Ll", "Lm", "Mn", "Nd", "Po", "Sc", "Zs", "Cc"):
        chars = property_set(name)
        assert all((char in chars) == (unicodedata.category(char) == name) for char in map(chr, range(0x250)))


@pytest.mark.parametrize("name", ["", "Foo", "^Lu", "Lu}", "Lu}|.{0,", "L" * 101, "Script=Klingon", "Lu\n", "é"])
def test_unknown_properties(name: str) -> None:
    with pytest.raises(UnknownProperty):
        property_set(name)
