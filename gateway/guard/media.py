"""Images, audio and documents in answers: binary data passes unchanged, encoded text is censored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.guard.channels import ChannelCounts, ChannelText, InvalidAnswer
from gateway.policy.model import Channel
from gateway.wire.media import ONLY_KNOWN, Envelope, classify, foresee, may_be_payload, payload_places

MAX_HELD = 1 << 20  # characters of one payload of which it is not certain yet what it is

_BASE64 = re.compile("[A-Za-z0-9+/_\r\n-]*={0,2}[\r\n]*")
_URL = "data:"
SOUND = "audio/*"  # the media type of `audio.data`


def payloads_in(message: dict[str, Any]) -> Mapping[tuple[int, Any], str]:
    """Where in a message or delta media may stand, by the identity of what holds them and the key there: the media type
    that is declared for each, if one is."""
    found = {(id(place.holder), place.key): place.declared for place in payload_places(message)}
    if isinstance(message.get("audio"), dict):
        found[id(message["audio"]), "data"] = SOUND
    return found


def shown_payload(given: str, declared: str, show: Callable[[str], str], is_blocked: Callable[[], bool]) -> str:
    """What is shown of a complete string where media may stand: as it is if it is media, censored in its envelope if it
    is a text in one, else like a label. Empty where a rule has blocked."""
    found = classify(given, declared)
    if not isinstance(found, Envelope):
        return given if found else show(given)
    parts = found.parameters, found.text
    shown = show(parts[0]), "" if is_blocked() else show(parts[1])
    if is_blocked():
        return ""
    if shown != parts:
        return found.encoded(*shown)
    return show(given) if found.doubtful else given


class PayloadText:
    """A string where media may stand, in pieces. It passes as soon as it is certain to be media, and is text like any
    other as soon as it can be neither media nor an envelope; until then, and at most `MAX_HELD` characters, it waits.

    Raises `InvalidAnswer` for more, and for what began as media and continues as something else.
    """

    __slots__ = ("_channel", "_choice", "_counts", "_declared", "_held", "_looked_at", "_passes", "_text")

    def __init__(self, counts: ChannelCounts, channel: Channel, choice: int, declared: str = "") -> None:
        self._declared = declared
        self._counts = counts
        self._channel = channel
        self._choice = choice
        self._held = ""
        self._looked_at = 0  # characters of it, when they were last decoded
        self._passes = False
        self._text: ChannelText | None = None  # the last one opened

    @property
    def rule(self) -> CompiledRule | None:
        return None if self._text is None else self._text.rule

    def feed(self, text: str) -> str:
        if self._text is not None:
            return self._text.feed(text)
        if self._passes:
            if _BASE64.fullmatch(text) is not None:
                return text
            if text[: len(_URL)].lower() != _URL:
                raise InvalidAnswer(
                    "the answer contains an image, audio or a document that continues as something else"
                )
            self._passes, self._looked_at = False, 0  # the next item of a list without numbers
        self._held += text
        may_be = self._declared != ONLY_KNOWN or may_be_payload(self._held)
        if not self._may_be_url() and (not may_be or _BASE64.fullmatch(text) is None):
            return self._open().feed(self._pop_held())
        # Every time when it has doubled: what waits is not decoded again with each piece.
        if len(self._held) >= 2 * self._looked_at:
            self._looked_at = len(self._held)
            foreseen = foresee(self._held, self._declared)
            if foreseen is False:
                return self._open().feed(self._pop_held())
            if foreseen:
                self._passes = True
                return self._pop_held()
        if len(self._held) > MAX_HELD:
            raise InvalidAnswer(f"the answer holds more than {MAX_HELD} characters that may be a text in base64")
        return ""

    def _may_be_url(self) -> bool:
        return _URL.startswith(self._held[: len(_URL)].lower())

    def _pop_held(self) -> str:
        held, self._held = self._held, ""
        return held

    def _open(self) -> ChannelText:
        self._text = self._counts.open(self._channel, self._choice)
        return self._text

    def finish(self) -> str:
        if self._text is not None:
            return self._text.finish()
        held = self._pop_held()
        return shown_payload(held, self._declared, self._censored, lambda: self.rule is not None) if held else ""

    def _censored(self, text: str) -> str:
        censored = self._open()
        shown = censored.feed(text)
        return shown if censored.rule else shown + censored.finish()

    def abandon(self) -> str:
        self._held = ""
        return "" if self._text is None else self._text.abandon()
