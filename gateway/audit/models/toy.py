"""A model for tests and examples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gateway.audit.model import Floats, FullVocabulary, Messages, ModelError
from gateway.automata.vocabulary import Vocabulary


class Toy(FullVocabulary):
    """A random model: the next token is drawn from a seed and the last `order` tokens, and is the same
    every time. The higher `contrast`, the surer it is. Its tokenizer takes the longest token that fits."""

    def __init__(self, vocabulary: Vocabulary, seed: int = 0, order: int = 2, contrast: float = 2.0) -> None:
        self.vocabulary = vocabulary
        self._seed, self._order, self._contrast = seed, order, contrast
        self._row = lru_cache(4096)(self._drawn)
        self._longest = max(map(len, filter(None, vocabulary.tokens)), default=0)
        self._token_of = {text: token for token, text in reversed([*enumerate(vocabulary.tokens)]) if text}

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        return np.array([self._row(tuple(prefix)[-self._order :] if self._order else ()) for prefix in prefixes])

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        """Raises ModelError for a text that no tokens write."""
        rest = text.encode()
        if at_text_start and self.vocabulary.strips_first_space:
            rest = b" " + rest
        tokens = []
        while rest:
            lengths = (length for length in range(self._longest, 0, -1) if rest[:length] in self._token_of)
            length = next(lengths, 0)
            if not length:
                raise ModelError("the text cannot be written in the model's tokens")
            tokens.append(self._token_of[rest[:length]])
            rest = rest[length:]
        return tokens

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        if prompt is None:
            return ()
        texts = [prompt] if isinstance(prompt, str) else [f"{each['role']}: {each['content']}\n" for each in prompt]
        return tuple(self.encode("".join(texts), at_text_start=True))

    def _drawn(self, last: tuple[int, ...]) -> Floats:
        scores = np.random.default_rng([self._seed, *last]).normal(0, self._contrast, len(self.vocabulary))
        scores -= scores.max()
        found: Floats = scores - np.log(np.exp(scores).sum())
        return found
