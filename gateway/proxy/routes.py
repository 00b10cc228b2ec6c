"""The endpoints: who may call, what is asked, and every refusal turned into HTTP in one place."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from gateway.censor.compile import CompiledPolicy
from gateway.censor.stream import Censor
from gateway.guard.prompt import BadRequest, apply_request_table, guard_prompt, read_chat_request
from gateway.observe.facts import Fact, RequestFinished, TextScanned
from gateway.observe.log import outcome_of
from gateway.observe.metrics import CONTENT_TYPE, Metrics
from gateway.policy.model import Auth, Channel, Config, Direction
from gateway.policy.select import Router
from gateway.proxy.errors import HTTPFailure, client_error, overloaded
from gateway.proxy.models import list_models
from gateway.proxy.relay import Forward, Relay
from gateway.proxy.upstream import UpstreamClient
from gateway.wire import json

BODY_TIMEOUT = 60.0  # seconds in which a request's body must have arrived
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass
class Gateway:
    """What the endpoints work with; made once by the composition root. `upstreams` is filled when the server starts."""

    config: Config
    policies: dict[str, CompiledPolicy]
    metrics: Metrics
    record: Callable[[Fact], None]
    upstreams: dict[str, UpstreamClient] = field(default_factory=dict)
    in_flight: int = 0

    def __post_init__(self) -> None:
        self.router = Router(self.config.routes)
        self.keys = Keys(self.config.auth)


    async def models(self) -> list[dict[str, object]]:
        return await list_models(self.config, self.router, self.upstreams, self._is_clean)

    def _is_clean(self, policy: str, text: str) -> bool:
        censor = Censor(self.policies[policy].program(Direction.OUTPUT, Channel.OTHER))
        return censor.feed(text) + censor.finish() == text


class Keys:
    """The client keys. Compared as digests, all of them every time, so that timing tells nothing."""

    def __init__(self, auth: Auth) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in auth.keys]

    def admit(self, request: Request) -> bool:
        if not self._digests:
            return True
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        given = credentials.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def add_routes(app: FastAPI, gateway: Gateway) -> None:
    """All endpoints. Anything else below /v1 is 404: nothing is forwarded that is not scanned."""

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await _chat(request, gateway)

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        _require_key(request, gateway)
        return _json({"object": "list", "data": await gateway.models()})

    @app.get("/v1/models/{model:path}")
    async def model(request: Request, model: str) -> Response:
        _require_key(request, gateway)
        for known in await gateway.models():
            if known.get("id") == model:
                return _json(known)
        raise unknown_model()

    @app.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> Response:
        names = list(gateway.upstreams)
        states = dict(zip(names, await asyncio.gather(*(gateway.upstreams[n].up() for n in names)), strict=True))
        for name, up in states.items():
            gateway.metrics.upstream_up.labels(name).set(up)
        ready = any(states.values())
        shown = {name: "up" if up else "down" for name, up in states.items()}
        status = "ready" if ready else "all upstreams are down"
        return JSONResponse({"status": status, "upstreams": shown}, status_code=200 if ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(gateway.metrics.exposition(), media_type=CONTENT_TYPE)

    @app.exception_handler(HTTPFailure)
    async def failed(request: Request, error: HTTPFailure) -> Response:
        return _failure_response(request, error)

    @app.exception_handler(HTTPException)
    async def no_such_path(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            message = f"Method {request.method} is not allowed here."
            answer = client_error(405, message, "method_not_allowed")
        else:
            answer = client_error(404, f"Unknown path {request.url.path[:200]!r}.", "unknown_url")
        return _failure_response(request, answer)


def unknown_model() -> HTTPFailure:
    return client_error(404, "No route for this model, or you do not have access to it.", "model_not_found", "model")


def _require_key(request: Request, gateway: Gateway) -> None:
    if not gateway.keys.admit(request):
        message = "Missing or wrong API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        raise client_error(401, message, "invalid_api_key", kind="authentication_error")


async def _chat(request: Request, gateway: Gateway) -> Response:
    started = perf_counter()
    request.state.request_id = _request_id(request)
    try:
        _require_key(request, gateway)
        if gateway.in_flight >= gateway.config.limits.max_streams:
            raise overloaded(f"The gateway is at its limit of {gateway.config.limits.max_streams} streams.")
        # Counted from here on: a body that is being read costs memory too.
        gateway.in_flight += 1
        gateway.metrics.streams_active.set(gateway.in_flight)
        try:
            relay = await _prepare(request, gateway, started)
        except BaseException:
            _leave(gateway)
            raise
    except HTTPFailure as error:
        if not getattr(request.state, "recorded", False):
            gateway.record(_refusal(request, error, started))
        raise
    return _Counted(relay, gateway)


async def _prepare(request: Request, gateway: Gateway, started: float) -> Relay:
    body = json_object(await _read_body(request, gateway.config.limits.max_body))
    try:
        chat = read_chat_request(body)
        route = gateway.router.match(chat.model)
        if route is None:
            raise unknown_model()
        policy = gateway.policies[route.policy]
        request.state.policy = policy.policy.name
        apply_request_table(body, policy)
        rule, scanned = guard_prompt(body, policy)
    except BadRequest as error:
        raise client_error(400, str(error), error.code, error.param) from None
    texts = (scanned,) if scanned is not None else ()
    if rule is not None:
        message = rule.message or f"The request is blocked by rule {rule.id!r}."
        blocked = client_error(400, message, "content_filter", rule.id)
        for text in texts:
            gateway.record(text)
        gateway.record(_refusal(request, blocked, started, route.model, texts))
        request.state.recorded = True
        raise blocked
    if route.rename is not None:
        body["model"] = route.rename
    return Relay(
        Forward(
            request_id=request.state.request_id,
            path=request.url.path,
            chat=chat,
            body=json.encode(body),
            headers={**request.headers, "x-request-id": request.state.request_id},
            route=route,
            policy=policy,
            upstream=gateway.upstreams[route.upstream],
            started=started,
            scanned=texts,
        ),
        gateway.config.limits,
        gateway.record,
    )


async def _read_body(request: Request, limit: int) -> bytes:
    too_large = client_error(413, f"The body is larger than {limit} bytes.", "request_too_large")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for data in request.stream():
                body += data
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise client_error(408, "The body did not arrive in time.", "request_timeout") from None
    except ClientDisconnect:
        raise client_error(400, "The client left before the body was complete.", "client_left") from None
    return bytes(body)


def json_object(body: bytes) -> dict[str, object]:
    try:
        received = json.decode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body is {error}.", "invalid_json") from None
    if not isinstance(received, dict):
        raise client_error(400, "The body must be a JSON object.", "invalid_json")
    return received


def _request_id(request: Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def _leave(gateway: Gateway) -> None:
    gateway.in_flight -= 1
    gateway.metrics.streams_active.set(gateway.in_flight)


class _Counted(Response):
    """A relay that is counted among the streams until it ends."""

    def __init__(self, relay: Relay, gateway: Gateway) -> None:
        super().__init__()
        self._relay = relay
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._relay(scope, receive, send)
        finally:
            _leave(self._gateway)


def _json(value: object) -> Response:
    return Response(json.encode(value), media_type="application/json")


def _failure_response(request: Request, error: HTTPFailure) -> Response:
    headers = {"x-request-id": getattr(request.state, "request_id", None) or _request_id(request)}
    headers["x-portcullis-policy"] = getattr(request.state, "policy", "none")
    return Response(json.encode(error.body), error.status, {**headers, **error.headers}, "application/json")


def _refusal(
    request: Request,
    error: HTTPFailure,
    started: float,
    route: str = "none",
    scanned: tuple[TextScanned, ...] = (),
) -> RequestFinished:
    return RequestFinished(
        request_id=request.state.request_id,
        path=request.url.path,
        route=route,
        policy=getattr(request.state, "policy", "none"),
        upstream="none",
        status=error.status,
        outcome=outcome_of(scanned) if scanned else "failed",
        stream=False,
        duration=perf_counter() - started,
        scanned=scanned,
        error=error.kind,
    )
