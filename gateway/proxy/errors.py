"""Every failure, mapped to what the client gets. Texts here are ours: the message of a library or an upstream may quote
an address, a header or an answer, so none reaches a client."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Any

import httpx2

from gateway.guard.answer_guard import AnswerGuard
from gateway.guard.commands import Failure, failure
from gateway.http1 import DescriptorsExhausted, HandshakeFailed
from gateway.wire import json
from gateway.wire.json import Json

MAX_ERROR_TEXT = 4096  # characters of an error's plain text that are passed on


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


def rate_limited(message: str, limit: str, headers: dict[str, str]) -> HTTPFailure:
    """`limit` is requests, tokens or streams."""
    refusal = client_error(429, message, "rate_limit_exceeded", kind=limit)
    refusal.kind, refusal.headers = limit, headers
    return refusal


def internal_error() -> HTTPFailure:
    return HTTPFailure(500, failure("The gateway failed.", "internal_error", "server_error"), "internal_error")


def overloaded(message: str, retry_after: int = 1) -> HTTPFailure:
    body = failure(message, "overloaded", "server_error")
    return HTTPFailure(503, body, "overloaded", {"retry-after": str(retry_after)})


def error_object(received: object) -> dict[str, Any]:
    """An upstream's error body, not yet scanned, in OpenAI's shape: other servers put their text under `message` or
    `detail`."""
    if not isinstance(received, dict):
        return {"error": {}}
    if received.get("error") is not None:
        return received
    message = received.get("message") or received.get("detail")
    return {"error": {} if message is None else {"message": message}}


def shown_error(body: bytes, plain: bool, guard: AnswerGuard) -> Json:
    """What may be shown of the body of an upstream's error, which may be `plain` text, in OpenAI's shape.

    Raises `InvalidAnswer`.
    """
    try:
        received = json.decode(body)
    except json.JSONError:
        message = body[: 4 * MAX_ERROR_TEXT].decode("utf-8", "replace")[:MAX_ERROR_TEXT]
        received = {"message": message} if plain and message else None
    return guard.error(error_object(received))


def from_transport(error: httpx2.HTTPError | TimeoutError) -> HTTPFailure:
    """By cause: unreachable and broken is 502, too slow is 504, no free connection is 503."""
    match error:
        case DescriptorsExhausted():
            return overloaded("The gateway has no descriptor left for a connection to the upstream.")
        case httpx2.PoolTimeout():
            return overloaded("Too many connections to the upstream.")
        case httpx2.TimeoutException() | TimeoutError():
            kind = "connect_timeout" if isinstance(error, httpx2.ConnectTimeout) else "timeout"
            return HTTPFailure(504, failure("The upstream took too long.", "upstream_timeout"), kind)
        case httpx2.ConnectError():
            unreachable = failure("The upstream could not be reached.", "upstream_unreachable")
            return HTTPFailure(502, unreachable, _why_not_connected(error))
        case httpx2.ReadError() | httpx2.WriteError() | httpx2.CloseError():
            return HTTPFailure(502, failure("The upstream closed the connection.", "upstream_reset"), "reset")
    return HTTPFailure(502, failure("The upstream broke the protocol.", "upstream_protocol_error"), "protocol")


def _why_not_connected(error: httpx2.ConnectError) -> str:
    """Why a connection failed, by the errors that caused this one; all of them are `OSError`s but one."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case socket.gaierror() | UnicodeError():
                return "dns"
            case ssl.SSLError() | HandshakeFailed():
                return "tls"
            case ConnectionRefusedError():
                return "refused"
            case ConnectionResetError() | ConnectionAbortedError() if _is_secure(error):
                return "tls"  # in the handshake, which is a part of connecting
            case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH):
                return "unreachable"
        cause = cause.__cause__ or cause.__context__
    return "connect"


def _is_secure(error: httpx2.ConnectError) -> bool:
    try:
        return error.request.url.scheme == "https"
    except RuntimeError:  # no request is known
        return False
