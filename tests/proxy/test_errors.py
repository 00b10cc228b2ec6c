"""Why an upstream could not be reached: told apart as far as what failed below tells."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable

import httpx2
import pytest

from gateway.proxy.errors import from_transport
from tests.support.balancing import refusing
from tests.support.http1_scripts import HTTPXTransport, request_to, trusting
from tests.support.scripted_server import Conversation, on_both_loops, serving


def wrapped(cause: BaseException, url: str = "http://h/v1") -> httpx2.ConnectError:
    """As httpx2 and httpcore raise it: the cause is two layers down."""
    between = OSError("All connection attempts failed")
    between.__context__ = cause
    error = httpx2.ConnectError("", request=httpx2.Request("POST", url))
    error.__cause__ = between
    return error


@pytest.mark.parametrize("layer", [wrapped, lambda cause, *url: wrapped(wrapped(cause, *url), *url)])
@pytest.mark.parametrize(
    ("cause", "url", "kind"),
    [
        (ConnectionRefusedError(), "http://h", "refused"),
        (socket.gaierror(-2, "Name or service not known"), "https://h", "dns"),
        (UnicodeError("label too long"), "https://h", "dns"),
        (ssl.SSLCertVerificationError("certificate verify failed"), "https://h", "tls"),
        (ssl.SSLError("wrong version number"), "https://h", "tls"),
        (ConnectionResetError(), "https://h", "tls"),
        (ConnectionAbortedError(), "https://h", "tls"),
        (ConnectionResetError(), "http://h", "connect"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "http://h", "unreachable"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "http://h", "unreachable"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), "http://h", "connect"),
    ],
)
def test_e10_why_there_is_no_connection(
    layer: Callable[..., httpx2.ConnectError], cause: BaseException, url: str, kind: str
) -> None:
    failed = from_transport(layer(cause, url))
    assert (failed.status, failed.kind) == (502, kind)
    assert failed.body["error"]["code"] == "upstream_unreachable"


def test_e10_a_failure_without_a_request_or_a_cause() -> None:
    error = httpx2.ConnectError("")
    assert from_transport(error).kind == "connect"
    error.__cause__ = ConnectionResetError()
    assert from_transport(error).kind == "connect"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (httpx2.ConnectTimeout(""), 504, "connect_timeout"),
        (httpx2.ReadTimeout(""), 504, "timeout"),
        (TimeoutError(), 504, "timeout"),
        (httpx2.ReadError(""), 502, "reset"),
        (httpx2.WriteError(""), 502, "reset"),
        (httpx2.RemoteProtocolError(""), 502, "protocol"),
        (httpx2.PoolTimeout(""), 503, "overloaded"),
    ],
)
def test_e10_other_failures(error: httpx2.HTTPError | TimeoutError, status: int, kind: str) -> None:
    assert (from_transport(error).status, from_transport(error).kind) == (status, kind)


async def _silent(conversation: Conversation) -> None:
    await conversation.reader.readexactly(5)
    await conversation.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def _resetting(conversation: Conversation) -> None:
    await conversation.reader.readexactly(5)
    conversation.reset()


@on_both_loops
async def test_e10_the_kinds_of_a_real_connection() -> None:
    async def kind_of(url: str, **options: object) -> str:
        async with HTTPXTransport(**options) as transport:
            with pytest.raises(httpx2.ConnectError) as caught:
                await transport.handle_async_request(request_to(url))
            return from_transport(caught.value).kind

    assert await kind_of("http://nowhere.invalid/") == "dns"
    assert await kind_of(refusing()) == "refused"
    async with serving(_silent) as plain:
        assert await kind_of(f"https://localhost:{plain.port}/") == "tls"
    async with serving(_resetting) as plain:
        assert await kind_of(f"https://localhost:{plain.port}/") == "tls"
    async with serving(_silent, certificate="elsewhere") as server:
        assert await kind_of(server.url, verify=trusting("elsewhere")) == "tls"
