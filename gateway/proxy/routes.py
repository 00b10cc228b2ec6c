"""The endpoints: who may call, what is asked, and every refusal turned into HTTP in one place."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gateway.censor.compile import CompiledPolicy, CompiledRule
from gateway.censor.stream import Censor
from gateway.guard.answer import GUARD_FAILED, guard_failed
from gateway.guard.chat import ChatGuard
from gateway.guard.prompt import BadRequest, apply_request_table, guard_prompt, read_chat_request
from gateway.observe.facts import Fact, RequestFinished, TextScanned
from gateway.observe.log import outcome_of
from gateway.observe.metrics import CONTENT_TYPE, Metrics
from gateway.policy.model import Auth, Channel, Config, Direction
from gateway.policy.select import Router
from gateway.proxy.asgi import aside
from gateway.proxy.errors import HTTPFailure, client_error, overloaded
from gateway.proxy.models import list_models
from gateway.proxy.relay import Forward, Relay
from gateway.proxy.upstream import UpstreamClient
from gateway.wire import json
from gateway.wire.chat import Json

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

    async def probe(self) -> dict[str, bool]:
        """Which upstreams answer, by probes that are cached; the gauge follows."""
        names = list(self.upstreams)
        states = await asyncio.gather(*(self.upstreams[name].up() for name in names))
        for name, up in zip(names, states, strict=True):
            self.metrics.upstream_up.labels(name).set(up)
        return dict(zip(names, states, strict=True))

    async def models(self) -> list[dict[str, object]]:
        return await list_models(self.config, self.router, self.upstreams, self._is_clean)

    def _is_clean(self, policy: str, text: str) -> bool:
        compiled = self.policies[policy]
        try:
            censor = Censor(compiled.program(Direction.OUTPUT, Channel.OTHER))
            return censor.feed(text) + censor.finish() == text
        except Exception as error:
            raise self._fail_closed(compiled, error) from None

    def guard_prompt(self, body: Json, policy: CompiledPolicy) -> tuple[CompiledRule | None, TextScanned | None]:
        """`guard.prompt.guard_prompt`, failing closed. Raises `BadRequest` and `HTTPFailure`."""
        try:
            return guard_prompt(body, policy)
        except BadRequest:
            raise
        except Exception as error:
            raise self._fail_closed(policy, error) from None

    def _fail_closed(self, policy: CompiledPolicy, error: Exception) -> HTTPFailure:
        self.record(guard_failed(ChatGuard(policy), error))
        return HTTPFailure(500, GUARD_FAILED, "guard_failed")


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
        return await _models(request, gateway)

    @app.get("/v1/models/{model:path}")
    async def model(request: Request, model: str) -> Response:
        return await _models(request, gateway, model)

    # Monitors ask with HEAD, too.
    @app.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz(request: Request) -> Response:
        return _json(request, {"status": "ok"})

    @app.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz(request: Request) -> Response:
        states = await gateway.probe()
        ready = any(states.values())
        shown = {name: "up" if up else "down" for name, up in states.items()}
        status = "ready" if ready else "all upstreams are down"
        return _json(request, {"status": status, "upstreams": shown}, 200 if ready else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        await gateway.probe()
        return Response(gateway.metrics.exposition(), headers=_own_headers(request), media_type=CONTENT_TYPE)

    @app.exception_handler(HTTPFailure)
    async def failed(request: Request, error: HTTPFailure) -> Response:
        return _failure_response(request, error)

    @app.exception_handler(HTTPException)
    async def no_such_path(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            answer = client_error(405, f"Method {request.method[:32]!r} is not allowed here.", "method_not_allowed")
            answer.headers = dict(error.headers or {})
        else:
            answer = client_error(404, f"Unknown path {request.url.path[:200]!r}.", "unknown_url")
        gateway.record(_finished(request, answer.status, perf_counter(), error=answer.kind))
        return _failure_response(request, answer)


def unknown_model() -> HTTPFailure:
    return client_error(404, "No route for this model, or you do not have access to it.", "model_not_found", "model")


def _require_key(request: Request, gateway: Gateway) -> None:
    if not gateway.keys.admit(request):
        message = "Missing or wrong API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        raise client_error(401, message, "invalid_api_key", kind="authentication_error")


async def _models(request: Request, gateway: Gateway, wanted: str | None = None) -> Response:
    """The list of models, or the entry of the one that is `wanted`."""
    started = perf_counter()
    try:
        _require_key(request, gateway)
        listed = await gateway.models()
        answer: object = {"object": "list", "data": listed}
        if wanted is not None:
            answer = next((entry for entry in listed if entry.get("id") == wanted), None)
        if answer is None:
            raise unknown_model()
    except HTTPFailure as failed:
        gateway.record(_finished(request, failed.status, started, error=failed.kind))
        raise
    gateway.record(_finished(request, 200, started))
    return _json(request, answer)


async def _chat(request: Request, gateway: Gateway) -> Response:
    started = perf_counter()
    try:
        _require_key(request, gateway)
        if gateway.in_flight >= gateway.config.limits.max_streams:
            raise overloaded(f"The gateway is at its limit of {gateway.config.limits.max_streams} streams.")
        # Counted from here on: a body that is being read costs memory too.
        gateway.in_flight += 1
        gateway.metrics.streams_active.set(gateway.in_flight)
        try:
            return await _prepare(request, gateway, started)
        except BaseException:
            _leave(gateway)
            raise
    except HTTPFailure as error:
        if not getattr(request.state, "recorded", False):
            gateway.record(_finished(request, error.status, started, error=error.kind))
        raise


async def _prepare(request: Request, gateway: Gateway, started: float) -> Relay:
    raw = await _read_body(request, gateway.config.limits.max_body)
    body = json_object(raw)
    try:
        chat = read_chat_request(body)
        route = gateway.router.match(chat.model)
        if route is None:
            raise unknown_model()
        policy = gateway.policies[route.policy]
        request.state.policy, request.state.route = policy.policy.name, route.model
        apply_request_table(body, policy)
        rule, scanned = await aside(len(raw), gateway.guard_prompt, body, policy)
    except BadRequest as error:
        raise client_error(400, str(error), error.code, error.param) from None
    texts = (scanned,) if scanned is not None else ()
    if rule is not None:
        message = rule.message or f"The request is blocked by rule {rule.id!r}."
        blocked = client_error(400, message, "content_filter", rule.id)
        for text in texts:
            gateway.record(text)
        gateway.record(_finished(request, 400, started, scanned=texts, error=blocked.kind))
        request.state.recorded = True
        raise blocked
    if route.rename is not None:
        body["model"] = route.rename
    return Relay(
        Forward(
            request_id=_request_id(request),
            path=_path_of(request),
            chat=chat,
            body=_encoded(body),
            headers={**request.headers, "x-request-id": _request_id(request)},
            route=route,
            policy=policy,
            upstream=gateway.upstreams[route.upstream],
            started=started,
            scanned=texts,
        ),
        gateway.config.limits,
        gateway.record,
        functools.partial(_leave, gateway),
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


def json_object(body: bytes) -> Json:
    try:
        received = json.decode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body is {error}.", "invalid_json") from None
    if not isinstance(received, dict):
        raise client_error(400, "The body must be a JSON object.", "invalid_json")
    return received


def _encoded(body: Json) -> bytes:
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body cannot be forwarded: {error}.", "invalid_json") from None


def _request_id(request: Request) -> str:
    """The client's own id if it is a plain one, else a new one; the same each time it is asked for."""
    known = getattr(request.state, "request_id", None)
    if known is None:
        given = request.headers.get("x-request-id", "")
        known = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        request.state.request_id = known
    return str(known)


