"""Journal entries in memory and as lines: one JSON object each, described in docs/journal.md.

An entry of a match has its text; its line has an HMAC of it instead.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec.structs import asdict, replace

from gateway.wire.json import reader

HMAC_DIGITS = 32  # 128 bits: collisions are out of the question, and a line stays short

# What SQLite can hold; a larger number is damage.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    v: Literal[1] = 1


class _Entry(_Line, frozen=True):
    """The fields of every entry. `time` is in Unix seconds."""

    time: float
    request_id: str
    key_name: str
    route: str
    policy: str


class BeginEntry(_Entry, frozen=True, tag="begin"):
    """A request that is about to be answered; written only where an answer needs its journal."""


class _Match(_Entry, frozen=True):
    """One match and the action on it.

    `offset` and `length` are in code points of the original text of that channel; `choice` is None for a prompt.
    """

    direction: str
    rule: str
    action: str
    channel: str
    choice: Count | None
    offset: Count
    length: Count


class MatchEntry(_Match, frozen=True):
    """`seen` is the matched text as the rule's lens sees it: it is never written, only its HMAC is."""

    seen: str

    def __repr__(self) -> str:
        return f"MatchEntry({self.rule!r}, {self.request_id!r})"


class MatchLine(_Match, frozen=True, tag="match"):
    """A `MatchEntry` as it stands in the file."""

    hmac: str


class RequestEntry(_Entry, frozen=True, tag="request"):
    """One request, answered. `duration` is in seconds, `status` the HTTP status sent."""

    upstream: str
    status: Count
    outcome: str
    stream: bool
    duration: float


JournalEntry = MatchEntry | BeginEntry | RequestEntry
Line = MatchLine | BeginEntry | RequestEntry

# A line, or None where it is damaged or of an unknown version.
decode: Callable[[bytes], Line | None] = reader(Line)


def text_hmac(key: str, seen: str) -> str:
    """HMAC-SHA256 of a matched text under the journal's key, the first 32 hexadecimal digits.

    `seen` is the text through the rule's lens. The rule is no part of it, so one text is found under every rule.
    """
    return hmac.digest(key.encode(), seen.encode("utf-8", "surrogatepass"), "sha256").hex()[:HMAC_DIGITS]


def encode(entry: JournalEntry, key: str) -> bytes:
    """The entry's line, line break included."""
    line: Line
    if isinstance(entry, MatchEntry):
        fields = asdict(entry)
        line = MatchLine(hmac=text_hmac(key, fields.pop("seen")), **fields)
    elif isinstance(entry, RequestEntry):
        line = replace(entry, duration=round(entry.duration, 6))
    else:
        line = entry
    line = replace(line, time=round(entry.time, 6))
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8, and one client's odd header must not end the journal.
        fields = msgspec.to_builtins(line)
        return msgspec.json.encode({name: _replace_surrogates(value) for name, value in fields.items()}) + b"\n"


def encode_line(line: Line) -> bytes:
    """A line that was read, as it stood in the file, without the line break."""
    return msgspec.json.encode(line)


def _replace_surrogates(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
