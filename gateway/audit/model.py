"""The interface of an auditable language model, and its next-token distribution after temperature, top-k and top-p.

As in servers, the temperature comes first, then the `top_k` most likely tokens, then the most likely of these that
together have `top_p`. The rest is renormalised; every other token has probability 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.automata.vocabulary import Ints, Vocabulary

Floats = NDArray[np.float64]
Messages = Sequence[Mapping[str, str]]

ROUNDING = 1e-3  # what single precision may add to the logarithm of a sum of 1


class ModelError(ValueError):
    """A model cannot be called, or returns something invalid."""


class LanguageModel(Protocol):
    """A language model that can be audited."""

    vocabulary: Vocabulary

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[np.floating[Any]]:
        """The log-probabilities of the next token after each of n prefixes of token ids: float[n, vocabulary]. -inf for
        a token that cannot come, or that the model does not return."""

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        """The tokenizer's own encoding of a text, without special tokens. `at_text_start`: it begins a text, and does
        not continue after a prompt."""

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        """The token ids before a string of the query: the start of a text, and then a prompt or a chat."""

    def require_top_k(self, top_k: int | None) -> None:
        """Make later calls return the `top_k` most likely tokens, None for all. Raises ModelError if they cannot."""

    def logprobs_of(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        """The log-probabilities of given tokens after each prefix, however unlikely they are."""


class FullVocabulary:
    """Base class of models whose rows always have every token."""

    def require_top_k(self, top_k: int | None) -> None:
        pass

    def logprobs_of(self: LanguageModel, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        rows = rows_of(self, prefixes)
        return [row[some].astype(np.float64) for row, some in zip(rows, tokens, strict=True)]


def rows_of(model: LanguageModel, prefixes: Sequence[Sequence[int]]) -> NDArray[np.floating[Any]]:
    """The model's rows: float[n, vocabulary]. Raises ModelError for another shape, or values that are no
    log-probabilities."""
    rows = np.asarray(model(prefixes))
    if rows.shape != (len(prefixes), len(model.vocabulary)):
        raise ModelError(
            f"the model gave log-probabilities of shape {rows.shape} for {len(prefixes)} prefixes and a vocabulary of "
            f"{len(model.vocabulary)}"
        )
    highest = rows.max(axis=1)
    for length, most in zip(map(len, prefixes), highest.tolist(), strict=True):
        if not most <= ROUNDING:
            what = "numbers above 0" if most > 0 else "NaN"
            raise ModelError(f"the model gave {what} as log-probabilities after a prefix of {length} tokens")
        if most == -np.inf:
            raise ModelError(f"the model gave no token any probability after a prefix of {length} tokens")
    if len(rows) and _log_sums(rows[:1])[0] > ROUNDING:
        raise ModelError(
            "the model's probabilities add up to more than 1: it has to give log-probabilities, not scores"
        )
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class TokenDistribution:
    """A truncated next-token distribution: the tokens with a log-probability of `least` or more in `row`. `log_sum`:
    the logarithm of their total probability, at the temperature."""

    row: NDArray[np.floating[Any]]
    least: float
    temperature: float
    log_sum: float

    @property
    def tokens(self) -> NDArray[np.int64]:
        """All tokens that can come."""
        return np.flatnonzero(self.row >= self.least)

    def among(self, tokens: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], Floats]:
        """Which of some tokens can come, as places in `tokens`, and their log-probabilities."""
        scores = self.row[tokens]
        places = np.flatnonzero(scores >= self.least)
        # Never above 0, so that no path grows more likely as it grows longer: `_log_sums` is no less than the highest.
        return places, scores[places].astype(np.float64) / self.temperature - self.log_sum


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """`top_k` None and `top_p` 1 keep all tokens; `temperature` 0 keeps the most likely. Ties are kept or dropped
    together. Raises ValueError for other values."""

    top_k: int | None = None
    top_p: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if (self.top_k is not None and self.top_k < 1) or not 0 < self.top_p <= 1 or not self.temperature >= 0:
            raise ValueError(f"invalid sampling parameters: {self}")

    def distribution(self, row: NDArray[np.floating[Any]]) -> TokenDistribution:
        """The distribution of a row of log-probabilities, at least one of which is above -inf."""
        return self.distributions(row[np.newaxis])[0]

    def distributions(self, rows: NDArray[np.floating[Any]]) -> list[TokenDistribution]:
        """The same for each row of float[n, vocabulary]."""
        lowest = np.finfo(rows.dtype).min
        width = rows.shape[1]
        top_k = min(width, self.top_k or width) if self.temperature else 1
        highest = rows if top_k == width else np.partition(rows, width - top_k, axis=1)[:, width - top_k :]
        least = np.maximum(highest.min(axis=1) if top_k == width else highest[:, 0], lowest)
        temperature = self.temperature or 1.0
        log_sums = _log_sums(highest, temperature)
        # Of equally likely tokens all are left, which may be more.
        for at in np.flatnonzero(np.count_nonzero(rows >= least[:, np.newaxis], axis=1) > top_k):
            log_sums[at] = _log_sums(rows[at][np.newaxis, rows[at] >= least[at]], temperature)[0]
        distributions = [
            TokenDistribution(row, some, temperature, log_sum)
            for row, some, log_sum in zip(rows, least.tolist(), log_sums.tolist(), strict=True)
        ]
        return distributions if self.top_p == 1 else [self._most_of(distribution) for distribution in distributions]

    def _most_of(self, distribution: TokenDistribution) -> TokenDistribution:
        """Truncated further by `top_p`."""
        scores = -np.sort(-distribution.row[distribution.tokens])
        shares = np.exp(scores.astype(np.float64) / distribution.temperature - distribution.log_sum)
        before = np.cumsum(shares) - shares  # what the more likely ones have
        least = float(scores[np.count_nonzero(before < self.top_p) - 1])
        kept = scores[np.newaxis, scores >= least]
        return TokenDistribution(
            distribution.row, least, distribution.temperature, float(_log_sums(kept, distribution.temperature)[0])
        )


def _log_sums(rows: NDArray[np.floating[Any]], temperature: float = 1.0) -> Floats:
    """The logarithms of the sums of each row's probabilities, one of which at least is more than 0."""
    scores = rows.astype(np.float64) / temperature
    highest = scores.max(axis=1)
    found: Floats = highest + np.log(np.exp(scores - highest[:, np.newaxis]).sum(axis=1))
    return found
