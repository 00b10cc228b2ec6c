"""What a model says next, as an audit reads it: its law, and what a decoding rule leaves of that.

A rule is what servers do before they draw a token: the temperature, then the `top_k` most likely tokens, then the most
likely of these that together have `top_p`. What it leaves has the whole probability, and every other token has none.
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
    """A model that cannot be asked, or whose answer makes no sense."""


class Model(Protocol):
    """A language model that can be audited."""

    vocabulary: Vocabulary

    def __call__(self, prefixes: Sequence[Sequence[int]], /) -> NDArray[np.floating[Any]]:
        """The log-probabilities of the next token after each of n prefixes of token ids: float[n, vocabulary]. -inf for
        a token that cannot come, or that the model does not tell."""

    def encode(self, text: str, at_text_start: bool = False) -> list[int]:
        """The tokenizer's own encoding of a text, without special tokens. `at_text_start`: it begins a text, and does
        not go on after a prompt."""

    def context(self, prompt: str | Messages | None) -> tuple[int, ...]:
        """The token ids that come before what is looked for: the beginning of a text, and then a prompt or a chat."""

    def tell(self, top_k: int | None) -> None:
        """Make sure that the `top_k` most likely tokens are told from now on, or all. Raises ModelError if they cannot
        be."""

    def told(self, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        """The log-probabilities of some tokens after each prefix, whether they are likely or not."""


class TellsAll:
    """The base of models whose rows have every token."""

    def tell(self, top_k: int | None) -> None:
        pass

    def told(self: Model, prefixes: Sequence[Sequence[int]], tokens: Sequence[Ints]) -> list[Floats]:
        rows = rows_of(self, prefixes)
        return [row[some].astype(np.float64) for row, some in zip(rows, tokens, strict=True)]


def rows_of(model: Model, prefixes: Sequence[Sequence[int]]) -> NDArray[np.floating[Any]]:
    """The model's answer. Raises ModelError for one that is not of this shape, or holds no log-probabilities."""
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
    if len(rows) and _log_sum(rows[0].astype(np.float64)) > ROUNDING:
        raise ModelError(
            "the model's probabilities add up to more than 1: it has to give log-probabilities, not scores"
        )
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Tokens, int[n], and their log-probabilities, float[n], whose probabilities add up to 1. All others of a
    vocabulary of `width` have none."""

    tokens: NDArray[np.int64]
    logprobs: Floats
    width: int

    def of(self, tokens: NDArray[np.integer[Any]]) -> Floats:
        """The log-probability of each token; -inf for one that cannot come."""
        by_token = np.full(self.width, -np.inf)
        by_token[self.tokens] = self.logprobs
        found: Floats = by_token[tokens]
        return found


@dataclass(frozen=True, slots=True)
class Rule:
    """A decoding rule. `top_k` None and `top_p` 1 leave all tokens; `temperature` 0 leaves the likeliest. Of equally
    likely tokens all are left, or none. Raises ValueError for other values."""

    top_k: int | None = None
    top_p: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if (self.top_k is not None and self.top_k < 1) or not 0 < self.top_p <= 1 or not self.temperature >= 0:
            raise ValueError(f"no decoding rule: {self}")

    def law(self, row: NDArray[np.floating[Any]]) -> Law:
        """What the rule leaves of log-probabilities, one of which at least is more than -inf."""
        top_k = self.top_k if self.temperature else 1
        if top_k is not None and top_k < len(row):
            least = max(np.partition(row, -top_k)[-top_k], np.finfo(row.dtype).min)
            tokens = np.flatnonzero(row >= least)
        else:
            tokens = np.flatnonzero(row > -np.inf)
        logprobs = _normalised(row[tokens].astype(np.float64) / (self.temperature or 1.0))
        if self.top_p < 1:
            ordered = -np.sort(-logprobs)
            before = np.cumsum(np.exp(ordered)) - np.exp(ordered)  # what the more likely ones have
            least = ordered[np.count_nonzero(before < self.top_p) - 1]
            tokens, logprobs = tokens[logprobs >= least], _normalised(logprobs[logprobs >= least])
        return Law(tokens, logprobs, len(row))


def _normalised(logprobs: Floats) -> Floats:
    # Never above 0, so that no path grows more likely as it grows longer.
    return np.minimum(logprobs - _log_sum(logprobs), 0.0)


def _log_sum(logprobs: Floats) -> float:
    highest = logprobs.max()
    return float(highest + np.log(np.exp(logprobs - highest).sum()))
