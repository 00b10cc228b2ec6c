"""JSON text that arrives in pieces (the arguments of a tool call), censored token by token and still JSON afterwards.

A censor must see what the client's parser will see: decoded strings, not `\\u0031\\u0032MONKEYS`. So the text is
scanned as it arrives and written anew:

    structure, whitespace   pass at once
    strings, keys           decoded, each a text of its own for a censor of its own, as they arrive; then escaped anew
    numbers                 each a text of its own, held to its end; one that the censor changed becomes a string
    true, false, null       held to their end, pass

Between two tokens the scanner is at one of eight places; the table below says which tokens may come there, and what a
close must write there. The open brackets are the only other state of the grammar.

A number or literal ends where `,` `]` `}` or the end of the text follows, whitespace between or not. Until then it is
held: if something else follows (`12 MONKEYS`) it was no JSON, and is still whole.

Where the text stops being JSON (no token fits, a bad escape, too deep, a number without end), everything from the start
of the token at fault, or from the backslash, is one plain text with one censor, written as it is. Nothing but
structure, whitespace and the three literals gets past a censor. Raw control characters in strings are forgiven (models
write raw line ends); they leave as escapes.

JSON within a string of other JSON stays spelled as it is where nothing is removed. There the
censors take and give strings as they are spelled (`raw`).

What comes out is a function of the whole text, never of its cuts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from gateway.surrogates import SurrogateJoiner

MAX_DEPTH = 512  # open brackets
MAX_BARE = 4096  # characters of a number or literal, whitespace after it included


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


class _Mode(Enum):
    STRUCTURE = auto()  # between two tokens, or in a number or literal that is held
    STRING = auto()
    PLAIN = auto()  # the text is not JSON
    STOPPED = auto()


_SPACE = re.compile(r"[ \t\n\r]+")
_STRUCTURAL = '"{}[],:'
_BARE = re.compile(r'([^ \t\n\r"{}\[\],:]*)([ \t\n\r]*)')
_LITERALS = ("true", "false", "null")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_BEGINNING = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.|(?:\.[0-9]+)?(?:[eE][+-]?[0-9]*)?))?")
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_ESCAPE_BEGINNING = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_STRING_BODY = re.compile(r'(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')  # possessive: no stack on long strings
_UNESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def escaped(text: str) -> str:
    """How `text` is written within a string of JSON."""
    return _quoted(text)[1:-1]


def _unescape(escape: re.Match[str]) -> str:
    letter, digits = escape.groups()
    return _UNESCAPED[letter] if letter else chr(int(digits, 16))


def _is_bare_token(text: str) -> bool:
    return text in _LITERALS or _NUMBER.fullmatch(text) is not None


def _begins_bare_token(text: str) -> bool:
    return any(word.startswith(text) for word in _LITERALS) or _NUMBER_BEGINNING.fullmatch(text) is not None


class JsonText:
    """One stream of JSON text. `new_text` makes the censor of each number, and of each string and plain text where
    these have no makers of their own. With `raw` those of strings decode and write them themselves."""

    def __init__(
        self,
        new_text: Callable[[], TextCensor],
        new_string: Callable[[], TextCensor] | None = None,
        new_plain: Callable[[], TextCensor] | None = None,
        *,
        raw: bool = False,
    ) -> None:
        self._new_text = new_text
        self._new_string = new_string or new_text
        self._new_plain = new_plain or new_text
        self._raw = raw
        self._mode = _Mode.STRUCTURE
        self._place = _VALUE  # within a string: the place after it
        self._closers: list[str] = []  # what closes the open brackets, innermost last
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

        A string that was cut stays open. Half an escape at its end is no character yet: it is dropped, or left to the
        censor with `raw`. A number that is complete as it stands is scanned as a number, the beginning of one (or of a
        literal) as plain text.
        """
        out: list[str] = []
        self._scan(self._arrived.finish(), out)
        held, self._held = self._held, ""
        if self._mode is _Mode.STRUCTURE and held:
            literal = held.rstrip(" \t\n\r")
            if _is_bare_token(literal):
                self._write_bare(literal, held[len(literal) :], out)
            else:
                self._scan_plain(held, out)
        if self._mode is _Mode.STRING:
            self._end_string(out, held if self._raw else "")
        elif self._mode is _Mode.PLAIN:
            self._release(self._censor.finish(), out)
        self._mode = _Mode.STOPPED
        return "".join(out)

    def close(self) -> str:
        """End the text here, because the answer ends here: drop what is held, return what makes the JSON complete."""
        mode, self._mode = self._mode, _Mode.STOPPED
        if mode in (_Mode.PLAIN, _Mode.STOPPED):
            return ""
        quote = '"' if mode is _Mode.STRING else ""
        return quote + self._place.missing + "".join(reversed(self._closers))

    def _scan(self, text: str, out: list[str]) -> None:
        """Read tokens; what is not certain yet goes back to `_held`."""
        text, self._held = self._held + text, ""
        position = 0
        while position < len(text) and self._mode is not _Mode.STOPPED:
            if self._mode is _Mode.STRUCTURE:
                position = self._scan_structure(text, position, out)
            elif self._mode is _Mode.STRING:
                position = self._scan_string(text, position, out)
            else:
                position += self._scan_plain(text[position:], out)

    def _scan_structure(self, text: str, position: int, out: list[str]) -> int:
        """Whitespace, or one token; of a string, its opening quote. Returns where the next one begins."""
        space = _SPACE.match(text, position)
        if space:
            out.append(space.group())
            return space.end()
        char = text[position]
        kind = char if char in _STRUCTURAL else "0"
        if kind not in self._place.accepts or (kind in "{[" and len(self._closers) == MAX_DEPTH):
            return position + self._scan_plain(text[position:], out)
        if kind == "0":
            return self._scan_bare(text, position, out)
        if kind == '"':
            self._mode = _Mode.STRING
            self._censor = self._new_string()
            self._place = _COLON if self._place in (_KEY, _FIRST_KEY) else self._after_value()
        elif kind == "{":
            self._closers.append("}")
            self._place = _FIRST_KEY
        elif kind == "[":
            self._closers.append("]")
            self._place = _FIRST_VALUE
        elif kind == ",":
            self._place = _KEY if self._place is _NEXT_KEY else _VALUE
        elif kind == ":":
            self._place = _VALUE
        else:
            self._closers.pop()
            self._place = self._after_value()
        out.append(char)
        return position + 1

    def _after_value(self) -> _TokenPlace:
        if not self._closers:
            return _END
        return _NEXT_KEY if self._closers[-1] == "}" else _NEXT_VALUE

    def _scan_bare(self, text: str, position: int, out: list[str]) -> int:
        """A number or literal and the whitespace after it, once what follows shows where it ends."""
        bare = _BARE.match(text, position)
        assert bare is not None, "it matches the empty string"
        token, space = bare.groups()
        end = bare.end()
        ended = bool(space) or end < len(text)
        followed_well = end == len(text) or (bool(self._closers) and text[end] in ",]}")
        fits = _is_bare_token(token) if ended else _begins_bare_token(token)
        if not fits or not followed_well or end - position > MAX_BARE:
            return position + self._scan_plain(text[position:], out)
        if end == len(text):
            self._held = text[position:]
        else:
            self._write_bare(token, space, out)
        return end

    def _write_bare(self, token: str, space: str, out: list[str]) -> None:
        """Write a literal as it is, a number as its censor leaves it; blocked, as a string of what came out before."""
        if token not in _LITERALS:
            self._censor = self._new_text()
            released = self._censor.feed(token)
            if not self._censor.blocked:
                released += self._censor.finish()
            if self._censor.blocked:
                self._blocked = True
                if released:
                    out.append(_quoted(released))
                    self._place = self._after_value()
                out.append(self.close())
                return
            token = _quoted(released) if self._censor.changed else released
        out.append(token + space)
        self._place = self._after_value()

    def _scan_string(self, text: str, position: int, out: list[str]) -> int:
        """As much of a string's inside as is there, and its closing quote."""
        body = _STRING_BODY.match(text, position)
        assert body is not None, "it matches the empty string"
        end = body.end()
        inside = body.group()
        self._censor_string(inside if self._raw else self._decoded.feed(_ESCAPE.sub(_unescape, inside)), out)
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
        self._mode = _Mode.STRUCTURE
        return end + 1

    def _end_string(self, out: list[str], held: str = "") -> None:
        self._censor_string(held + self._decoded.finish(), out)
        if not self._blocked:
            self._release(self._censor.finish(), out)

    def _censor_string(self, text: str, out: list[str]) -> None:
        if text:
            self._release(self._censor.feed(text), out)

    def _scan_plain(self, text: str, out: list[str]) -> int:
        """All of `text`, which is no JSON: the first or a further part of the plain text. Returns its length."""
        if self._mode is not _Mode.PLAIN:
            self._mode = _Mode.PLAIN
            self._censor = self._new_plain()
        self._release(self._censor.feed(text), out)
        return len(text)

    def _release(self, released: str, out: list[str]) -> None:
        """Write what the censor of a string or plain text let go; if it blocked, close the JSON."""
        out.append(escaped(released) if self._mode is _Mode.STRING and not self._raw else released)
        if self._censor.blocked:
            self._blocked = True
            out.append(self.close())
