"""The disguises of words that a rule sees through: codes, edits, and presets for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.policy.folds import DEFAULT_FOLD, Fold


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
