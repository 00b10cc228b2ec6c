"""Canonical tokenizations: whether tokens are the tokenizer's own encoding of a text, or can still become it."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import accumulate

from gateway.audit.model import LanguageModel

# What comes later can change how the end of a text is written: a tokenizer looks ahead where it cuts a text into words.
# So the last tokens are not held against a sequence before it is complete.
LOOKAHEAD = 2


class Canonical:
    """Keeps a search to the tokenizer's own encodings. `at_text_start`: the strings begin a text."""

    def __init__(self, model: LanguageModel, at_text_start: bool) -> None:
        self._model = model
        self._at_text_start = at_text_start

    def may_become_canonical(self, tokens: Sequence[int]) -> bool:
        """Can the tokens be the beginning of the tokenizer's own encoding of some text?"""
        pieces = self._model.vocabulary.pieces(tokens, self._at_text_start)
        text = _complete_text(pieces)
        fixed = sum(end <= len(text.encode()) for end in accumulate(map(len, pieces))) - LOOKAHEAD
        if fixed <= 0:
            return True
        begun = list(tokens[:fixed])
        encoded = self._encoded(text)
        if encoded[:fixed] == begun:
            return True
        # Some tokenizers take a word that is a token without looking at their merges (`ignore_merges`: Llama 3's). It
        # says nothing of longer words, and what stands before its last token does.
        *before, _ = encoded
        return before == begun[: len(before)] and self._encoded(_complete_text(pieces[:-1]))[:fixed] == begun

    def is_canonical(self, tokens: Sequence[int], text: str) -> bool:
        """Are the tokens the tokenizer's own encoding of the text?"""
        return self._encoded(text) == list(tokens)

    def _encoded(self, text: str) -> list[int]:
        return self._model.encode(text, self._at_text_start)


def _complete_text(pieces: Sequence[bytes]) -> str:
    """The text of the tokens, without an incomplete last character."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(pieces))
