"""How long matches can be and whether one can begin where another ends, against what `re` says of all short texts."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata.analysis import longest, reopens
from gateway.automata.positions import Positions, positions
from gateway.automata.regex import RegexError, parse
from tests.support.examples import examples


def of(pattern: str) -> Positions:
    return positions(parse(pattern))


LENGTHS = {
    "a": 1,
    "ab|c": 2,
    "a{3,7}b?": 8,
    "(a|bcd){2}e": 7,
    "a+": None,
    "(ab)*c": None,
    "a{4}|b": 4,
    # What makes a match certain counts, be it a character or the end.
    r"foo\b": 4,
    "foo$": 4,
    r"(?i)\bPROJ-\d{1,6}\b": 12,
    r"foo\b|foobar": 6,
    # The edge is known as soon as the last character is.
    r"\bfoo": 3,
    "^foo": 3,
    # No text can do this.
    r"a\bb": 0,
    r"(a|-)\b[ab]": 2,
    r"(a\b)+b": 0,
    r"-(a\bb)*": 1,
}


@pytest.mark.parametrize(("pattern", "length"), LENGTHS.items())
def test_longest(pattern: str, length: int | None) -> None:
    assert longest(of(pattern)) == length


def test_context_is_no_part_of_a_match() -> None:
    assert longest(positions(parse("ab"), before=parse("^|-+"), after=parse("$|[^ab]"))) == 3
    assert longest(positions(parse("ab"), before=parse("^|-+"))) == 2
    assert longest(positions(parse("a+"), before=parse("-"))) is None


REOPENING = [
    '"[^"]*"',
    '"[^"]+"',
    r'"(\\.|[^"\\])*"',
    '"[^"]{0,100}"',
    '"[^"]{20,60}"',
    "'''[^']*'''",
    r"\*\*[^*]+\*\*",
    "['\"][^'\"]*['\"]",
    "[A-Z]{2}[0-9]+[A-Z]{2}",
    "#[0-9]+#|x",
    r"\B\"[^\"]*\"",
]
NOT_REOPENING = [
    "<[^>]+>",
    r"\d+",
    "abca",  # nothing in it is free to become longer
    r"a\d{4}a",
    r"\d{4}-\d\d",
    "[a-z0-9][a-z0-9.]*@[a-z]+[.][a-z]{2}",  # an end like a beginning, but no delimiter
    r"/\*[^*]*\*/",
    r"\|.*\|",  # two matches that are joined are one
    r"\bAB\d+AB\b",  # the digits behind AB leave no edge there
    "x",
]


@pytest.mark.parametrize("pattern", REOPENING)
def test_reopening(pattern: str) -> None:
    assert reopens(of(pattern))


@pytest.mark.parametrize("pattern", NOT_REOPENING)
def test_not_reopening(pattern: str) -> None:
    assert not reopens(of(pattern))


def test_large_patterns_end_soon() -> None:
    words = "|".join(f"w{number:03}rd" for number in range(900))
    assert not reopens(of(rf"({words})\d+"))
    assert longest(of(rf"({words})\d")) == 7
    assert reopens(of('"[^"]{0,3000}"'))
    assert longest(of('"[^"]{0,3000}"')) == 3002


ATOMS = st.sampled_from(["a", "b", "-", "[ab]", "[^a]", r"\b", r"\B"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: f"({'|'.join(options)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)
TEXTS = ["".join(text) for length in range(1, 7) for text in itertools.product("ab-", repeat=length)]


@settings(max_examples=examples(150), deadline=None)
@given(PATTERNS)
def test_no_match_is_longer(pattern: str) -> None:
    try:
        length = longest(of(pattern))
    except RegexError:
        return
    # A match of the whole text has an edge on both sides; one within a text needs another character for it.
    matched = [len(text) for text in TEXTS if re.fullmatch(pattern, text)]
    assert length is None or max(matched, default=0) <= length
    if length is not None and length <= 5 and "\\" not in pattern:
        assert max(matched, default=0) == length


@settings(max_examples=examples(150), deadline=None)
@given(PATTERNS)
def test_what_reopens_joins_two_matches_that_are_none_together(pattern: str) -> None:
    try:
        if "\\" in pattern or not reopens(of(pattern)):
            return
    except RegexError:
        return
    expression = re.compile(pattern)
    matches = [text for text in TEXTS if expression.fullmatch(text)]
    assert any(
        one.endswith(two[:shared]) and not expression.fullmatch(one + two[shared:])
        for one, two in itertools.product(matches, repeat=2)
        for shared in range(1, min(len(one), len(two)))
    )
