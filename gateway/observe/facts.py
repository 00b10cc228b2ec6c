"""Frozen facts about what happened. They never carry text that was scanned, only names, numbers and offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelCount:
    """Characters of one channel of one answer or prompt, counted when its texts have ended."""

    channel: str
    scanned: int
    forwarded: int
    replaced: int
    withheld: int

    @property
    def missing(self) -> int:
        """Characters that were scanned and are unaccounted for; anything but 0 is a defect of ours."""
        return self.scanned - self.forwarded - self.replaced - self.withheld


@dataclass(frozen=True, slots=True)
class MatchCount:
    """How often a rule matched in a channel; as many as are reported, 10,000 a text at most."""

    rule: str
    action: str
    channel: str
    count: int


@dataclass(frozen=True, slots=True)
class RestoredCount:
    """How many placeholders of a prompt's values an answer had in a channel, and got the values back for."""

    channel: str
    count: int


# What becomes of an answer under a constraint: it is a text of the language, it is none, or it was cut short while it
# could still become one.
HELD, LEFT, UNFINISHED = "held", "left", "unfinished"


@dataclass(frozen=True, slots=True)
class ConstraintCount:
    """How many choices of an answer ended so under the policy's constraint; `outcome` is one of the three above."""

    outcome: str
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's observations: `counts[i]` of them at most `bounds[i]`, the last one above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class TextScanned:
    """All that the guard did to one prompt or one answer. `held` is in characters, `hold` in seconds."""

    policy: str
    direction: str
    channels: tuple[ChannelCount, ...] = ()
    matches: tuple[MatchCount, ...] = ()
    restored: tuple[RestoredCount, ...] = ()
    constraints: tuple[ConstraintCount, ...] = ()
    overflows: int = 0
    unknown_events: int = 0
    blocked_by: str | None = None
    held: Distribution | None = None
    hold: Distribution | None = None


@dataclass(frozen=True, slots=True)
class GuardFailed:
    """The guard raised: the answer failed closed. `where` names the exception's type and line, never its text."""

    policy: str
    where: str


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    """A call to an upstream failed, or its answer broke off.

    `kind`: connect, connect_timeout, timeout, reset, protocol, error_event, status, auth, too_large, overloaded.
    """

    upstream: str
    kind: str


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """One request, answered. Times in seconds; `status` is the HTTP status that the client got.

    `route` is the glob in the configuration, `outcome` one of ok, redacted, flagged, blocked, failed, cancelled.
    """

    request_id: str
    path: str
    route: str
    policy: str
    upstream: str
    status: int
    outcome: str
    stream: bool
    duration: float
    ttft: float | None = None
    overhead: Distribution | None = None
    scanned: tuple[TextScanned, ...] = ()
    error: str | None = None
    key: str | None = None  # the name of the client's key
    rollbacks: int = 0


@dataclass(frozen=True, slots=True)
class Retried:
    """An attempt failed before its first byte and another follows; `kind` as in `UpstreamFailed`."""

    upstream: str
    kind: str


@dataclass(frozen=True, slots=True)
class Limited:
    """A key's limit refused a request; `reason` is requests, tokens or streams."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A changed configuration was taken over (`ok`), or was not (`failed`), and why."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AcceptFailed:
    """A connection could not be accepted, and waits; `reason` is the name of the error, such as EMFILE."""

    reason: str


@dataclass(frozen=True, slots=True)
class JournalDropped:
    """So many entries of the journal could not be written."""

    count: int


@dataclass(frozen=True, slots=True)
class MaskJudged:
    """What a canary has newly found out of a mask at an upstream. `policy` is the mask's name in the file of masks,
    `state` is "in force", "missing" or "unknown", and `reason` says why, without a word and without a digest."""

    upstream: str
    policy: str
    state: str
    reason: str


# Outcomes of `RolledBack` in which the match is gone; what stays, the guard reports as it sees it.
TAKEN_BACK = frozenset({"resampled", "banned", "masked"})


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A match was to be taken back. `outcome`: the model drew again (`resampled`), drew without the token that had led
    there (`banned`), goes on under a mask (`masked`); or the rule acts as its exhausted says, since a cap is reached
    (`exhausted`) or the upstream does not tell its tokens (`unreadable`, once an answer, where `rule` may be None)."""

    policy: str
    rule: str | None
    outcome: str


Fact = (
    MaskJudged
    | RolledBack
    | TextScanned
    | GuardFailed
    | UpstreamFailed
    | RequestFinished
    | Retried
    | Limited
    | Reloaded
    | JournalDropped
    | AcceptFailed
)
