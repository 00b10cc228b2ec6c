"""The grammar of JSON between two tokens: which tokens may come, and what a close must write.

Between two tokens a text is at one of eight places. The open brackets are the only other state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_DEPTH = 512  # open brackets
MAX_BARE = 4096  # characters of a number or literal, whitespace after it included


@dataclass(frozen=True, slots=True)
class _TokenPlace:
    """A place between two tokens."""

    accepts: str  # the characters that may begin the next token; "0" is any number or literal
    missing: str = ""  # what must be written before the brackets can be closed here


_VALUE = _TokenPlace('"{[0', "null")
_FIRST_VALUE = _TokenPlace('"{[0]')
_NEXT_VALUE = _TokenPlace(",]")
_KEY = _TokenPlace('"', '"":null')
_FIRST_KEY = _TokenPlace('"}')
_COLON = _TokenPlace(":", ":null")
_NEXT_KEY = _TokenPlace(",}")
_END = _TokenPlace("")

SPACE = re.compile(r"[ \t\n\r]+")
UNESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
LITERALS = ("true", "false", "null")
STRUCTURAL = '"{}[],:'
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EXPONENT = "[eE][+-]?[0-9]*"
_BEGINNING = re.compile(
    r"t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
    rf"|-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:{_EXPONENT})?|\.|{_EXPONENT})?)?"
)


def is_bare_token(text: str) -> bool:
    """Is this a number, or one of the three literals?"""
    return text in LITERALS or _NUMBER.fullmatch(text) is not None


def bare_beginning(text: str) -> int:
    """How many characters of the text's beginning are, or can become, a number or literal."""
    beginning = _BEGINNING.match(text)
    assert beginning is not None, "it matches the empty string"
    return beginning.end()


def whole_number(token: str) -> str | None:
    """The digits of a number that is written with a fraction or an exponent and is whole (`4.1e15`), as parsers of
    floating-point numbers read it; None for others, and where they would be more than a float's exact ones."""
    if token.isdecimal() or not any(mark in token for mark in ".eE"):
        return None
    value = float(token)
    return str(int(value)) if abs(value) < _EXACT and value.is_integer() else None


_EXACT = 1e21  # from here on JavaScript writes numbers with an exponent, too


class JsonPlace:
    """A place between two tokens of one JSON text. `closers` is what closes the open brackets, innermost last."""

    __slots__ = ("_place", "closers")

    def __init__(self) -> None:
        self._place = _VALUE
        self.closers: list[str] = []

    @property
    def ended(self) -> bool:
        """Is the value complete?"""
        return self._place is _END

    def accepts(self, char: str) -> bool:
        """May a token that begins with `char` come here?"""
        kind = char if char in STRUCTURAL else "0"
        return kind in self._place.accepts and (kind not in "{[" or len(self.closers) < MAX_DEPTH)

    def advance(self, char: str) -> None:
        """Go past the token that begins with `char`; past a string already at its opening quote."""
        if char == '"' and self._place in (_KEY, _FIRST_KEY):
            self._place = _COLON
        elif char == "{":
            self.closers.append("}")
            self._place = _FIRST_KEY
        elif char == "[":
            self.closers.append("]")
            self._place = _FIRST_VALUE
        elif char == ",":
            self._place = _KEY if self._place is _NEXT_KEY else _VALUE
        elif char == ":":
            self._place = _VALUE
        else:
            if char in "}]":
                self.closers.pop()
            self._place = _END if not self.closers else _NEXT_KEY if self.closers[-1] == "}" else _NEXT_VALUE

    def closing(self) -> str:
        """The text that completes the JSON from here."""
        return self._place.missing + "".join(reversed(self.closers))
