"""Texts as tokens, and the log probabilities that a model might have given them.

Words are one token and numbers are cut after three digits, as OpenAI's tokenizers do; capitals are cut after three, so
that a password in capitals comes in pieces. Whatever the text, its tokens joined are the text again.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

_TOKEN = re.compile(r" ?[A-Z]?[a-z]{1,16}| ?[A-Z]{1,3}| ?\d{1,3}| ?\w{1,4}| ?[^\w\s]{1,4}|\s{1,16}")
# What else a model might have said. More than anybody may ask for, which is `MAX_TOP_LOGPROBS`.
_ALTERNATIVES = (
    *(" the", " a", " is", " not", " I", " you", " it", " of", " and", " to", ".", ",", "!", ' "', "\n"),
    *(" password", " secret", " 12", "MON", "KEY", " wizard", " guard", " tell", " never"),
)
MAX_TOP_LOGPROBS = 20
MAX_COUNTED = 20_000  # characters of a string whose tokens are counted one by one
CHARACTERS_A_TOKEN = 4


class TokenLogprob(NamedTuple):
    """A token and its log probability, with the most likely tokens at its place, itself the first of them."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...]


def tokens_of(text: str) -> tuple[str, ...]:
    """The tokens of a text."""
    return tuple(_TOKEN.findall(text))


def cut_at_stop(tokens: tuple[str, ...], stops: tuple[str, ...]) -> tuple[str, ...]:
    """The tokens before the first of the strings `stops` in their text; the last may be cut."""
    text = "".join(tokens)
    left = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
    if left is None:
        return tokens
    kept: list[str] = []
    for token in tokens:
        if left <= 0:
            break
        kept.append(token[:left])
        left -= len(token)
    return tuple(kept)


def logprobs_of(tokens: Iterable[str], top: int, first: int = 0) -> list[TokenLogprob]:
    """Each token with its log probability and the `top` most likely ones; the same for the same token at the same
    place. `first`: the place of the first token."""
    found = []
    for place, token in enumerate(tokens, first):
        drawn = zlib.crc32(f"{place} {token}".encode("utf-8", "replace"))
        probability = 0.5 + drawn % 499 / 1000
        turn = drawn % len(_ALTERNATIVES)
        others = [each for each in (*_ALTERNATIVES[turn:], *_ALTERNATIVES[:turn]) if each != token]
        likely = [(token, _rounded(probability))]
        for other in others[: max(top - 1, 0)]:
            probability = (1 - probability) / 2 if len(likely) == 1 else probability / 2
            likely.append((other, _rounded(probability)))
        found.append(TokenLogprob(token, likely[0][1], tuple(likely[:top])))
    return found


def _rounded(probability: float) -> float:
    return round(math.log(probability), 6)


def bytes_of(token: str) -> list[int]:
    """The UTF-8 of a token, as log probabilities show it."""
    return list(token.encode("utf-8", "replace"))


def count_tokens(value: Any) -> int:
    """The tokens of all the strings and numbers below a value of a request, about so for long strings."""
    count, pending = 0, [value]
    while pending:
        match pending.pop():
            case str(text):
                count += len(tokens_of(text[:MAX_COUNTED])) + len(text[MAX_COUNTED:]) // CHARACTERS_A_TOKEN
            case dict(fields):
                pending += fields.values()
            case list(items):
                pending += items
            case int() | float():
                count += 1
    return count
