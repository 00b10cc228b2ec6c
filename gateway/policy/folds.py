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
    LEET = "leet"
    SPACING = "spacing"
    REPEATS = "repeats"
    MARKUP = "markup"
    URL = "url"


DEFAULT_FOLD = frozenset({Fold.CASE, Fold.WIDTH, Fold.INVISIBLE, Fold.SPACE, Fold.PUNCTUATION})
# A pattern says by itself which letters it wants; `case` would be its (?i).
DEFAULT_PATTERN_FOLD = frozenset({Fold.WIDTH, Fold.INVISIBLE, Fold.PUNCTUATION})
# A detector knows the dashes and quotes that its values are written with.
DEFAULT_DETECTOR_FOLD = frozenset({Fold.WIDTH, Fold.INVISIBLE})
# Whole sentences are compared: with `accents`, composed and decomposed letters are the same.
DEFAULT_PROTECT_FOLD = DEFAULT_FOLD | {Fold.ACCENTS}
# Folds of what is not a difference between single characters.
DISGUISES = frozenset({Fold.LEET, Fold.SPACING, Fold.REPEATS, Fold.MARKUP, Fold.URL})
_DEFAULTS = {
    "pattern": DEFAULT_PATTERN_FOLD,
    "detector": DEFAULT_DETECTOR_FOLD,
    "protect": DEFAULT_PROTECT_FOLD,
}


def default_fold(source: str) -> frozenset[Fold]:
    """The lens of a rule with this key: `pattern`, `detector`, `protect`, else one of words."""
    return _DEFAULTS.get(source, DEFAULT_FOLD)
