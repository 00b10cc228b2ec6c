"""Checks of a request's head that RFC 9112 demands and the parser omits."""

from __future__ import annotations

import re
import urllib.parse

import httptools

from gateway.proxy.errors import HTTPFailure, client_error

_HOST = re.compile(rb"[\w.~!$&'()*+,;=:%\[\]-]*", re.ASCII)


def invalid(message: str) -> HTTPFailure:
    return client_error(400, message, "invalid_http")


def target_of(url: bytes) -> tuple[str, bytes, bytes] | None:
    """The path, as text and as it came, and the query of a request's target; None for one that is no path."""
    try:
        target = httptools.parse_url(url)
        return urllib.parse.unquote(target.path.decode("ascii")), target.path, target.query or b""
    except (httptools.HttpParserError, AttributeError, UnicodeDecodeError):
        return None


def fault_of(version: str, method: bytes, headers: list[tuple[bytes, bytes]]) -> HTTPFailure | None:
    """The fault, by RFC 9112, of a head that the parser accepted. `headers` have names in lower case."""
    if version not in ("1.0", "1.1"):
        return client_error(505, "This is a server of HTTP/1.1.", "http_version_not_supported")
    if method == b"CONNECT":
        return invalid("This server is no proxy.")
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings += [coding.strip().lower() for coding in value.split(b",")]
    if len(hosts) > 1 or not (hosts or version == "1.0"):
        return invalid("A request has exactly one Host header.")
    if hosts and not _HOST.fullmatch(hosts[0]):
        return invalid("The Host header is no host.")
    if not codings:
        return None
    if set(codings) != {b"chunked"}:
        return client_error(501, "The only transfer coding is chunked.", "unknown_transfer_coding")
    # The parser refuses a Content-Length beside it.
    if len(codings) > 1 or version == "1.0":
        return invalid("Transfer-Encoding is chunked, once, and not in HTTP/1.0.")
    return None
