"""What is sent to another server, and when an answer is given up."""

from __future__ import annotations

import pytest

from gateway.audit.cli.gateway_client import GatewayClient, GatewayError
from gateway.audit.models.http import NotJson, RequestFailed, client, post
from tests.support.fake_gateway import gateway

SECRET = "hunter2swordfish"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")


def test_an_answer_comes_as_it_is() -> None:
    with gateway(lambda *_: (418, b"[1, 2, 3]")) as (url, asked), client("a-key", 10.0) as made:
        assert post(made, url, {"a": 1}, max_bytes=9, timeout=60.0) == (418, [1, 2, 3])
    assert asked == [("/", {"a": 1}, "Bearer a-key")]


@pytest.mark.parametrize("body", [b"", b"x", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_not_json_is_refused_and_an_error_has_none(body: bytes) -> None:
    with gateway(lambda *_: (418, body)) as (url, _), client(None, 10.0) as made:
        assert post(made, url, {}, max_bytes=200_000, timeout=60.0) == (418, None)
    with gateway(lambda *_: (200, body)) as (url, _), client(None, 10.0) as made, pytest.raises(NotJson):
        post(made, url, {}, max_bytes=200_000, timeout=60.0)


def test_an_answer_is_bounded_in_bytes_and_in_time() -> None:
    with gateway(lambda *_: (200, b"x" * 11)) as (url, _), client(None, 10.0) as made:
        with pytest.raises(RequestFailed, match=r"^an answer of more than 10 bytes$"):
            post(made, url, {}, max_bytes=10, timeout=60.0)
        with pytest.raises(RequestFailed, match=r"^an answer that is incomplete after 0 s$"):
            post(made, url, {}, max_bytes=100, timeout=0.0)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[::1", "http://"])
def test_where_nobody_answers_the_kind_of_error_is_said(url: str) -> None:
    with client(SECRET, 10.0) as made, pytest.raises(RequestFailed) as failed:
        post(made, url, {}, max_bytes=100, timeout=60.0)
    assert str(failed.value) in {"ConnectError", "InvalidURL", "UnsupportedProtocol"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("HTTP_PROXY", f"foo://user:{SECRET}@127.0.0.1:9"), ("SSL_CERT_FILE", f"/{SECRET}/nowhere")],
)
def test_what_the_environment_says_may_be_of_no_use(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(RequestFailed, match=f"a proxy or certificates .* {name}") as failed:
        client(None, 10.0)
    assert SECRET not in str(failed.value)
    with pytest.raises(GatewayError, match=f"^http://h/v1: .*{name}"):
        GatewayClient("http://h", "m")
