"""What an upstream is sent beside the body: its address, its key, the headers of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.policy.model import Route
from gateway.policy.servers import KeyHeader
from tests.support.gateway import UPSTREAM_KEY, RunningGateway, config_for, error_of, question, running
from tests.support.upstream import MODEL, completion, plain, playing, sending
from tests.support.upstream import Upstream as PlayedUpstream

OK = sending(plain(completion("ok")))
CALLER = {"authorization": "Bearer sk-callers"}


async def asked(given: dict[str, str] | None = None, path: str = "", **settings: Any) -> PlayedUpstream:
    """The upstream, after it was asked once."""
    async with playing(OK) as upstream, running(config_for(upstream.base_url + path, **settings)) as gateway:
        assert (await gateway.post(question(), given)).status_code == 200
    return upstream


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (KeyHeader.BEARER, "authorization", f"Bearer {UPSTREAM_KEY}"),
        (KeyHeader.API_KEY, "api-key", UPSTREAM_KEY),
        (KeyHeader.X_API_KEY, "x-api-key", UPSTREAM_KEY),
    ],
)
async def test_the_header_of_the_key(auth: KeyHeader, header: str, value: str) -> None:
    upstream = await asked({**CALLER, "api-key": "sk-callers"}, upstream={"auth": auth})
    headers = upstream.asked.request.headers
    assert {name: headers[name] for name in ("authorization", "api-key", "x-api-key") if name in headers} == {
        header: value
    }


async def test_configured_headers_go_before_those_of_the_client() -> None:
    given = {"x-team": "theirs", "openai-beta": "theirs", "openai-note": "theirs"}
    upstream = await asked(given, upstream={"headers": (("x-team", "ours"), ("openai-beta", "ours"))})
    headers = upstream.asked.request.headers
    assert (headers["x-team"], headers["openai-beta"], headers["openai-note"]) == ("ours", "ours", "theirs")


@pytest.mark.parametrize(("rename", "name"), [(None, "a%2Fb%20c"), ("gpt-4o", "gpt-4o")])
async def test_the_address_of_a_deployment(rename: str | None, name: str) -> None:
    route = Route(model="*", upstream="played", policy="default", rename=rename)
    fields = {"api_version": "2024-10-21"}
    async with playing(OK) as upstream:
        config = config_for(upstream.base_url + "/deployments/{model}", routes=(route,), upstream=fields)
        async with running(config) as gateway:
            assert (await gateway.post(question(model="a/b c"))).status_code == 200
            assert upstream.asked.request.target == f"/v1/deployments/{name}/chat/completions?api-version=2024-10-21"
            assert (await gateway.client.get("/readyz")).json()["upstreams"] == {"played": "up"}


@pytest.mark.parametrize("model", [".", ".."])
async def test_a_model_that_would_be_another_path(model: str) -> None:
    async with playing(OK) as upstream, running(config_for(upstream.base_url + "/deployments/{model}")) as gateway:
        assert error_of(await gateway.post(question(model=model)), 404)["code"] == "model_not_found"
        assert not upstream.calls


# -- the caller's key --------------------------------------------------------------------------------------------------

PASSED = {"api_key": None, "passes_key": True}


async def test_the_callers_key_is_forwarded_where_the_upstream_is_to_get_it() -> None:
    upstream = await asked(CALLER, upstream=PASSED)
    assert upstream.asked.request.headers["authorization"] == CALLER["authorization"]


async def test_the_gateways_own_key_is_never_forwarded() -> None:
    upstream = await asked({"authorization": "Bearer sk-ours"}, keys=("sk-ours",), upstream=PASSED)
    assert "authorization" not in upstream.asked.request.headers
    upstream = await asked({"api-key": "sk-ours", "x-api-key": ""}, keys=("sk-ours",), upstream=PASSED)
    assert not {"api-key", "x-api-key"} & upstream.asked.request.headers.keys()


async def test_both_keys_travel_in_headers_of_their_own() -> None:
    given = {"x-portcullis-key": "sk-ours", **CALLER}
    upstream = await asked(given, keys=("sk-ours",), upstream=PASSED)
    headers = upstream.asked.request.headers
    assert headers["authorization"] == CALLER["authorization"] and "x-portcullis-key" not in headers


async def test_a_wrong_key_is_refused_whatever_else_is_sent() -> None:
    async with playing(OK) as upstream:
        async with running(config_for(upstream.base_url, keys=("sk-ours",), upstream=PASSED)) as gateway:
            given = {"x-portcullis-key": "sk-wrong", "authorization": "Bearer sk-ours"}
            assert error_of(await gateway.post(question(), given), 401)["code"] == "invalid_api_key"
        assert not upstream.calls


@pytest.mark.parametrize(("fields", "status"), [(PASSED, 401), ({}, 502)])
async def test_whose_key_an_upstream_refuses(fields: dict[str, Any], status: int) -> None:
    refusal = sending(plain({"error": {"message": "12MONKEYS is no key"}}, 401))
    async with playing(refusal) as upstream, running(config_for(upstream.base_url, upstream=fields)) as gateway:
        assert "12MONKEYS" not in str(error_of(await gateway.post(question(), CALLER), status))


async def models(gateway: RunningGateway) -> list[str]:
    return [entry["id"] for entry in (await gateway.client.get("/v1/models")).json()["data"]]


async def test_the_models_of_a_provider_are_not_its_deployments() -> None:
    async with playing(OK) as upstream:
        async with running(config_for(upstream.base_url)) as gateway:
            assert await models(gateway) == [MODEL]
        async with running(config_for(upstream.base_url + "/deployments/{model}")) as gateway:
            assert await models(gateway) == []
