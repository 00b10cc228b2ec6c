"""The configuration as frozen data: no file, no clock, no network.

Built by `gateway.policy.load` from a file, or by a program through the constructors, and never changed afterwards: a
reload makes a new `Config`, and requests in flight keep theirs. keys.toml says what the fields mean.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gateway.policy.field_checks import DEPENDS, check_fields
from gateway.policy.presets import DEFAULT_FOLD as DEFAULT_FOLD
from gateway.policy.presets import DISGUISES as DISGUISES
from gateway.policy.presets import EDITS_FROM, PRESETS, Preset, default_fold
from gateway.policy.presets import Fold as Fold
from gateway.policy.presets import Strength as Strength
from gateway.policy.presets import Variant as Variant
from gateway.policy.servers import Fsync as Fsync
from gateway.policy.servers import Health as Health
from gateway.policy.servers import Journal as Journal
from gateway.policy.servers import Retries as Retries
from gateway.policy.servers import Telemetry as Telemetry
from gateway.policy.servers import Timeouts as Timeouts
from gateway.policy.servers import Upstream as Upstream
from gateway.policy.servers import UpstreamType as UpstreamType


class Action(StrEnum):
    """What happens to a match."""

    REDACT = "redact"
    BLOCK = "block"
    FLAG = "flag"
    ROLLBACK = "rollback"
    PSEUDONYMIZE = "pseudonymize"


class Exhausted(StrEnum):
    """What happens to a match that cannot be rolled back, or not any more."""

    REDACT = "redact"
    BLOCK = "block"


class Decode(StrEnum):
    """How decoding is steered for a rule: a logits mask keeps the model from its words."""

    MASK = "mask"


class Protect(StrEnum):
    """A text of the request that answers may not repeat."""

    SYSTEM_PROMPT = "system_prompt"


class Channel(StrEnum):
    """The kinds of text in an answer; channels of one kind differ by choice, tool call and part."""

    CONTENT = "content"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    TOOL_ARGUMENTS = "tool_arguments"
    TOOL_NAMES = "tool_names"
    TRANSCRIPT = "transcript"
    OTHER = "other"


class Direction(StrEnum):
    """Prompts come in, answers go out."""

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


DEFAULT_MIN_WORDS = 8
DEFAULT_REPLACEMENT = "[REDACTED]"
DEFAULT_MAX_HOLD = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy: it finds `words`, a `pattern`, what a `detector` describes, or `min_words` consecutive
    words of what it is to `protect`.

    `fold`: what `strength` sets for words, else `default_fold`; `variants` and `edits` likewise, edits in words of at
    least `EDITS_FROM` characters. `carry`: a word that the conversation's last answer began is found where this one
    continues with it. `apply_to`: output, and for `pseudonymize` input. `guard_tail`: None leaves it to `secret`, which
    sets 60 % of each word.

    Names may be given as strings (`action="block"`), and several values in any iterable but a string. Raises ValueError
    unless exactly one of `words`, `pattern`, `detector` and `protect` is given, and for a value of another type.
    """

    id: str
    words: tuple[str, ...] = field(default=(), repr=False)
    pattern: str | None = field(default=None, repr=False)
    detector: str | None = None
    protect: Protect | None = None
    min_words: int = DEFAULT_MIN_WORDS
    action: Action = Action.REDACT
    replacement: str = DEFAULT_REPLACEMENT
    mask: str | None = None
    message: str | None = None
    whole_word: bool = False
    strength: Strength = Strength.PLAIN
    fold: frozenset[Fold] = DEPENDS
    guard_tail: int | None = None
    secret: bool = False
    carry: bool = False
    apply_to: frozenset[Direction] = DEPENDS
    channels: frozenset[Channel] = frozenset(Channel)
    exhausted: Exhausted = Exhausted.REDACT
    decode: Decode | None = None
    variants: frozenset[Variant] = DEPENDS
    edits: int = DEPENDS

    def __post_init__(self) -> None:
        check_fields(self, f"rule {self.id!r}", {"apply_to": 1, "channels": 1, "min_words": 1})
        if self.mask is not None and len(self.mask) != 1:
            raise ValueError(f"rule {self.id!r}: mask: expected one character, got {len(self.mask)}")
        names = ("words", "pattern", "detector", "protect")
        sources = [name for name in names if getattr(self, name) not in ((), None)]
        if len(sources) != 1:
            raise ValueError(f"rule {self.id!r}: give exactly one of words, pattern, detector and protect")
        if not self.words and (self.variants or self.edits or (self.fold is not DEPENDS and self.fold & DISGUISES)):
            raise ValueError(f"rule {self.id!r}: variants, edits and {', '.join(sorted(DISGUISES))} are for words")
        if self.edits is not DEPENDS and self.edits > max(EDITS_FROM):
            raise ValueError(f"rule {self.id!r}: edits: expected at most {max(EDITS_FROM)}, got {self.edits}")
        preset = PRESETS[self.strength] if self.words else Preset(default_fold(sources[0]))
        for name in ("fold", "variants", "edits"):
            if getattr(self, name) is DEPENDS:
                object.__setattr__(self, name, getattr(preset, name))
        if self.apply_to is DEPENDS:
            only = Direction.INPUT if self.action is Action.PSEUDONYMIZE else Direction.OUTPUT
            object.__setattr__(self, "apply_to", frozenset({only}))

    @property
    def spares_common(self) -> bool:
        """Are common words never counted as misspelt? So it is where a preset, not the operator, has set the edits."""
        return self.edits > 0 and self.edits == PRESETS[self.strength].edits

    @property
    def acts_as(self) -> Action:
        """The action where nothing can be rolled back."""
        return Action(self.exhausted) if self.action is Action.ROLLBACK else self.action


