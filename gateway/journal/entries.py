"""What the gateway asks the journal to remember. An entry lives in memory only; `lines` says what reaches the disk."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """One match and what was done about it.

    `time` is in Unix seconds; `offset` and `length` in code points of the original text of that channel; `choice` is
    None for a prompt. `seen` is the matched text as the rule's lens sees it: it is never written, only its HMAC is.
    """

    time: float
    request_id: str
    key_name: str
    route: str
    policy: str
    direction: str
    rule: str
    action: str
    channel: str
    choice: int | None
    offset: int
    length: int
    seen: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BeginEntry:
    """A request that is about to be answered; written only where an answer needs its journal. `time` is in Unix
    seconds."""

    time: float
    request_id: str
    key_name: str
    route: str
    policy: str


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """One request, answered. `time` is in Unix seconds, `duration` in seconds, `status` the HTTP status sent."""

    time: float
    request_id: str
    key_name: str
    route: str
    policy: str
    upstream: str
    status: int
    outcome: str
    stream: bool
    duration: float


JournalEntry = Entry | BeginEntry | RequestEntry
