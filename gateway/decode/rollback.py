"""Rollback: where to cut an answer that holds a match, and what to ban there. Pure decisions: no model, no IO.

A match is cut out from the token in which its first byte lies; to ban only the last token of it would bend the answer
towards words that merely begin like the forbidden one. The first time the model draws again at that position, since
another draw from the same distribution is nearest to what the model writes without the word. After that the token
that led into the match is banned there, one more each time. A ban belongs to the text before it: when an earlier
position changes, those of later ones are dropped.

The caller that decodes keeps the `Attempts`; `after_match` returns how to go on, None to give up. A caller that samples
with seeds uses a new one for each of `Attempts.rollbacks`.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace


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
