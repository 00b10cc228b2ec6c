"""The endpoints: who may call, what is asked, and every refusal turned into HTTP in one place."""

from __future__ import annotations

import asyncio
import re
import uuid
from time import perf_counter

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gateway.guard.prompt import BadRequest, apply_request_table, read_chat_request
from gateway.guard.texts import Finding
from gateway.observe.facts import Limited, RequestFinished, TextScanned
from gateway.observe.log import outcome_of
from gateway.observe.metrics import CONTENT_TYPE
from gateway.observe.tracing import RequestSpan
from gateway.policy.model import ClientKey
from gateway.proxy.allowance import Allowance
from gateway.proxy.asgi import aside
from gateway.proxy.errors import HTTPFailure, client_error
from gateway.proxy.gateway import Gateway
from gateway.proxy.relay import Forward, Relay, not_journalled
from gateway.wire import json
from gateway.wire.chat import Json

BODY_TIMEOUT = 60.0  # seconds in which a request's body must have arrived
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def add_routes(app: FastAPI, gateway: Gateway) -> None:
    """What clients use. Anything else below /v1 is 404: nothing is forwarded that is not scanned."""

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await _chat(request, gateway)

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        return await _models(request, gateway)

    @app.get("/v1/models/{model:path}")
    async def model(request: Request, model: str) -> Response:
        return await _models(request, gateway, model)


def add_admin_routes(app: FastAPI, gateway: Gateway) -> None:
    """What orchestrators and Prometheus use: on the same listener, or on one of their own."""

    # Monitors ask with HEAD, too.
    @app.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz(request: Request) -> Response:
        return _json(request, {"status": "ok"})

    @app.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz(request: Request) -> Response:
        states = await gateway.probe()
        status = "ready" if any(states.values()) else "all upstreams are down"
        if gateway.draining:
            status = "stopping"
        elif gateway.journal_fails:
            status = "the journal cannot be written"
        shown = {name: "up" if up else "down" for name, up in states.items()}
        return _json(request, {"status": status, "upstreams": shown}, 200 if status == "ready" else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        await gateway.probe()
        return Response(gateway.metrics.exposition(), headers=_own_headers(request), media_type=CONTENT_TYPE)


def add_error_handlers(app: FastAPI, gateway: Gateway) -> None:
    """Every refusal as OpenAI's clients read it."""

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


def _key_of(request: Request, gateway: Gateway) -> ClientKey:
    key = gateway.current.keys.admit(request.headers)
    if key is None:
        message = "Missing or wrong API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        raise client_error(401, message, "invalid_api_key", kind="authentication_error")
    request.state.key = key.name
    return key


async def _models(request: Request, gateway: Gateway, wanted: str | None = None) -> Response:
    """The list of models, or the entry of the one that is `wanted`."""
    started = perf_counter()
    try:
        listed = await gateway.models(_key_of(request, gateway))
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
        key = _key_of(request, gateway)
        # Counted from here on: a body that is being read costs memory too.
        gateway.enter()
        request.state.span = _span_of(request, gateway)
        try:
            return await _prepare(request, gateway, key, started)
        except BaseException:
            gateway.leave()
            raise
    except HTTPFailure as error:
        if not getattr(request.state, "recorded", False):
            _record_refusal(request, gateway, _finished(request, error.status, started, error=error.kind))
        raise


def _record_refusal(request: Request, gateway: Gateway, fact: RequestFinished) -> None:
    gateway.record(fact)
    span: RequestSpan | None = getattr(request.state, "span", None)
    if span is not None:
        span.finish(fact, None, ())


async def _prepare(request: Request, gateway: Gateway, key: ClientKey, started: float) -> Relay:
    generation = gateway.current
    findings: list[Finding] = []
    raw = await _read_body(request, generation.config.limits.max_body)
    body = json_object(raw)
    try:
        chat = read_chat_request(body)
        route = generation.router.match(chat.model, key)
        if route is None:
            raise unknown_model()
        policy = generation.policies[route.policy]
        request.state.policy, request.state.route = policy.policy.name, route.model
        apply_request_table(body, policy)
        allowance = await Allowance.ask(gateway.limiter, key, len(raw))
        if allowance.refusal is not None:
            gateway.record(Limited(key.name, allowance.refusal.kind))
            raise allowance.refusal
        try:
            on_finding = None if gateway.journal is None else findings.append
            rule, scanned = await aside(len(raw), gateway.guard_prompt, body, policy, on_finding)
        except BaseException:
            await allowance.give_back()
            raise
    except BadRequest as error:
        raise client_error(400, str(error), error.code, error.param) from None
    texts = (scanned,) if scanned is not None else ()
    journal = gateway.request_journal(_request_id(request), key.name, route.model, policy.policy.name)
    if rule is not None:
        await allowance.give_back()
        if journal is not None:
            committed = await journal.commit(findings)
            findings.clear()
            if not committed:
                raise not_journalled()
        message = rule.message or f"The request is blocked by rule {rule.id!r}."
        blocked = client_error(400, message, "content_filter", rule.id)
        for text in texts:
            gateway.record(text)
        fact = _finished(request, 400, started, scanned=texts, error=blocked.kind)
        _record_refusal(request, gateway, fact)
        if journal is not None:
            journal.close(fact, findings)
        request.state.recorded = True
        raise blocked
    try:
        encoded = _encoded({**body, "model": route.rename or chat.model})
    except HTTPFailure:
        await allowance.give_back()
        raise
    return Relay(
        Forward(
            request_id=_request_id(request),
            path=_path_of(request),
            chat=chat,
            body=encoded,
            headers={**request.headers, "x-request-id": _request_id(request)},
            route=route,
            policy=policy,
            fleet=generation.fleet,
            timeouts=generation.config.upstreams[route.upstream].timeouts,
            key=key.name,
            allowance=allowance,
            started=started,
            scanned=texts,
            findings=tuple(findings),
        ),
        generation.config.limits,
        gateway.record,
        gateway.leave,
        request.state.span,
        journal,
    )


def _span_of(request: Request, gateway: Gateway) -> RequestSpan | None:
    if gateway.tracer is None:
        return None
    headers = request.headers
    return gateway.tracer.begin(
        path=_path_of(request),
        traceparent=headers.get("traceparent"),
        tracestate=headers.get("tracestate"),
        request_id=_request_id(request),
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
        key=getattr(request.state, "key", None),
    )
