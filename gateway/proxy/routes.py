"""The endpoints, and every refusal turned into HTTP in one place."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from gateway.guard.prompt import read_chat_request, read_completions_request
from gateway.observe.metrics import CONTENT_TYPE
from gateway.proxy.admission import admit, allowed, unknown_model
from gateway.proxy.errors import HTTPFailure, client_error, internal_error
from gateway.proxy.inbound import failure_response, finished, json_response, key_of, own_headers
from gateway.proxy.state import Gateway
from gateway.proxy.steering.mask_probe import MaskProbes

READY = {"status": "ready"}


def add_routes(app: FastAPI, gateway: Gateway) -> None:
    """What clients use. Anything else below /v1 is 404: nothing is forwarded that is not scanned."""

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await admit(request, gateway, read_chat_request)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await admit(request, gateway, read_completions_request)

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
        return json_response(request, {"status": "ok"})

    @app.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz(request: Request) -> Response:
        states = await gateway.probe()
        masks = gateway.current.masks
        status = _status(gateway, masks)
        body: dict[str, object] = {**status, "upstreams": {name: "up" if up else "down" for name, up in states.items()}}
        if masks.states:
            body["masks"] = masks.states
        return json_response(request, body, 200 if status == READY else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        await gateway.probe()
        return Response(gateway.metrics.exposition(), headers=own_headers(request), media_type=CONTENT_TYPE)


def _status(gateway: Gateway, masks: MaskProbes) -> dict[str, str]:
    """Why no request should come here; `READY` if there is no reason."""
    if gateway.draining:
        return {"status": "stopping"}
    if gateway.journal_fails:
        return {"status": "the journal cannot be written"}
    if not gateway.current.fleet.usable:
        return {"status": "all upstreams are down"}
    if (missing := masks.missing) is not None:
        wanted = missing.mask
        status = f"the mask of policy {wanted.entry} is not in force at upstream {wanted.upstream}"
        return {"status": status, "reason": missing.status.reason}
    return READY


def add_error_handlers(app: FastAPI, gateway: Gateway) -> None:
    """Every refusal as OpenAI's clients read it."""

    @app.exception_handler(HTTPFailure)
    async def failed(request: Request, error: HTTPFailure) -> Response:
        return failure_response(request, error)

    @app.exception_handler(Exception)
    async def broke(request: Request, error: Exception) -> Response:
        answer = internal_error()
        gateway.record(finished(request, answer.status, perf_counter(), error=answer.kind))
        return failure_response(request, answer)

    @app.exception_handler(HTTPException)
    async def no_such_path(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            answer = client_error(405, f"Method {request.method[:32]!r} is not allowed here.", "method_not_allowed")
            answer.headers = dict(error.headers or {})
        else:
            answer = client_error(404, f"Unknown path {request.url.path[:200]!r}.", "unknown_url")
        gateway.record(finished(request, answer.status, perf_counter(), error=answer.kind))
        return failure_response(request, answer)


async def _models(request: Request, gateway: Gateway, wanted: str | None = None) -> Response:
    """The list of models, or the entry of the one that is `wanted`."""
    started = perf_counter()
    try:
        key = key_of(request, gateway)
        # It counts as a request, and runs beside the streams of its key.
        allowance = await allowed(gateway, replace(key, tpm=None, max_streams=None), 0)
        await allowance.give_back()
        listed = await gateway.models(key)
        answer: object = {"object": "list", "data": listed}
        if wanted is not None:
            answer = next((entry for entry in listed if entry.get("id") == wanted), None)
        if answer is None:
            raise unknown_model()
    except HTTPFailure as failed:
        gateway.record(finished(request, failed.status, started, error=failed.kind))
        raise
    gateway.record(finished(request, 200, started))
    response = json_response(request, answer)
    response.headers.update(allowance.headers)
    return response
