"""Lenses: which differences between characters a rule ignores (semantics rule 11).

A lens maps every character by itself: to nothing (an invisible character), one character, or several (ß, ﬁ). So folding
commutes with cutting, and a match maps back to the original text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product

from gateway.automata.literals import MAX_FOLDS, Folded
from gateway.policy.model import Fold

# Default_Ignorable_Code_Point (Unicode DerivedCoreProperties), which `unicodedata` does not expose.
_IGNORABLE_RANGES = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip

# Scripts written without spaces, whose words have no edges to test; Hangul joins its particles to words.
_CJK_RANGES = (
    (0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x3038, 0x303C),
    (0x3041, 0x3096), (0x3099, 0x309A), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x3105, 0x312F),
    (0x3131, 0x318E),
    (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97C), (0xAC00, 0xD7FB),
    (0xF900, 0xFAFF), (0xFF66, 0xFFDC), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFD),
)  # fmt: skip


# Kana and their voicing marks, which half-width forms write apart; and the marks that stand alone.
_VOICED = re.compile("[\u3046-\u30fd][\u3099\u309a]")
_SPACING = {"\u309b": "\u3099", "\u309c": "\u309a"}
# Of a word, so many voiced kana may each be written in one piece or two; those behind them only all alike.
MAX_VOICED = 6


def _within(ranges: tuple[tuple[int, int], ...], char: str) -> bool:
    code = ord(char)
    return any(low <= code <= high for low, high in ranges)


def is_ignorable(char: str) -> bool:
    """Has the character no visible form by default (Unicode's Default_Ignorable_Code_Point)?"""
    return char >= "\xad" and _within(_IGNORABLE_RANGES, char)


def is_cjk(char: str) -> bool:
    return char >= "\u1100" and _within(_CJK_RANGES, char)


def is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


def _case(char: str) -> str:
    return char.casefold()


def _width(char: str) -> str:
    """Compatibility forms become what they stand for; canonical compositions (é, Hangul) stay whole."""
    if char in _SPACING:
        return _SPACING[char]
    if char.isascii() or unicodedata.normalize("NFKD", char) == unicodedata.normalize("NFD", char):
        return char
    plain = unicodedata.normalize("NFKC", char)
    # Spacing diacritics (U+00A8 and its like) "decompose" into a space and a mark: not a form of any letter.
    spacing = len(plain) > 1 and plain[0] == " " and is_mark(plain[1])
    return char if spacing else plain


def _accents(char: str) -> str:
    return "".join(part for part in unicodedata.normalize("NFD", char) if not is_mark(part))


def _invisible(char: str) -> str:
    return "" if is_ignorable(char) else char


_STEPS: dict[Fold, Callable[[str], str]] = {
    Fold.INVISIBLE: _invisible,
    Fold.WIDTH: _width,
    Fold.ACCENTS: _accents,
    Fold.CASE: _case,
}


class Lens:
    """A set of folds as one mapping. `fold(char)` is idempotent: folding a folded text changes nothing."""

    def __init__(self, folds: frozenset[Fold]) -> None:
        self.folds = folds
        self.drops_marks = Fold.ACCENTS in folds
        self._steps = [step for fold, step in _STEPS.items() if fold in folds]
        self._steps_without_accents = [step for step in self._steps if step is not _accents]
        # Lists of many words are folded when they are loaded: a few characters, very often.
        self._known = lru_cache(MAX_FOLDS)(self._fold)

    def __str__(self) -> str:
        return "+".join(fold for fold in Fold if fold in self.folds) or "exact"

    def fold(self, char: str) -> Folded:
        """One character. Only a canonical decomposition (a Hangul syllable into its letters) is atomic: compatibility
        and case forms are written for their letters and may be matched in part."""
        return self._known(char)

    def _fold(self, char: str) -> Folded:
        text = _fold_repeatedly(char, self._steps)
        atomic = len(text) > 1 and self.drops_marks and len(_fold_repeatedly(char, self._steps_without_accents)) == 1
        return Folded(text, atomic)

    def fold_word(self, word: str) -> str:
        """A word as the lens sees it, kana with their voicing marks in one piece if `width` is in it."""
        folded = "".join(self.fold(char).text for char in word)
        if Fold.WIDTH not in self.folds or folded.isascii():
            return folded
        return _VOICED.sub(lambda pair: unicodedata.normalize("NFC", pair[0]), folded)

    def spellings(self, folded: str) -> Iterator[str]:
        """The forms in which a folded word stands in a text, character by character: voiced kana in one piece, as full
        width has them, or in two, as half width does. The word itself is the first."""
        voiced = [at for at, char in enumerate(folded) if self._is_voiced(char)]
        free, alike = voiced[:MAX_VOICED], voiced[MAX_VOICED:]
        for apart in product((False, True), repeat=len(free) + bool(alike)):
            split = {at for at, is_apart in zip(free, apart, strict=False) if is_apart}
            split.update(alike if apart[len(free) :] == (True,) else ())
            yield "".join(unicodedata.normalize("NFD", char) if at in split else char for at, char in enumerate(folded))

    def _is_voiced(self, char: str) -> bool:
        if Fold.WIDTH not in self.folds or not "\u3046" <= char <= "\u30fe":
            return False
        return unicodedata.normalize("NFD", char)[-1] in "\u3099\u309a" and self.fold(char).text == char


def _fold_repeatedly(text: str, steps: list[Callable[[str], str]]) -> str:
    """Apply the steps until nothing changes: a form may hide another (a circled capital, a ligature of accents)."""
    while True:
        before = text
        for step in steps:
            text = "".join(map(step, text))
        if text == before:
            return text
