"""Exact distributions of the answers of small models: without a word, with its last token masked, rolled back.

A model is of order 2: the next token depends on the two before it. Its tokens are the letters from a on, the word is
`abc`, and answers have a fixed length. So what can follow depends on the last two tokens and the rest of the length;
each such case is computed once. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gateway.decode.masks import BanMask, MaskCompiler, MaskState, WordBan
from gateway.policy.model import DEFAULT_FOLD

# float[tokens, tokens, ...]: the probability of each answer, with one axis for each of its tokens
Distribution = NDArray[np.float64]
Place = tuple[int, int]  # the last two tokens
Steps = Mapping[Place, NDArray[np.float64]]  # the probability of each token at a place

WORD = (0, 1, 2)
SPELLED = "abc"
NONE = -1  # stands before the first token
BEGIN = (NONE, NONE)


class Decisions(Protocol):
    """What a rollback decides; `gateway.decode.rollback.Ledger` is the one that is used. Hashable."""

    def banned(self, position: int, /) -> frozenset[int]:
        """The tokens that must not come at a position."""

    def after_match(self, position: int, token: int, /) -> Self | None:
        """How to continue after a match that begins in `token`, at `position`."""


@dataclass(frozen=True, slots=True)
class DrawAgain:
    """Never ban, always draw again. It needs no end while a clean answer is possible, but no bound either."""

    def banned(self, position: int) -> frozenset[int]:
        return frozenset()

    def after_match(self, position: int, token: int) -> DrawAgain:
        return self


def random_model(seed: int, size: int, drawn_to: tuple[float, float, float]) -> Steps:
    """`drawn_to`: how much likelier than by chance the word's tokens are: the first, and the next two where the word
    has begun."""
    generator = np.random.default_rng(seed)
    before = range(NONE, size)
    steps = {(one, other): generator.dirichlet([3.0] * size) for one in before for other in before}
    first, second, third = drawn_to
    for distribution in steps.values():
        distribution[WORD[0]] *= first
    for one in before:
        steps[one, WORD[0]][WORD[1]] *= second
    steps[WORD[0], WORD[1]][WORD[2]] *= third
    return {place: distribution / distribution.sum() for place, distribution in steps.items()}


def next_token(model: Steps, text: tuple[int, ...]) -> NDArray[np.float64]:
    """The probability of each token after a text."""
    one, other = (*BEGIN, *text)[-2:]
    return model[one, other]


def without_word(model: Steps, length: int) -> tuple[float, Distribution]:
    """The share of answers without the word, and the model's distribution on condition that it does not come."""

    @cache
    def rest(place: Place, left: int) -> Distribution:
        if not left:
            return np.ones(())
        return np.stack(
            [
                step * (0.0 if (*place, token) == WORD else 1.0) * rest((place[1], token), left - 1)
                for token, step in enumerate(model[place])
            ]
        )

    distribution = rest(BEGIN, length)
    clean = float(distribution.sum())
    return clean, distribution / clean


def ban_mask(size: int) -> BanMask:
    """The mask of the word over the letters and an end token, which these models never draw."""
    letters = [bytes([ord("a") + token]) for token in range(size)]
    return MaskCompiler([*letters, None], [size]).compile([WordBan(words=(SPELLED,), fold=DEFAULT_FOLD)])


def masked(model: Steps, length: int, mask: BanMask) -> Distribution:
    """The answers where, before each token, the mask rules out those that would complete the word."""

    @cache
    def rest(place: Place, state: MaskState, left: int) -> Distribution:
        if not left:
            return np.ones(())
        steps = np.where(mask.row(state)[: len(model[place])], 0.0, model[place])
        return np.stack(
            [
                step * rest((place[1], token), mask.advance(state, token), left - 1)
                for token, step in enumerate(steps / steps.sum())
            ]
        )

    return rest(BEGIN, mask.start(), length)


def rolled_back(model: Steps, length: int, begin: Decisions) -> Distribution:
    """The answers under some decisions, whose caps must be out of reach."""

    @cache
    def rest(place: Place, left: int) -> _Rest:
        if not left:
            return _Rest(np.ones(()), {})
        nothing = np.zeros((len(model[place]),) * (left - 1))
        after = [
            _Rest(nothing, {len(WORD): 1.0}) if (*place, token) == WORD else rest((place[1], token), left - 1)
            for token in range(len(model[place]))
        ]
        drawn = _drawn(model[place], length - left, [each.cut.get(1, 0.0) for each in after], begin)
        cut: dict[int, float] = {}
        for times, each in zip(drawn, after, strict=True):
            for back, share in each.cut.items():
                if back > 1:
                    cut[back - 1] = cut.get(back - 1, 0.0) + times * share
        return _Rest(np.stack([times * each.distribution for times, each in zip(drawn, after, strict=True)]), cut)

    return rest(BEGIN, length).distribution


@dataclass(frozen=True, slots=True)
class _Rest:
    """The rest of an answer: the distribution of what follows, and under `cut` the shares of the answers that are cut
    back to before the place instead, by the number of tokens that are removed."""

    distribution: Distribution
    cut: Mapping[int, float]


def _drawn(steps: NDArray[np.float64], position: int, again: list[float], begin: Decisions) -> NDArray[np.float64]:
    """How often each token is drawn at a position, where after a token the answer is cut back to it with a probability
    of `again`.

    What was tried at later positions is forgotten at each such cut, and what was tried at earlier ones changes nothing
    here, so only this position counts.
    """
    drawn = np.zeros_like(steps)
    left: dict[Decisions, float] = {begin: 1.0}
    while left:
        later: dict[Decisions, float] = {}
        for decisions, share in left.items():
            chances = steps.copy()
            chances[list(decisions.banned(position))] = 0.0
            chances /= chances.sum()
            cut = {token: float(chances[token]) * back for token, back in enumerate(again)}
            then = {token: decisions.after_match(position, token) for token, part in cut.items() if part}
            # Where a cut changes nothing, the same draw is made again and again: a geometric series.
            same = sum(cut[token] for token, following in then.items() if following == decisions)
            times = share / (1.0 - same)
            drawn += times * chances
            for token, following in then.items():
                assert following is not None
                if following != decisions:
                    later[following] = later.get(following, 0.0) + times * cut[token]
        left = later
    return drawn


def distance(one: Distribution, other: Distribution) -> float:
    """Total variation."""
    return float(np.abs(one - other).sum()) / 2
