"""Requests that a web page could send to a gateway that asks for no key."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace

import httpx2
import pytest

from gateway.app import Portcullis
from gateway.observe.log import RequestLog
from gateway.policy.model import Auth, ClientKey, Config, Listen, ListenAddress
from tests.support.gateway import TIMEOUT, RunningGateway, before, config_for, error_of, question, running
from tests.support.upstream import completion, plain, playing, sending

OK = sending(plain(completion("ok")))
PATHS = ("/v1/models", "/metrics", "/healthz", "/readyz", "/v1/unknown")

OURS = [
    "localhost",
    "LocalHost:8080",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.8.9.10:65535",
    "[::1]",
    "[::1]:8080",
]
THEIRS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "x",
    "10.0.0.5:8080",
    "0.0.0.0:8080",
    "[::2]:8080",
    "localhost:8080:8080",
    "",
    "[::1",
]


async def asked(gateway: RunningGateway, path: str, headers: dict[str, str]) -> httpx2.Response:
    if path.startswith("/v1/chat"):
        return await gateway.client.post(path, json=question(), headers=headers)
    return await gateway.client.get(path, headers=headers)


@pytest.mark.parametrize("host", OURS)
async def test_d28_names_of_this_machine_are_answered(host: str) -> None:
    async with before(OK) as (gateway, _):
        for path in ("/v1/chat/completions", "/v1/models", "/metrics", "/healthz"):
            assert (await asked(gateway, path, {"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example/localhost", "127.0.0.1 evil.example", "localhost@evil.example"])
async def test_d28_what_is_no_name_is_not_either(host: str) -> None:
    async with before(OK) as (gateway, upstream):
        for path in ("/v1/chat/completions", *PATHS):
            refused = await asked(gateway, path, {"host": host})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_http")
            assert "evil" not in refused.text
        assert upstream.calls == []


@pytest.mark.parametrize("host", THEIRS)
async def test_d28_other_names_are_not(host: str) -> None:
    async with before(OK) as (gateway, upstream):
        for path in ("/v1/chat/completions", *PATHS):
            refused = await asked(gateway, path, {"host": host})
            error = error_of(refused, 421)
            assert error["code"] == "host_not_allowed"
            assert "listen.hosts" in error["message"]
            assert "evil" not in refused.text
        assert upstream.calls == []
        assert upstream.probes == 0
        lines = await gateway.logged(len(PATHS) + 1)
        assert {(line["status"], line["error"], line["path"]) for line in lines} == {(421, "host_not_allowed", "other")}


async def raw(gateway: RunningGateway, head: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
    writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), TIMEOUT)
    writer.close()
    return answer


async def test_d28_a_second_host_does_not_hide_behind_the_first() -> None:
    async with before(OK) as (gateway, _):
        for first, second in (("localhost", "evil.example"), ("evil.example", "localhost")):
            answer = await raw(gateway, f"GET /metrics HTTP/1.1\r\nHost: {first}\r\nHost: {second}")
            assert b"portcullis_" not in answer.partition(b"\r\n\r\n")[2]
        # No browser leaves it out; simple monitors do.
        assert b" 200 " in await raw(gateway, "GET /healthz HTTP/1.0")


ORIGINS = {
    "http://localhost": 200,
    "http://localhost:3000": 200,
    "https://127.0.0.1:8443": 200,
    "http://[::1]:5173": 200,
    "tauri://localhost": 200,
    "https://evil.example": 403,
    "http://localhost.evil.example": 403,
    "http://evil.example:8080": 403,
    "http://10.0.0.5": 403,
    "null": 403,
    "": 403,
    "http://[::1": 403,
    "http://localhost, https://evil.example": 403,
}


@pytest.mark.parametrize("origin", ORIGINS)
async def test_d28_pages_of_other_sites_are_not_answered(origin: str) -> None:
    async with before(OK) as (gateway, upstream):
        for path in ("/v1/chat/completions", "/v1/models", "/metrics"):
            answer = await asked(gateway, path, {"origin": origin})
            if ORIGINS[origin] == 403:
                assert error_of(answer, 403)["code"] == "origin_not_allowed"
            assert answer.status_code == ORIGINS[origin]
        preflight = await gateway.client.options("/v1/chat/completions", headers={"origin": origin})
        assert preflight.status_code in (403, 405)
        assert not any(name.startswith("access-control-") for name in preflight.headers)
        assert len(upstream.calls) == (ORIGINS[origin] == 200)


CONTENT_TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "Application/JSON": 200,
    "application/vnd.api+json": 200,
    None: 200,
    "text/plain": 415,
    "text/plain;charset=UTF-8": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=x": 415,
    "text/plain; application/json": 415,
    "application/jsonp": 415,
    "": 415,
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("content_type", CONTENT_TYPES)
async def test_d28_a_body_is_json_and_says_so(content_type: str | None, path: str) -> None:
    body = json.dumps(question() if "chat" in path else {"model": "m", "prompt": "hi"}).encode()
    headers = {} if content_type is None else {"content-type": content_type}
    async with before(OK) as (gateway, upstream):
        answer = await gateway.client.post(path, content=body, headers=headers)
        assert answer.status_code == CONTENT_TYPES[content_type]
        if answer.status_code == 415:
            assert error_of(answer, 415)["code"] == "unsupported_media_type"
            assert upstream.calls == []
        # A page can leave the type out, but not its Origin.
        answer = await gateway.client.post(path, content=body, headers={"origin": "http://localhost", **headers})
        assert answer.status_code == (415 if content_type is None else CONTENT_TYPES[content_type])


@pytest.mark.parametrize("host", THEIRS[:2])
async def test_d28_with_keys_nothing_of_this_is_looked_at(host: str) -> None:
    headers = {"host": host, "origin": "https://evil.example", "content-type": "text/plain", "x-api-key": "sk-a"}
    async with before(OK, keys=("sk-a",)) as (gateway, _):
        body = json.dumps(question()).encode()
        assert (await gateway.client.post("/v1/chat/completions", content=body, headers=headers)).status_code == 200
        for path in PATHS[:4]:
            assert (await gateway.client.get(path, headers=headers)).status_code == 200


def listening(config: Config, listen: Listen) -> Config:
    return replace(config, listen=listen, auth=replace(config.auth, open_to_all=True))


async def statuses(gateway: RunningGateway, *hosts: str) -> list[int]:
    return [(await gateway.client.get("/healthz", headers={"host": host})).status_code for host in hosts]


async def test_d28_names_may_be_listed_and_other_addresses_are_left_alone() -> None:
    async with playing(OK) as upstream:
        config = config_for(upstream.base_url)
        names = ("gateway.internal", "10.0.0.5")
        async with running(listening(config, Listen(hosts=names))) as gateway:
            assert await statuses(gateway, "Gateway.Internal:8080", "10.0.0.5", "localhost") == [200] * 3
            assert await statuses(gateway, "evil.example", "gateway") == [421] * 2
            listed = {"origin": "https://gateway.internal"}
            assert (await gateway.client.get("/metrics", headers=listed)).status_code == 200
        async with running(listening(config, Listen(host="0.0.0.0"))) as gateway:
            assert await statuses(gateway, "10.1.2.3:8080", "portcullis.default.svc", "localhost") == [200] * 3
            text = {"content-type": "text/plain"}
            refused = await gateway.client.post("/v1/chat/completions", content=b"{}", headers=text)
            error_of(refused, 415)
        async with running(listening(config, Listen(host="0.0.0.0", hosts=names))) as gateway:
            assert await statuses(gateway, "10.0.0.5", "evil.example") == [200, 421]


@pytest.mark.parametrize(("admin", "status"), [("127.0.0.1", 421), ("::1", 421), ("0.0.0.0", 200)])
@pytest.mark.parametrize("keys", [(), (ClientKey.of("sk-a"),)])
async def test_d28_the_admin_listener_never_asks_for_a_key(
    admin: str, status: int, keys: tuple[ClientKey, ...]
) -> None:
    config = config_for("http://127.0.0.1:1/v1")
    config = replace(config, listen=Listen(admin=ListenAddress(host=admin, port=1)), auth=Auth(keys=keys))
    portcullis = Portcullis(config, RequestLog("json", io.StringIO()))
    assert portcullis.admin is not None
    async with portcullis.public.router.lifespan_context(portcullis.public):
        transport = httpx2.ASGITransport(portcullis.admin)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:9090") as client:
            for path in ("/metrics", "/healthz"):
                assert (await client.get(path)).status_code == 200
                assert (await client.get(path, headers={"host": "10.1.2.3:9090"})).status_code == status


async def test_d28_a_reload_that_takes_the_keys_away_guards_at_once() -> None:
    config = config_for("http://127.0.0.1:1/v1", keys=("sk-a",))
    portcullis = Portcullis(config, RequestLog("json", io.StringIO()))
    async with portcullis.public.router.lifespan_context(portcullis.public):
        transport = httpx2.ASGITransport(portcullis.public)
        async with httpx2.AsyncClient(transport=transport, base_url="http://evil.example") as client:
            assert (await client.get("/healthz")).status_code == 200
            await portcullis.adopt(replace(config, auth=Auth()))
            assert (await client.get("/healthz")).status_code == 421