def _policy_of(request: Request) -> str:
    return str(getattr(request.state, "policy", "none"))


def _path_of(request: Request) -> str:
    """The path as the gateway spells it; what a client asked for beyond that is no label."""
    route = request.scope.get("route")
    return str(route.path) if route is not None else "other"


def _leave(gateway: Gateway) -> None:
    gateway.in_flight -= 1
    gateway.metrics.streams_active.set(gateway.in_flight)


def _own_headers(request: Request) -> dict[str, str]:
    return {"x-request-id": _request_id(request), "x-portcullis-policy": _policy_of(request)}


def _json(request: Request, value: object, status: int = 200) -> Response:
    return Response(json.encode(value), status, _own_headers(request), "application/json")


def _failure_response(request: Request, error: HTTPFailure) -> Response:
    return Response(
        json.encode(error.body), error.status, {**_own_headers(request), **error.headers}, "application/json"
    )


def _finished(
    request: Request,
    status: int,
    started: float,
    *,
    scanned: tuple[TextScanned, ...] = (),
    error: str | None = None,
) -> RequestFinished:
    """A request that ended without a relay."""
    return RequestFinished(
        request_id=_request_id(request),
        path=_path_of(request),
        route=str(getattr(request.state, "route", "none")),
        policy=_policy_of(request),
        upstream="none",
        status=status,
        outcome="failed" if error and not scanned else outcome_of(scanned),
        stream=False,
        duration=perf_counter() - started,
        scanned=scanned,
        error=error,
    )
