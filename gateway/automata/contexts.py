"""The characters on both sides of a place in a text, and edges as sets of such contexts.

On either side of a place stands one of four kinds: the edge of the text, a word character (`\\w`), a line break, or any
other character. A context is a pair of them, numbered `KINDS` x left + right, and a set of contexts is a mask of 16
bits. Only `^` and `$` under `(?m)` tell a line break from other characters; without them, a line break counts
as `OTHER`, so that there are no needless states.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gateway.automata import charset
from gateway.automata.charset import CharSet

EDGE, OTHER, WORD_CHAR, LINE_END = range(4)
KINDS = 4
ALL_RIGHTS = 0b1111

ALL = 0xFFFF
TEXT_START = 0x000F
TEXT_END = 0x1111
LINE_START_EDGE = 0xF00F
LINE_END_EDGE = 0x9999
WORD_EDGE = 0x4B44
NO_WORD_EDGE = ALL - WORD_EDGE

_LINE_ENDS = CharSet.of("\n")


def sees_lines(masks: Iterable[int]) -> bool:
    """Does one of the masks distinguish a line break from other characters?"""
    return any(
        (mask >> OTHER ^ mask >> LINE_END) & 0x1111 or _rights(mask, OTHER) != _rights(mask, LINE_END) for mask in masks
    )


def _rights(mask: int, left: int) -> int:
    return mask >> KINDS * left & ALL_RIGHTS


@lru_cache(2)
def kinds_of_characters(lines: bool) -> tuple[tuple[int, CharSet], ...]:
    """Every kind that a character can have, with the characters; line breaks apart or not."""
    others = ~charset.WORD
    if not lines:
        return (OTHER, others), (WORD_CHAR, charset.WORD)
    return (OTHER, others - _LINE_ENDS), (WORD_CHAR, charset.WORD), (LINE_END, _LINE_ENDS)


@lru_cache(1024)
def by_kind(chars: CharSet, lines: bool) -> dict[int, CharSet]:
    """The characters of a set by their kind, without kinds that none of them has; not to be changed."""
    return {kind: some for kind, every in kinds_of_characters(lines) if (some := chars & every)}
