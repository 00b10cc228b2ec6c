"""The tokens of a text and the characters that they write: in which token does a character begin?

A token's bytes may begin and end inside a character. What is cut off a text is cut off between two characters, so that
what is left is a text by itself.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary


class TokenOffsets:
    """Tokens in a row, from a place between two characters on. Bytes that are no UTF-8 count as U+FFFD."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens: list[int] = []
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Before each token, and behind the last: how many characters are complete, and whether none is begun.
        self._chars = [0]
        self._between = [True]

    def add(self, token: int, *, silent: bool = False) -> str:
        """The characters that are complete with one more token; `silent`: it writes nothing here, whatever it is."""
        [piece] = [b""] if silent or not 0 <= token < len(self._vocabulary) else self._vocabulary.pieces([token])
        text = self._decoder.decode(piece)
        self.tokens.append(token)
        self._chars.append(self._chars[-1] + len(text))
        self._between.append(not self._decoder.getstate()[0])
        return text

    def place(self, char: int) -> int:
        """The place of the token in which a character begins; of one before it, if that token begins inside of another
        character. A character that is not complete yet begins in the last tokens, or in one that is still to come."""
        place = bisect_right(self._chars, char) - 1
        while not self._between[place]:
            place -= 1
        return place

    def chars_before(self, place: int) -> int:
        """How many characters the tokens before a place write."""
        return self._chars[place]

    def ends(self, begin: int, end: int) -> list[int]:
        """Where tokens end between two places of the text, in characters, in order, and `end` in any case."""
        first = bisect_right(self._chars, begin)
        inner = self._chars[first : bisect_left(self._chars, end)]
        return [*dict.fromkeys(inner), end]

    def cut(self, place: int) -> None:
        """Leave only the tokens before a place that `place` has given."""
        del self.tokens[place:], self._chars[place + 1 :], self._between[place + 1 :]
        self._decoder.reset()
