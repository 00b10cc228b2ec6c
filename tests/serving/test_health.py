"""`portcullis health`: where it asks, and what it says of the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway import cli
from gateway.exits import DONE, UNHEALTHY
from gateway.serving.health import DEFAULT, leave_address, own_address, problem
from tests.support.gateway import before
from tests.support.upstream import sending


def test_where_it_asks(tmp_path: Path) -> None:
    file = tmp_path / "address"
    known = {"PORTCULLIS_ADDRESS_FILE": str(file)}
    assert own_address({}) == DEFAULT
    with pytest.raises(FileNotFoundError):
        own_address(known)
    for left, read in (
        ("http://0.0.0.0:9090", "http://127.0.0.1:9090"),
        ("http://[::]:9090", "http://[::1]:9090"),
        ("http://10.0.0.5:8080", "http://10.0.0.5:8080"),
    ):
        leave_address(left, known)
        assert own_address(known) == read
    assert own_address({**known, "HEALTH_URL": "http://elsewhere"}) == "http://elsewhere"
    leave_address("http://127.0.0.1:1", {})  # nobody has asked for it


async def test_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "portcullis.yaml"
    rest = "upstreams: {demo: {type: demo}}\nroutes: [{model: '*', upstream: demo, policy: p}]\npolicies: {p: {}}\n"

    def ask(url: str) -> None:
        for each in (url, f"{url}/", f"{url}/readyz"):
            assert problem(each) is None
            assert cli.main(["health", each]) == DONE
        assert "404" in str(problem(f"{url}/nothing"))
        port = url.rpartition(":")[2]
        config.write_text(f"listen: {{host: 0.0.0.0, port: {port}}}\nauth: none\n{rest}")
        assert cli.main(["health", "--config", str(config)]) == DONE

    async with before(sending()) as (gateway, _):
        await asyncio.to_thread(ask, gateway.url)
    assert "unknown url type" in str(problem("nowhere"))
    config.write_text(f"listen: {{host: '::1', port: 8080, admin: {{port: 1}}}}\n{rest}")
    assert capsys.readouterr().err == ""
    assert cli.main(["health", "--config", str(config)]) == UNHEALTHY
    assert capsys.readouterr().err.startswith("portcullis: http://127.0.0.1:1/healthz: ")


def test_no_gateway_has_left_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEALTH_URL", raising=False)
    monkeypatch.setenv("PORTCULLIS_ADDRESS_FILE", str(tmp_path / "address"))
    assert cli.main(["health"]) == UNHEALTHY
    assert "no gateway has left its address" in capsys.readouterr().err
