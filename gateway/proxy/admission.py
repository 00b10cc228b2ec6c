"""From an HTTP request to a relay, in named steps.

Each step takes the request's context and returns one with more in it, or raises `HTTPFailure`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response
from msgspec.structs import replace as changed
from starlette.requests import ClientDisconnect

from gateway.censor.compile import CompiledPolicy
from gateway.censor.protect import PromptTooLong
from gateway.censor.stream import finds
from gateway.guard.constrained import asks_for_json
from gateway.guard.conversation import conversation_of
from gateway.guard.prompt import BadRequest, GuardedPrompt, apply_request_table, guarding_prompt, read_request
from gateway.observe.facts import Limited
from gateway.policy.model import Action, Channel, Direction
from gateway.proxy.accounting import QuotaReservation
from gateway.proxy.asgi import MAX_INLINE, offload, offload_in_slices, pop_buffered_body, scan_cost, scan_size
from gateway.proxy.context import RequestContext, RoutedRequest, failure_response
from gateway.proxy.downstream.browsers import check_content_type
from gateway.proxy.errors import HTTPFailure, client_error
from gateway.proxy.head import ANNOTATE_HEADER
from gateway.proxy.relay import Relay
from gateway.proxy.snapshot import OWN_KEY
from gateway.proxy.steering.request import RequestRewriter, spoken_dialect
from gateway.proxy.stored import StoredAnswers
from gateway.proxy.upstreams.client import CALLERS_KEY
from gateway.proxy.upstreams.models import SAFE_ID
from gateway.wire import json
from gateway.wire.chat import CHAT
from gateway.wire.json import Json
from gateway.wire.responses import RESPONSES

BODY_TIMEOUT = 60.0  # seconds in which a request's body must have arrived
MAX_SHOWN_MODELS = 1024  # names of models, with their policies, of which it is kept whether a log may show them
LEFTOVER_TIMEOUT = 1.0  # seconds for the rest of a request that was refused
Step = Callable[[RequestContext], RequestContext | Awaitable[RequestContext]]
_INPUT = Direction.INPUT  # to look up a member of an enumeration takes as long as a call
Result = TypeVar("Result")
NO_SEGMENTS = (".", "..")  # names that are no part of a path, in which a base URL may have the model's


async def answered(
    context: RequestContext, steps: Iterable[Step], answer: Callable[[RequestContext], Awaitable[Response]]
) -> Response:
    """The answer of a request after these steps, or the refusal, which has been recorded."""
    record = context.record
    try:
        try:
            for step in steps:
                reached = step(context)
                context = reached if isinstance(reached, RequestContext) else await reached
            return await answer(context)
        except HTTPFailure as failure:
            return failure_response(record, await record.refuse(failure), context.dialect)
    except BaseException:
        await record.abandon()
        raise


def authenticate(context: RequestContext) -> RequestContext:
    key = context.snapshot.keys.find(context.headers)
    if key is None:
        message = "Missing or wrong API key. Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        raise client_error(401, message, "invalid_api_key", kind="authentication_error")
    context.record.key = key.name
    return changed(context, key=key)


def acquire_slot(context: RequestContext) -> RequestContext | Awaitable[RequestContext]:
    """Counts the request from here on: a body that is being read costs memory too. A trace begins with it."""
    state, record = context.state, context.record
    try:
        state.acquire_slot()
    except HTTPFailure as failure:
        if state.draining:
            return _refused_when_read(context.request, failure)
        raise
    record.release_slot = state.release_slot
    if state.tracer is not None:
        record.span = state.tracer.start_request(
            path=record.path,
            traceparent=context.headers.get("traceparent"),
            tracestate=context.headers.get("tracestate"),
            request_id=record.request_id,
        )
    return context


async def _refused_when_read(request: Request, failure: HTTPFailure) -> RequestContext:
    """The connection is closed after this answer. With bytes on it that nothing has read it would be reset, and the
    client might never see the answer."""
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(LEFTOVER_TIMEOUT):
            async for _ in request.stream():
                pass
    raise failure


def read_body(context: RequestContext) -> RequestContext | Awaitable[RequestContext]:
    """Refuses a body that a page of another site could send, and a key that has too many that are still arriving."""
    if context.request.method == "POST":  # a page can send one without asking first; what it fetches it cannot read
        check_content_type(context.request.scope, context.key)
    pending, key, limits = context.state.pending_bodies, context.key, context.snapshot.config.limits
    if (refusal := pending.refusal(key, limits.max_streams)) is not None:
        context.state.record(Limited(key.name, refusal.kind))
        raise refusal
    if (arrived := pop_buffered_body(context.request.receive)) is not None:
        if len(arrived) > limits.max_body:
            raise _too_large(limits.max_body)
        return changed(context, raw=arrived)
    return _read_rest(context)


def route(context: RequestContext) -> RequestContext | Awaitable[RequestContext]:
    """Decodes the body, and finds the route and its policy; fields that the request table forbids leave the body."""
    if len(context.raw) <= MAX_INLINE:
        return _routed(context)  # without the coroutine that `offload` is
    return offload(len(context.raw), _routed, context)


async def reserve_quota(context: RequestContext) -> RequestContext:
    state = context.state
    context.record.quota = await QuotaReservation.reserve(state.limiter, context.key, len(context.raw), state.record)
    return context


async def scan_prompt(context: RequestContext) -> RequestContext:
    """Keeps what rules for answers need of the conversation, as the client sent it; then censors the prompt, in slices
    if it is long, and refuses one that a rule blocks."""
    if context.policy.reads_conversation:
        found = await offload(len(context.raw), conversation_of, context.body, context.chat.dialect)
        context = changed(context, conversation=found)
    state, record = context.state, context.record
    record.on_finding = None if state.journal is None else record.findings.append
    prompt, policy = context.prompt, context.policy
    if policy.scans(_INPUT):
        steps = guarding_prompt(context.body, policy, record.on_finding, context.chat.dialect)
        prompt = await run_scan(context, scan_size(context.raw), scan_cost(policy, _INPUT), steps)
    if prompt.scanned is not None:
        record.scanned.append(prompt.scanned)
    record.journal, record.journal_required = state.journal, state.journal_required
    if (refusal := _refusal(prompt)) is not None:
        raise refusal
    return context if prompt.pseudonyms is None else changed(context, prompt=prompt)


async def run_scan(context: RequestContext, size: int, cost: int, steps: Generator[int, None, Result]) -> Result:
    """`offload_in_slices` of a scan of what the client sent, within the `timeouts.total` of its route. Raises
    `HTTPFailure`."""
    total = context.snapshot.config.upstreams[context.route.upstream].timeouts.total
    deadline = context.record.started + total
    try:
        return await offload_in_slices(context.request.receive, size, cost, steps, deadline)
    except ClientDisconnect:
        raise client_error(400, "The client left before its prompt was scanned.", "client_left") from None
    except TimeoutError:
        message = f"The prompt could not be scanned within the {total:g} seconds of `timeouts.total`; shorten it."
        raise client_error(413, message, "scan_timeout") from None
    except Exception as error:
        raise context.state.guard_failure(context.policy, error) from None


STEPS: tuple[Step, ...] = (
    authenticate,
    acquire_slot,
    read_body,
    route,
    reserve_quota,
    scan_prompt,
)


async def prepare_relay(context: RequestContext) -> Relay:
    """Rewrites the request for the upstreams that may get it; the relay will answer it."""
    snapshot, record, chat = context.snapshot, context.record, context.chat
    route, config = context.route, context.snapshot.config
    policy = await _policy_for_answer(context)
    stored = _stored_for(context) if context.body.get("store") is not False else None
    arguments = (
        chat.dialect,
        {**context.body, "model": route.rename or chat.model},
        chat.stream,
        policy,
        [config.upstreams[name] for name in route.upstreams],
        snapshot.masks,
        snapshot.vocabularies,
        None if stored is None else partial(stored.keep, context.key.name),
    )
    if len(context.raw) <= MAX_INLINE:
        rewriter = RequestRewriter(*arguments)
    else:
        rewriter = await offload(len(context.raw), RequestRewriter, *arguments)
    routed = RoutedRequest(
        chat=chat,
        rewriter=rewriter,
        headers=_headers_up(context),
        route=route,
        policy=policy,
        fleet=snapshot.fleet,
        timeouts=config.upstreams[route.upstream].timeouts,
        limits=config.limits,
        pseudonyms=context.prompt.pseudonyms,
        json_content=asks_for_json(context.body, policy.policy),
        annotates=_annotates(context),
    )
    return Relay(routed, record)


async def _policy_for_answer(context: RequestContext) -> CompiledPolicy:
    """The policy for the answer, with what depends on the conversation and the censored prompt."""
    policy = context.policy
    if not policy.reads_conversation:
        return policy
    try:
        return await offload(len(context.raw), _opened, policy, context)
    except PromptTooLong as error:
        raise client_error(400, str(error), "system_prompt_too_long") from None


def _opened(policy: CompiledPolicy, context: RequestContext) -> CompiledPolicy:
    forwarded = conversation_of(context.body, context.chat.dialect).system
    given = context.conversation
    return policy.for_answer(replace(given, system=tuple(dict.fromkeys([*given.system, *forwarded]))))


def _annotates(context: RequestContext) -> bool:
    asked, policy = context.headers.get(ANNOTATE_HEADER, ""), context.policy.policy
    return asked.lower() == "true" if policy.annotate is None else policy.annotate


def _headers_up(context: RequestContext) -> dict[str, str]:
    """The client's headers; a key in them is one for the upstream only if the gateway's came in a header of its own."""
    headers = {**context.headers, "x-request-id": context.record.request_id}
    if context.key.digest and OWN_KEY not in headers:
        for name in CALLERS_KEY:
            headers.pop(name, None)
    return headers


def unknown_model() -> HTTPFailure:
    return client_error(404, "No route for this model, or you do not have access to it.", "model_not_found", "model")


def _bad_request(error: BadRequest) -> HTTPFailure:
    return client_error(400, str(error), error.code, error.param)


def _too_large(limit: int) -> HTTPFailure:
    return client_error(413, f"The body is larger than {limit} bytes.", "request_too_large")


async def _read_rest(context: RequestContext) -> RequestContext:
    with context.state.pending_bodies.one_more(context.key):
        return changed(context, raw=await _read(context, context.snapshot.config.limits.max_body))


async def _read(context: RequestContext, limit: int) -> bytes:
    request, too_large = context.request, _too_large(limit)
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


def _parsed(context: RequestContext) -> RequestContext:
    body = json_object(context.raw)
    if (deployment := context.request.path_params.get("deployment")) is not None:
        body["model"] = deployment
    try:
        return changed(context, body=body, chat=read_request(body, context.dialect))
    except BadRequest as error:
        raise _bad_request(error) from None


def _routed(context: RequestContext) -> RequestContext:
    context = _parsed(context)
    found = context.snapshot.router.match(context.chat.model, context.key)
    if found is None or (found.rename or context.chat.model) in NO_SEGMENTS:
        raise unknown_model()
    context = context.on_route(found)
    policy, record, dialect = context.policy, context.record, context.chat.dialect
    upstreams = context.snapshot.config.upstreams
    serving = [name for name in found.upstreams if spoken_dialect(dialect, upstreams[name], policy) is not None]
    if not serving:
        message = f"The route of this model leads to no upstream that serves /v1{dialect.path}."
        raise client_error(404, message, "endpoint_not_served", "model")
    if len(serving) < len(found.upstreams):
        context = changed(context, route=replace(context.route, upstream=serving[0], others=tuple(serving[1:])))
    record.model = _shown_model(context)
    try:
        if (stored := _stored_for(context)) is not None:
            limit = context.snapshot.config.limits.max_body
            context = changed(context, body=stored.written_out(context.key.name, context.body, limit))
        apply_request_table(context.body, policy, dialect)
    except BadRequest as error:
        raise _bad_request(error) from None
    return context


def _stored_for(context: RequestContext) -> StoredAnswers | None:
    """Where answers to such a request are kept: those that are translated, whichever upstream takes it, and have no
    placeholders, which mean nothing in another request."""
    stored, dialect, policy = context.state.stored, context.chat.dialect, context.policy
    if stored is None or dialect is not RESPONSES:
        return None
    if any(rule.action is Action.PSEUDONYMIZE for rule in policy.policy.rules):
        return None
    upstreams = [context.snapshot.config.upstreams[name] for name in context.route.upstreams]
    return stored if all(spoken_dialect(dialect, each, policy) is CHAT for each in upstreams) else None


def _shown_model(context: RequestContext) -> str | None:
    """The requested model, if it may stand in a log: a name like those of models, in which no rule finds anything."""
    model, policy = context.chat.model, context.policy
    if not SAFE_ID.fullmatch(model):
        return None
    known, asked = context.snapshot.shown_models, (context.route.policy, model)
    shown = known.get(asked)
    if shown is None:
        programs = (policy.program(direction, Channel.OTHER) for direction in Direction)
        shown = not any(finds(program, model) for program in programs)
        if len(known) < MAX_SHOWN_MODELS:
            known[asked] = shown
    return model if shown else None


def _refusal(prompt: GuardedPrompt) -> HTTPFailure | None:
    """Why a prompt is not forwarded, if it is not."""
    if prompt.refusal is not None:
        return _bad_request(prompt.refusal)
    if prompt.rule is None:
        return None
    message = prompt.rule.message or f"The request is blocked by rule {prompt.rule.id!r}."
    return client_error(400, message, "content_filter", prompt.rule.id)
