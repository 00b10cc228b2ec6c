"""Parts of `gateway.policy.model`: the servers to forward to (what they are, how long they may take, when one is left
alone), and where the gateway writes what it did (the journal's file, and traces)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gateway.policy.field_checks import DEPENDS
from gateway.policy.providers import KeyHeader, provider_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    connect: float = 5.0
    first_byte: float = 60.0
    idle: float = 60.0
    total: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A circuit breaker: open after `eject_after` failures in a row, for `eject_for` seconds, then half-open."""

    eject_after: int = 5
    eject_for: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Before the first byte: at most `attempts` a request, and over time the share `budget` of all requests."""

    attempts: int = 2
    budget: float = 0.2


class UpstreamType(StrEnum):
    """Any OpenAI-compatible server; a vLLM, whose decoding can be steered; the embedded demo."""

    OPENAI = "openai"
    VLLM = "vllm"
    DEMO = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server to forward to. `tokenizer` is the path of a model's folder or `tokenizer.json`.

    `passes_key`: it gets the key of the caller. `endpoints`, of `Endpoint`, and `auth` follow from the `base_url` where
    they are not given. `headers` are names in lower case with their values.
    """

    name: str
    type: str = UpstreamType.OPENAI
    base_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    passes_key: bool = False
    auth: KeyHeader = DEPENDS
    endpoints: frozenset[str] = DEPENDS
    api_version: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeouts: Timeouts = Timeouts()
    health: Health = Health()
    retries: Retries = Retries()
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        provider = provider_of(self.base_url)
        if self.auth is DEPENDS:
            object.__setattr__(self, "auth", provider.key_header)
        if self.endpoints is DEPENDS:
            object.__setattr__(self, "endpoints", provider.endpoints)


class Fsync(StrEnum):
    """When a journal's lines are forced to the disk: with every batch, once a second, or by the system."""

    ALWAYS = "always"
    SECOND = "second"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The file of decisions; `max_size` in bytes; with `chain` its lines are signed and chained."""

    path: str
    key: str = field(repr=False)
    fsync: Fsync = Fsync.SECOND
    max_size: int = 100 * 1024 * 1024
    keep: int = 10
    required: bool = False
    chain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Traces over OTLP/HTTP to `endpoint`; `sample` is the share of requests that begin a trace of their own."""

    endpoint: str
    service: str = "portcullis"
    sample: float = 1.0
