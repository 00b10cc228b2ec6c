r"""Parts of a regular expression: escapes after a backslash, and classes in brackets."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import NoReturn

from gateway.automata import charset
from gateway.automata.charset import CharSet, UnknownProperty, property_set

BACK_REFERENCE = (
    r"back-references are not supported, since no automaton can compare two parts of a text: spell the alternatives "
    r"out; a character by its number is written \xHH"
)

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}

_PROPERTY = re.compile(r"[pP](?:\{([^{}]*)\}|([A-Za-z]))")
_OCTAL = re.compile(r"0[0-7]{0,2}")
_POSIX_CLASS = re.compile(r"\[:(\^?)([a-zA-Z]+):\]")

# Unicode's reading of POSIX's classes (UTS #18, annex C), where symbols such as $ and + are punctuation, as in POSIX.
_POSIX: dict[str, Callable[[], CharSet]] = {
    "alnum": lambda: property_set("Alphabetic") | charset.DIGIT,
    "alpha": lambda: property_set("Alphabetic"),
    "blank": lambda: property_set("Zs") | CharSet.of("\t"),
    "cntrl": lambda: property_set("Cc"),
    "digit": lambda: charset.DIGIT,
    "graph": lambda: ~(charset.SPACE | property_set("Cc") | property_set("Cs") | property_set("Cn")),
    "lower": lambda: property_set("Lowercase"),
    "print": lambda: _POSIX["graph"]() | property_set("Zs"),
    "punct": lambda: (property_set("P") | property_set("S")) - property_set("Alphabetic"),
    "space": lambda: charset.SPACE,
    "upper": lambda: property_set("Uppercase"),
    "word": lambda: charset.WORD,
    "xdigit": lambda: property_set("Hex_Digit"),
}


class RegexError(ValueError):
    """A pattern that cannot be used. `reason` says why and what to do; `position` counts the pattern's characters from
    0, and is None where the pattern as a whole is meant. Neither quotes the pattern."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} (at position {position})")
        self.reason = reason
        self.position = position


def refuse(reason: str, position: int) -> NoReturn:
    """Raises RegexError."""
    raise RegexError(reason, position) from None


class RegexReader:
    """A pattern and how far it has been read: `at` is the next character."""

    __slots__ = ("at", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.pattern)

    def next(self) -> str:
        """The next character, empty at the end; it is not consumed."""
        return self.pattern[self.at : self.at + 1]

    def sees(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def accept(self, text: str) -> bool:
        """Skip `text`, if it is here."""
        found = self.sees(text)
        if found:
            self.at += len(text)
        return found

    def accept_match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Skip what the expression matches here."""
        found = expression.match(self.pattern, self.at)
        if found is not None:
            self.at = found.end()
        return found


def read_escape(reader: RegexReader, begin: int, ignore_case: bool) -> str | CharSet:
    r"""The escape after the backslash at `begin`, inside or outside a class: a character to be read literally, or a
    set. Raises RegexError.

    `ignore_case` is applied to properties. `\d`, `\w` and `\s` have nothing to gain, and single characters are left to
    the caller, who may have to fold them first.
    """
    if found := reader.accept_match(_PROPERTY):
        return _property(found, begin, ignore_case)
    if found := reader.accept_match(_OCTAL):
        return chr(int(found[0], 8))
    letter = reader.next()
    reader.at += 1
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter in _HEX_DIGITS:
        return _numbered(reader, _HEX_DIGITS[letter], begin)
    match letter:
        case "d" | "D":
            return charset.DIGIT if letter == "d" else ~charset.DIGIT
        case "w" | "W":
            return charset.WORD if letter == "w" else ~charset.WORD
        case "s" | "S":
            return charset.SPACE if letter == "s" else ~charset.SPACE
        case "":
            refuse(r"the pattern ends with a backslash: write \\ for the character", begin)
        case _ if letter.isascii() and letter.isdigit():
            refuse(BACK_REFERENCE, begin)
        case _ if letter.isascii() and letter.isalpha():
            refuse(
                r"unknown escape: a letter is written without the backslash, a character by its number \xHH, \uHHHH "
                r"or \UHHHHHHHH",
                begin,
            )
    return letter


def _numbered(reader: RegexReader, count: int, begin: int) -> str:
    digits = reader.accept_match(re.compile(f"[0-9A-Fa-f]{{{count}}}"))
    if digits is None or int(digits[0], 16) > charset.LAST:
        refuse(rf"characters are numbered \xHH, \uHHHH or \UHHHHHHHH, up to {charset.LAST:X}", begin)
    return chr(int(digits[0], 16))


def _property(found: re.Match[str], begin: int, ignore_case: bool) -> CharSet:
    try:
        return _named_set(found[2] or found[1], ignore_case, found[0][0] == "P")
    except UnknownProperty:
        refuse(r"unknown Unicode property: \p{Lu}, \p{Greek} or \p{Alphabetic} would be known", begin)


@lru_cache(1024)
def _named_set(name: str, ignore_case: bool, negated: bool, posix: bool = False) -> CharSet:
    """Of a Unicode property, or of a POSIX class. Raises UnknownProperty."""
    chars = _POSIX[name]() if posix else property_set(name)
    chars = chars.ignoring_case() if ignore_case else chars
    return ~chars if negated else chars


def read_class(reader: RegexReader, begin: int, ignore_case: bool) -> CharSet:
    """The class whose bracket at `begin` has been read, up to the closing one. Raises RegexError."""
    negated = reader.accept("^")
    first = reader.at
    ranges: list[tuple[int, int]] = []
    sets: dict[CharSet, None] = {}  # each once: to join them takes time for each of their ranges
    while reader.at == first or not reader.accept("]"):
        low = _member(reader, begin, ignore_case)
        at_dash = reader.at
        if reader.sees("-]") or not reader.accept("-"):
            if isinstance(low, CharSet):
                sets[low] = None
            else:
                ranges.append((ord(low), ord(low)))
            continue
        high = _member(reader, begin, ignore_case)
        if isinstance(low, CharSet) or isinstance(high, CharSet) or high < low:
            refuse(r"a bad range: it goes from a character to a greater one; write \- for the sign", at_dash)
        ranges.append((ord(low), ord(high)))
    chars = CharSet.within(ranges)
    chars = chars.ignoring_case() if ignore_case else chars
    chars = CharSet.within(chain(chars.ranges, *(each.ranges for each in sets)))
    return ~chars if negated else chars


def _member(reader: RegexReader, begin: int, ignore_case: bool) -> str | CharSet:
    """One character or escape of the class that begins at `begin`."""
    at = reader.at
    if reader.ended:
        refuse(r"the class has no end: close it with ], or write \[ for the character", begin)
    if found := reader.accept_match(_POSIX_CLASS):
        if found[2] not in _POSIX:
            refuse(rf"[:name:] is one of {', '.join(_POSIX)}; for the characters, write \[:", at)
        return _named_set(found[2], ignore_case, found[1] == "^", posix=True)
    reader.at += 1
    if reader.pattern[at] != "\\":
        return reader.pattern[at]
    return "\b" if reader.accept("b") else read_escape(reader, at, ignore_case)
