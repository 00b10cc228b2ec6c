"""Lenses: which differences between characters a rule ignores (semantics rule 11).

A lens maps every character by itself: to nothing (an invisible character), one character, or several (ß, ﬁ). So folding
commutes with cutting, and a match maps back to the original text. Texts that are canonically equivalent need more than
one character to be seen as that: there it is the word that is looked for in all its spellings.
"""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import permutations, product

from gateway.automata.edges import is_cjk, is_raised
from gateway.automata.literals import LINE_MARKS, MAX_FOLDS, Folded
from gateway.censor.confusables import skeleton
from gateway.policy.model import Fold

__all__ = ["MAX_FREE", "Lens", "is_cjk", "is_ignorable", "is_mark", "is_unseen"]

# Default_Ignorable_Code_Point (Unicode DerivedCoreProperties), which `unicodedata` does not expose.
_IGNORABLE_RANGES = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
# Besides these, what no reader sees: controls other than tab and line breaks, interlinear annotation, noncharacters.
_CONTROL_RANGES = (
    (0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x84), (0x86, 0x9F), (0xFDD0, 0xFDEF), (0xFFF9, 0xFFFB),
)  # fmt: skip

_WHITE_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u2800\u3000") | {
    chr(code) for code in range(0x2000, 0x200B)
}
_PUNCTUATION = {
    char: plain
    for plain, chars in {
        "'": "\xb4\u02b9\u02bb\u02bc\u02c8\u02ca\u02cb\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u275b\u275c",
        '"': "\xab\xbb\u02ba\u02dd\u02ee\u201c\u201d\u201e\u201f\u2033\u2036\u275d\u275e\u301d\u301e\u301f",
        "-": "\u02d7\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2796\ufe58",
    }.items()
    for char in chars
}
# Kana's voicing marks that stand alone.
_SPACING = {"\u309b": "\u3099", "\u309c": "\u309a"}

# The spellings of a word: its first letters are free to be written in any way, in so many combinations; those behind
# them are written alike.
MAX_FREE = 64
_MAX_MARKS = 3  # of one letter that may stand in any order


def _within(ranges: tuple[tuple[int, int], ...], char: str) -> bool:
    """Is the character in one of these ranges, which are in order?"""
    code = ord(char)
    at = bisect_right(ranges, (code, sys.maxunicode)) - 1
    return at >= 0 and code <= ranges[at][1]


def is_ignorable(char: str) -> bool:
    """Has the character no visible form by default (Unicode's Default_Ignorable_Code_Point)?"""
    return char >= "\xad" and _within(_IGNORABLE_RANGES, char)


def is_unseen(char: str) -> bool:
    """Does the fold `invisible` make it vanish?"""
    return is_ignorable(char) or _within(_CONTROL_RANGES, char) or ord(char) & 0xFFFE == 0xFFFE


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
    return "" if is_unseen(char) else char


def _space(char: str) -> str:
    return " " if char in _WHITE_SPACE else char


def _punctuation(char: str) -> str:
    return _PUNCTUATION.get(char, char)


def _canonical(char: str) -> str:
    """The characters that Unicode never composes, and those that are another one by definition (Å, the unit)."""
    return unicodedata.normalize("NFC", char)


