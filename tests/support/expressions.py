"""Random expressions, and what Python's `re` says about them: the oracle for all that is built from a pattern."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st

from gateway.automata.positions import Positions, Region

START, END, NONWORD, WORD, LINE_END = 0, 0, 1, 2, 3


class Expression(NamedTuple):
    """The same language in both notations: in `re`, `$` also matches before a line break that ends the text."""

    ours: str
    pythons: str


def expressions(alphabet: str, portable: bool = False) -> st.SearchStrategy[Expression]:
    """Expressions over some characters, without flags for the whole.

    `portable` ones use only what libraries for regular expressions agree on, and match no NUL.
    """
    chars = st.sampled_from(alphabet)
    literal = chars.map(re.escape).map(_both)
    members = st.lists(chars, min_size=1, max_size=3).map(lambda chosen: "".join(map(re.escape, chosen)))
    heads_of_classes = st.sampled_from(["[", r"[^\x00" if portable else "[^"])
    classes = st.tuples(heads_of_classes, members).map(lambda parts: _both("".join(parts) + "]"))
    ends = st.tuples(chars, chars).map(sorted)
    ranges = ends.map(lambda pair: _both(f"[{re.escape(pair[0])}-{re.escape(pair[1])}]"))
    atoms = literal | literal | classes | ranges | st.just(_both(r"[^\n\x00]" if portable else "."))
    if not portable:
        atoms |= st.sampled_from(_ESCAPES)
    quantifiers = st.sampled_from(_PORTABLE_QUANTIFIERS if portable else _QUANTIFIERS)
    quantified = st.tuples(atoms, quantifiers).map(_joined)
    base = atoms | quantified | (st.just(_both("")) if portable else st.sampled_from(_ENDS))
    heads = st.sampled_from(_PORTABLE_GROUPS if portable else _GROUPS)
    return st.recursive(base, lambda parts: _larger(parts, heads, quantifiers), max_leaves=8)


def _both(text: str) -> Expression:
    return Expression(text, text)


def _joined(parts: tuple[Expression, ...] | list[Expression]) -> Expression:
    return Expression("".join(part.ours for part in parts), "".join(part.pythons for part in parts))


_ESCAPES = [*map(_both, (r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[\W\d]", r"[^\w\n]"))]
_ENDS = [
    Expression("$", r"\Z"),
    Expression(r"\z", r"\Z"),
    *map(_both, (r"\b", r"\B", "^", r"\A", r"\Z", "", "(?m:^)", "(?m:$)")),
]
_PORTABLE_QUANTIFIERS = [*map(_both, ("*", "+", "?", "{2}", "{1,2}", "{1,}", "{0}", "{2,3}"))]
_QUANTIFIERS = [*_PORTABLE_QUANTIFIERS, _both("{,2}")]
_PORTABLE_GROUPS = [*map(_both, ("(", "(?:"))]
_GROUPS = [*_PORTABLE_GROUPS, *map(_both, ("(?i:", "(?-i:", "(?s:", "(?#c)(?:"))]


def _larger(
    parts: st.SearchStrategy[Expression],
    heads: st.SearchStrategy[Expression],
    quantifiers: st.SearchStrategy[Expression],
) -> st.SearchStrategy[Expression]:
    close, bar = _both(")"), _both("|")
    sequence = st.lists(parts, min_size=2, max_size=3).map(_joined)
    choice = st.tuples(heads, parts, st.just(bar), parts, st.just(close)).map(_joined)
    group = st.tuples(heads, parts, st.just(close), quantifiers | st.just(_both(""))).map(_joined)
    return sequence | choice | group


def texts(alphabet: str, longest: int) -> Iterator[str]:
    """All strings over the alphabet, the empty one too."""
    for length in range(longest + 1):
        yield from map("".join, product(alphabet, repeat=length))


def matches(pythons: str, ignore_case: bool, text: str, start: int, end: int) -> bool:
    """Does `re` match exactly this part of the text, seeing what stands around it?"""
    return _pinned(pythons, ignore_case, len(text) - end).match(text, start) is not None


@lru_cache(10_000)
def _pinned(pythons: str, ignore_case: bool, behind: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # a class that might mean something else one day
        return re.compile(rf"(?:{pythons})(?=(?s:.){{{behind}}}\Z)", re.IGNORECASE if ignore_case else 0)


def spans(positions: Positions, text: str) -> set[tuple[int, int]]:
    """Every match's start and end, by following every way there is, one character after the other."""
    found: set[tuple[int, int]] = set()
    for begin in range(len(text)):
        ways: set[tuple[int, int, int]] = {(-1, -1, -1)}  # position, start and end of its span, -1 for not yet
        for at in range(begin, len(text)):
            ways = {
                way
                for position, start, end in ways
                for target, mask in (positions.first if position < 0 else positions.follow[position]).items()
                if mask & context(text, at) and text[at] in positions.sets[target]
                for way in [_arrived(positions, target, start, end, at)]
            }
            for position, start, end in ways:
                if positions.last.get(position, 0) & context(text, at + 1):
                    found.add((start, at + 1 if end < 0 else end))
    return found


def _arrived(positions: Positions, target: int, start: int, end: int, at: int) -> tuple[int, int, int]:
    region = positions.region[target]
    if region is not Region.BEFORE and start < 0:
        start = at
    if region is Region.AFTER and end < 0:
        end = at
    return target, start, end


def context(text: str, at: int) -> int:
    """The context between the characters `at - 1` and `at`, as a mask."""
    left = _kind(text[at - 1]) if at else START
    right = _kind(text[at]) if at < len(text) else END
    return 1 << (4 * left + right)


def _kind(char: str) -> int:
    return WORD if char.isalnum() or char == "_" else LINE_END if char == "\n" else NONWORD
