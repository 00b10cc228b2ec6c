"""The `upstreams` and `routes` parts of a configuration file → `Upstream` and `Route`."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from urllib.parse import urlsplit

from gateway.policy.model import Route, Timeouts, Upstream
from gateway.policy.value import NOT_AVAILABLE, Value

VLLM_HINT = "leave `type` and `tokenizer` out: any OpenAI-compatible server, vLLM included, works without them"

UPSTREAM_KEYS = ("type", "base_url", "api_key", "timeouts")
LATER_UPSTREAM_KEYS = {"tokenizer": VLLM_HINT}
TIMEOUT_KEYS = ("connect", "first_byte", "idle", "total")
ROUTE_KEYS = ("model", "upstream", "policy", "rename")
LATER_ROUTE_KEYS = {"upstreams": "name one server under upstream"}


class UpstreamType(StrEnum):
    OPENAI = "openai"
    DEMO = "demo"


def read_upstreams(value: Value) -> dict[str, Upstream]:
    """Every upstream by its name. Raises `ConfigError`."""
    return {name: _upstream(name, upstream) for name, upstream in value.named().items()}


def read_routes(value: Value, upstreams: Collection[str], policies: Collection[str]) -> tuple[Route, ...]:
    """The routes in order, of which there is at least one. Raises `ConfigError`."""
    return tuple(_route(route, upstreams, policies) for route in value.nonempty_items())


def read_key(value: Value) -> str:
    """A client's or an upstream's key, as it can travel in a header: visible ASCII characters without spaces."""
    key = value.hidden().text()
    if not key:
        raise value.fail("is empty; set it, or leave it out where no key is needed")
    if not all("!" <= character <= "~" for character in key):
        raise value.fail("holds a space or another character that cannot travel in a header")
    return key


def _upstream(name: str, value: Value) -> Upstream:
    section = value.section(UPSTREAM_KEYS, LATER_UPSTREAM_KEYS)
    kind = section.get("type", _upstream_type, UpstreamType.OPENAI)
    timeouts = section.get("timeouts", _timeouts, Timeouts())
    if kind is UpstreamType.DEMO:
        for key in ("base_url", "api_key"):
            if key in section:
                raise section[key].fail("means nothing with type: demo, which is embedded")
        return Upstream(name=name, type=kind.value, timeouts=timeouts)
    return Upstream(
        name=name,
        type=kind.value,
        base_url=_base_url(section["base_url"]),
        api_key=section.get("api_key", read_key, None),
        timeouts=timeouts,
    )


def _upstream_type(value: Value) -> UpstreamType:
    if value.text() == "vllm":
        raise value.fail(f"{repr('vllm') if value.shown else 'this value'} is {NOT_AVAILABLE}; {VLLM_HINT}")
    return value.choice(UpstreamType)


def _base_url(value: Value) -> str:
    url = value.text()
    wanted = "an http or https URL with a host, such as https://api.openai.com/v1"
    if "@" in url or "?" in url or "#" in url:
        raise value.hidden().wrong(wanted, "without user name, query and fragment; keys belong under api_key")
    # urlsplit drops tabs and line breaks in silence, so they are refused before it sees them.
    if not all("!" <= character <= "~" for character in url) or "\\" in url:
        raise value.wrong(wanted, "in ASCII without spaces")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise value.wrong(wanted)
    return url.rstrip("/")


def _timeouts(value: Value) -> Timeouts:
    section = value.section(TIMEOUT_KEYS)
    default = Timeouts()
    return Timeouts(
        connect=section.get("connect", Value.seconds, default.connect),
        first_byte=section.get("first_byte", Value.seconds, default.first_byte),
        idle=section.get("idle", Value.seconds, default.idle),
        total=section.get("total", Value.seconds, default.total),
    )


def _route(value: Value, upstreams: Collection[str], policies: Collection[str]) -> Route:
    section = value.section(ROUTE_KEYS, LATER_ROUTE_KEYS)
    return Route(
        model=section["model"].nonempty(),
        upstream=_known(section["upstream"], "upstream", upstreams),
        policy=_known(section["policy"], "policy", policies),
        rename=section.get("rename", Value.nonempty, None),
    )


def _known(value: Value, what: str, names: Collection[str]) -> str:
    name = value.text()
    if name not in names:
        which = f" {name!r}" if value.shown else ""
        raise value.fail(f"unknown {what}{which}; known: {', '.join(names)}")
    return name
