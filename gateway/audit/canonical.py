"""Is a sequence of tokens what the tokenizer itself would write, or can it still become that?"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import accumulate

from gateway.audit.law import Model

# What comes later can change how the end of a text is written: a tokenizer looks ahead where it cuts a text into words.
# So the last tokens are not held against a sequence before it is complete.
LOOKAHEAD = 2


class Canonical:
    """Keeps a search to the tokenizer's own encodings. `at_text_start`: the strings begin a text."""

    def __init__(self, model: Model, at_text_start: bool) -> None:
        self._model = model
        self._at_text_start = at_text_start

    def may_become(self, tokens: Sequence[int]) -> bool:
        """Can the tokens be the beginning of the tokenizer's own encoding of some text?"""
        pieces = self._model.vocabulary.pieces(tokens, self._at_text_start)
        # A character of which the last byte is still to come is not looked at.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(pieces))
        whole = len(text.encode())
        settled = sum(end <= whole for end in accumulate(map(len, pieces))) - LOOKAHEAD
        return settled <= 0 or self._encoded(text)[:settled] == list(tokens[:settled])

    def encodes(self, tokens: Sequence[int], text: str) -> bool:
        """Are the tokens the tokenizer's own encoding of the text?"""
        return self._encoded(text) == list(tokens)

    def _encoded(self, text: str) -> list[int]:
        return self._model.encode(text, self._at_text_start)
