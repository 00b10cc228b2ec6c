"""The `upstreams` and `routes` parts of a configuration file → `Upstream` and `Route`."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from functools import partial
from urllib.parse import urlsplit

from gateway.policy.files import Files
from gateway.policy.model import Balance, Health, Retries, Route, Timeouts, Upstream
from gateway.policy.urls import read_http_url
from gateway.policy.value import Scalar, Section, Value

UPSTREAM_KEYS = ("type", "base_url", "api_key", "tokenizer", "timeouts", "health", "retries")
TIMEOUT_KEYS = ("connect", "first_byte", "idle", "total")
HEALTH_KEYS = ("eject_after", "eject_for")
RETRY_KEYS = ("attempts", "budget")
ROUTE_KEYS = ("model", "upstream", "upstreams", "balance", "policy", "rename")

MAX_ATTEMPTS = 10
EXAMPLE_URL = "https://api.openai.com/v1"
# What comes behind a base URL and does not belong to it.
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/moderations", "/models")


class UpstreamType(StrEnum):
    OPENAI = "openai"
    VLLM = "vllm"
    DEMO = "demo"


def read_upstreams(value: Value, files: Files) -> dict[str, Upstream]:
    """Every upstream by its name. Raises `ConfigError`."""
    # One that is refused has a name all the same, and routes may lead there.
    return {
        name: upstream.attempt(partial(_upstream, name, files), Upstream(name=name))
        for name, upstream in value.named().items()
    }


def read_routes(value: Value, upstreams: Collection[str], policies: Collection[str]) -> tuple[Route, ...]:
    """The routes in order, of which there is at least one. Raises `ConfigError`."""
    read = partial(_route, upstreams, policies)
    routes = (route.attempt(read, None) for route in value.nonempty_items())
    return tuple(route for route in routes if route is not None)


def read_key(value: Value) -> str:
    """A client's or an upstream's key, as it can travel in a header: visible ASCII characters without spaces."""
    key = value.hidden().text()
    if not key:
        raise value.fail("is empty; set it, or leave it out where no key is needed")
    if not all("!" <= character <= "~" for character in key):
        raise value.fail("holds a space or another character that cannot travel in a header")
    return key


def refuse_default(value: Value) -> Value:
    """The value of a key. Raises `ConfigError` for one that stands in the file as a default, since that is copied."""
    if isinstance(value.node, Scalar) and value.node.defaulted:
        raise value.fail("is a default in the file, and so no secret; write ${NAME} alone, and set the variable")
    return value


def read_reference(value: Value, what: str, names: Collection[str]) -> str:
    """One of `names`, which the file defines elsewhere as `what`; any where it defines none, which is refused there.
    Raises `ConfigError`."""
    name = value.text()
    if names and name not in names:
        which = f" {name!r}" if value.shown else ""
        raise value.fail(f"unknown {what}{which}; known: {', '.join(names)}")
    return name


def _upstream(name: str, files: Files, value: Value) -> Upstream:
    section = value.section(UPSTREAM_KEYS)
    kind = section.get("type", lambda name: name.choice(UpstreamType), UpstreamType.OPENAI)
    if "tokenizer" in section and kind is not UpstreamType.VLLM:
        raise section["tokenizer"].fail(f"means nothing with type: {kind}; it is for type: vllm")
    timeouts = section.get("timeouts", _timeouts, Timeouts())
    health = section.get("health", _health, Health())
    retries = section.get("retries", _retries, Retries())
    if kind is UpstreamType.DEMO:
        for key in ("base_url", "api_key"):
            if key in section:
                raise section[key].fail("means nothing with type: demo, which is embedded")
        return Upstream(name=name, type=kind.value, timeouts=timeouts, health=health, retries=retries)
    return Upstream(
        name=name,
        type=kind.value,
        # The address of a model server that the gateway starts itself is known when it runs.
        base_url=section.need("base_url", _base_url, "")
        if "base_url" in section or kind is not UpstreamType.VLLM
        else "",
        api_key=section.get("api_key", lambda key: read_key(refuse_default(key)), None),
        timeouts=timeouts,
        health=health,
        retries=retries,
        tokenizer=section.get("tokenizer", lambda path: _tokenizer(path, files), None),
    )


def _tokenizer(value: Value, files: Files) -> str:
    path = files.path(value.nonempty())
    if not path.exists():
        raise value.wrong("the path of a model's folder or tokenizer.json that exists")
    return str(path)


def _base_url(value: Value) -> str:
    url = read_http_url(value, EXAMPLE_URL, "keys belong under api_key")
    path = urlsplit(url).path
    endpoint = next((name for name in ENDPOINTS if path.endswith(name)), None)
    if endpoint is not None:
        before = url.removesuffix(endpoint) if value.shown else "the part before it"
        raise value.fail(f"ends with {endpoint}, which the gateway adds itself; write {before}")
    return url


def _timeouts(value: Value) -> Timeouts:
    section = value.section(TIMEOUT_KEYS)
    default = Timeouts()
    return Timeouts(
        connect=section.get("connect", Value.seconds, default.connect),
        first_byte=section.get("first_byte", Value.seconds, default.first_byte),
        idle=section.get("idle", Value.seconds, default.idle),
        total=section.get("total", Value.seconds, default.total),
    )


def _health(value: Value) -> Health:
    section = value.section(HEALTH_KEYS)
    default = Health()
    return Health(
        eject_after=section.get("eject_after", lambda failures: failures.integer(1), default.eject_after),
        eject_for=section.get("eject_for", Value.seconds, default.eject_for),
    )


def _retries(value: Value) -> Retries:
    section = value.section(RETRY_KEYS)
    default = Retries()
    return Retries(
        attempts=section.get("attempts", lambda attempts: attempts.integer(0, MAX_ATTEMPTS), default.attempts),
        budget=section.get("budget", Value.share, default.budget),
    )


def _route(upstreams: Collection[str], policies: Collection[str], value: Value) -> Route | None:
    section = value.section(ROUTE_KEYS)
    model = section.need("model", Value.nonempty, "")
    policy = section.need("policy", lambda policy: read_reference(policy, "policy", policies), "")
    first, *others = _route_upstreams(section, upstreams)
    return Route(
        model=model,
        upstream=first,
        policy=policy,
        rename=section.get("rename", Value.nonempty, None),
        others=tuple(others),
        balance=section.get("balance", lambda balance: balance.choice(Balance), Balance.FIRST),
    )


def _route_upstreams(section: Section, upstreams: Collection[str]) -> list[str]:
    given = [key for key in ("upstream", "upstreams") if key in section]
    if len(given) != 1:
        raise section.value.fail(
            f"needs exactly one of upstream and upstreams; it has {'both' if given else 'neither'}"
        )
    if given == ["upstream"]:
        return [read_reference(section["upstream"], "upstream", upstreams)]
    names: list[str] = []
    for item in section["upstreams"].nonempty_items():
        name = read_reference(item, "upstream", upstreams)
        if name in names:
            raise item.wrong("an upstream that the route does not list already")
        names.append(name)
    return names
