"""Words that earlier answers of a conversation began and this one completes (docs/semantics.md, across answers)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.automata.literals import LINE_MARKS, LiteralMachine
from gateway.censor.lens import Lens
from gateway.censor.literal_cursor import LiteralCursor, Span
from gateway.censor.window import MAX_UNSEEN, Window

_TAKEN = "".join(LINE_MARKS) + " \n\r\t"


class CarriedCursor(LiteralCursor):
    """A cursor that has read the end of the text before; this text begins at offset 0. It finds only words that lie in
    both; what lies in one of them is found without it."""

    __slots__ = ()

    def step(self, char: str, consumed: int) -> list[Span]:
        return _crossing(super().step(char, consumed))

    def ending(self) -> list[Span]:
        return _crossing(super().ending())

    @property
    def over(self) -> bool:
        """Can no word span both texts any more?"""
        return self._origin(self.folded - self.machine.length(self.state)) >= 0


def _crossing(spans: Iterable[Span]) -> list[Span]:
    return [span._replace(start=0) for span in spans if span.start < 0 < span.end]


@dataclass(frozen=True, slots=True)
class CarriedWords:
    """The words, of one lens, that are looked for across answers."""

    machine: LiteralMachine
    lens: Lens
    max_hold: int

    def cursor(self, before: str) -> CarriedCursor | None:
        """The cursor for a text that comes behind `before`; None if that ends with no beginning of a word."""
        tail = before[self._start(before) :]
        window = Window(self.max_hold)
        window.start = -len(tail)
        cursor = CarriedCursor(self.machine, window, -len(tail))
        for offset, char in enumerate(tail, 1 - len(tail)):
            cursor.step(char, offset)
        return None if cursor.over else cursor

    def _start(self, text: str) -> int:
        """Where the end of a text begins that a word can reach back to, with the character before it."""
        seen = 0  # but for what a blank may take any number of
        for at in range(len(text) - 1, max(len(text) - self.max_hold - MAX_UNSEEN, 0) - 1, -1):
            seen += bool(self.lens.fold(text[at]).text.strip(_TAKEN))
            if seen > self.machine.longest:
                return at
        return max(len(text) - self.max_hold - MAX_UNSEEN, 0)
