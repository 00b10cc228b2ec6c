"""Journal entries in memory and as lines: one JSON object each, described in docs/journal.md.

An entry of a match has its text; its line has an HMAC of it instead.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import msgspec

HMAC_DIGITS = 32  # 128 bits: collisions are out of the question, and a line stays short

# What SQLite can hold; a larger number is damage.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, slots=True)
class _Entry:
    """Of which request. `time` is in Unix seconds."""

    time: float
    request_id: str
    key_name: str
    route: str
    policy: str


@dataclass(frozen=True, slots=True)
class BeginEntry(_Entry):
    """A request that is about to be answered; written only where an answer needs its journal."""


@dataclass(frozen=True, slots=True)
class MatchEntry(_Entry):
    """One match and the action on it.

    `offset` and `length` are in code points of the original text of that channel; `choice` is None for a prompt. `seen`
    is the matched text as the rule's lens sees it: it is never written, only its HMAC is.
    """

    direction: str
    rule: str
    action: str
    channel: str
    choice: int | None
    offset: int
    length: int
    seen: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RequestEntry(_Entry):
    """One request, answered. `duration` is in seconds, `status` the HTTP status sent."""

    upstream: str
    status: int
    outcome: str
    stream: bool
    duration: float


JournalEntry = MatchEntry | BeginEntry | RequestEntry


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    v: Literal[1]
    time: float
    request_id: str
    key_name: str
    route: str
    policy: str


class BeginLine(_Line, frozen=True, kw_only=True, tag="begin"):
    """A `BeginEntry` as it stands in the file."""


class MatchLine(_Line, frozen=True, kw_only=True, tag="match"):
    """A `MatchEntry` as it stands in the file."""

    direction: str
    rule: str
    action: str
    channel: str
    choice: Count | None
    offset: Count
    length: Count
    hmac: str


class RequestLine(_Line, frozen=True, kw_only=True, tag="request"):
    """A `RequestEntry` as it stands in the file."""

    upstream: str
    status: Count
    outcome: str
    stream: bool
    duration: float


Line = MatchLine | BeginLine | RequestLine

_TAGS = {MatchEntry: "match", BeginEntry: "begin", RequestEntry: "request"}
_FIELDS = {kind: tuple(each.name for each in fields(kind)) for kind in _TAGS}
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def text_hmac(key: str, seen: str) -> str:
    """HMAC-SHA256 of a matched text under the journal's key, the first 32 hexadecimal digits.

    `seen` is the text through the rule's lens. The rule is no part of it, so one text is found under every rule.
    """
    return hmac.digest(key.encode(), seen.encode("utf-8", "surrogatepass"), "sha256").hex()[:HMAC_DIGITS]


def encode(entry: JournalEntry, key: str) -> bytes:
    """The entry's line, line end included."""
    kind = type(entry)
    line: dict[str, Any] = {"type": _TAGS[kind], "v": 1}
    for name in _FIELDS[kind]:
        line[name] = getattr(entry, name)
    line["time"] = round(entry.time, 6)
    if isinstance(entry, MatchEntry):
        del line["seen"]
        line["hmac"] = text_hmac(key, entry.seen)
    elif isinstance(entry, RequestEntry):
        line["duration"] = round(entry.duration, 6)
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8, and one client's odd header must not end the journal.
        return msgspec.json.encode({name: _replace_surrogates(value) for name, value in line.items()}) + b"\n"


def encode_line(line: Line) -> bytes:
    """A line that was read, as it stood in the file, without the line end."""
    return msgspec.json.encode(line)


def decode(text: bytes) -> Line | None:
    """A line, or None where it is damaged or of an unknown version."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _replace_surrogates(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
