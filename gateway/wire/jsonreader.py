"""Where the strings and numbers of a JSON text are, while it stays as it is spelled.

`gateway.wire.jsontext` re-encodes JSON; this only looks through its escapes.
"""

from __future__ import annotations

import re

from gateway.inner_texts import BusyReader, Closed, Opened, Piece, Spelled, Step, Token
from gateway.wire.escapes import PAIR, EscapeReader, unescaped
from gateway.wire.jsongrammar import (
    LITERALS,
    MAX_BARE,
    SPACE,
    STRUCTURAL,
    JsonPlace,
    bare_beginning,
    is_bare_token,
    whole_number,
)

MAX_NESTED = 2  # how often JSON in a string of JSON is read, each time within the last
STARTS = '{["'  # what JSON within a string begins with; a number is one of the string anyway

_RUN = re.compile(r'[^"\\]+')
_TOKEN = re.compile(r'[^ \t\n\r"{}\[\],:]+')
# Fewer escapes than `unescaped` decodes, which it decodes alike.
_ESCAPE = re.compile(rf'\\(?:["\\/bfnrt]|{PAIR}|u[0-9a-fA-F]{{4}})')
_BEGINNING = re.compile(
    r"\\(?:u(?:[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?|[0-9a-fA-F]{0,3}))?"
)
_LONGEST = 12  # characters of an escape: of a pair

_Steps = tuple[Step, ...]


