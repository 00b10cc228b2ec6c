"""Alternative continuations of a text, such as other tokens: which of them cannot be part of a match?"""

from __future__ import annotations

from enum import Enum, auto

from gateway.censor.compile import Program
from gateway.censor.scanner import Scanner


class Standing(Enum):
    """The state of a text on its own."""

    MATCHES = auto()  # something in it, or its beginning at the end of a text, would be changed
    OPEN = auto()  # something that follows it could make it a part of a match
    CLOSED = auto()  # all of it would be released at once


class UnchangedText:
    """A text that is read and not changed, as far as it is known."""

    __slots__ = ("_program", "_scanner")

    def __init__(self, program: Program, scanner: Scanner | None = None) -> None:
        self._program = program
        self._scanner = scanner or Scanner(program)

    def read(self, text: str) -> bool:
        """Read `text`, unless that would complete a match or text would be held for too long."""
        program = self._program
        if len(text) <= program.piece and program.quick and self._scanner.scan_quickly(text) is not None:
            return True
        forked = self._forked()
        if forked._completes(text):
            return False
        self._scanner = forked._scanner
        return True

    def closes(self, text: str) -> bool:
        """Would all of `text`, if it came next, be released at once, with all that came before it?"""
        forked = self._forked()
        return not forked._completes(text) and forked._closed

    @property
    def _closed(self) -> bool:
        return self._scanner.live_start() == self._scanner.scanned

    def _forked(self) -> UnchangedText:
        return UnchangedText(self._program, self._scanner.fork(0))

    def _completes(self, text: str) -> bool:
        program, scanner = self._program, self._scanner
        for at in range(0, len(text), program.piece):
            piece = text[at : at + program.piece]
            if program.quick and scanner.scan_quickly(piece) is not None:
                continue
            for char in piece:
                spans, left = scanner.step(char)
                if left or any(span.holds for span in spans):
                    return True
        return False


def standing(program: Program, text: str) -> Standing:
    """The state of `text` on its own, which has no surrogates."""
    reading = UnchangedText(program)
    if reading._completes(text) or any(span.holds for span in reading._scanner.at_end()):
        return Standing.MATCHES
    return Standing.CLOSED if reading._closed else Standing.OPEN
