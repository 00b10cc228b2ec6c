"""The `upstreams` section."""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import urlsplit

from gateway.policy.files import Files
from gateway.policy.key_table import PATH, SECONDS, SHARE, TEXT, Form, KeyTable, choice, integer, nested, several
from gateway.policy.model import Health, Retries, Timeouts, Upstream, UpstreamType
from gateway.policy.servers import MODEL_PLACE, Endpoint, KeyHeader
from gateway.policy.urls import URL, read_http_url
from gateway.policy.value import LABEL, Scalar, ScalarKind, Value

MAX_ATTEMPTS = 10
TWICE = re.compile(r"(/v[0-9]+[a-z0-9.]*)\1(?=/|$)")
EXAMPLE_URL = "https://api.openai.com/v1"
# What comes behind a base URL and does not belong to it.
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/moderations", "/models")
NOT_OF_THE_DEMO = ("base_url", "api_key", "auth", "api_version", "headers")
PASSTHROUGH = "passthrough"
API_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADER_NAME = re.compile(r"[a-z0-9_.-]+")
KEY_HEADERS = frozenset({"authorization", "api-key", "x-api-key"})
# Those of the connection and of the body, which the gateway writes, and cookies, which it never sends.
OWN_HEADERS = frozenset(
    {
        *("host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
        *("content-length", "content-type", "content-encoding", "accept", "accept-encoding", "cookie", "set-cookie"),
    }
)


def _read_base_url(value: Value) -> str:
    url = read_http_url(value, EXAMPLE_URL, "keys belong under api_key")
    path = urlsplit(url).path
    endpoint = next((name for name in ENDPOINTS if path.endswith(name)), None)
    if endpoint is not None:
        before = url.removesuffix(endpoint) if value.shown else "the part before it"
        raise value.fail(f"ends with {endpoint}, which the gateway adds itself; write {before}")
    segments = path.split("/")
    if segments.count(MODEL_PLACE) != url.count("{") or url.count("{") != url.count("}") or url.count("{") > 1:
        raise value.wrong(f"a URL in which braces are only those of {MODEL_PLACE}, once, between two slashes")
    if (twice := TWICE.search(path)) is not None:
        before = f", as in {url.replace(twice[0], twice[1], 1)}" if value.shown else ""
        raise value.fail(f"has {twice[1]} twice in its path; write it once{before}")
    return url


def _read_api_version(value: Value) -> str:
    """A date is one without quotes, too."""
    node = value.node
    text = node.text if isinstance(node, Scalar) and node.kind is ScalarKind.DATE else value.text()
    if not API_VERSION.fullmatch(text):
        raise value.wrong("a version such as 2024-10-21 or preview")
    return text


def _read_headers(value: Value) -> tuple[tuple[str, str], ...]:
    headers: dict[str, str] = {}
    for given, text in value.named().items():
        name = given.lower()
        if name in KEY_HEADERS:
            raise text.fail("carries a key, which belongs under api_key; auth says in which header it is sent")
        if name in OWN_HEADERS or name.startswith("proxy-"):
            raise text.fail("is a header that the gateway writes itself, or never sends")
        if not HEADER_NAME.fullmatch(name) or name in headers:
            raise text.fail("is not a header name, or is given twice")
        headers[name] = text.attempt(_read_header, "")
    return tuple(headers.items())


def _read_header(value: Value) -> str:
    """Its value may be a key, so no error shows it."""
    text = value.hidden().text()
    if not text or text != text.strip() or not (text.isascii() and text.isprintable()):
        raise value.fail("must be printable ASCII, without spaces at the ends (the value is not shown)")
    return text


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
        "auth": choice(KeyHeader),
        "endpoints": several(choice(Endpoint), f"list of {choice(Endpoint).shown}", frozenset),
        "api_version": Form("text", {"type": "string", "minLength": 1}, _read_api_version),
        "headers": Form(
            "mapping of names to text",
            {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": f"^{LABEL.pattern}$"},
                "additionalProperties": {"type": "string", "minLength": 1},
            },
            _read_headers,
        ),
        "tokenizer": PATH,
        "timeouts": nested(TIMEOUTS),
        "health": nested(HEALTH),
        "retries": nested(RETRIES),
    },
    rules={
        "if": {"required": ["type"], "properties": {"type": {"const": "demo"}}},
        "then": {"properties": dict.fromkeys((*NOT_OF_THE_DEMO, "tokenizer"), False)},
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
    for key in NOT_OF_THE_DEMO:
        if key in section and kind is UpstreamType.DEMO:
            raise section[key].fail("means nothing with type: demo, which is embedded")
    values = UPSTREAM.values(section, tokenizer=partial(_read_tokenizer, files))
    if kind is UpstreamType.OPENAI:  # the address of a managed vLLM is known when it runs
        value.attempt(lambda _: section["base_url"], None)
    given = section.fields.get("api_key")
    if given is not None and isinstance(given.node, Scalar) and given.shown and given.node.text == PASSTHROUGH:
        values |= {"api_key": None, "passes_key": True}
    return Upstream(name=name, **values)


def _read_tokenizer(files: Files, value: Value) -> str:
    path = files.path(value.nonempty())
    if not path.exists():
        raise value.wrong("the path of a model's folder or tokenizer.json that exists")
    return str(path)
