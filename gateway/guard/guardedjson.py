"""JSON text under the guard: one string on the wire, and many texts in it (semantics rule 15).

Arguments of tools are such a text, and so is the content of an answer that was requested as JSON. Three kinds of text
in it can spell what they do not look like, and are read as both:

    a string that begins an object, list or string  JSON within JSON: its strings and numbers, and JSON within these
    a number                                        what it is worth, if it is whole and written with an exponent
    what is no JSON                                 its escapes, as lenient parsers decode them

JSON that was not requested is content, with texts within it (`content_text`).
"""

from __future__ import annotations

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelCounts, ChannelText, GuardedText
from gateway.inner_texts import Opened
from gateway.policy.model import Channel
from gateway.wire.escapes import EscapeReader
from gateway.wire.fences import ContentReader
from gateway.wire.jsongrammar import whole_number
from gateway.wire.jsonreader import JsonReader, NumberReader
from gateway.wire.jsontext import JsonText

_ESCAPED = Opened(reader=None, exact=False)


def string_text(counts: ChannelCounts, channel: Channel, choice: int | None = None) -> ChannelText:
    """A string of JSON, decoded; it may itself be JSON."""
    return counts.open(channel, choice, JsonReader(wanted=True))


def content_text(counts: ChannelCounts, channel: Channel, choice: int | None = None) -> ChannelText:
    """Content that was not requested as JSON, and may be JSON or have some in fenced blocks."""
    return counts.open(channel, choice, ContentReader())


class ObservedText:
    """A text that is scanned and released unchanged."""

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


class GuardedJson:
    """JSON text whose strings and numbers are texts of their own. A block closes what is open."""

    __slots__ = ("_channel", "_choice", "_counts", "_json", "_last")

    def __init__(self, counts: ChannelCounts, channel: Channel, choice: int | None = None) -> None:
        self._counts = counts
        self._channel = channel
        self._choice = choice
        self._last: ChannelText | None = None  # opened
        self._json = JsonText(self._number, self._string, self._plain)

    def feed(self, text: str) -> str:
        return self._json.feed(text)

    def finish(self) -> str:
        return self._json.finish()

    def abandon(self) -> str:
        if self._last is not None:
            self._last.abandon()
        return self._json.close()

    @property
    def rule(self) -> CompiledRule | None:
        return self._last.rule if self._last is not None and self._json.blocked else None

    def _string(self) -> ChannelText:
        self._last = text = string_text(self._counts, self._channel, self._choice)
        return text

    def _number(self, token: str) -> ChannelText:
        reader = None if whole_number(token) is None else NumberReader()
        self._last = text = self._counts.open(self._channel, self._choice, reader)
        return text

    def _plain(self) -> ChannelText:
        self._last = text = self._counts.open(self._channel, self._choice, EscapeReader(), _ESCAPED)
        return text
