"""Entries ↔ lines: one JSON object each, described in docs/journal.md. The text of a match ends here, in an HMAC."""

from __future__ import annotations

import hmac
from typing import Annotated, Literal

import msgspec

from gateway.journal.entries import BeginEntry, Entry, JournalEntry

HMAC_DIGITS = 32  # 128 bits: no two texts will ever share them, and a line stays short

# What SQLite can hold; a larger number is damage.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class MatchLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="match"):
    """An `Entry` as it stands in the file."""

    v: Literal[1]
    time: float
    request_id: str
    key_name: str
    route: str
    policy: str
    direction: str
    rule: str
    action: str
    channel: str
    choice: Count | None
    offset: Count
    length: Count
    hmac: str


class BeginLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="begin"):
    """A `BeginEntry` as it stands in the file."""

    v: Literal[1]
    time: float
    request_id: str
    key_name: str
    route: str
    policy: str


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="request"):
    """A `RequestEntry` as it stands in the file."""

    v: Literal[1]
    time: float
    request_id: str
    key_name: str
    route: str
    policy: str
    upstream: str
    status: Count
    outcome: str
    stream: bool
    duration: float


Line = MatchLine | BeginLine | RequestLine

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def text_hmac(key: str, seen: str) -> str:
    """What stands for a matched text: HMAC-SHA256 under the journal's key, the first 32 hexadecimal digits.

    `seen` is the text through the rule's lens. The rule is no part of it, so one text is found under every rule.
    """
    return hmac.digest(key.encode(), seen.encode("utf-8", "surrogatepass"), "sha256").hex()[:HMAC_DIGITS]


def encode(entry: JournalEntry, key: str) -> bytes:
    """The entry's line, line end included."""
    line = _line(entry, key)
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8, and one client's odd header must not end the journal.
        fields: dict[str, object] = msgspec.to_builtins(line)
        return msgspec.json.encode({name: _whole(value) for name, value in fields.items()}) + b"\n"


def encode_line(line: Line) -> bytes:
    """A line that was read, as it stood in the file, without the line end."""
    return msgspec.json.encode(line)


def decode(text: bytes) -> Line | None:
    """A line, or None where it is damaged or of a version that is not known here."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _line(entry: JournalEntry, key: str) -> Line:
    if isinstance(entry, Entry):
        return MatchLine(
            v=1,
            time=round(entry.time, 6),
            request_id=entry.request_id,
            key_name=entry.key_name,
            route=entry.route,
            policy=entry.policy,
            direction=entry.direction,
            rule=entry.rule,
            action=entry.action,
            channel=entry.channel,
            choice=entry.choice,
            offset=entry.offset,
            length=entry.length,
            hmac=text_hmac(key, entry.seen),
        )
    if isinstance(entry, BeginEntry):
        return BeginLine(
            v=1,
            time=round(entry.time, 6),
            request_id=entry.request_id,
            key_name=entry.key_name,
            route=entry.route,
            policy=entry.policy,
        )
    return RequestLine(
        v=1,
        time=round(entry.time, 6),
        request_id=entry.request_id,
        key_name=entry.key_name,
        route=entry.route,
        policy=entry.policy,
        upstream=entry.upstream,
        status=entry.status,
        outcome=entry.outcome,
        stream=entry.stream,
        duration=round(entry.duration, 6),
    )


def _whole(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
