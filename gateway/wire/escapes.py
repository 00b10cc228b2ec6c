r"""Escapes of strings, as JSON, JSON5, JavaScript and Python write them, in a text of no certain grammar.

What is read is what some lenient parser would make of the text: `\x73`, `\163`, `\u{73}` and `\u0073` are an `s`, and a
backslash before any other character is that character.
"""

from __future__ import annotations

import re

from gateway.inner_texts import BusyReader, Piece, Spelled

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


class EscapeReader(BusyReader):
    """A text that is one inner text from its beginning on: as its escapes decode. One that may not be complete waits
    for what follows it; half an escape at the text's end is the characters that it consists of."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def read(self, text: str, at: int, end: int) -> Piece:
        if not self._held:
            found = text.find("\\", at, end)
            if found != at:
                return Piece((end if found < 0 else found) - at, same=True)
        steps = self._decoded(self._held + text[at])
        return Piece(1, steps, waits=len(self._held))

    def skip(self) -> bool:
        self._held = ""
        return True

    def finish(self) -> tuple[Spelled, ...]:
        return self._decoded(self._held, ended=True)

    def _decoded(self, text: str, ended: bool = False) -> tuple[Spelled, ...]:
        """What is certain of a text; the rest is held."""
        steps: list[Spelled] = []
        at, size, self._held = 0, len(text), ""
        while at < size:
            if text[at] == "\\" and not ended and _BEGINNING.fullmatch(text, at):
                self._held = text[at:]
                break
            escape = _ESCAPE.match(text, at)  # none for other characters, nor for a backslash that ends the text
            end = at + 1 if escape is None else escape.end()
            steps.append(Spelled(text[at] if escape is None else _character(escape), size - at, size - end))
            at = end
        return tuple(steps)


def unescaped(escape: str) -> str:
    """The character that an escape stands for."""
    return _character(_ESCAPE.match(escape))


def _character(escape: re.Match[str] | None) -> str:
    assert escape is not None, "it begins with a backslash, and continues"
    high, low, four, braced, eight, two, octal, other = escape.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if other is not None:
        return _LETTERS.get(other, other)
    code = int(octal, 8) if octal is not None else int(four or braced or eight or two, 16)
    return "\ufffd" if 0xD800 <= code <= 0xDFFF or code > _LAST else chr(code)
