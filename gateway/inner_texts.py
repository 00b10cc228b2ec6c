"""Texts within a text, such as the strings of JSON: what a reader finds of them, for the censor that scans them.

A reader goes over the outer text piece by piece and says what each piece is. An inner text gets the characters that
pieces stand for, decoded; it may have a reader of its own.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Opened(NamedTuple):
    """An inner text begins `back` characters before the end of this piece, with a reader of its own if there can be
    texts in it. With `exact` it is one of JSON: a replacement in it is escaped, and of an escape nothing but the whole
    is removed. `closing` is what completes the outer text from within it."""

    reader: InnerReader | None
    exact: bool = True
    closing: str = ""
    back: int = 0


class Spelled(NamedTuple):
    """The inner text continues with a character that is spelled by the outer characters from `start` to `end`, counted
    back from the end of this piece."""

    char: str
    start: int
    end: int


class Closed(NamedTuple):
    """The inner text has ended before this piece's last character."""


class Token(NamedTuple):
    """A number that ended, from `start` to `end` as in `Spelled`: a text of its own, which is also read as `value`.
    With `quoted` it becomes a string where something of it is replaced; `closing` completes the outer text behind
    it."""

    text: str
    value: str | None
    start: int
    end: int
    quoted: bool = False
    closing: str = ""


Step = Opened | Spelled | Closed | Token


class Piece(NamedTuple):
    """`length` outer characters; one, if there are `steps`. `same`: they continue the open inner text, if one is, as
    they are. `waits`: so many characters at its end, those of earlier pieces included, are of something that is not
    complete."""

    length: int
    steps: tuple[Step, ...] = ()
    waits: int = 0
    same: bool = False


class InnerReader(Protocol):
    """Finds the inner texts of one text, which must come free of surrogates."""

    @property
    def idle(self) -> bool:
        """Could only a backtick begin an inner text?"""

    def passes(self, text: str) -> bool:
        """Is no inner text in `text`, the next piece, and the reader idle behind it? Then it has been read, even if
        there are surrogates in it."""

    def read(self, text: str, at: int, end: int) -> Piece | None:
        """The next piece of `text`, from `at` on; None if there are no inner texts from here on, and none is open."""

    def skip(self) -> bool:
        """Characters follow that are not to be read: do they belong to the open inner text? If not, it is over."""

    def finish(self) -> tuple[Step, ...]:
        """The end of the text: the steps that are left, counted back from it."""


class BusyReader:
    """An `InnerReader` that is never idle."""

    __slots__ = ()
    idle = False

    def passes(self, text: str) -> bool:
        return False
