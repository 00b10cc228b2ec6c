"""A language model made of a compressor: what makes a text longer when it is compressed is unlikely to follow.

It is as bad as it sounds. What it says in the examples beside this file has its form from the constraint alone.
"""

import zlib

import numpy as np

from gateway.decode.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters(characters):
    """A vocabulary with a token for each character; the last token ends a text."""
    return Vocabulary([*(character.encode() for character in characters), None], end=[len(characters)])


def ziplm(training, vocabulary):
    """The model after some training text: log-probabilities by the lengths of what is compressed, in bytes."""

    def length(text):
        return len(zlib.compress(text, 9))

    def model(prefixes):
        rows = []
        for prefix in prefixes:
            text = training.encode() + b"\n" + b"".join(vocabulary.pieces(prefix))
            # A text that ends begins again, with a line.
            lengths = [length(text + (b"\n" if token is None else token)) for token in vocabulary.tokens]
            scores = -np.log(256) * np.array(lengths, float)
            rows.append(scores - np.logaddexp.reduce(scores))
        return np.array(rows)

    return model


def tokens_of(text, vocabulary):
    """A prompt for a vocabulary of single characters."""
    return [vocabulary.tokens.index(character.encode()) for character in text]
