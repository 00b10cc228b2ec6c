"""Pages of other origins that the configuration lists may use the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.policy.model import ClientKey, CrossOrigin, Listen
from tests.support.gateway import RunningGateway, config_for, error_of, question, running
from tests.support.policies import read, refused, text_of
from tests.support.upstream import Play, completion, plain, playing, sending, stream
from tests.support.upstream import Upstream as PlayedUpstream

ORIGIN = "https://app.example"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
KEY = {"authorization": "Bearer sk"}
FINE = sending(plain(completion("fine")))


@asynccontextmanager
async def before(
    *origins: str, play: Play = FINE, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, PlayedUpstream]]:
    cors = CrossOrigin(origins=origins) if origins else None
    async with playing(play) as upstream:
        config = replace(config_for(upstream.base_url, **settings), listen=Listen(cors=cors))
        async with running(config) as gateway:
            yield gateway, upstream


def allowed(headers: Any) -> str | None:
    if "access-control-allow-origin" not in headers:
        assert not any(name.startswith("access-control-") for name in headers)
        return None
    assert headers.get_list("vary") == ["Origin"] and "access-control-allow-credentials" not in headers
    found: str = headers["access-control-allow-origin"]
    return found


@pytest.mark.parametrize("keys", [(), (ClientKey.of("sk", "team"),)], ids=["without keys", "with keys"])
async def test_a_listed_page_asks_and_reads(keys: tuple[ClientKey, ...]) -> None:
    async with before(ORIGIN, play=sending(stream("It is 12", "MONKEYS.")), keys=keys) as (gateway, upstream):
        preflight = await gateway.client.options("/v1/chat/completions", headers={"origin": ORIGIN, **PREFLIGHT})
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert allowed(preflight.headers) == ORIGIN
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
        assert preflight.headers["x-request-id"] and not upstream.calls
        answer = await gateway.post(question(stream=True), {"origin": ORIGIN, **KEY})
        assert answer.status_code == 200 and "[CENSORED]" in answer.text
        assert allowed(answer.headers) == ORIGIN and answer.headers["access-control-expose-headers"] == "*"
        for path in ("/v1/models", "/v1/unknown", "/v1/chat/completions"):
            assert allowed((await gateway.client.get(path, headers={"origin": ORIGIN, **KEY})).headers) == ORIGIN
        bad = await gateway.post({}, {"origin": ORIGIN, **KEY})
        assert bad.status_code == 400 and allowed(bad.headers) == ORIGIN
        assert "origin" not in upstream.asked.request.headers


OTHERS = ["https://other.example", "https://app.example.evil", "http://app.example", "https://app.example:8443", "null"]


@pytest.mark.parametrize("origin", OTHERS)
async def test_another_page_reads_nothing(origin: str) -> None:
    for keys, status in (((ClientKey.of("sk", "team"),), 200), ((), 403)):
        async with before(ORIGIN, keys=keys) as (gateway, _):
            preflight = await preflighted(gateway, origin=origin)
            assert preflight.status_code in (403, 405) and allowed(preflight.headers) is None
            answer = await gateway.post(question(), {"origin": origin, **KEY})
            assert answer.status_code == status and allowed(answer.headers) is None
            own = await gateway.client.get("/v1/models", headers=KEY)
            assert own.status_code == 200 and allowed(own.headers) is None
            # So that no cache gives what it keeps of these to a page that may read them.
            assert all(each.headers["vary"] == "Origin" for each in (preflight, answer, own))
            if status == 403:
                assert error_of(answer, 403)["code"] == "origin_not_allowed"


async def preflighted(gateway: RunningGateway, **headers: str) -> Any:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return await gateway.client.options("/v1/chat/completions", headers={**PREFLIGHT, **given})


async def test_every_page_where_keys_are_asked_for() -> None:
    async with before("*", keys=(ClientKey.of("sk", "team"),)) as (gateway, _):
        assert allowed((await preflighted(gateway, origin=OTHERS[0])).headers) == OTHERS[0]
        answer = await gateway.post(question(), {"origin": OTHERS[1]})
        assert error_of(answer, 401)["code"] == "invalid_api_key" and allowed(answer.headers) == OTHERS[1]


async def test_what_is_no_name_of_a_header_is_not_repeated() -> None:
    async with before(ORIGIN) as (gateway, _):
        answer = await preflighted(gateway, origin=ORIGIN, access_control_request_headers="a<b>")
        assert answer.status_code == 204 and "access-control-allow-headers" not in answer.headers
        options = await gateway.client.options("/v1/chat/completions", headers={"origin": ORIGIN})
        assert options.status_code == 405 and allowed(options.headers) == ORIGIN


async def test_without_the_key_nothing_is_added() -> None:
    async with before(keys=(ClientKey.of("sk", "team"),)) as (gateway, _):
        answer = await gateway.post(question(), {"origin": ORIGIN, **KEY})
        assert allowed(answer.headers) is None and "vary" not in answer.headers
        assert (await preflighted(gateway, origin=ORIGIN)).status_code == 405


def test_the_configuration() -> None:
    text = text_of(listen="{cors: {origins: ['HTTPS://App.Example', 'http://localhost:3000', 'http://[::1]:5173']}}")
    cors = read(text).listen.cors
    assert cors is not None
    assert cors.origins == ("https://app.example", "http://localhost:3000", "http://[::1]:5173")
    ports = "{cors: {origins: ['https://a.example:443', 'http://[::1]:80', 'http://a.example:443', 'https://a.example:80']}}"
    found = read(text_of(listen=ports)).listen.cors
    assert found is not None
    assert found.origins == ("https://a.example", "http://[::1]", "http://a.example:443", "https://a.example:80")
    everything = "{cors: {origins: ['*']}}"
    assert read(text_of(listen=everything, auth="{keys: [sk-1]}")).listen.cors == CrossOrigin(origins=("*",))
    refused(text_of(listen=everything), "listen.cors.origins", "would let every page use")
    refused(text_of(listen=everything, auth="none"), "listen.cors.origins", "would let every page use")
    for wrong in ("app.example", "https://app.example/", "https://a@b", "https://*.example", "null"):
        refused(text_of(listen=f"{{cors: {{origins: ['{wrong}']}}}}"), "listen.cors.origins[0]", "must be an origin")
    refused(text_of(listen="{cors: {origins: []}}"), "listen.cors.origins", "is an empty list")
    refused(text_of(listen="{cors: {}}"), "listen.cors.origins", "is required")
