"""`portcullis doctor` asks a gateway that listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.config import parse
from gateway.doctor.command import addresses
from tests.support.gateway import before
from tests.support.upstream import completion, http, plain, sending, sending_then_hanging

ANSWERS = sending(plain(completion("12MONKEYS")))


@dataclass
class Doctor:
    capsys: pytest.CaptureFixture[str]

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(main, ["doctor", *arguments])
        printed = self.capsys.readouterr()
        return status, printed.out, printed.err


@pytest.fixture
async def doctor(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Doctor]:
    yield Doctor(capsys)


async def test_a_gateway_that_is_well(doctor: Doctor) -> None:
    async with before(ANSWERS) as (gateway, _):
        await gateway.ask()
        assert await doctor(gateway.url) == (0, f"{gateway.url}: nothing found; upstreams asked: 0\n", "")


async def test_an_upstream_that_refuses_the_key_and_has_another_time(doctor: Doctor, tmp_path: Path) -> None:
    date = f"date: {formatdate(0, usegmt=True)}"
    refused = http(401, b"{}", "application/json", date)
    async with before(sending(http(404, b"", "text/plain", date)), models=refused) as (gateway, upstream):
        path = tmp_path / "portcullis.json"
        port = gateway.url.rpartition(":")[2]
        upstreams = {"played": {"base_url": upstream.base_url, "api_key": "sk-secret"}}
        routes = [{"model": "*", "upstream": "played", "policy": "default"}]
        given = {"listen": {"port": int(port)}, "upstreams": upstreams, "routes": routes, "policies": {"default": {}}}
        path.write_text(json.dumps(given))
        status, out, err = await doctor("--config", str(path))
        assert (status, err) == (1, "")
        assert "upstreams.played: answers 401 to GET /models: it does not take its api_key" in out
        assert "upstream played: its clock is " in out
        assert "sk-secret" not in out


async def test_nothing_that_answers_and_nothing_of_ours(doctor: Doctor) -> None:
    status, out, err = await doctor("http://127.0.0.1:9")
    assert (status, out) == (75, "")
    assert err.startswith("portcullis: http://127.0.0.1:9/readyz: cannot be reached (ConnectError)")
    async with before(ANSWERS) as (_, upstream):
        status, out, err = await doctor(upstream.base_url.removesuffix("/v1"))
        assert (status, out) == (75, "")
        assert "does not answer as Portcullis does" in err


async def test_what_never_ends_is_not_read_for_ever(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.doctor.command.MAX_METRICS", 1000)
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"3e8\r\n%b\r\n" % (b"x" * 1000) * 2
    async with before(sending_then_hanging(endless)) as (_, upstream):
        status, out, err = await doctor(upstream.base_url.removesuffix("/v1"))
    assert (status, out) == (75, "")
    assert err.rstrip().endswith("/readyz: answers more than 1000 bytes")


async def test_an_address_that_cannot_be_one(doctor: Doctor) -> None:
    status, _, err = await doctor("http://a:b")
    assert status == 75 and "cannot be reached (InvalidURL)" in err


def test_where_a_gateway_is_asked() -> None:
    def of(listen: str, url: str | None = None) -> tuple[str, str]:
        more = "auth: none\nupstreams: {demo: {type: demo}}\nroutes: [{model: '*', upstream: demo, policy: default}]"
        return addresses(parse(f"listen: {listen}\n{more}\npolicies: {{default: {{}}}}", "f", Path(), {}), url)

    assert of("{host: 0.0.0.0, port: 80}") == ("http://127.0.0.1:80",) * 2
    assert of("{host: '::', port: 80}") == ("http://[::1]:80",) * 2
    assert of("{host: 10.0.0.1, admin: {port: 9090}}") == ("http://10.0.0.1:8080", "http://127.0.0.1:9090")
    assert of("{admin: {port: 9090}}", "http://gateway:1") == ("http://gateway:1", "http://127.0.0.1:9090")
    assert addresses(None, None) == ("http://127.0.0.1:8080",) * 2


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://a", "http://user:password@a", "http://a/metrics"])
def test_what_is_no_address(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", url])
    assert ended.value.code == 2
    assert "is not an address such as" in capsys.readouterr().err
