r"""Escapes of strings, as JSON, JSON5, JavaScript and Python write them, in a text of no certain grammar.

What is read is what some lenient parser would make of the text: `\x73`, `\163`, `\u{73}` and `\u0073` are an `s`, and a
backslash before any other character is that character.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.inner_texts import Piece, Spelled
from gateway.surrogates import SurrogateJoiner

PAIR = r"u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_ESCAPE = re.compile(
    rf"\\(?:{PAIR}|u([0-9a-fA-F]{{4}})|u\{{([0-9a-fA-F]{{1,8}})\}}|U([0-9a-fA-F]{{8}})|x([0-9a-fA-F]{{2}})"
    r"|([0-7]{1,3})|(.))",
    re.DOTALL,
)
# The most that can still become another escape than it is: half a pair, and the beginning of the other half.
_BEGINNING = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u\{[0-9a-fA-F]{0,8}|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?|[0-7]{0,2}"
    r"|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)"
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST = 0x10FFFF


class Escape(NamedTuple):
    """`raw` is how the character at `offset` of the decoded text is spelled."""

    offset: int
    raw: str


class Unescaper:
    """One text in pieces, decoded; an escape that may not be complete waits for what follows it."""

    __slots__ = ("_decoded", "_held", "_joiner")

    def __init__(self) -> None:
        self._joiner = SurrogateJoiner()
        self._held = ""
        self._decoded = 0  # characters

    def feed(self, text: str) -> tuple[str, list[Escape]]:
        """What is certain of the decoded text, and the escapes in it; offsets count from the beginning of the text."""
        text, self._held = self._held + self._joiner.feed(text), ""
        return self._decode(text)

    def finish(self) -> tuple[str, list[Escape]]:
        """The rest; half an escape is the characters that it consists of."""
        rest, self._held = self._held + self._joiner.finish(), ""
        return self._decode(rest, ended=True)

    def _decode(self, text: str, ended: bool = False) -> tuple[str, list[Escape]]:
        parts: list[str] = []
        escapes: list[Escape] = []
        at = 0
        while (found := text.find("\\", at)) >= 0:
            parts.append(text[at:found])
            self._decoded += found - at
            at = found
            if not ended and _BEGINNING.fullmatch(text, at):
                self._held = text[at:]
                return "".join(parts), escapes
            escape = _ESCAPE.match(text, at)
            if escape is None:  # a backslash ends the text
                break
            parts.append(_character(escape))
            escapes.append(Escape(self._decoded, escape[0]))
            self._decoded += 1
            at = escape.end()
        parts.append(text[at:])
        self._decoded += len(text) - at
        return "".join(parts), escapes


class EscapeReader:
    """A text that is one inner text from its beginning on: as its escapes decode."""

    __slots__ = ("_decoded", "_raw", "_unescaper")

    idle = False

    def __init__(self) -> None:
        self._unescaper = Unescaper()
        self._decoded = 0  # characters that the unescaper has given
        self._raw = 0  # characters that it holds

    def read(self, text: str, at: int, end: int) -> Piece:
        if not self._raw:
            found = text.find("\\", at, end)
            if found != at:
                return Piece((end if found < 0 else found) - at, same=True)
        self._raw += 1
        steps = self._steps(*self._unescaper.feed(text[at]))
        return Piece(1, steps, waits=self._raw)

    def skip(self) -> bool:
        self._unescaper, self._decoded, self._raw = Unescaper(), 0, 0
        return True

    def finish(self) -> tuple[Spelled, ...]:
        return self._steps(*self._unescaper.finish())

    def _steps(self, text: str, escapes: list[Escape]) -> tuple[Spelled, ...]:
        spelled = {escape.offset - self._decoded: len(escape.raw) for escape in escapes}
        self._decoded += len(text)
        steps: list[Spelled] = []
        left = self._raw
        for at, char in enumerate(text):
            start, left = left, left - spelled.get(at, 1)
            steps.append(Spelled(char, start, left))
        self._raw = left
        return tuple(steps)


def unescaped(escape: str) -> str:
    """The character that an escape stands for."""
    return _character(_ESCAPE.match(escape))


def _character(escape: re.Match[str] | None) -> str:
    assert escape is not None, "it begins with a backslash, and goes on"
    high, low, four, braced, eight, two, octal, other = escape.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if other is not None:
        return _LETTERS.get(other, other)
    code = int(octal, 8) if octal is not None else int(four or braced or eight or two, 16)
    return "\ufffd" if 0xD800 <= code <= 0xDFFF or code > _LAST else chr(code)
