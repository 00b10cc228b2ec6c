"""The endpoints, and the framework's errors as OpenAI's clients read them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from fastapi import FastAPI, Request
from fastapi.responses import Response
from msgspec.structs import replace as changed
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from gateway.observe.metrics import CONTENT_TYPE
from gateway.policy.model import ReadyWhen
from gateway.proxy import admission, openapi
from gateway.proxy.asgi import release_headers
from gateway.proxy.context import RequestContext, failure_response, json_response, record_of, refuse
from gateway.proxy.errors import HTTPFailure, client_error, internal_error
from gateway.proxy.moderations import moderate
from gateway.proxy.retrieval import CANCEL, STORED, retrieve
from gateway.proxy.server import Application
from gateway.proxy.snapshot import Snapshot
from gateway.proxy.state import AppState
from gateway.proxy.steering.mask_probe import MaskProbes
from gateway.wire import moderations
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.dialects import SERVED

# Below what a base URL of a client leads to: OpenAI's, and those of Azure's clients, new and old.
PREFIXES = ("/v1", "/openai/v1", "/openai")
DEPLOYMENT = "/openai/deployments/{deployment}"
READY = {"status": "ready"}
MAX_SHOWN = 200  # characters of a path
SIMILAR = 0.8  # of 1: so much of the letters that two paths have in common, at their places
_MOST_USED = "/v1"
# What belongs to answers that an upstream keeps as the model wrote them; `proxy.retrieval` has responses themselves.
_STORED = {
    "/responses/resp_[^/]+/": "Of a stored response only the answer is fetched: its input is known to the client that "
    "sent it, and answers before it have ids of their own.",
    "/conversations(/|$)|/chat/completions/chatcmpl[_-]": "No conversation is fetched from where an upstream keeps it: "
    "send its items as input.",
}
_DEPLOYMENT = re.compile("/openai/deployments/[^/]*")


def add_routes(app: Application, state: AppState) -> None:
    """The endpoints of clients. Every other path is 404: nothing unscanned is forwarded."""
    for prefix in PREFIXES:
        for dialect in SERVED:
            app.direct[prefix + dialect.path] = _add_answers(app, state, dialect, prefix)
        _add_others(app, state, prefix)
    for dialect in SERVED:
        _add_answers(app, state, dialect, DEPLOYMENT)

    async def described(request: Request) -> Response:
        config = state.current.config
        document = openapi.document(keys=state.current.keys.required, admin=config.listen.admin is not None)
        return Response(document, headers=record_of(request).headers, media_type="application/json")

    app.router.routes.append(PlainRoute(openapi.PATH, described, "GET"))


def _add_answers(app: FastAPI, state: AppState, dialect: Dialect, prefix: str) -> AnswerEndpoint:
    endpoint = AnswerEndpoint(prefix + dialect.path, state, dialect)
    app.router.routes.append(Route(endpoint.path, endpoint, methods=["POST"]))
    return endpoint


class AnswerEndpoint:
    """The endpoint of one dialect at one path, as an ASGI application: the framework is not needed for it."""

    def __init__(self, path: str, state: AppState, dialect: Dialect) -> None:
        self.path = path
        self._state = state
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            context = RequestContext.of(request, self._state, self._dialect, self.path)
            answer = await admission.answered(context, admission.STEPS, admission.prepare_relay)
        except Exception:
            await refuse(request, internal_error(), self._state.record)(scope, receive, send)
            raise
        release_headers(receive)
        await answer(scope, receive, send)


class PlainRoute(Route):
    """A route whose endpoint takes the request: FastAPI would read its signature, which takes most of what it takes to
    build an application."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], *methods: str) -> None:
        super().__init__(path, endpoint)
        self.methods = set(methods)  # given to the constructor, GET would bring HEAD along

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


def _add_others(app: FastAPI, state: AppState, prefix: str) -> None:
    async def check(request: Request) -> Response:
        return await moderate(request, state)

    async def stored(request: Request) -> Response:
        return await retrieve(request, state)

    async def models(request: Request) -> Response:
        return await _models(request, state)

    app.router.routes += [
        PlainRoute(prefix + moderations.PATH, check, "POST"),
        PlainRoute(prefix + STORED, stored, "GET", "DELETE"),
        PlainRoute(prefix + STORED + CANCEL, stored, "POST"),
        PlainRoute(prefix + "/models", models, "GET"),
        PlainRoute(prefix + "/models/{model:path}", models, "GET"),
    ]


def add_admin_routes(app: FastAPI, state: AppState) -> None:
    """The endpoints of orchestrators and Prometheus, on the same listener or their own."""

    async def healthz(request: Request) -> Response:
        return json_response(record_of(request), {"status": "ok"})

    async def readyz(request: Request) -> Response:
        states = await state.probe()
        masks = state.current.masks
        status = _status(state, masks)
        body: dict[str, object] = {**status, "upstreams": {name: "up" if up else "down" for name, up in states.items()}}
        if masks.states:
            body["masks"] = masks.states
        return json_response(record_of(request), body, 200 if status == READY else 503)

    async def metrics(request: Request) -> Response:
        await state.probe()
        return Response(state.metrics.exposition(), headers=record_of(request).headers, media_type=CONTENT_TYPE)

    # Some monitors send HEAD.
    app.router.routes += [
        PlainRoute("/healthz", healthz, "GET", "HEAD"),
        PlainRoute("/readyz", readyz, "GET", "HEAD"),
        PlainRoute("/metrics", metrics, "GET"),
    ]


