"""`/responses/{id}`: an answer that an upstream has stored is fetched, cancelled or deleted, and guarded on its way.

Such a request names no model, and an id does not say under which policy its answer was made. So the routes that the key
may use must leave no choice of the policy; a client may name a model to choose among upstreams, but gets no weaker
policy by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response
from msgspec.structs import replace as changed

from gateway.guard.prompt import ChatRequest
from gateway.policy.model import Route
from gateway.proxy import admission
from gateway.proxy.context import RequestContext
from gateway.proxy.errors import client_error
from gateway.proxy.state import AppState
from gateway.proxy.steering.request import spoken_dialect
from gateway.wire.responses import RESPONSES, stored_response

STORED = RESPONSES.path + "/resp_{name}"  # every id of a stored answer begins so
CANCEL = "/cancel"
_MODEL, _STREAM, _AFTER = "model", "stream", "starting_after"
_FORWARDED = ("include", "include[]")
_MAX_DIGITS = 9


async def retrieve(request: Request, state: AppState) -> Response:
    """The relay that will answer, or the refusal, which has been recorded."""
    context = RequestContext.of(request, state)
    return await admission.answered(context, STEPS, admission.prepare_relay)


async def _read_query(context: RequestContext) -> RequestContext:
    request, query = context.request, context.request.query_params
    name = request.path_params["name"]
    if not (name.isascii() and name.replace("_", "").replace("-", "").isalnum()):
        raise client_error(404, "No stored answer has such an id.", "unknown_url", "response_id")
    path = RESPONSES.path + "/resp_" + name + CANCEL * request.url.path.endswith(CANCEL)
    forwarded = [(key, value) for key, value in query.multi_items() if key in _FORWARDED]
    stream = request.method == "GET" and query.get(_STREAM) == "true"
    after = query.get(_AFTER, "") if stream else ""
    if after and not (after.isascii() and after.isdigit() and len(after) <= _MAX_DIGITS):
        raise client_error(400, f"`{_AFTER}` must be the number of an event.", None, _AFTER)
    if stream:
        forwarded.append((_STREAM, "true"))
    if forwarded:
        path += "?" + urlencode(forwarded)
    dialect = stored_response(path, request.method, int(after or -1))
    return changed(context, chat=ChatRequest(query.get(_MODEL, ""), stream, 1, dialect))


async def _route(context: RequestContext) -> RequestContext:
    """The only upstream of the key's routes that stores answers, if all such routes have one policy."""
    model, key, router = context.chat.model, context.key, context.snapshot.router
    keeping = list(_keeping(context))
    if not keeping:
        message = f"No route of this key leads to an upstream that serves /v1{RESPONSES.path} itself."
        raise client_error(404, message, "endpoint_not_served")
    if len({route.policy for route, _ in keeping}) > 1:
        message = (
            "The routes of this key to upstreams that store answers have different policies, and it is not known "
            "under which one this answer was made. Use a key that may use only one of these policies."
        )
        raise client_error(400, message, "route_ambiguous")
    if model:
        found = router.match(model, key)
        keeping = [each for each in keeping if each[0] is found]
        if not keeping:
            raise admission.unknown_model()
    elif key.models is not None:
        raise client_error(400, f"Name the model that made the answer: add `?{_MODEL}=` to the address.", None, _MODEL)
    if len({name for _, name in keeping}) > 1:
        message = f"Several upstreams store answers. Name a model whose route has one of them: `?{_MODEL}=`."
        raise client_error(400, message, "route_ambiguous", _MODEL)
    route, name = keeping[0]
    context = context.on_route(replace(route, upstream=name, others=()))
    if context.policy.reads_conversation:
        message = "The policy has a rule for what stands in the request (`protect`, `carry`), which is not known here."
        raise client_error(400, message, "request_unknown")
    return context


def _keeping(context: RequestContext) -> Iterator[tuple[Route, str]]:
    """Routes of the key with each of their upstreams that gets requests for `/responses` as they are."""
    snapshot = context.snapshot
    for route in snapshot.router.visible(context.key):
        for name in route.upstreams:
            upstream, policy = snapshot.config.upstreams[name], snapshot.policies[route.policy]
            if spoken_dialect(RESPONSES, upstream, policy) is RESPONSES:
                yield route, name


async def _reserve_quota(context: RequestContext) -> RequestContext:
    """Its tokens were counted when it was made."""
    context.record.journal, context.record.journal_required = context.state.journal, context.state.journal_required
    context.record.on_finding = None if context.state.journal is None else context.record.findings.append
    return await admission.reserve_quota(changed(context, key=replace(context.key, tpm=None)))


STEPS: tuple[admission.Step, ...] = (
    admission.authenticate,
    admission.acquire_slot,
    admission.read_body,
    _read_query,
    _route,
    _reserve_quota,
)
