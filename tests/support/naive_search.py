"""What a search has to find, by the most naive way that can be right: every sequence of tokens is tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.audit.model import Floats, FullVocabulary, LanguageModel, Messages, SamplingParams
from gateway.automata.vocabulary import Vocabulary


def vocabulary_of(*pieces: str | bytes, ends: int = 1) -> Vocabulary:
    """The last tokens end a text."""
    written = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return Vocabulary([*written, *[None] * ends], end=range(len(written), len(written) + ends))


class Told(FullVocabulary):
    """A model whose law is written down: the shares of tokens behind some, by what they all write. Behind everything
    else all tokens are equally likely."""

    def __init__(self, vocabulary: Vocabulary, shares: Mapping[tuple[str, ...], Mapping[str, float]]) -> None:
        self.vocabulary = vocabulary
        self._names = [(text or b"</s>").decode() for text in vocabulary.tokens]
        self._shares = shares
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> Floats:
        return np.array([self._row([self._names[token] for token in prefix]) for prefix in prefixes])

    def _row(self, prefix: list[str]) -> Floats:
        self.asked.append(tuple(prefix))
        shares = self._shares.get(tuple(prefix))
        if shares is None:
            return np.full(len(self._names), -math.log(len(self._names)))
        return np.array([math.log(shares[name]) if shares.get(name) else -math.inf for name in self._names])

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        raise NotImplementedError

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class Asked:
    """A query whose language and prefixes are listed. `prefixes` None: there is none."""

    language: frozenset[str]
    prefixes: frozenset[str] | None = None
    rule: SamplingParams = field(default_factory=SamplingParams)
    end_of_text: bool = False
    max_tokens: int = 99
    canonical: bool = False


@dataclass(frozen=True)
class Way:
    """A way to say a string; the numbers are those of a result."""

    text: str
    tokens: tuple[int, ...]
    logprob: float
    prefix_logprob: float


@dataclass(frozen=True)
class Expected:
    """A string. `best`: its ways of which none is more likely."""

    text: str
    logprob: float
    string_logprob: float
    encodings: int
    best: tuple[Way, ...]


def spellings(text: bytes, vocabulary: Sequence[bytes | None]) -> Iterator[tuple[int, ...]]:
    """Every way to write a text in tokens."""
    if not text:
        yield ()
    for token, piece in enumerate(vocabulary):
        if piece and text.startswith(piece):
            for rest in spellings(text[len(piece) :], vocabulary):
                yield (token, *rest)


def distribution(row: NDArray[np.floating[Any]], rule: SamplingParams) -> list[float]:
    """What a rule leaves of a row, token by token; -inf for what it does not leave."""
    scores = [float(each) for each in row]
    if rule.temperature == 0:
        scores = [each if each == max(scores) else -math.inf for each in scores]
    else:
        scores = [each / rule.temperature for each in scores]
    if rule.top_k is not None:
        least = sorted(scores, reverse=True)[: rule.top_k][-1]
        scores = [each if each >= least else -math.inf for each in scores]
    whole = sum(map(math.exp, scores))
    shares = [math.exp(each) / whole for each in scores]
    if rule.top_p < 1:
        left, least = 0.0, 1.0
        for share in sorted(shares, reverse=True):
            if left >= rule.top_p:
                break
            left, least = left + share, share
        shares = [share if share >= least else 0.0 for share in shares]
    whole = sum(shares)
    return [math.log(share / whole) if share else -math.inf for share in shares]


def ways(model: LanguageModel, asked: Asked) -> Iterator[list[Way]]:
    """All ways to say the strings of a query: for each sequence of tokens, one for each place where its prefix can
    end."""
    for text in sorted(asked.language):
        for spelled in spellings(text.encode(), model.vocabulary.tokens):
            if asked.canonical and model.encode(text) != list(spelled):
                continue
            for end in model.vocabulary.end if asked.end_of_text else [None]:
                tokens = spelled if end is None else (*spelled, end)
                found = [way for way in _splits(model, asked, text, tokens) if way.logprob > -math.inf]
                if found:
                    yield found


def _splits(model: LanguageModel, asked: Asked, text: str, tokens: tuple[int, ...]) -> Iterator[Way]:
    """A sequence of tokens behind each place where its prefix may end."""
    pieces = [model.vocabulary.tokens[token] or b"" for token in tokens]
    ends = [0]
    if asked.prefixes is not None:
        ends = [len(prefix.encode()) for prefix in asked.prefixes if text.startswith(prefix)]
    for end in ends:
        # The tokens that end in the prefix are not subject to the rule; one in which it ends is.
        inside = sum(bool(piece) and len(b"".join(pieces[: at + 1])) <= end for at, piece in enumerate(pieces))
        if len(tokens) - inside > asked.max_tokens:
            continue
        raw = after = 0.0
        for at, token in enumerate(tokens):
            row = model([tokens[:at]])[0]
            if at < inside:
                raw += float(row[token])
            else:
                after += distribution(row, asked.rule)[token]
        yield Way(text, tokens, after, raw)


def expected(model: LanguageModel, asked: Asked) -> list[Expected]:
    """The strings, the most likely first. The same tokens are one encoding, of which the best way counts."""
    by_text: dict[str, list[list[Way]]] = {}
    for same in ways(model, asked):
        by_text.setdefault(same[0].text, []).append(same)
    found = []
    for text, encodings in by_text.items():
        likeliest = [max(way.logprob for way in same) for same in encodings]
        total = math.log(sum(map(math.exp, likeliest)))
        best = tuple(way for same in encodings for way in same if way.logprob >= max(likeliest) - 1e-9)
        found.append(Expected(text, max(likeliest), total, len(encodings), best))
    return sorted(found, key=lambda each: -each.logprob)
