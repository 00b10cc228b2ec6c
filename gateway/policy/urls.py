"""URLs of other servers: of upstreams and collectors over HTTP, and of Redis."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from gateway.policy.value import Value

URL = {"type": "string", "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://|\$\{"}  # the JSON Schema
REDIS_URL = {"type": "string", "pattern": r"^(rediss?|unix)://|\$\{"}
DATABASE = re.compile(r"(/[0-9]{0,5})?")


def read_http_url(value: Value, example: str, secrets: str) -> str:
    """An `http` or `https` URL without a final slash; `secrets`: the advice for one with more parts.

    Raises `ConfigError`, which shows the URL unless it may hold a password or a key.
    """
    url = value.text()
    wanted = f"an http or https URL with a host, such as {example}"
    if "@" in url or "?" in url or "#" in url:
        raise value.hidden().wrong(wanted, f"without user name, query and fragment; {secrets}")
    if not _is_plain(url):
        raise value.wrong(wanted, "in ASCII without spaces")
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise value.wrong(wanted)
    return url.rstrip("/")


def read_redis_url(value: Value) -> str:
    """A URL of a Redis server, over TCP, TLS or a local socket. Its password keeps it out of every error.

    Raises `ConfigError`.
    """
    value = value.hidden()
    url = value.text()
    parts = _split(url) if _is_plain(url) else None
    if parts is None or parts.fragment or not _names_a_server(parts):
        advice = "such as redis://127.0.0.1:6379/0 or unix:///run/redis.sock; write # @ / : ? in a password as %XX"
        raise value.wrong("a redis:// or rediss:// URL with a host, or a unix:// URL with a path", advice)
    return url


def _names_a_server(parts: SplitResult) -> bool:
    if parts.scheme == "unix":
        return not parts.hostname and len(parts.path) > 1
    # A client library takes database 0 for a path that is no number, without a word.
    return parts.scheme in ("redis", "rediss") and bool(parts.hostname) and bool(DATABASE.fullmatch(parts.path))


def _is_plain(url: str) -> bool:
    """Visible ASCII: `urlsplit` would drop tabs and line breaks in silence."""
    return "\\" not in url and all("!" <= character <= "~" for character in url)


def _split(url: str) -> SplitResult | None:
    """The parts, or None where there is no URL or a port that nothing listens on."""
    try:
        parts = urlsplit(url)
        return None if parts.port == 0 else parts
    except ValueError:
        return None
