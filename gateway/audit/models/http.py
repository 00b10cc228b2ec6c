"""POST requests with JSON, and JSON responses bounded in bytes and in time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import httpx2

MAX_ANSWER = 16 * 1024 * 1024  # bytes


class RequestFailed(Exception):
    """No response, or not one that could be read in full; the message has neither address nor key."""


class NotJson(RequestFailed):
    """The response to a request that succeeded is not JSON."""


def client(key: str | None, timeout: httpx2.Timeout | float) -> httpx2.Client:
    """A client that sends `key` as a bearer token and follows no redirect. `timeout`: seconds, for each read. Raises
    RequestFailed if the environment names a proxy or certificates that cannot be used."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        return httpx2.Client(headers=headers, timeout=timeout, follow_redirects=False)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        # The message may hold a proxy's password.
        raise RequestFailed(
            f"{type(error).__name__}: a proxy or certificates that the environment names cannot be used; look at "
            "ALL_PROXY, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        ) from None


def post(
    client: httpx2.Client, url: str, body: Mapping[str, object], *, max_bytes: int, timeout: float
) -> tuple[int, Any]:
    """The status and the JSON of the response; None for an error response that is not JSON. Raises RequestFailed, also
    for a body of more than `max_bytes` bytes, or one that is incomplete after `timeout` seconds in all."""
    data = bytearray()
    deadline = time.monotonic() + timeout
    try:
        with client.stream("POST", url, json=body) as response:
            for piece in response.iter_bytes():
                data += piece
                if len(data) > max_bytes:
                    raise RequestFailed(f"an answer of more than {max_bytes} bytes")
                if time.monotonic() > deadline:
                    raise RequestFailed(f"an answer that is incomplete after {timeout:.0f} s")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise RequestFailed(type(error).__name__) from None
    try:
        return response.status_code, json.loads(data)
    except (ValueError, RecursionError):
        if response.status_code == 200:
            raise NotJson from None
        return response.status_code, None
