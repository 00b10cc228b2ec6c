"""Rollback: where to cut an answer that holds a match, and what to ban there. Pure decisions: no model, no IO.

A match is cut out from the token in which its first byte lies; to ban only the last token of it would bend the answer
towards words that merely begin like the forbidden one. The first time the model draws again at that position, since
another draw from the same distribution is nearest to what the model writes without the word. After that the token
that led into the match is banned there, one more each time. A ban belongs to the text before it: when an earlier
position changes, those of later ones are dropped.

The caller that decodes keeps the `Attempts`; `after_match` returns how to continue, None to stop. A caller that samples
with seeds uses a new one for each of `Attempts.rollbacks`.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Caps:
    """How many rollbacks an answer gets: to one position while the text before it stays, and in all."""

    per_position: int = 8
    per_answer: int = 32


@dataclass(frozen=True, slots=True)
class PositionAttempts:
    """The attempts at a position (the number of tokens before it, without the prompt's)."""

    position: int
    rollbacks: int = 0
    banned: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of rollback so far.

    `at_once`: ban without drawing again, as at temperature 0, where the same token would come. `tried`: by rising
    position, and none beyond the last cut. `rollbacks`: of the whole answer.
    """

    caps: Caps = Caps()
    at_once: bool = False
    tried: tuple[PositionAttempts, ...] = ()
    rollbacks: int = 0

    def banned(self, position: int) -> frozenset[int]:
        """The tokens that must not come at a position."""
        return next((tried.banned for tried in self.tried if tried.position == position), frozenset())

    def after_match(self, position: int, token: int) -> Attempts | None:
        """A match begins in `token`, at `position`: keep the tokens before it and continue with this ledger.
        None: a cap is reached, and the rule's `exhausted` says what happens."""
        return self._cut(position, token, ban=self.at_once)

    def after_dead_end(self, position: int, token: int) -> Attempts | None:
        """Nothing may come after `token`, at `position`: as after a match, but to draw it again would not help."""
        return self._cut(position, token, ban=True)

    def _cut(self, position: int, token: int, ban: bool) -> Attempts | None:
        before = tuple(tried for tried in self.tried if tried.position < position)
        here = next((tried for tried in self.tried if tried.position == position), PositionAttempts(position))
        if here.rollbacks >= self.caps.per_position or self.rollbacks >= self.caps.per_answer:
            return None
        banned = here.banned | {token} if ban or here.rollbacks else here.banned
        return replace(
            self,
            tried=(*before, PositionAttempts(position, here.rollbacks + 1, banned)),
            rollbacks=self.rollbacks + 1,
        )


def token_of(pieces: Sequence[bytes], char: int) -> int:
    """The place in `pieces`, what each token writes, of the one in which the first byte of a character lies.

    `char` counts the code points of the text that the pieces are together, with U+FFFD for what is no UTF-8. Raises
    IndexError if the text is not that long.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    begun = 0  # where the bytes begin that the decoder still keeps
    chars = 0
    for place, piece in enumerate(pieces):
        for byte in piece:
            kept_before = decoder.getstate()[0]
            if not kept_before:
                begun = place
            decoded = len(decoder.decode(bytes([byte])))
            # Two at once: what was kept is no character, and this byte is one by itself.
            if decoded and chars <= char < chars + decoded:
                return begun if char == chars else place
            chars += decoded
            if decoded and decoder.getstate()[0]:
                begun = place  # what was kept is no character, and this byte begins the next
    if decoder.decode(b"", final=True) and char == chars:
        return begun
    raise IndexError(f"character {char} of a text of {chars}")


class TokenOffsets:
    """Tokens in a row, from a place between two characters on: in which of them does a character begin? Bytes that are
    no UTF-8 count as U+FFFD. A token may begin and end inside a character; what is cut off is cut off between two, so
    that what is left is a text by itself."""

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
