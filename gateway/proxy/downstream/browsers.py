"""Checks that keep web pages away from a gateway without keys.

A browser lets any page send requests to its own machine, and lets a page whose name has come to mean 127.0.0.1 (DNS
rebinding) read the answers as well. No page chooses the Host and the Origin of its requests, nor sends a Content-Type
of JSON to another origin without asking first (a CORS preflight, which is answered with 405).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.observe.facts import Fact
from gateway.policy.listen import EVERY_ORIGIN, is_loopback
from gateway.policy.model import ClientKey
from gateway.proxy.asgi import ORIGIN_HEADERS
from gateway.proxy.context import record_of, refuse
from gateway.proxy.errors import HTTPFailure, client_error
from gateway.proxy.head import head_of

PREFLIGHT_TTL = 600  # seconds that a browser keeps the answer to a preflight
_ALLOW_ORIGIN = "access-control-allow-origin"
_VARY = {"vary": "Origin"}
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_., -]{1,2048}")
_ORIGIN = re.compile(r"[!-~]{1,300}")
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,255}))(?::[0-9]{1,5})?")
_ADVICE = "use http://127.0.0.1 or http://localhost, list the name under listen.hosts, or set auth.keys"


class LocalNames:
    """A request must be sent to a name of this machine, or to one of `names`, and come from none else.

    It looks at the Host and, where there is one, the Origin, as long as `guarded()`.
    """

    def __init__(self, record: Callable[[Fact], None], names: frozenset[str], guarded: Callable[[], bool]) -> None:
        self._record = record
        self._names = names
        self._guarded = guarded

    def refused(self, scope: Scope) -> Response | None:
        """The answer to a request that is refused, which has been recorded; None for any other."""
        refusal = self._refusal(scope) if self._guarded() else None
        return None if refusal is None else refuse(Request(scope), refusal, self._record)

    def _refusal(self, scope: Scope) -> HTTPFailure | None:
        head = head_of(scope)
        if not all(map(self._is_ours, map(_host_of, head.hosts))):
            message = f"Without keys this gateway answers only to the names of its own machine: {_ADVICE}."
            return client_error(421, message, "host_not_allowed")
        if _ALLOW_ORIGIN in scope.get(ORIGIN_HEADERS, ()):
            return None
        if not all(map(self._is_ours, map(_origin_of, head.origins))):
            message = f"Without keys this gateway answers no pages of other sites: {_ADVICE}."
            return client_error(403, message, "origin_not_allowed")
        return None

    def _is_ours(self, name: str | None) -> bool:
        return name is not None and (_is_loopback(name) or name in self._names)


class AllowedOrigins:
    """ASGI middleware, around `LocalNames`: pages of these origins may read the answers (CORS, in the Fetch standard).

    The framework's own writes headers as it wraps `send`, which a relay does not use.
    """

    def __init__(self, app: ASGIApp, record: Callable[[Fact], None], origins: Collection[str]) -> None:
        self._app = app
        self._record = record
        self._origins = origins

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        origins = head_of(scope).origins
        if len(origins) != 1 or not self._allows(origins[0]):
            scope[ORIGIN_HEADERS] = _VARY  # what a cache keeps of it is not for the pages that are allowed
            return self._app(scope, receive, send)
        scope[ORIGIN_HEADERS] = {_ALLOW_ORIGIN: origins[0], "access-control-expose-headers": "*", **_VARY}
        is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in Request(scope).headers
        app = self._preflight(Request(scope)) if is_preflight else self._app
        return app(scope, receive, send)

    def _allows(self, origin: str) -> bool:
        return _ORIGIN.fullmatch(origin) is not None and (EVERY_ORIGIN in self._origins or origin in self._origins)

    def _preflight(self, request: Request) -> Response:
        """Allows the headers that are asked for: what the gateway does with each does not depend on the page."""
        record = record_of(request, self._record)
        wanted = request.headers.get("access-control-request-headers", "")
        allowed = {"access-control-allow-methods": "GET, POST, DELETE", "access-control-max-age": str(PREFLIGHT_TTL)}
        if _HEADER_NAMES.fullmatch(wanted):
            allowed["access-control-allow-headers"] = wanted
        record.close(204)
        return Response(status_code=204, headers={**record.headers, **allowed})


def check_content_type(scope: Scope, key: ClientKey) -> None:
    """A body that a page could send without asking first is refused where no key is asked for.

    None at all is what simple programs send; a browser, which always adds an Origin, can do so too. Raises
    `HTTPFailure`.
    """
    if key.digest:
        return
    head = head_of(scope)
    if not head.types and not head.origins:
        return
    if not head.types or not all(map(_is_json, head.types)):
        message = "The body must be JSON, with the header Content-Type: application/json."
        raise client_error(415, message, "unsupported_media_type")


@lru_cache(64)
def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json")


_is_loopback = lru_cache(64)(is_loopback)


@lru_cache(64)
def _host_of(host: str) -> str | None:
    """The name in a Host header, in lower case; None if it is invalid."""
    found = _HOST.fullmatch(host.strip())
    return None if found is None else (found[1] or found[2]).lower()


def _origin_of(origin: str) -> str | None:
    """The name in an Origin header; `null` has none."""
    try:
        return urlsplit(origin.strip()).hostname
    except ValueError:
        return None
