"""The keys of an upstream: what follows from its base URL, and what is refused."""

from __future__ import annotations

import pytest

from gateway.policy.model import Upstream
from gateway.policy.servers import Endpoint, KeyHeader
from tests.support.policies import SECRET, read, refused, text_of

TEXT = {"chat/completions", "completions", "embeddings"}
DEFAULTS = {
    "https://api.openai.com/v1": (set(Endpoint) - {"messages"}, "bearer"),
    "https://eu.api.openai.com/v1": (set(Endpoint) - {"messages"}, "bearer"),
    "https://notapi.openai.com.evil.test/v1": (TEXT, "bearer"),
    "https://Res.OpenAI.Azure.com/openai/v1": (set(Endpoint) - {"messages"}, "api-key"),
    "https://res.openai.azure.com/openai/deployments/{model}": (TEXT, "api-key"),
    "https://res.openai.azure.com/openai/deployments/gpt": (TEXT, "api-key"),
    "https://gateway.test/openai/deployments/gpt": (TEXT, "bearer"),
    "https://api.anthropic.com/v1": ({"messages"}, "x-api-key"),
    "http://127.0.0.1:8000/v1": (TEXT, "bearer"),
}


def upstream(fields: str) -> Upstream:
    return read(text_of(upstreams=f"{{u: {{{fields}}}}}")).upstreams["u"]


@pytest.mark.parametrize("url", DEFAULTS)
def test_what_follows_from_the_base_url(url: str) -> None:
    endpoints, auth = DEFAULTS[url]
    for found in (upstream(f"base_url: '{url}'"), Upstream(name="u", base_url=url)):
        assert (found.endpoints, found.auth) == (endpoints, auth)


def test_what_is_given_goes_before_it() -> None:
    found = upstream(
        "base_url: 'https://h/v1', endpoints: [messages, chat/completions], auth: x-api-key, api_version: 2024-10-21, "
        f"headers: {{X-Team: a b, cf-token: {SECRET}}}"
    )
    assert found.endpoints == {"messages", "chat/completions"} and found.auth is KeyHeader.X_API_KEY
    assert found.api_version == "2024-10-21" and dict(found.headers) == {"x-team": "a b", "cf-token": SECRET}
    assert SECRET not in repr(found)


def test_the_callers_key_is_passed_only_where_the_file_says_so() -> None:
    found = upstream("base_url: 'https://h/v1', api_key: passthrough")
    assert found.passes_key and found.api_key is None
    text = text_of(upstreams="{u: {base_url: 'https://h/v1', api_key: '${KEY}'}}")
    given = read(text, {"KEY": "passthrough"}).upstreams["u"]
    assert not given.passes_key and given.api_key == "passthrough"


REFUSED = {
    "braces": ("base_url: 'https://h/{deployment}/v1'", "base_url", "braces are only those of {model}"),
    "the model as a host": ("base_url: 'https://{model}/v1'", "base_url", "braces are only those of {model}"),
    "a part of a segment": ("base_url: 'https://h/a{model}/v1'", "base_url", "braces are only those of {model}"),
    "twice": ("base_url: 'https://h/{model}/{model}'", "base_url", "braces are only those of {model}"),
    "auth": ("base_url: 'https://h/v1', auth: basic", "auth", "must be one of bearer, api-key, x-api-key"),
    "endpoints": ("base_url: 'https://h/v1', endpoints: [chat]", "endpoints[0]", "must be one of chat/completions"),
    "no endpoints": ("base_url: 'https://h/v1', endpoints: []", "endpoints", "is an empty list"),
    "api_version": ("base_url: 'https://h/v1', api_version: 'a&b=c'", "api_version", "such as 2024-10-21"),
    "a header that is the key's": (
        f"base_url: 'https://h/v1', headers: {{Authorization: {SECRET}}}",
        "headers.Authorization",
        "belongs under api_key",
    ),
    **{
        f"the header {name}": (
            f"base_url: 'https://h/v1', headers: {{{name}: {SECRET}}}",
            f"headers.{name}",
            "that the gateway writes itself, or never sends",
        )
        for name in ("Host", "content-length", "Cookie", "Proxy-Authorization", "Transfer-Encoding")
    },
    "a header's name": ("base_url: 'https://h/v1', headers: {'a:b': x}", "headers.a:b", "is not a header name"),
    "a header twice": ("base_url: 'https://h/v1', headers: {a: x, A: y}", "headers.A", "or is given twice"),
    "a header's value": (
        f"base_url: 'https://h/v1', headers: {{a: \"{SECRET}\\n\"}}",
        "headers.a",
        "must be printable ASCII",
    ),
    "of the demo": ("type: demo, headers: {a: x}", "headers", "means nothing with type: demo"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(case: tuple[str, str, str]) -> None:
    fields, key, reason = case
    refused(text_of(upstreams=f"{{u: {{{fields}}}}}"), f"upstreams.u.{key}", reason)