def _status(state: AppState, masks: MaskProbes) -> dict[str, str]:
    """The reason why the gateway is not ready; `READY` if it is."""
    if state.draining:
        return {"status": "stopping"}
    if state.journal_fails:
        return {"status": "the journal cannot be written"}
    if unready := _why_unready(state.current):
        return {"status": unready}
    if (missing := masks.missing) is not None:
        mask = missing.mask
        status = f"the mask of policy {mask.entry} is not in force at upstream {mask.upstream}"
        return {"status": status, "reason": missing.status.reason}
    return READY


def _why_unready(current: Snapshot) -> str | None:
    down, when = current.fleet.down, current.config.listen.ready_when
    if when is ReadyWhen.ALL and down:
        return f"upstream {down[0]} is down"
    if when is ReadyWhen.ANY and len(down) == len(current.config.upstreams):
        return "all upstreams are down"
    return None


def add_error_handlers(app: FastAPI, state: AppState) -> None:
    """Answers to errors outside the endpoints: internal errors, unknown paths and methods."""

    @app.exception_handler(Exception)
    async def broke(request: Request, error: Exception) -> Response:
        return refuse(request, internal_error(), state.record)

    @app.exception_handler(HTTPException)
    async def no_such_path(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            answer = wrong_method(request.method, dict(error.headers or {}))
        else:
            answer = unknown_path(request.url.path, request.app.routes)
        return refuse(request, answer, state.record, dialect_of(request.url.path))


async def _models(request: Request, state: AppState) -> Response:
    """The list of models, or the entry of the one that the path names."""
    wanted: str | None = request.path_params.get("model")
    record = record_of(request, state.record)
    try:
        context = admission.authenticate(RequestContext.of(request, state))
        # It counts as a request, and runs beside the streams of its key.
        await admission.reserve_quota(changed(context, key=replace(context.key, tpm=None, max_streams=None)))
        await record.correct_quota(0)
        listed = await state.models(context.key)
        answer: object = {"object": "list", "data": listed}
        if wanted is not None:
            answer = next((entry for entry in listed if entry.get("id") == wanted), None)
        if answer is None:
            raise admission.unknown_model()
    except HTTPFailure as failure:
        return failure_response(record, await record.refuse(failure))
    record.close(200)
    response = json_response(record, answer)
    if record.quota is not None:
        response.headers.update(record.quota.headers)
    return response


def unknown_path(path: str, routes: Iterable[BaseRoute]) -> HTTPFailure:
    """404 for a path that is none of the `routes`."""
    for pattern, reason in _STORED.items():
        if re.search(pattern, path):
            return client_error(404, f"Unknown path {path[:MAX_SHOWN]!r}. {reason}", "unknown_url")
    known = {route.path for route in routes if isinstance(route, Route) and "{" not in route.path}
    near = nearest_path(path[:MAX_SHOWN], known)
    listed = ", ".join(sorted(name for name in known if name.startswith(_MOST_USED)) or sorted(known))
    advice = f"Did you mean {near}?" if near else f"This gateway has {listed}."
    return client_error(404, f"Unknown path {path[:MAX_SHOWN]!r}. {advice}", "unknown_url")


def nearest_path(path: str, known: Iterable[str]) -> str | None:
    """The known path closest to one with a part doubled, omitted or misspelled."""
    known = list(known)
    clean = re.sub("/{2,}", "/", path).rstrip("/").lower()
    parts = clean.split("/")
    clean = "/".join(part for at, part in enumerate(parts) if at == 0 or part != parts[at - 1])
    if deployment := _DEPLOYMENT.match(clean):
        near = nearest_path(_MOST_USED + clean[deployment.end() :], known)
        return None if near is None else path[: deployment.end()] + near.removeprefix(_MOST_USED)
    for wanted in (clean, _MOST_USED + clean):
        if wanted in known:
            return wanted
    if above := [name for name in known if name != "/" and clean.startswith(f"{name}/")]:
        return max(above, key=len)
    return next(iter(difflib.get_close_matches(clean, known, 1, SIMILAR)), None)


def dialect_of(path: str) -> Dialect:
    """The dialect whose clients ask for such a path, and so read its errors."""
    return next((dialect for dialect in SERVED if f"{dialect.path}/" in f"{path}/"), CHAT)


def wrong_method(method: str, headers: dict[str, str]) -> HTTPFailure:
    """405 for a path with another method; `headers` have those that it has, as `Allow`."""
    allowed = next((value for name, value in headers.items() if name.lower() == "allow"), "")
    advice = f" Use {allowed}." if allowed else ""
    refusal = client_error(405, f"Method {method[:32]!r} is not allowed here.{advice}", "method_not_allowed")
    refusal.headers = headers
    return refusal
