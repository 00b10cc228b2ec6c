"""A vocabulary as a lens sees it: every token's text folded, and sorted so that what begins alike lies together.

Tokens are bytes and may cut a character in two, so a token has up to three parts: a *head* of continuation bytes, which
finish a character begun before; text; and a *tail*, the beginning of a character that is not finished. Tokens without a
head are *plain*: whatever stood before them, they add the same text. They alone are sorted, and tokens that begin with
a given text are then one range. The few others are kept by head.

The order puts characters that no word is made of before all others: the tokens that continue after a text with a right
edge are one range too.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gateway.automata.edges import is_word_char
from gateway.censor.lens import Lens

# Not a character, so that no text has it: what separates the tokens where all their texts are one string.
SEPARATOR = "\ud800"
BROKEN = "\N{REPLACEMENT CHARACTER}"  # what bytes that are no character read as
_LAST = "\U0010ffff"

Flags = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]


class FoldedToken(NamedTuple):
    """A token in its parts: `head`, text and `tail` are all of `data`. `units`: the folded text; `inner`: offsets in it
    where no match may end, because one original character continues there."""

    data: bytes
    units: str
    tail: bytes
    inner: frozenset[int]


class Folds:
    """Characters through a lens, and which of them words are made of; each is computed once."""

    def __init__(self, lens: Lens) -> None:
        self._lens = lens
        self._known: dict[str, str] = {}
        self._atomic: set[str] = set()
        self.in_words = cache(is_word_char)

    def char(self, char: str) -> str:
        text = self._known.get(char)
        if text is None:
            text, atomic, _ = self._lens.fold(char)
            self._known[char] = text
            if atomic and len(text) > 1:
                self._atomic.add(char)
        return text

    def text(self, text: str) -> tuple[str, frozenset[int]]:
        """The folded text, and the offsets in it that lie inside one original character where no match may end."""
        folded = [self.char(char) for char in text]
        if not self._atomic or self._atomic.isdisjoint(text):
            return "".join(folded), frozenset()
        inner: list[int] = []
        at = 0
        for char, units in zip(text, folded, strict=True):
            if char in self._atomic:
                inner += range(at + 1, at + len(units))
            at += len(units)
        return "".join(folded), frozenset(inner)


def decode(data: bytes) -> tuple[str, bytes]:
    """The text of `data` and the unfinished character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]


