"""A model that knows some texts by heart, in a vocabulary small enough to follow by hand."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

import numpy as np

from gateway.audit.model import Floats, FullVocabulary, Messages
from gateway.automata.vocabulary import Vocabulary
from tests.support.naive_search import vocabulary_of

WORDS = ("My", " number", " is", " 555", "12", "MON", "KEYS", " password", "It")
VOCABULARY = vocabulary_of(*WORDS, *string.printable[:95], "é", "\n")
END = VOCABULARY.end[0]
FORGOTTEN = 1e-7  # the share of everything else


class Memory(FullVocabulary):
    """`texts`: what it knows, prompts included, and how often it says each. A token is as likely as the texts that go
    on with it; the longer of two that do is the likelier. At its end a text ends."""

    def __init__(self, texts: Mapping[str, float], vocabulary: Vocabulary = VOCABULARY) -> None:
        self.vocabulary = vocabulary
        self._texts = {text.encode(): share for text, share in texts.items()}
        self.calls = 0

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        self.calls += 1
        return np.array([self._row(b"".join(self.vocabulary.pieces(prefix))) for prefix in prefixes])

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        """The longest token that fits, again and again."""
        rest, found = text.encode(), []
        while rest:
            token = max(
                (token for token, piece in enumerate(self.vocabulary.tokens) if piece and rest.startswith(piece)),
                key=lambda token: len(self.vocabulary.tokens[token] or b""),
            )
            found.append(token)
            rest = rest[len(self.vocabulary.tokens[token] or b"") :]
        return found

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        if prompt is None:
            return ()
        if not isinstance(prompt, str):
            prompt = "".join(f"<{each['role']}>{each['content']}\n" for each in prompt)
        return tuple(self.encode(prompt))

    def _row(self, said: bytes) -> Floats:
        shares = np.full(len(self.vocabulary), FORGOTTEN)
        for text, share in self._texts.items():
            if not text.startswith(said):
                continue
            rest = text[len(said) :]
            for token, piece in enumerate(self.vocabulary.tokens):
                if piece and rest.startswith(piece):
                    shares[token] += share * 10.0 ** (len(piece) - 1)
            if not rest:
                shares[END] += share
        found: Floats = np.log(shares / shares.sum())
        return found
