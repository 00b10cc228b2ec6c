"""Defaults from a base URL: the endpoints of the server, and the header in which it takes a key.

Both are defaults; a configuration may say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit


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
    """`headers` are sent where neither the client nor the configuration has them."""

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
