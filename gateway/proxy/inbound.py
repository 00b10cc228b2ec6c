"""What is known of a request at its endpoint: its id, what it is counted under, and answers that need no relay."""

from __future__ import annotations

import re
import uuid
from time import perf_counter

from fastapi import Request
from fastapi.responses import Response

from gateway.observe.facts import RequestFinished, TextScanned
from gateway.observe.log import outcome_of
from gateway.policy.model import ClientKey
from gateway.proxy.errors import HTTPFailure, client_error
from gateway.proxy.state import AppState
from gateway.wire import json

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def request_id(request: Request) -> str:
    """The client's own id if it is a plain one, else a new one; the same each time it is asked for."""
    known = getattr(request.state, "request_id", None)
    if known is None:
        given = request.headers.get("x-request-id", "")
        known = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        request.state.request_id = known
    return str(known)


def _policy_of(request: Request) -> str:
    return str(getattr(request.state, "policy", "none"))


def path_of(request: Request) -> str:
    """The path as the gateway spells it; what a client asked for beyond that is no label."""
    route = request.scope.get("route")
    return str(route.path) if route is not None else "other"


def key_of(request: Request, gateway: AppState) -> ClientKey:
    """Whose request it is. Raises `HTTPFailure` for nobody's."""
    key = gateway.current.keys.admit(request.headers)
    if key is None:
        message = "Missing or wrong API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        raise client_error(401, message, "invalid_api_key", kind="authentication_error")
    request.state.key = key.name
    return key


def own_headers(request: Request) -> dict[str, str]:
    return {"x-request-id": request_id(request), "x-portcullis-policy": _policy_of(request)}


def json_response(request: Request, value: object, status: int = 200) -> Response:
    return Response(json.encode(value), status, own_headers(request), "application/json")


def failure_response(request: Request, error: HTTPFailure) -> Response:
    return Response(
        json.encode(error.body), error.status, {**own_headers(request), **error.headers}, "application/json"
    )


def finished(
    request: Request,
    status: int,
    started: float,
    *,
    scanned: tuple[TextScanned, ...] = (),
    error: str | None = None,
) -> RequestFinished:
    """A request that ended without a relay."""
    return RequestFinished(
        request_id=request_id(request),
        path=path_of(request),
        route=str(getattr(request.state, "route", "none")),
        policy=_policy_of(request),
        upstream="none",
        status=status,
        outcome="failed" if error and not any(text.blocked_by for text in scanned) else outcome_of(scanned),
        stream=False,
        duration=perf_counter() - started,
        scanned=scanned,
        error=error,
        key=getattr(request.state, "key", None),
    )
