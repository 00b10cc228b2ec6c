"""Roles of characters in disguised words: letters, stand-ins for letters, separators, parts of a code."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gateway.automata.codes import OTHER_CHARSETS, STACKED, VARIANTS
from gateway.automata.encodings import (
    CONTROL_SEQUENCES,
    DRAWN,
    LEET,
    MASKS,
    PUNCTUATION,
    Encoding,
    Reading,
    Spellings,
    ascii_form,
)
from gateway.automata.look_alikes import ALIKE, is_common_script
from gateway.automata.markup import escapes
from gateway.automata.word_places import Obfuscation
from gateway.automata.word_trie import WordSet

_STROKES = {"i": "l", "l": "i"}  # letters that look alike in one case, which is not that of all forms of them
MAX_READINGS = 50_000  # of characters in an encoding
LINE_MARKS = frozenset(">-*+#|")


class Char(NamedTuple):
    """A character as the positions see it: its letters, those it may stand for, its form in encodings."""

    plain: str
    looks_like: str
    draws: str  # letters that it stands for as well as they do themselves
    is_sign: bool
    masks: bool  # may it stand for any vowel
    code: str
    gap: int  # may it lie between letters: 1; a blank: 2
    line_end: bool
    begins: tuple[int, ...]  # the encodings within a text of which a letter begins


class WordChars:
    """What characters are to sets of words. `letters` are those of a character, as the words have them.

    `encodings` are numbered from 1: the first `embedded` are within a text, each for one letter, the others for whole
    words. `looks_ahead`: of which of them it is known what a beginning may become.
    """

    def __init__(self, words: Sequence[WordSet], disguises: Obfuscation, letters: Callable[[str], str]) -> None:
        self._alphabet = frozenset(char for each in words for word in each.words for char in word)
        self._edited = any(each.edits for each in words)  # with edits, `l` for `i` would be in many words
        self._letters, self._disguises = letters, disguises
        embedded: list[Encoding] = [Spellings(DRAWN)] * disguises.leet
        if disguises.markup or disguises.url:
            embedded.append(escapes(markup=disguises.markup, url=disguises.url))
        if disguises.controls:
            embedded.append(CONTROL_SEQUENCES)
        self.embedded = len(embedded)
        codes = VARIANTS | STACKED | (OTHER_CHARSETS if disguises.charsets else {})
        self.encodings = [*embedded, *(codes[name] for name in disguises.variants)]
        self.looks_ahead = [isinstance(each, Spellings) for each in self.encodings]
        self._any_case = not (disguises.markup or disguises.url or disguises.variants)
        self._readings: dict[tuple[int, str | None, str], tuple[Reading, ...]] = {}

    def key(self, unit: str) -> Char:
        """What tells a character from those of other classes."""
        letters = self._letters(unit)
        code = ascii_form(unit) if self.encodings or unit in LINE_MARKS else ""
        code = code.lower() if self._any_case else code
        plain = letters if self._alphabet.intersection(letters) else ""
        looks_like, draws = self._looks(unit, plain)
        begins = tuple(encoding for encoding in range(1, self.embedded + 1) if self.read_code(encoding, None, code))
        return Char(
            plain=plain,
            looks_like=looks_like,
            draws=draws,
            is_sign=unit in PUNCTUATION,
            masks=unit in MASKS,
            code=code,
            gap=0 if unit.isalnum() else 2 if unit.isspace() else 1,
            line_end=unit in "\n\r\u2028\u2029",
            begins=begins,
        )

    def _looks(self, unit: str, plain: str) -> tuple[str, str]:
        """The letters that a character stands for, besides `plain`."""
        leet = self._disguises.leet
        alike = ALIKE.get(unit, "") if leet and not (self._edited and unit.isascii()) else ""
        if leet and not unit.isascii() and not unicodedata.normalize("NFD", unit)[0].isascii():
            alike += _STROKES.get(letters := self._letters(unit), LEET.get(letters, ""))
        common = is_common_script(unit)
        itself = unit.lower() * (len(plain) > 1)  # what is folded to several letters, and one in a word with edits
        looks_like, draws = (
            "".join(char for char in dict.fromkeys(chars) if char in self._alphabet and char != plain)
            for chars in (LEET.get(unit, "") * leet + alike * common, alike * (not common) + itself)
        )
        return looks_like, draws

    def read_code(self, encoding: int, state: str | None, code: str) -> tuple[Reading, ...]:
        """What a character comes to in an encoding, its letters as the words have them; `state` None: where it begins.
        What cannot lead on in any word is left out."""
        key = encoding, state, code
        readings = self._readings.get(key)
        if readings is None:
            if len(self._readings) >= MAX_READINGS:
                self._readings.clear()
            readings = self._readings[key] = tuple(self.readings(encoding, state, code))
        return readings

    def readings(self, encoding: int, state: str | None, code: str) -> Iterator[Reading]:
        """The same, computed."""
        reads = self.encodings[encoding - 1]
        found = (reads.start(code) if state is None else reads.step(state, code)) if code else ()
        for letters, rest in found:
            if letters and encoding > self.embedded:
                letters = self.in_words(letters)
                if letters is None:
                    continue
            elif letters:
                seen = "".join(map(self._letters, letters))
                # One that is escaped may be a disguise of another, or stand between two.
                letters = letters if seen and len(letters) == 1 else seen
            yield Reading(letters, rest)

    def in_words(self, letters: str) -> str | None:
        """The letters as the words have them; None if no word has."""
        seen = "".join(map(self._letters, letters))
        return seen if self._alphabet.issuperset(seen) else None
