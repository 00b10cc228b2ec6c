"""What a text spells with escapes, under the guard."""

from __future__ import annotations

from collections.abc import Callable

from gateway.censor.spelled import SpelledCensor
from gateway.guard.channels import ChannelCounts, ChannelText
from gateway.guard.pseudonyms import Restorer
from gateway.policy.model import Channel
from gateway.wire.escapes import Escape, Unescaper


class SpelledText(ChannelText):
    """What a text spells with escapes, censored and spelled as before. What comes out goes through another text, which
    scans and counts it as it stands and restores the values; so here placeholders stay as they are, and only what is
    taken out counts."""

    __slots__ = ("_restorer", "_spelled", "_unescaper")

    def __init__(
        self, counts: ChannelCounts, channel: Channel, choice: int | None, write: Callable[[str], str]
    ) -> None:
        """`write` is how replacements are written. Some rule must look at the channel."""
        program = counts.compiled.program(counts.direction, channel)
        assert program is not None
        self._spelled = SpelledCensor(program, write)
        super().__init__(counts, channel, choice, self._spelled)
        self._unescaper = Unescaper()
        self._restorer = None if counts.unrestored is None else Restorer(counts.unrestored)

    def feed(self, text: str) -> str:
        return self._read(*self._unescaper.feed(text))

    def finish(self) -> str:
        out = self._read(*self._unescaper.finish())
        rest = "" if self._restorer is None else self._restorer.finish()
        return out + (super().feed(rest) if rest else "") + super().finish()

    def _read(self, text: str, escapes: list[Escape]) -> str:
        for offset, raw in escapes:
            self._spelled.spell(offset, raw)
        if self._restorer is None or self._restorer.passes(text):
            return super().feed(text)
        censor = self._censor
        pieces = self._restorer.feed(text)
        out = "".join([(censor.feed_exempt if piece.restored else censor.feed)(piece.text) for piece in pieces])
        self._note_held(out, censor.held + self._restorer.held)
        return out

    def _add_counts(self) -> None:
        self._counts.add_respelled(self._channel, self._choice, self._censor)
