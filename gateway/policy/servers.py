"""Parts of `gateway.policy.model`: the servers to forward to (what they are, how long they may take, when one is left
alone, what a base URL says of one), and where the gateway writes what it did (the journal's file, and traces)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from gateway.policy.field_checks import DEPENDS


class Endpoint(StrEnum):
    """A protocol that an upstream may speak, by its path below the base URL."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"


class KeyHeader(StrEnum):
    """The header of an upstream's key: `Authorization: Bearer KEY`, or the key alone under one of these names."""

    BEARER = "bearer"
    API_KEY = "api-key"
    X_API_KEY = "x-api-key"


@dataclass(frozen=True, slots=True)
class Provider:
    """What a base URL says of the server behind it; a configuration may say otherwise. `headers` are sent where
    neither the client nor the configuration has them."""

    endpoints: frozenset[str]
    key_header: KeyHeader = KeyHeader.BEARER
    headers: tuple[tuple[str, str], ...] = ()


MODEL_PLACE = "{model}"  # in a base URL: the name of the model, as in the addresses of Azure's deployments
DEPLOYMENTS = "/deployments/"
_TEXT_ENDPOINTS = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS})
_OF_OPENAI = frozenset(Endpoint) - {Endpoint.MESSAGES}
_AZURE = Provider(_OF_OPENAI, KeyHeader.API_KEY)
_OTHER = Provider(_TEXT_ENDPOINTS)
# By host; a host's subdomains are the same provider's.
_PROVIDERS = {
    "api.openai.com": Provider(_OF_OPENAI),
    "openai.azure.com": _AZURE,
    "openai.azure.us": _AZURE,
    "cognitiveservices.azure.com": _AZURE,
    "services.ai.azure.com": _AZURE,
    "api.anthropic.com": Provider(
        frozenset({Endpoint.MESSAGES}), KeyHeader.X_API_KEY, (("anthropic-version", "2023-06-01"),)
    ),
}


def provider_of(base_url: str) -> Provider:
    """The provider of a base URL; one that only speaks OpenAI's oldest endpoints for a host that is not known."""
    parts = urlsplit(base_url)
    host = f".{parts.hostname or ''}"
    found = next((provider for name, provider in _PROVIDERS.items() if host.endswith(f".{name}")), _OTHER)
    if is_deployment(base_url):
        return Provider(_TEXT_ENDPOINTS, found.key_header, found.headers)
    return found


def is_deployment(base_url: str) -> bool:
    """Is it the address of one of Azure's deployments, or of all of them?"""
    return DEPLOYMENTS in urlsplit(base_url).path


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
