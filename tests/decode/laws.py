"""Exact laws of what small models say, by enumeration: free of a word, with its last token masked, rolled back.

A model is of order 2: the next token depends on the two before it. The word is three tokens, 0 1 2; answers have a
fixed length.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gateway.decode.rollback import Ledger

Tokens = tuple[int, ...]
Law = dict[Tokens, float]
Steps = Mapping[tuple[int, int], np.ndarray]

WORD = (0, 1, 2)
NONE = -1  # stands before the first token


def random_model(seed: int, size: int, drawn_to: float) -> Steps:
    """`drawn_to`: how much likelier the word's next token is, once it has begun, than by chance."""
    generator = np.random.default_rng(seed)
    before = range(NONE, size)
    steps = {(one, other): generator.dirichlet([3.0] * size) for one in before for other in before}
    for one in before:
        steps[one, WORD[0]][WORD[1]] *= drawn_to
    steps[WORD[0], WORD[1]][WORD[2]] *= drawn_to
    return {place: law / law.sum() for place, law in steps.items()}


def following(model: Steps, text: Tokens) -> np.ndarray:
    one, other = (NONE, NONE, *text)[-2:]
    return model[one, other]


def free_of_the_word(model: Steps, length: int) -> tuple[float, Law]:
    """The share of answers without the word, and the model's law on condition that it does not come."""
    law = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): share * step
            for text, share in law.items()
            for token, step in enumerate(following(model, text))
            if (*text, token)[-3:] != WORD
        }
    clean = sum(law.values())
    return clean, {text: share / clean for text, share in law.items()}


def last_token_masked(model: Steps, length: int) -> Law:
    law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for text, share in law.items():
            steps = following(model, text).copy()
            if text[-2:] == WORD[:2]:
                steps[WORD[2]] = 0
            for token, step in enumerate(steps / steps.sum()):
                longer[*text, token] = share * step
        law = longer
    return law


def rolled_back(model: Steps, length: int, begin: Ledger) -> Law:
    """What the ledger's decisions come to; its caps must be out of reach."""
    return _rolled_back(model, length, begin, ())[0]


def _rolled_back(model: Steps, length: int, begin: Ledger, text: Tokens) -> tuple[Law, dict[int, float]]:
    """The law of the answers that begin with `text`, and the shares of those that are cut back to a position within it.

    What was tried at positions after the text is forgotten at each cut to its end, so only that one counts here.
    """
    here = len(text)
    if here == length:
        return {text: 1.0}, {}
    steps = following(model, text)
    found = [
        ({}, {here - 2: 1.0}) if (*text, token)[-3:] == WORD else _rolled_back(model, length, begin, (*text, token))
        for token in range(len(steps))
    ]
    ended: Law = {}
    cut: dict[int, float] = {}
    ledgers = {begin: 1.0}
    while ledgers:
        later: dict[Ledger, float] = {}
        for ledger, share in ledgers.items():
            left = steps.copy()
            left[list(ledger.banned(here))] = 0
            for token, step in enumerate(share * left / left.sum()):
                for answer, part in found[token][0].items():
                    ended[answer] = ended.get(answer, 0) + step * part
                for position, part in found[token][1].items():
                    if position < here:
                        cut[position] = cut.get(position, 0) + step * part
                    elif step * part > 0:
                        after = ledger.after_match(here, token)
                        assert after is not None
                        later[after] = later.get(after, 0) + step * part
        ledgers = later
    return ended, cut


def distance(one: Law, other: Law) -> float:
    """Total variation."""
    return sum(abs(one.get(text, 0) - other.get(text, 0)) for text in {*one, *other}) / 2
