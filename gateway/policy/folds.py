"""The differences between characters that a rule may ignore, and which of them it does by default."""

from __future__ import annotations

from enum import StrEnum


class Fold(StrEnum):
    """A difference between characters that does not count; a rule's set of folds is its lens."""

    CASE = "case"
    WIDTH = "width"
    ACCENTS = "accents"
    INVISIBLE = "invisible"
    SPACE = "space"
    PUNCTUATION = "punctuation"
    CONFUSABLES = "confusables"


DEFAULT_FOLD = frozenset({Fold.CASE, Fold.WIDTH, Fold.INVISIBLE, Fold.SPACE, Fold.PUNCTUATION})
# A pattern says by itself which letters it wants; `case` would be its (?i).
DEFAULT_PATTERN_FOLD = frozenset({Fold.WIDTH, Fold.INVISIBLE, Fold.PUNCTUATION})
# A detector knows the dashes and quotes that its values are written with.
DEFAULT_DETECTOR_FOLD = frozenset({Fold.WIDTH, Fold.INVISIBLE})


def default_fold(words: bool, detector: bool) -> frozenset[Fold]:
    """The lens of a rule of words, of a detector, or else of a pattern."""
    return DEFAULT_FOLD if words else DEFAULT_DETECTOR_FOLD if detector else DEFAULT_PATTERN_FOLD
