"""`portcullis check --online`: what upstreams say to the addresses and keys that they are given."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.commands import portcullis, write_config
from tests.support.listing import listing_upstream, models

LISTED = models("a", "b")


@pytest.mark.parametrize(
    ("path", "status", "body", "base", "says", "ends"),
    [
        ("/v1", 200, LISTED, "/v1", "answers, and lists 2 models", 0),
        ("/v1", 200, b"no JSON", "/v1", "answers, and lists 0 models", 0),
        ("/v1", 404, b"{}", "/v1", "answers 404 to GET /models", 0),
        ("/v1", 500, b"{}", "/v1", "answers 500 to GET /models", 75),
        ("/v1", 403, b"{}", "/v1", "answers 403 to GET /models: it does not take its api_key", 75),
        ("/v1", 200, LISTED, "", "has its API below /v1: write /v1 at the end of base_url", 75),
        ("/api/v1", 401, b"{}", "/api", "has its API below /v1: write /v1 at the end of base_url", 75),
        ("", 200, LISTED, "/v1", "has its API above /v1: take that from the end of base_url", 75),
        # A server that answers everything is no reason to send somebody elsewhere.
        ("", 200, b"<html>", "/v1", "answers 404 to GET /models", 0),
    ],
)
def test_what_an_upstream_says_is_printed(
    tmp_path: Path, path: str, status: int, body: bytes, base: str, says: str, ends: int
) -> None:
    with listing_upstream(status, body, path) as (url, _):
        upstream = {"base_url": url.removesuffix(path) + base if path else url + base, "api_key": "sk-one"}
        config = write_config(tmp_path, [], upstreams={"demo": upstream})
        done = portcullis("check", config, "--online")
        assert done.stdout.decode().splitlines()[-2:] == [f"{config}: valid", f"upstream demo: {says}"]
        assert (done.returncode, done.stderr) == (ends, b"")
        assert f"upstream demo: {says}" not in portcullis("check", config).stdout.decode()
    assert b"sk-one" not in done.stdout


def test_an_upstream_that_cannot_be_reached_is_told_with_the_cause(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gone = {"base_url": f"http://127.0.0.1:{taken.getsockname()[1]}/v1"}
    upstreams = {"demo": {"type": "demo"}, "gone": gone, "named": {"base_url": "http://no.invalid/v1"}}
    routes = [{"model": "*", "upstreams": ["demo", "gone", "named"], "policy": "default"}]
    done = portcullis("check", write_config(tmp_path, [], upstreams=upstreams, routes=routes), "--online")
    assert done.stdout.decode().splitlines()[-2:] == [
        "upstream gone: cannot be reached (refused)",
        "upstream named: cannot be reached (dns)",
    ]
    assert done.returncode == 75


def test_without_upstreams_there_is_nobody_to_ask(tmp_path: Path) -> None:
    config = write_config(tmp_path, [])
    online, static = portcullis("check", config, "--online"), portcullis("check", config)
    assert (online.stdout, online.returncode) == (static.stdout, 0)
