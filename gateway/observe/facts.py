"""Events as frozen data, for every sink. They never carry scanned text, only names, numbers and offsets.

Those that every request has are structs, which are made in a fraction of the time of a frozen class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct


class ChannelCount(Struct, frozen=True):
    """Characters of one channel of one answer or prompt, counted when its texts have ended."""

    channel: str
    scanned: int
    forwarded: int
    replaced: int
    withheld: int

    @property
    def missing(self) -> int:
        """Scanned characters that are unaccounted for; anything but 0 is a defect."""
        return self.scanned - self.forwarded - self.replaced - self.withheld


@dataclass(frozen=True, slots=True)
class MatchCount:
    """How often a rule matched in a channel, at most 10,000 times a text."""

    rule: str
    action: str
    channel: str
    count: int


# Outcomes of an answer under a constraint: in its language, outside it, or cut short in a prefix of one of its texts.
HELD, LEFT, UNFINISHED = "held", "left", "unfinished"


class HistogramCounts(Struct, frozen=True):
    """A histogram's observations: `counts[i]` of them at most `bounds[i]`, the last one above all bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class TextScanned(Struct, frozen=True):
    """The guard's counts for one prompt or one answer. `restored`: by channel, how many placeholders were replaced by
    the prompt's values. `constraints`: by outcome, one of the three above, how many choices had it under the policy's
    constraint. `held` is in characters, `hold` in seconds."""

    policy: str
    direction: str
    channels: tuple[ChannelCount, ...] = ()
    matches: tuple[MatchCount, ...] = ()
    restored: Mapping[str, int] = {}
    constraints: Mapping[str, int] = {}
    overflows: int = 0
    unknown_events: int = 0
    blocked_by: str | None = None
    held: HistogramCounts | None = None
    hold: HistogramCounts | None = None


@dataclass(frozen=True, slots=True)
class GuardFailed:
    """The guard raised and the answer failed closed. `where` is the exception's type and line, never its text."""

    policy: str
    where: str

    @classmethod
    def of(cls, policy: str, error: Exception) -> GuardFailed:
        """Where `error` was raised. Its text may quote what was scanned, so it is left out."""
        where = type(error).__name__
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            where += f" at {trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
        return cls(policy, where)


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    """A call to an upstream failed, or its answer broke off.

    `kind`: refused, dns, tls, unreachable, connect (another reason for no connection), connect_timeout, timeout, reset,
    protocol, error_event, status, auth, too_large, overloaded.
    """

    upstream: str
    kind: str


class RequestFinished(Struct, frozen=True):
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
    overhead: HistogramCounts | None = None
    scanned: tuple[TextScanned, ...] = ()
    error: str | None = None
    key: str | None = None  # the name of the client's key
    model: str | None = None  # the requested one; None for a name that may be any text
    tokens: tuple[int, int] | None = None  # of the prompt and of the answer, as the upstream counted
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
    """A reload: `outcome` is ok, or failed for the `reason`."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AcceptFailed:
    """A connection could not be accepted and waits; `reason` is the name of the error, such as EMFILE."""

    reason: str


@dataclass(frozen=True, slots=True)
class JournalDropped:
    """`count` entries of the journal could not be written."""

    count: int


@dataclass(frozen=True, slots=True)
class MaskJudged:
    """A probe's new verdict on the mask of `policy`, its name in the mask file, at an upstream. `state` is "in force",
    "missing" or "unknown"; `reason` has no word and no digest in it."""

    upstream: str
    policy: str
    state: str
    reason: str


# Outcomes of `RolledBack` in which the match is gone; a match that stays is counted by the guard.
TAKEN_BACK = frozenset({"resampled", "banned", "masked"})


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A match was to be rolled back. `outcome`: the model sampled again (`resampled`), again without the token that led
    there (`banned`), or continues under a mask (`masked`); or the rule's `exhausted` applies, because a cap is reached
    (`exhausted`) or the upstream sends no tokens (`unreadable`, once an answer; `rule` may be None then)."""

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