class JsonReader(BusyReader):
    """The strings and numbers of JSON values, one after the other, that begin with a character of `starts`.

    `nested`: how often JSON in strings is read. `wanted`: the text is meant to be JSON. So it is to stay valid (a
    number that is changed becomes a string, a block closes what is open), and from where it is no JSON after all, its
    escapes are read as lenient parsers would. Other text is read no further there.
    """

    __slots__ = ("_bare", "_escape", "_in_string", "_nested", "_over", "_place", "_rest", "_starts", "_wanted")

    def __init__(self, starts: str = STARTS, nested: int = MAX_NESTED, *, wanted: bool = False) -> None:
        self._starts = starts
        self._nested = nested
        self._wanted = wanted
        self._place: JsonPlace | None = None
        self._in_string = False
        self._escape = ""  # the beginning of one
        self._bare = ""  # a number or literal so far
        self._over = False
        self._rest: EscapeReader | None = None  # of what is no JSON

    def read(self, text: str, at: int, end: int) -> Piece | None:
        if self._in_string:
            return self._read_string(text, at, end)
        if self._rest is not None:
            return self._rest.read(text, at, end)
        if self._over:
            return None
        if token := _TOKEN.match(text, at, end):
            return self._read_bare(token[0])
        if self._bare:
            return self._end_bare(text[at])
        if space := SPACE.match(text, at, end):
            return Piece(space.end() - at)
        return self._read_structure(text[at])

    def skip(self) -> bool:
        if self._rest is not None:
            return self._rest.skip()
        if self._in_string and not self._escape:
            return True
        self._over, self._in_string, self._bare, self._escape = True, False, "", ""
        return False

    def finish(self) -> _Steps:
        if self._rest is not None:
            return self._rest.finish()
        return self._token(0) if self._bare and is_bare_token(self._bare) else ()

    def _read_structure(self, char: str, steps: _Steps = ()) -> Piece | None:
        if self._place is None or (self._place.ended and char in "{["):
            if char not in self._starts:
                return self._stop(char)
            self._place = JsonPlace()
        place = self._place
        if not place.accepts(char):
            return self._stop(char, steps)
        place.advance(char)
        if char == '"':
            self._in_string = True
            reader = None
            if self._nested:
                reader = JsonReader(nested=self._nested - 1, wanted=self._wanted)
            steps = *steps, Opened(reader, closing='"' + place.closing() if self._wanted else "")
        return Piece(1, steps)

    def _stop(self, text: str, steps: _Steps = ()) -> Piece | None:
        """From `text` on, which the piece ends with, this is no JSON."""
        self._over = True
        if not self._wanted or self._place is None:
            return Piece(1, steps) if steps else None
        self._rest = rest = EscapeReader()
        more: list[Step] = [Opened(None, exact=False, back=len(text))]
        waits = 0
        for left, char in zip(range(len(text) - 1, -1, -1), text, strict=True):
            piece = rest.read(char, 0, 1)
            waits = piece.waits
            if piece.same:
                more.append(Spelled(char, left + 1, left))
            for step in piece.steps:
                assert isinstance(step, Spelled), "escapes are all that is read there"
                more.append(Spelled(step.char, step.start + left, step.end + left))
        return Piece(1, (*steps, *more), waits)

    # -- numbers and literals ------------------------------------------------------------------------------------------

    def _read_bare(self, more: str) -> Piece | None:
        if not self._bare and (self._place is None or not self._place.accepts(more[0])):
            return self._stop(more[0])
        bare = self._bare + more[: MAX_BARE + 1]
        bare = bare[: min(bare_beginning(bare), MAX_BARE)]
        length = len(bare) - len(self._bare)
        if not length:
            return self._stop(more[0])
        self._bare = bare
        return Piece(length, waits=0 if bare[0] in "tfn" else len(bare))

    def _end_bare(self, char: str) -> Piece | None:
        place = self._place
        assert place is not None, "numbers come only within brackets"
        if not is_bare_token(self._bare) or not place.closers or char not in " \t\n\r,]}":
            return self._stop(char)
        steps = self._token(1)
        place.advance(self._bare)
        self._bare = ""
        if char in STRUCTURAL:
            return self._read_structure(char, steps)
        return Piece(1, steps)

    def _token(self, after: int) -> _Steps:
        """The number that has ended so many characters ago; nothing for a literal."""
        bare, place = self._bare, self._place
        assert place is not None, "numbers come only within brackets"
        if bare in LITERALS:
            return ()
        closing = "".join(reversed(place.closers)) if self._wanted else ""
        return (Token(bare, whole_number(bare), after + len(bare), after, self._wanted, closing),)

    # -- strings -------------------------------------------------------------------------------------------------------

    def _read_string(self, text: str, at: int, end: int) -> Piece | None:
        if not self._escape:
            if run := _RUN.match(text, at, end):
                return Piece(run.end() - at, same=True)
            if text[at] == '"':
                self._in_string = False
                return Piece(1, (Closed(),))
        held = len(self._escape)
        escape = self._escape + text[at : min(end, at + _LONGEST)]
        beginning = _BEGINNING.match(escape)
        assert beginning is not None, "the escape begins with a backslash"
        if beginning.end() > held:
            self._escape = beginning[0]
            return Piece(beginning.end() - held, waits=beginning.end())
        self._escape = ""
        return self._end_escape(escape[: held + 1])

    def _end_escape(self, spelled: str) -> Piece | None:
        """An escape that is complete with its last character, or shows there that it is none; half a surrogate pair may
        stand before it."""
        steps: list[Step] = []
        at, end = 0, len(spelled)
        while at < end:
            escape = _ESCAPE.match(spelled, at)
            if escape is not None:
                steps.append(Spelled(unescaped(escape[0]), end - at, end - escape.end()))
                at = escape.end()
            elif spelled[at] == "\\":
                if _BEGINNING.fullmatch(spelled, at):
                    self._escape = spelled[at:]
                    break
                self._in_string = False
                return self._stop(spelled[at:], (*steps, Closed()))
            elif spelled[at] == '"':
                self._in_string = False
                return Piece(1, (*steps, Closed()))
            else:
                steps.append(Spelled(spelled[at], end - at, end - at - 1))
                at += 1
        return Piece(1, tuple(steps), waits=len(self._escape))


class NumberReader(BusyReader):
    """A text that is one number."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = ""

    def read(self, text: str, at: int, end: int) -> Piece:
        self._number += text[at:end]
        return Piece(end - at, waits=len(self._number))

    def skip(self) -> bool:
        return False

    def finish(self) -> _Steps:
        return (Token(self._number, whole_number(self._number), len(self._number), 0),)
