"""Embeddings without a model: texts with words in common have vectors that are close.

Feature hashing (Weinberger et al., 2009): each word, and each three characters in it, adds or takes away one at a place
of the vector that its hash names; then the vector gets the length 1.
"""

from __future__ import annotations

import array
import base64
import hashlib
import math
import re
import sys
from collections.abc import Iterator

from gateway.demo.gandalf import MODEL
from gateway.demo.requests import EmbeddingsRequest
from gateway.demo.tokens import count_tokens
from gateway.wire.json import Json

_WORD = re.compile(r"\w+|[^\w\s]")


def vector_of(given: str | list[int], dimensions: int) -> array.array[float]:
    """The vector of a text or of token ids, in single precision and of length 1."""
    vector = [0.0] * dimensions
    for feature in _features(given):
        drawn = int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest(), "little")
        vector[(drawn >> 1) % dimensions] += 1.0 if drawn & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0.0:  # blanks, or features that cancel each other out
        vector[0], length = 1.0, 1.0
    return array.array("f", [value / length for value in vector])


def _features(given: str | list[int]) -> Iterator[str]:
    if not isinstance(given, str):
        yield from (f"token {each}" for each in given)
        return
    for word in _WORD.findall(given.casefold()):
        yield word
        yield from (word[at : at + 3] for at in range(len(word) - 2) if len(word) > 3)


def embeddings_answer(request: EmbeddingsRequest) -> Json:
    """The whole answer to a request."""
    data = []
    for index, given in enumerate(request.inputs):
        vector = vector_of(given, request.dimensions)
        shown = _base64(vector) if request.encoded else vector.tolist()
        data.append({"object": "embedding", "index": index, "embedding": shown})
    tokens = count_tokens(list(request.inputs))
    return {
        "object": "list",
        "data": data,
        "model": MODEL,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _base64(vector: array.array[float]) -> str:
    if sys.byteorder == "big":
        vector.byteswap()
    return base64.b64encode(vector.tobytes()).decode()
