"""Every failure on a request's way, mapped to what the client gets. Texts here are ours; no library's and no upstream's
message reaches a client, because it may quote an address, a header or an answer."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import httpx

from gateway.guard.answer import Failure, failure
from gateway.http1 import DescriptorsExhausted


class HTTPFailure(Exception):
    """An answer that is an error, in OpenAI's shape. `kind` is for metrics and logs."""

    def __init__(self, status: int, body: Failure, kind: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(kind)
        self.status = status
        self.body = body
        self.kind = kind
        self.headers = headers or {}


def client_error(
    status: int, message: str, code: str | None, param: str | None = None, kind: str = "invalid_request_error"
) -> HTTPFailure:
    body: Failure = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return HTTPFailure(status, body, code or kind)


def internal_error() -> HTTPFailure:
    return HTTPFailure(500, failure("The gateway failed.", "internal_error", "server_error"), "internal_error")


def overloaded(message: str, retry_after: int = 1) -> HTTPFailure:
    body = failure(message, "overloaded", "server_error")
    return HTTPFailure(503, body, "overloaded", {"retry-after": str(retry_after)})


def error_object(received: object) -> dict[str, Any]:
    """An upstream's error body, not yet scanned, with what it says under `error`.

    Servers that do not follow OpenAI put their text beside, under `message` or `detail`.
    """
    if not isinstance(received, dict):
        return {"error": {}}
    if received.get("error") is not None:
        return received
    said = received.get("message") or received.get("detail")
    return {"error": {} if said is None else {"message": said}}


def from_transport(error: httpx.HTTPError | TimeoutError) -> HTTPFailure:
    """By cause: unreachable and broken is 502, too slow is 504, no connection to be had is 503."""
    match error:
        case DescriptorsExhausted():
            return overloaded("The gateway has no descriptor left for a connection to the upstream.")
        case httpx.PoolTimeout():
            return overloaded("Too many connections to the upstream.")
        case httpx.TimeoutException() | TimeoutError():
            kind = "connect_timeout" if isinstance(error, httpx.ConnectTimeout) else "timeout"
            return HTTPFailure(504, failure("The upstream took too long.", "upstream_timeout"), kind)
        case httpx.ConnectError():
            unreachable = failure("The upstream could not be reached.", "upstream_unreachable")
            return HTTPFailure(502, unreachable, _why_not_connected(error))
        case httpx.ReadError() | httpx.WriteError() | httpx.CloseError():
            return HTTPFailure(502, failure("The upstream closed the connection.", "upstream_reset"), "reset")
    return HTTPFailure(502, failure("The upstream broke the protocol.", "upstream_protocol_error"), "protocol")


def _why_not_connected(error: httpx.ConnectError) -> str:
    """What a connection failed of, as far as the error below tells; all of these are `OSError`s but one."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case socket.gaierror() | UnicodeError():
                return "dns"
            case ssl.SSLError():
                return "tls"
            case ConnectionRefusedError():
                return "refused"
            case ConnectionResetError() | ConnectionAbortedError() if _is_secure(error):
                return "tls"  # in the handshake, which is a part of connecting
            case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH):
                return "unreachable"
        cause = cause.__cause__ or cause.__context__
    return "connect"


def _is_secure(error: httpx.ConnectError) -> bool:
    try:
        return error.request.url.scheme == "https"
    except RuntimeError:  # no request is known
        return False