class FoldedVocabulary:
    """`tokens[i]` are the bytes that token `i` adds to the text; None or nothing for one that adds none.

    `width` is the number of logits of a row, at least as many as there are tokens; ids beyond the tokens are silent.
    `order` are the ids of the plain tokens as they are sorted, `headed` the others by head, `silent` the ids of those
    that add nothing. It is the same for every list of words.
    """

    def __init__(self, tokens: Sequence[bytes | None], lens: Lens, width: int | None = None) -> None:
        self.width = len(tokens) if width is None else width
        if self.width < len(tokens):
            raise ValueError(f"a row of {self.width} logits is too short for a vocabulary of {len(tokens)} tokens")
        self.lens = lens
        self.folds = Folds(lens)
        self.headed: dict[bytes, list[tuple[int, FoldedToken]]] = {}
        self._plain: list[str | None] = [None] * len(tokens)
        self._odd: dict[int, FoldedToken] = {}
        self._split(tokens)
        self._any_inner = any(token.inner for token in self._odd.values())
        silent = [number for number, data in enumerate(tokens) if not data]
        self.silent: Ids = np.array([*silent, *range(len(tokens), self.width)], dtype=np.int64)
        # Ranks that put the characters of no word first.
        units = {unit for units in self._plain if units for unit in units}
        alphabet = sorted(units, key=lambda unit: (self.folds.in_words(unit), unit))
        self._ranks = {ord(unit): chr(rank) for rank, unit in enumerate(alphabet)}
        self._first_in_words = chr(sum(not self.folds.in_words(unit) for unit in alphabet))
        keyed = sorted(
            (units.translate(self._ranks), number) for number, units in enumerate(self._plain) if units is not None
        )
        self._keys = [key for key, _ in keyed]
        self.order: Ids = np.array([number for _, number in keyed], dtype=np.int64)
        self._inner = [
            (place, token.inner)
            for place, number in enumerate(self.order.tolist())
            if (token := self._odd.get(number)) and token.inner
        ]

    def token(self, number: int) -> FoldedToken | str | None:
        """A token's folded text, or its parts where it is more than text; None for one that adds nothing."""
        if not 0 <= number < len(self._plain):
            return None
        return self._plain[number] if number not in self._odd else self._odd[number]

    def _split(self, tokens: Sequence[bytes | None]) -> None:
        for number, data in enumerate(tokens):
            if not data:
                continue
            body = data if data.isascii() else data.lstrip(_CONTINUATION)
            head = data[: len(data) - len(body)]
            text, tail = (body.decode(), b"") if body.isascii() else decode(body)
            units, inner = self.folds.text(text)
            if head or tail or inner:
                token = self._odd[number] = FoldedToken(data, units, tail, inner)
                if head:
                    self.headed.setdefault(head, []).append((number, token))
            if not head:
                self._plain[number] = units

    # -- ranges of `order` ---------------------------------------------------------------------------------------------

    def beginning_with(self, units: str) -> list[tuple[int, int]]:
        """The plain tokens whose text begins with `units`, and whose first match of them ends with a character."""
        key = self._key(units)
        return [] if key is None else self._ending(len(units), *self._between(key, key + _LAST))

    def beginning_with_word(self, units: str, or_ending: bool) -> list[tuple[int, int]]:
        """The plain tokens whose text begins with `units` and continues with a right edge; `or_ending`: or goes no
        further."""
        key = self._key(units)
        if key is None:
            return []
        begin, end = self._between(key, key + self._first_in_words)
        return self._ending(len(units), begin if or_ending else bisect_right(self._keys, key, begin, end), end)

    def _key(self, units: str) -> str | None:
        """How `units` sort; None where no plain token has one of these characters."""
        if any(ord(unit) not in self._ranks for unit in units):
            return None
        return units.translate(self._ranks)

    def _between(self, low: str, high: str) -> tuple[int, int]:
        begin = bisect_left(self._keys, low)
        return begin, bisect_left(self._keys, high, begin)

    def _ending(self, length: int, begin: int, end: int) -> list[tuple[int, int]]:
        """The range without the tokens in which one original character continues after `length` folded ones."""
        ranges: list[tuple[int, int]] = []
        if self._inner:
            for place, inner in self._inner[bisect_left(self._inner, (begin,)) :]:
                if place >= end:
                    break
                if length in inner:
                    ranges.append((begin, place))
                    begin = place + 1
        ranges.append((begin, end))
        return [found for found in ranges if found[0] < found[1]]

    # -- all texts as one ----------------------------------------------------------------------------------------------

    @cached_property
    def joined(self) -> tuple[str, Ids, Ids]:
        """The texts of all tokens, a separator before, between and after them; where each begins; and its id."""
        numbers: list[int] = []
        texts: list[str] = []
        for number in range(len(self._plain)):
            token = self.token(number)
            units = token.units if isinstance(token, FoldedToken) else token
            if units:
                numbers.append(number)
                texts.append(units)
        lengths = np.array([0, *(len(text) + 1 for text in texts)], dtype=np.int64)
        whole = SEPARATOR + SEPARATOR.join(texts) + SEPARATOR
        return whole, np.cumsum(lengths)[:-1] + 1, np.array(numbers, dtype=np.int64)

    def is_inner(self, begin: int, end: int) -> bool:
        """Does a match in the joined texts begin or end inside one original character?"""
        if not self._any_inner:
            return False
        _, starts, numbers = self.joined
        place = int(np.searchsorted(starts, begin, side="right")) - 1
        token = self._odd.get(int(numbers[place]))
        start = int(starts[place])
        return token is not None and (begin - start in token.inner or end - start in token.inner)


_CONTINUATION = bytes(range(0x80, 0xC0))
