"""The disguises that a rule detects: folds, variants (encodings), edits, and the presets that set them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources


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


class Variant(StrEnum):
    """A code in which a rule's words are found as well."""

    REVERSE = "reverse"
    ROT13 = "rot13"
    BASE64 = "base64"
    BASE32 = "base32"
    HEX = "hex"
    DECIMAL = "decimal"
    NATO = "nato"
    MORSE = "morse"


class Strength(StrEnum):
    """How much of what hides a word a rule sees through: `PRESETS` has what each sets."""

    PLAIN = "plain"
    CAREFUL = "careful"
    PARANOID = "paranoid"


# With so many edits a shorter word would be found in other words of ordinary texts.
EDITS_FROM = {1: 6, 2: 9}


@dataclass(frozen=True, slots=True)
class Preset:
    """What a `strength` sets in a rule for words, where the rule does not."""

    fold: frozenset[Fold]
    variants: frozenset[Variant] = frozenset()
    edits: int = 0


PRESETS = {
    Strength.PLAIN: Preset(DEFAULT_FOLD),
    Strength.CAREFUL: Preset(frozenset(Fold)),
    Strength.PARANOID: Preset(frozenset(Fold), frozenset(Variant), 1),
}


@cache
def false_hits() -> Mapping[Strength, Mapping[str, float]]:
    """What the presets cost: hits of the shipped lists in 10,000 words of ordinary text, by corpus, as
    `python -m loadtest.word_hits --write` has measured them."""
    text = resources.files("gateway.policy").joinpath("strength.toml").read_text(encoding="utf-8")
    return {Strength(name): figures for name, figures in tomllib.loads(text).items()}


def explained(strength: Strength) -> str:
    """These figures in a few words."""
    most, corpus = max((rate, corpus) for corpus, rate in false_hits()[strength].items())
    return f"strength {strength}: at most {most:g} false hits in 10,000 words ({corpus}) with the shipped lists"
