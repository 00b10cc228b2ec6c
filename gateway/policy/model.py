"""The configuration as frozen data: no file, no clock, no network.

Everything here is built by `gateway.policy.load` from a file, or by a program through the constructors, and never
changes afterwards: a reload makes a new `Config`, and what runs keeps the one it started with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Action(StrEnum):
    """What happens to a match."""

    REDACT = "redact"
    BLOCK = "block"
    FLAG = "flag"


class Fold(StrEnum):
    """One differences-forgetting view of a character; a rule's set of folds is its lens."""

    CASE = "case"
    WIDTH = "width"
    ACCENTS = "accents"
    INVISIBLE = "invisible"


class Channel(StrEnum):
    """The kinds of text an answer carries; channels of one kind are told apart by choice, tool call and part."""

    CONTENT = "content"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    TOOL_ARGUMENTS = "tool_arguments"
    TOOL_NAMES = "tool_names"
    TRANSCRIPT = "transcript"
    OTHER = "other"


class Direction(StrEnum):
    """Which way the text flows: prompts come in, answers go out."""

    INPUT = "input"
    OUTPUT = "output"


class Mode(StrEnum):
    """`enforce` changes text; `observe` scans, counts and reports, and changes nothing."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


class Overflow(StrEnum):
    """What happens when text would have to be held for longer than `max_hold` characters."""

    RELEASE = "release"
    REDACT = "redact"
    BLOCK = "block"


class Unknown(StrEnum):
    """What happens to text in fields that no dialect knows."""

    SCAN = "scan"
    DROP = "drop"
    REFUSE = "refuse"


DEFAULT_FOLD = frozenset({Fold.CASE, Fold.WIDTH, Fold.INVISIBLE})
DEFAULT_REPLACEMENT = "[REDACTED]"
DEFAULT_MAX_HOLD = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy.

    `guard_tail`: a beginning of a word that is held when the text ends counts as a match from this many characters on;
    0 turns that off, None leaves it to `secret`, which asks for 60 % of each word.
    """

    id: str
    words: tuple[str, ...] = field(repr=False)
    action: Action = Action.REDACT
    replacement: str = DEFAULT_REPLACEMENT
    mask: str | None = None
    message: str | None = None
    whole_word: bool = False
    fold: frozenset[Fold] = DEFAULT_FOLD
    guard_tail: int | None = None
    secret: bool = False
    apply_to: frozenset[Direction] = frozenset({Direction.OUTPUT})
    channels: frozenset[Channel] = frozenset(Channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named, ordered set of rules and how strictly they act."""

    name: str
    rules: tuple[Rule, ...] = ()
    mode: Mode = Mode.ENFORCE
    max_hold: int = DEFAULT_MAX_HOLD
    on_overflow: Overflow = Overflow.RELEASE
    unknown: Unknown = Unknown.SCAN


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. `first_byte` runs from the sent request to the answer's first body byte, `idle` between two reads."""

    connect: float = 5.0
    first_byte: float = 60.0
    idle: float = 60.0
    total: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server to forward to. `type` is `openai` (any OpenAI-compatible server) or `demo` (embedded)."""

    name: str
    type: str = "openai"
    base_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`model` is a case-sensitive glob on the requested model; `rename` is the model name the upstream gets."""

    model: str
    upstream: str
    policy: str
    rename: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, `send_timeout` in seconds."""

    max_body: int = 4 * 1024 * 1024
    max_streams: int = 2000
    max_event: int = 1024 * 1024
    send_timeout: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    host: str = "127.0.0.1"
    port: int = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Client keys. `keys` empty and `open_to_all` true is `auth: none` written out."""

    keys: tuple[str, ...] = field(default=(), repr=False)
    open_to_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole configuration; names in `routes` are known to exist in `upstreams` and `policies`."""

    upstreams: dict[str, Upstream]
    routes: tuple[Route, ...]
    policies: dict[str, Policy]
    listen: Listen = Listen()
    auth: Auth = Auth()
    limits: Limits = Limits()
    source: str = "<memory>"
