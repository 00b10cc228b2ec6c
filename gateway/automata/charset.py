"""Sets of characters as ranges of code points, and the meaning of `\\d`, `\\w`, `\\s` and `(?i)` in Python's `re`.

Code points are 0 to 0x10FFFF, surrogates included: a set says what a pattern names, not what a text may hold.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

LAST = 0x10FFFF
_BLOCK = 256  # code points that are looked at together for having case
_PROPERTY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _=-]{0,99}")


class UnknownProperty(ValueError):
    """No Unicode property has this name."""


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters: sorted inclusive ranges of code points that neither overlap nor touch.

    So two sets are equal exactly when they hold the same characters. `CharSet.of` and `CharSet.within` make one from
    anything.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(chars: str) -> CharSet:
        """The characters of a string."""
        return CharSet.within((ord(char), ord(char)) for char in chars)

    @staticmethod
    def within(ranges: Iterable[tuple[int, int]]) -> CharSet:
        """Inclusive ranges of code points, in any order, overlapping or not."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return CharSet(tuple(merged))

    def __contains__(self, char: str) -> bool:
        code = ord(char)
        at = bisect_right(self.ranges, (code, LAST)) - 1
        return at >= 0 and code <= self.ranges[at][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet.within((*self.ranges, *other.ranges))

    def __invert__(self) -> CharSet:
        """All other code points."""
        lows = [0, *(high + 1 for _, high in self.ranges)]
        highs = [*(low - 1 for low, _ in self.ranges), LAST]
        return CharSet(tuple((low, high) for low, high in zip(lows, highs, strict=True) if low <= high))

    def __and__(self, other: CharSet) -> CharSet:
        few, many = sorted((self.ranges, other.ranges), key=len)
        both: list[tuple[int, int]] = []
        for low, high in few:
            at = max(bisect_right(many, (low, LAST)) - 1, 0)
            while at < len(many) and many[at][0] <= high:
                if many[at][1] >= low:
                    both.append((max(low, many[at][0]), min(high, many[at][1])))
                at += 1
        return CharSet(tuple(both))

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other

    def ignoring_case(self) -> CharSet:
        """With every character also those that `re` matches for it under `(?i)`."""
        mates, cased = _case_mates()
        more: list[tuple[int, int]] = []
        for low, high in self.ranges:
            for code in cased[bisect_left(cased, low) : bisect_right(cased, high)]:
                more += ((mate, mate) for mate in mates[code])
        return CharSet.within((*self.ranges, *more)) if more else self


NONE = CharSet()
ANY = CharSet(((0, LAST),))
# What `re` means by \d, \w and \s. Computed at the first use: looking at every character takes a while.
DIGIT: CharSet
WORD: CharSet
SPACE: CharSet
_CLASSES = {"DIGIT": r"\d+", "WORD": r"\w+", "SPACE": r"\s+"}

if not TYPE_CHECKING:  # a checker would believe in any name

    def __getattr__(name: str) -> CharSet:
        if name not in _CLASSES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        everything = _every_character()
        for each, expression in _CLASSES.items():
            globals()[each] = _runs(found.span() for found in re.finditer(expression, everything))
        return globals()[name]


@lru_cache(1024)
def property_set(name: str) -> CharSet:
    r"""The characters of the Unicode property that `\p{name}` names, by the `regex` package's tables.

    `name` is a general category (`Lu`), a script (`Greek`), a binary property (`Alphabetic`), or `property=value`.
    Raises UnknownProperty.
    """
    import regex  # half a megabyte that only patterns with \p need

    if _PROPERTY_NAME.fullmatch(name) is None:
        raise UnknownProperty
    try:
        expression = regex.compile(rf"\p{{{name}}}+")
    except regex.error:
        raise UnknownProperty from None
    return _runs(found.span() for found in expression.finditer(_every_character()))


def _every_character() -> str:
    """A string in which every code point stands at its own number."""
    return array("I", range(LAST + 1)).tobytes().decode("utf-32", "surrogatepass")


def _runs(spans: Iterable[tuple[int, int]]) -> CharSet:
    """From the spans that a search in `_every_character` found."""
    return CharSet(tuple((start, end - 1) for start, end in spans))


@cache
def _case_mates() -> tuple[dict[int, tuple[int, ...]], list[int]]:
    """For each character that has case, the characters it is equal to under `(?i)`; and these characters in order.

    To `re` two characters are equal whose simple lower-case forms are, and two lower-case forms whose upper-case forms
    are. The simple form of the only character that becomes two, İ, is the first of them.
    """
    upper_mates: dict[str, set[str]] = {}
    lower_mates: dict[str, set[str]] = {}
    everything = _every_character()
    for begin in range(0, LAST + 1, _BLOCK):
        block = everything[begin : begin + _BLOCK]
        if block.lower() == block.upper() == block:
            continue
        for char in block:
            lower = char.lower()[0]
            lower_mates.setdefault(lower, set()).add(char)
            upper_mates.setdefault(lower.upper(), set()).add(lower)
    mates: dict[int, tuple[int, ...]] = {}
    for lowers in upper_mates.values():
        equal = {ord(char) for lower in lowers for char in lower_mates[lower]}
        if len(equal) > 1:
            mates.update((code, tuple(sorted(equal - {code}))) for code in equal)
    return mates, sorted(mates)
