"""JSON text in one of its spellings.

Inside a string JSON lets a writer choose: `/` or `\\/`, `é` or `\\u00e9`, a delete character or its number. A parser
that knows the one spelling is given every text in it.
"""

from __future__ import annotations

import json

from gateway.surrogates import join_surrogates

_HEX = frozenset("0123456789abcdefABCDEF")
_DELETE = "\x7f"


class JsonSpelling:
    """A text, character by character. What is no JSON stays what it is not."""

    __slots__ = ("_high", "_in_string", "_pending")

    def __init__(self) -> None:
        self._in_string = False
        self._pending = ""  # an escape that is not complete
        self._high = ""  # half a surrogate pair, escaped, that may be followed by the other half

    def passes(self, text: str) -> bool:
        """Is this piece spelled as it should be? If so it counts as fed."""
        if self._pending or self._high or "\\" in text or _DELETE in text:
            return False
        self._in_string ^= text.count('"') % 2 == 1
        return True

    def feed(self, char: str) -> str:
        """The text that must come next in that spelling, possibly none."""
        if not self._in_string:
            self._in_string = char == '"'
            return char
        if self._pending:
            return self._escaped(char)
        if char == "\\":
            self._pending = char
            return ""
        before = self._alone()
        if char == '"':
            self._in_string = False
            return before + char
        return before + _plain(char)

    def _escaped(self, char: str) -> str:
        pending = self._pending + char
        self._pending = ""
        if len(pending) == 2 and char != "u":
            return self._alone() + ("/" if char == "/" else pending)
        if len(pending) > 2 and char not in _HEX:
            return self._alone() + pending  # no escape: for the parser to refuse
        if len(pending) < 6:
            self._pending = pending
            return ""
        return self._numbered(chr(int(pending[2:], 16)))

    def _numbered(self, unit: str) -> str:
        if self._high and "\udc00" <= unit <= "\udfff":
            pair = join_surrogates(self._high + unit)
            self._high = ""
            return pair
        before = self._alone()
        if "\ud800" <= unit <= "\udbff":
            self._high = unit
            return before
        return before + _plain("\ufffd" if "\udc00" <= unit <= "\udfff" else unit, numbered=True)

    def _alone(self) -> str:
        alone = "\ufffd" if self._high else ""
        self._high = ""
        return alone


def _plain(char: str, *, numbered: bool = False) -> str:
    """How a character of a string is written, where it was not escaped or was `numbered`."""
    if char == _DELETE:
        return "\\u007f"
    return json.dumps(char, ensure_ascii=False)[1:-1] if numbered else char