class Lens:
    """A set of folds as one mapping. `fold(char)` is idempotent: folding a folded text changes nothing."""

    def __init__(self, folds: frozenset[Fold]) -> None:
        self.folds = folds
        self.drops_marks = Fold.ACCENTS in folds
        confusables = partial(skeleton, ignore_case=Fold.CASE in folds)
        steps: dict[Fold, Callable[[str], str]] = {
            Fold.INVISIBLE: _invisible,
            Fold.SPACE: _space,
            Fold.PUNCTUATION: _punctuation,
            # Before width and case: a capital is not always a look-alike where its small letter is one.
            Fold.CONFUSABLES: confusables,
            Fold.WIDTH: _width,
            Fold.ACCENTS: _accents,
            Fold.CASE: _case,
        }
        self._steps = [_canonical, *(step for fold, step in steps.items() if fold in folds)]
        self._steps_of_forms = [step for step in self._steps if step in (_width, _case)]
        # Lists of many words are folded when they are loaded: a few characters, very often.
        self._known = lru_cache(MAX_FOLDS)(self._fold)
        self._forms = lru_cache(MAX_FOLDS)(self._compute_forms)
        self._ascii = {code: self._known(chr(code)).text for code in range(128)}

    def __str__(self) -> str:
        return "+".join(fold for fold in Fold if fold in self.folds) or "exact"

    def fold(self, char: str) -> Folded:
        """One character. Compatibility and case forms are written for their letters and may be matched in part; what
        becomes several in another way (a Hangul syllable under `accents`, æ under `confusables`) is atomic."""
        return self._known(char)

    def _fold(self, char: str) -> Folded:
        text = _fold_repeatedly(char, self._steps)
        atomic = len(text) > 1 and len(_fold_repeatedly(char, self._steps_of_forms)) == 1
        return Folded(text, atomic, is_raised(char))

    def fold_word(self, word: str) -> str:
        """A word as the lens sees it, composed as far as the lens leaves compositions; with `space`, a run of blanks
        is one."""
        if word.isascii():
            folded = word.translate(self._ascii)
        else:
            folded = "".join([self.fold(char).text for char in word])
        if Fold.SPACE in self.folds:
            while "  " in folded:
                folded = folded.replace("  ", " ")
        if not folded.isascii():
            folded = "".join(self._forms(letter)[0] for letter in _letters(folded))
        return word if folded == word else folded  # of a long list, one string in the place of two

    def cases(self, word: str) -> Iterator[str]:
        """A word as the lens sees it; with `case` and `confusables`, also in capitals and without: Ν looks like N, and
        ν like v."""
        yield self.fold_word(word)
        if Fold.CASE in self.folds and Fold.CONFUSABLES in self.folds and not word.isascii():
            yield from map(self.fold_word, (word.lower(), word.upper(), word.capitalize()))

    def letter_forms(self, char: str) -> tuple[str, ...]:
        """How texts show one character of a pattern: the canonically equivalent spellings."""
        return tuple(self.spellings(self.fold_word(char)))

    def spellings(self, folded: str) -> Iterator[str]:
        """The forms in which a folded word stands in a text, character by character: composed, decomposed and anything
        between; with `space`, a blank within it as a hyphen. The word itself is the first. At most 4 x `MAX_FREE`."""
        blanks = Fold.SPACE in self.folds and " " in folded[1:-1]
        if folded.isascii() and not blanks:
            yield folded
            return
        choices = [self._forms(letter) for letter in _letters(folded)]
        if blanks:
            for at in range(1, len(choices) - 1):
                if choices[at] == (" ",) and not {choices[at - 1][0], choices[at + 1][0]} & LINE_MARKS:
                    choices[at] = (" ", "-")
        free, count = 0, 1
        while free < len(choices) and count * len(choices[free]) <= MAX_FREE:
            count *= len(choices[free])
            free += 1
        rest = choices[free:]
        tails = dict.fromkeys(
            "".join(each[-1] if (split if each[0] != " " else hyphens) else each[0] for each in rest)
            for split, hyphens in product((False, True), repeat=2)
        )
        for head in product(*choices[:free]):
            for tail in tails:
                yield "".join(head) + tail

    def _compute_forms(self, letter: str) -> tuple[str, ...]:
        """What is canonically equivalent to a base and its marks, and left as it is by the lens; the shortest first,
        which is the composed form where the lens has it, and the longest last."""
        if letter.isascii():
            return (letter,)
        composed, apart = (unicodedata.normalize(form, letter) for form in ("NFC", "NFD"))
        bases = 0 if unicodedata.combining(apart[0]) else 1
        base, marks = apart[:bases], apart[bases:]
        found = {composed, apart}
        if len(marks) <= _MAX_MARKS:
            for order in permutations(marks):
                text = "".join(order)
                for taken in range(len(text) + 1):
                    found.add(unicodedata.normalize("NFC", base + text[:taken]) + text[taken:])
        seen = (form for form in found if all(self.fold(char).text == char for char in form))
        equivalent = (form for form in seen if unicodedata.normalize("NFD", form) == apart)
        return tuple(sorted(equivalent, key=lambda form: (len(form), form != composed, form == apart, form))) or (
            letter,
        )


def _letters(text: str) -> Iterator[str]:
    """Bases, each with the marks that are written behind it, composed."""
    letter = ""
    for char in unicodedata.normalize("NFC", text):
        if letter and not unicodedata.combining(char):
            yield letter
            letter = ""
        letter += char
    if letter:
        yield letter


def _fold_repeatedly(text: str, steps: Sequence[Callable[[str], str]]) -> str:
    """Apply the steps until nothing changes: a form may hide another (a circled capital, a ligature of accents)."""
    while True:
        before = text
        for step in steps:
            text = "".join(map(step, text))
        if text == before:
            return text


@lru_cache(64)
def lens_of(folds: frozenset[Fold]) -> Lens:
    """The lens of these folds: it remembers what it has folded."""
    return Lens(folds)
