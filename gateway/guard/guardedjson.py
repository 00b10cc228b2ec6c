"""JSON text under the guard: one string on the wire, and many texts in it (semantics rule 15).

Arguments of tools are such a text, and so is the content of an answer that was requested as JSON. Two kinds of text in
it can spell what they do not look like. They are read twice, first as what they spell and then as they stand:

    a string that begins an object, list or string  JSON within JSON: its strings and numbers, and these no deeper
    what is no JSON                                 its escapes, as lenient parsers decode them
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.censor.compile import CompiledRule
from gateway.censor.spelled import SpelledCensor
from gateway.guard.channels import ChannelCounts, ChannelText, GuardedText
from gateway.guard.pseudonyms import Restorer
from gateway.policy.model import Channel
from gateway.wire.escapes import Escape, Unescaper
from gateway.wire.jsontext import JsonText, escaped

_SPACE = " \t\r\n"


class SpelledText(ChannelText):
    """A text with escapes, censored as it decodes and spelled as before. Its output goes through another text, which
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
        out = self._feed_pieces(self._restorer.feed(text))
        self._note_held(out, self._censor.held + self._restorer.held)
        return out

    def _add_counts(self) -> None:
        self._counts.add_respelled(self._channel, self._choice, self._censor)


class _TwiceScanned:
    """A text that is read twice. `spells` makes what reads it first, from the text's first character that is no space
    on; None where nothing needs to."""

    __slots__ = ("_begun", "_first", "_spells", "_then")

    def __init__(self, spells: Callable[[str], GuardedText | None], then: ChannelText) -> None:
        self._spells = spells
        self._first: GuardedText | None = None
        self._then = then
        self._begun = False

    def feed(self, text: str) -> str:
        if not self._begun and (start := text.lstrip(_SPACE)):
            self._begun = True
            self._first = self._spells(start[0])
        return self._then.feed(text) if self._first is None else self._pass_on(self._first, self._first.feed(text))

    def finish(self) -> str:
        out = "" if self._first is None else self._pass_on(self._first, self._first.finish())
        return out if self.blocked else out + self._then.finish()

    def _pass_on(self, first: GuardedText, spelled: str) -> str:
        out = self._then.feed(spelled) if spelled else ""
        if self.blocked:
            first.abandon()
            self._then.abandon()
        return out

    def abandon(self) -> str:
        if self._first is not None:
            self._first.abandon()
        return self._then.abandon()

    @property
    def changed(self) -> bool:
        return self._then.changed

    @property
    def blocked(self) -> bool:
        return self.rule is not None

    @property
    def rule(self) -> CompiledRule | None:
        return self._then.rule or (None if self._first is None else self._first.rule)


def string_text(counts: ChannelCounts, channel: Channel, choice: int | None = None) -> GuardedText:
    """A string of arguments that came as an object and not as JSON text."""
    return GuardedJson(counts, channel, choice).string()


class ObservedText:
    """A text that is scanned and comes out as it came in, whatever would have come out."""

    __slots__ = ("_text",)

    rule: CompiledRule | None = None

    def __init__(self, text: GuardedText) -> None:
        self._text = text

    def feed(self, text: str) -> str:
        self._text.feed(text)
        return text

    def finish(self) -> str:
        self._text.finish()
        return ""

    def abandon(self) -> str:
        self._text.abandon()
        return ""


class _JsonTexts:
    """JSON text whose texts `json` finds; `_last` is the one opened last."""

    __slots__ = ("_channel", "_choice", "_counts", "_last", "json")

    json: JsonText

    def __init__(self, counts: ChannelCounts, channel: Channel, choice: int | None) -> None:
        self._counts = counts
        self._channel = channel
        self._choice = choice
        self._last: ChannelText | _TwiceScanned | None = None

    def feed(self, text: str) -> str:
        return self.json.feed(text)

    def finish(self) -> str:
        return self.json.finish()

    def abandon(self) -> str:
        if self._last is not None:
            self._last.abandon()
        return self.json.close()

    @property
    def rule(self) -> CompiledRule | None:
        return self._last.rule if self._last is not None and self.json.blocked else None

    def _text(self) -> ChannelText:
        self._last = text = self._counts.open(self._channel, self._choice)
        return text

    def _spelled(self, write: Callable[[str], str]) -> SpelledText:
        self._last = text = SpelledText(self._counts, self._channel, self._choice, write)
        return text


class GuardedJson(_JsonTexts):
    """JSON text whose strings and numbers are texts of their own. A block closes what is open."""

    __slots__ = ()

    def __init__(self, counts: ChannelCounts, channel: Channel, choice: int | None = None) -> None:
        super().__init__(counts, channel, choice)
        if counts.scans(channel):
            self.json = JsonText(self._text, self.string, self._plain)
        else:
            self.json = JsonText(self._text)

    def string(self) -> _TwiceScanned:
        self._last = text = _TwiceScanned(self._nested, self._counts.open(self._channel, self._choice))
        return text

    def _nested(self, start: str) -> _NestedJson | None:
        return _NestedJson(self._counts, self._channel, self._choice) if start in '{["' else None

    def _plain(self) -> _TwiceScanned:
        then = self._counts.open(self._channel, self._choice)
        self._last = text = _TwiceScanned(lambda _: SpelledText(self._counts, self._channel, self._choice, str), then)
        return text


class _NestedJson(_JsonTexts):
    """JSON text within a string of other JSON. It stays as it was spelled, but for what is taken out of it."""

    __slots__ = ()

    def __init__(self, counts: ChannelCounts, channel: Channel, choice: int | None) -> None:
        super().__init__(counts, channel, choice)
        self.json = JsonText(lambda: self._spelled(str), lambda: self._spelled(escaped), raw=True)
