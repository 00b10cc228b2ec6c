"""What an `EscapeReader` makes of a text in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gateway.inner_texts import Spelled
from gateway.surrogates import SurrogateJoiner
from gateway.wire.escapes import EscapeReader


class Escape(NamedTuple):
    """`raw` is how the character at `offset` of the decoded text is spelled."""

    offset: int
    raw: str


class Unescaper:
    """One text in pieces, decoded. Surrogates are joined before, as a censor joins them."""

    def __init__(self) -> None:
        self._reader = EscapeReader()
        self._joiner = SurrogateJoiner()
        self._raw = ""
        self._decoded = 0  # characters

    def feed(self, text: str) -> tuple[str, list[Escape]]:
        """What is certain of the decoded text, and the escapes in it; offsets count from the beginning of the text."""
        return self._read(self._joiner.feed(text))

    def finish(self) -> tuple[str, list[Escape]]:
        out, escapes = self._read(self._joiner.finish())
        rest, more = self._taken(self._reader.finish())
        return out + rest, escapes + more

    def _read(self, text: str) -> tuple[str, list[Escape]]:
        out, escapes, at = "", list[Escape](), 0
        while at < len(text):
            piece = self._reader.read(text, at, len(text))
            given = text[at : at + piece.length]
            self._raw += given
            steps = [Spelled(char, 0, 0) for char in given] if piece.same else piece.steps
            shown, found = self._taken(steps)
            out, escapes, at = out + shown, escapes + found, at + piece.length
        return out, escapes

    def _taken(self, steps: Iterable[object]) -> tuple[str, list[Escape]]:
        out, escapes = "", list[Escape]()
        for step in steps:
            assert isinstance(step, Spelled)
            raw = self._raw[len(self._raw) - step.start : len(self._raw) - step.end]
            if len(raw) > 1 or raw not in ("", step.char):
                escapes.append(Escape(self._decoded, raw))
            out += step.char
            self._decoded += 1
        return out, escapes
