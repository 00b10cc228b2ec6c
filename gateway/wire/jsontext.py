"""JSON text that arrives in pieces (the arguments of a tool call), censored token by token and still JSON afterwards.

A censor must see what the client's parser will see: decoded strings, not `\\u0031\\u0032MONKEYS`. So the text is
scanned as it arrives and re-encoded:

    structure, whitespace   pass at once
    strings, keys           decoded, each a text of its own for a censor of its own, as they arrive; then escaped again
    numbers                 each a text of its own, held to its end; one that the censor changed becomes a string
    true, false, null       held to their end, pass

Between two tokens the scanner is at one of eight places; the table below says which tokens may come there, and what a
close must write there. The open brackets are the only other state of the grammar.

A number or literal ends where `,` `]` `}` or the end of the text follows, whitespace between or not. Until then it is
held: if something else follows (`12 MONKEYS`) it was no JSON, and is still whole.

Where the text stops being JSON (no token fits, a bad escape, too deep, a number without end), everything from the start
of the token at fault, or from the backslash, is one plain text with one censor, written as it is. Nothing but
structure, whitespace and the three literals gets past a censor. Raw control characters in strings are forgiven (models
write raw line breaks); they leave as escapes.

What comes out is a function of the whole text, never of its cuts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from gateway.surrogates import SurrogateJoiner
from gateway.wire.jsongrammar import (
    LITERALS,
    MAX_BARE,
    SPACE,
    STRUCTURAL,
    UNESCAPED,
    JsonPlace,
    bare_beginning,
    is_bare_token,
)


class TextCensor(Protocol):
    """The censor of one text, however it is cut."""

    def feed(self, text: str) -> str:
        """Returns what is now safe to release."""

    def finish(self) -> str:
        """The rest: the text ends here."""

    @property
    def changed(self) -> bool:
        """Something of this text was replaced."""

    @property
    def blocked(self) -> bool:
        """The answer ends here; nothing more comes out."""


class _JsonMode(Enum):
    STRUCTURE = auto()  # between two tokens, or in a number or literal that is held
    STRING = auto()
    PLAIN = auto()  # the text is not JSON
    STOPPED = auto()


_BARE = re.compile(r'([^ \t\n\r"{}\[\],:]*)([ \t\n\r]*)')
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_ESCAPE_BEGINNING = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_STRING_BODY = re.compile(r'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')  # possessive: no stack on long strings

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def escaped(text: str) -> str:
    """How `text` is written within a string of JSON."""
    return _quoted(text)[1:-1]


def _unescape(escape: re.Match[str]) -> str:
    letter, digits = escape.groups()
    return UNESCAPED[letter] if letter else chr(int(digits, 16))


class JsonText:
    """One stream of JSON text. The three functions make the censor of each number, string and plain text."""

    def __init__(
        self,
        new_number: Callable[[str], TextCensor],
        new_string: Callable[[], TextCensor],
        new_plain: Callable[[], TextCensor],
    ) -> None:
        self._new_number = new_number
        self._new_string = new_string
        self._new_plain = new_plain
        self._mode = _JsonMode.STRUCTURE
        self._place = JsonPlace()  # within a string: the place after it
        self._held = ""  # an incomplete number, literal or escape
        self._censor: TextCensor  # of the last string, number or plain text
        self._arrived = SurrogateJoiner()  # of the characters as they arrive
        self._decoded = SurrogateJoiner()  # of the escapes in one string
        self._blocked = False

    @property
    def blocked(self) -> bool:
        """A censor blocked: the JSON was closed, and nothing more comes out."""
        return self._blocked

    def feed(self, text: str) -> str:
        """Returns what is now safe to release, as JSON text; nothing once the JSON is closed."""
        out: list[str] = []
        self._scan(self._arrived.feed(text), out)
        return "".join(out)

    def finish(self) -> str:
        """The rest, at the end of the text.

        A string that was cut stays open, and half an escape at its end is dropped. A number that is complete as it
        stands is scanned as a number, the beginning of one (or of a literal) as plain text.
        """
        out: list[str] = []
        self._scan(self._arrived.finish(), out)
        held, self._held = self._held, ""
        if self._mode is _JsonMode.STRUCTURE and held:
            literal = held.rstrip(" \t\n\r")
            if is_bare_token(literal):
                self._write_bare(literal, held[len(literal) :], out)
            else:
                self._scan_plain(held, out)
        if self._mode is _JsonMode.STRING:
            self._end_string(out)
        elif self._mode is _JsonMode.PLAIN:
            self._release(self._censor.finish(), out)
        self._mode = _JsonMode.STOPPED
        return "".join(out)

    def close(self) -> str:
        """End the text here, because the answer ends here: drop what is held, return what makes the JSON complete."""
        mode, self._mode = self._mode, _JsonMode.STOPPED
        if mode in (_JsonMode.PLAIN, _JsonMode.STOPPED):
            return ""
        quote = '"' if mode is _JsonMode.STRING else ""
        return quote + self._place.closing()

    def _scan(self, text: str, out: list[str]) -> None:
        """Read tokens; what is not certain yet goes back to `_held`."""
        text, self._held = self._held + text, ""
        position = 0
        while position < len(text) and self._mode is not _JsonMode.STOPPED:
            if self._mode is _JsonMode.STRUCTURE:
                position = self._scan_structure(text, position, out)
            elif self._mode is _JsonMode.STRING:
                position = self._scan_string(text, position, out)
            else:
                position += self._scan_plain(text[position:], out)

    def _scan_structure(self, text: str, position: int, out: list[str]) -> int:
        """Whitespace, or one token; of a string, its opening quote. Returns where the next one begins."""
        space = SPACE.match(text, position)
        if space:
            out.append(space.group())
            return space.end()
        char = text[position]
        if not self._place.accepts(char):
            return position + self._scan_plain(text[position:], out)
        if char not in STRUCTURAL:
            return self._scan_bare(text, position, out)
        if char == '"':
            self._mode = _JsonMode.STRING
            self._censor = self._new_string()
        self._place.advance(char)
        out.append(char)
        return position + 1

    def _scan_bare(self, text: str, position: int, out: list[str]) -> int:
        """A number or literal and the whitespace after it, once what follows shows where it ends."""
        bare = _BARE.match(text, position)
        assert bare is not None, "it matches the empty string"
        token, space = bare.groups()
        end = bare.end()
        ended = bool(space) or end < len(text)
        followed_well = end == len(text) or (bool(self._place.closers) and text[end] in ",]}")
        fits = is_bare_token(token) if ended else bare_beginning(token) == len(token)
        if not fits or not followed_well or end - position > MAX_BARE:
            return position + self._scan_plain(text[position:], out)
        if end == len(text):
            self._held = text[position:]
        else:
            self._write_bare(token, space, out)
        return end

    def _write_bare(self, token: str, space: str, out: list[str]) -> None:
        """Write a literal as it is, a number as its censor leaves it; blocked, as a string of what came out before."""
        if token not in LITERALS:
            self._censor = self._new_number(token)
            released = self._censor.feed(token)
            if not self._censor.blocked:
                released += self._censor.finish()
            if self._censor.blocked:
                self._blocked = True
                if released:
                    out.append(_quoted(released))
                    self._place.advance(token)
                out.append(self.close())
                return
            token = _quoted(released) if self._censor.changed else released
        out.append(token + space)
        self._place.advance(token)

    def _scan_string(self, text: str, position: int, out: list[str]) -> int:
        """As much of a string's inside as is there, and its closing quote."""
        body = _STRING_BODY.match(text, position)
        assert body is not None, "it matches the empty string"
        end = body.end()
        inside = body.group()
        self._censor_string(self._decoded.feed(_ESCAPE.sub(_unescape, inside)), out)
        if end == len(text) or self._blocked:
            return end
        if _ESCAPE_BEGINNING.fullmatch(text, end):
            self._held = text[end:]
            return len(text)
        self._end_string(out)
        if self._blocked:
            return end
        if text[end] == "\\":
            return end + self._scan_plain(text[end:], out)
        out.append('"')
        self._mode = _JsonMode.STRUCTURE
        return end + 1

    def _end_string(self, out: list[str]) -> None:
        self._censor_string(self._decoded.finish(), out)
        if not self._blocked:
            self._release(self._censor.finish(), out)

    def _censor_string(self, text: str, out: list[str]) -> None:
        if text:
            self._release(self._censor.feed(text), out)

    def _scan_plain(self, text: str, out: list[str]) -> int:
        """All of `text`, which is no JSON: the first or a further part of the plain text. Returns its length."""
        if self._mode is not _JsonMode.PLAIN:
            self._mode = _JsonMode.PLAIN
            self._censor = self._new_plain()
        self._release(self._censor.feed(text), out)
        return len(text)

    def _release(self, released: str, out: list[str]) -> None:
        """Write what the censor of a string or plain text let go; if it blocked, close the JSON."""
        out.append(escaped(released) if self._mode is _JsonMode.STRING else released)
        if self._censor.blocked:
            self._blocked = True
            out.append(self.close())
