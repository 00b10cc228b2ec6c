"""The `upstreams` section."""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import urlsplit

from gateway.policy.files import Files
from gateway.policy.key_table import PATH, SECONDS, SHARE, TEXT, Form, KeyTable, choice, integer, nested
from gateway.policy.model import Health, Retries, Timeouts, Upstream, UpstreamType
from gateway.policy.urls import URL, read_http_url
from gateway.policy.value import Value

MAX_ATTEMPTS = 10
TWICE = re.compile(r"(/v[0-9]+[a-z0-9.]*)\1(?=/|$)")
EXAMPLE_URL = "https://api.openai.com/v1"
# What comes behind a base URL and does not belong to it.
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/moderations", "/models")


def _read_base_url(value: Value) -> str:
    url = read_http_url(value, EXAMPLE_URL, "keys belong under api_key")
    path = urlsplit(url).path
    endpoint = next((name for name in ENDPOINTS if path.endswith(name)), None)
    if endpoint is not None:
        before = url.removesuffix(endpoint) if value.shown else "the part before it"
        raise value.fail(f"ends with {endpoint}, which the gateway adds itself; write {before}")
    if (twice := TWICE.search(path)) is not None:
        before = f", as in {url.replace(twice[0], twice[1], 1)}" if value.shown else ""
        raise value.fail(f"has {twice[1]} twice in its path; write it once{before}")
    return url


TIMEOUTS = KeyTable(
    "upstreams.timeouts", Timeouts, {"connect": SECONDS, "first_byte": SECONDS, "idle": SECONDS, "total": SECONDS}
)
HEALTH = KeyTable("upstreams.health", Health, {"eject_after": integer(1), "eject_for": SECONDS})
RETRIES = KeyTable("upstreams.retries", Retries, {"attempts": integer(0, MAX_ATTEMPTS), "budget": SHARE})
UPSTREAM = KeyTable(
    "upstreams",
    Upstream,
    {
        "type": choice(UpstreamType),
        "base_url": Form("URL", URL, _read_base_url),
        "api_key": Form("text", TEXT.schema, lambda value: value.no_default().key()),
        "tokenizer": PATH,
        "timeouts": nested(TIMEOUTS),
        "health": nested(HEALTH),
        "retries": nested(RETRIES),
    },
    rules={
        "if": {"required": ["type"], "properties": {"type": {"const": "demo"}}},
        "then": {"properties": {"base_url": False, "api_key": False, "tokenizer": False}},
        "else": {
            "if": {"required": ["type"], "properties": {"type": {"not": {"const": "openai"}}}},
            "else": {"required": ["base_url"], "properties": {"tokenizer": False}},
        },
    },
)


def read_upstreams(value: Value, files: Files) -> dict[str, Upstream]:
    """Every upstream by its name. Raises `ConfigError`."""
    # One that is refused keeps its name, since routes may lead there.
    return {
        name: upstream.attempt(partial(_upstream, name, files), Upstream(name=name))
        for name, upstream in value.named().items()
    }


def _upstream(name: str, files: Files, value: Value) -> Upstream:
    section = UPSTREAM.section(value)
    kind = section.get("type", lambda name: name.choice(UpstreamType), UpstreamType.OPENAI)
    if "tokenizer" in section and kind is not UpstreamType.VLLM:
        raise section["tokenizer"].fail(f"means nothing with type: {kind}; it is for type: vllm")
    for key in ("base_url", "api_key"):
        if key in section and kind is UpstreamType.DEMO:
            raise section[key].fail("means nothing with type: demo, which is embedded")
    values = UPSTREAM.values(section, tokenizer=partial(_read_tokenizer, files))
    if kind is UpstreamType.OPENAI:  # the address of a managed vLLM is known when it runs
        value.attempt(lambda _: section["base_url"], None)
    return Upstream(name=name, **values)


def _read_tokenizer(files: Files, value: Value) -> str:
    path = files.path(value.nonempty())
    if not path.exists():
        raise value.wrong("the path of a model's folder or tokenizer.json that exists")
    return str(path)