class Language(StrEnum):
    """The notation of a constraint."""

    REGEX = "regex"
    CHOICE = "choice"
    JSON_SCHEMA = "json_schema"
    GRAMMAR = "grammar"


class Conflict(StrEnum):
    """What happens to a request with a format of its own under a constraint: the policy's holds, or it is refused."""

    POLICY = "policy"
    REJECT = "reject"


class Violation(StrEnum):
    """What happens to an answer that leaves the language of its constraint."""

    BLOCK = "block"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constrain:
    """The language that every answer under a policy is a text of. `texts`: the pattern, the options, the JSON text of
    the schema, or the grammar (one text, but for `choice`)."""

    language: Language
    texts: tuple[str, ...]
    on_conflict: Conflict = Conflict.POLICY
    on_violation: Violation = Violation.BLOCK
    require: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named, ordered set of rules. `annotate`: None is on request. Raises ValueError for a value of another type."""

    name: str
    rules: tuple[Rule, ...] = ()
    mode: Mode = Mode.ENFORCE
    max_hold: int = DEFAULT_MAX_HOLD
    on_overflow: Overflow = Overflow.RELEASE
    unknown: Unknown = Unknown.SCAN
    constrain: Constrain | None = None
    annotate: bool | None = None
    on_request: bool = False
    strength: Strength = Strength.PLAIN

    def __post_init__(self) -> None:
        check_fields(self, f"policy {self.name!r}", {"max_hold": 1})

    @property
    def rolls_back(self) -> bool:
        """Whether a rule rolls back."""
        return self.mode is Mode.ENFORCE and any(rule.action is Action.ROLLBACK for rule in self.rules)

    @property
    def masked(self) -> tuple[Rule, ...]:
        """The rules whose words are masked while the model decodes."""
        return tuple(rule for rule in self.rules if rule.decode is Decode.MASK and self.mode is Mode.ENFORCE)


class Balance(StrEnum):
    """Which upstream of a route is tried first: the first that is healthy, or the one with the fewest requests."""

    FIRST = "first"
    LEAST_BUSY = "least_busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`model` is a glob; `others` are tried when `upstream` fails before its first byte."""

    model: str
    upstream: str
    policy: str
    rename: str | None = None
    others: tuple[str, ...] = ()
    balance: Balance = Balance.FIRST

    @property
    def upstreams(self) -> tuple[str, ...]:
        return (self.upstream, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, `send_timeout` in seconds. `stored_responses`: None keeps none."""

    max_body: int = 4 * 1024 * 1024
    max_streams: int = 2000
    max_event: int = 1024 * 1024
    send_timeout: float = 30.0
    stored_responses: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    host: str = "127.0.0.1"
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossOrigin:
    """`origins` as browsers send them, or `*` for all."""

    origins: tuple[str, ...]


class ReadyWhen(StrEnum):
    """Whether `/readyz` follows the upstreams: never, while all are down, or while one is."""

    ALWAYS = "always"
    ANY = "any"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """`drain_timeout` in seconds; `hosts` in lower case."""

    host: str = "127.0.0.1"
    port: int = 8080
    admin: ListenAddress | None = None
    drain_timeout: float = 30.0
    ready_when: ReadyWhen = ReadyWhen.ANY
    hosts: tuple[str, ...] = ()
    cors: CrossOrigin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """A client's key as its SHA-256 `digest`; the key itself is kept nowhere. None is no limit, or everything."""

    name: str
    digest: bytes = field(repr=False)
    rpm: int | None = None
    tpm: int | None = None
    max_streams: int | None = None
    policies: frozenset[str] | None = None
    models: tuple[str, ...] | None = None

    @staticmethod
    def of(key: str, name: str = "key", **limits: Any) -> ClientKey:
        """From the key in clear."""
        return ClientKey(name=name, digest=hashlib.sha256(key.encode()).digest(), **limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Client keys. `keys` empty and `open_to_all` true is `auth: none` written out."""

    keys: tuple[ClientKey, ...] = ()
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
    journal: Journal | None = None
    telemetry: Telemetry | None = None
    state: str | None = field(default=None, repr=False)  # the URL of a Redis server, shared by several gateways
    state_key: str = field(default="state", compare=False)  # its key in the file: `redis`, or `state`
    source: str = "<memory>"
    files: tuple[str, ...] = ()  # absolute paths of the file and its word lists, symbolic links not followed
