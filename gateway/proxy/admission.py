"""From an HTTP request to a relay: its body is read, routed, counted for its key, and the prompt in it censored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from time import perf_counter
from typing import NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from gateway.censor.compile import CompiledPolicy
from gateway.guard.channels import Finding
from gateway.guard.constrained import asks_for_json
from gateway.guard.prompt import BadRequest, ChatRequest, GuardedPrompt, apply_request_table
from gateway.observe.facts import Limited, RequestFinished, TextScanned
from gateway.observe.tracing import RequestSpan
from gateway.policy.model import ClientKey, Direction, Limits, Route
from gateway.proxy.allowance import Allowance
from gateway.proxy.asgi import aside, in_background, in_turns, weight
from gateway.proxy.downstream.browsers import check_content_type
from gateway.proxy.errors import HTTPFailure, client_error
from gateway.proxy.forward import Forward
from gateway.proxy.inbound import finished, key_of, path_of, request_id
from gateway.proxy.journal import RequestJournal, not_journalled
from gateway.proxy.relay import Relay
from gateway.proxy.snapshot import Generation
from gateway.proxy.state import Gateway
from gateway.proxy.steering.request import RequestRewriter
from gateway.wire import json
from gateway.wire.chat import Json

BODY_TIMEOUT = 60.0  # seconds in which a request's body must have arrived
LEFTOVER_TIMEOUT = 1.0  # seconds for the rest of a request that was refused

# What reads the body of an endpoint's requests; it raises `BadRequest`.
Reader = Callable[[object], ChatRequest]


def unknown_model() -> HTTPFailure:
    return client_error(404, "No route for this model, or you do not have access to it.", "model_not_found", "model")


async def admit(request: Request, gateway: Gateway, read: Reader) -> Relay:
    """The relay that will answer. Raises `HTTPFailure` for a request that is refused, after it was recorded."""
    started = perf_counter()
    try:
        key = key_of(request, gateway)
        check_content_type(request.headers, key)
        # Counted from here on: a body that is being read costs memory too.
        await _enter(request, gateway)
        try:
            request.state.span = _span_of(request, gateway)
            return await _prepare(request, gateway, key, read, started)
        except BaseException:
            gateway.leave()
            raise
    except HTTPFailure as error:
        if not getattr(request.state, "recorded", False):
            _record_refusal(request, gateway, finished(request, error.status, started, error=error.kind))
        raise


async def _enter(request: Request, gateway: Gateway) -> None:
    try:
        gateway.enter()
    except HTTPFailure:
        if gateway.draining:
            # The connection is closed after this answer. With bytes on it that nobody has read it would be reset, and
            # the client might never see the answer.
            with contextlib.suppress(TimeoutError, ClientDisconnect):
                async with asyncio.timeout(LEFTOVER_TIMEOUT):
                    async for _ in request.stream():
                        pass
        raise


def _record_refusal(request: Request, gateway: Gateway, fact: RequestFinished) -> None:
    gateway.record(fact)
    span: RequestSpan | None = getattr(request.state, "span", None)
    if span is not None:
        span.finish(fact, None, ())


async def _prepare(request: Request, gateway: Gateway, key: ClientKey, read: Reader, started: float) -> Relay:
    generation = gateway.current
    findings: list[Finding] = []
    raw = await _read_counted(request, gateway, key, generation.config.limits)
    body = await aside(len(raw), _json_object, raw)
    async with contextlib.AsyncExitStack() as unless_relayed:
        try:
            chat = await aside(len(raw), read, body)
            route, policy = await aside(len(raw), _routed, request, generation, key, chat, body)
            allowance = await allowed(gateway, key, len(raw))
            unless_relayed.push_async_callback(_give_back, allowance)
            on_finding = None if gateway.journal is None else findings.append
            guarding = gateway.guarding_prompt(body, policy, on_finding, chat.dialect)
            prompt = await in_turns(request.receive, len(raw), weight(policy, Direction.INPUT), guarding)
        except BadRequest as error:
            raise _bad_request(error) from None
        except ClientDisconnect:
            raise client_error(400, "The client left before its prompt was scanned.", "client_left") from None
        texts = (prompt.scanned,) if prompt.scanned is not None else ()
        journal = gateway.request_journal(request_id(request), key.name, route.model, policy.policy.name)
        try:
            if (refusal := _refusal(prompt)) is not None:
                raise refusal
            steering = await aside(
                len(raw),
                RequestRewriter,
                chat.dialect.path,
                {**body, "model": route.rename or chat.model},
                chat.stream,
                policy,
                [generation.config.upstreams[name] for name in route.upstreams],
                generation.masks,
                generation.vocabularies,
            )
        except HTTPFailure as failure:
            await _refuse_prompt(request, gateway, failure, texts, journal, findings, started)
        forward = Forward(
            request_id=request_id(request),
            path=path_of(request),
            chat=chat,
            steering=steering,
            headers={**request.headers, "x-request-id": request_id(request)},
            route=route,
            policy=policy,
            fleet=generation.fleet,
            timeouts=generation.config.upstreams[route.upstream].timeouts,
            key=key.name,
            allowance=allowance,
            started=started,
            scanned=texts,
            findings=tuple(findings),
            pseudonyms=prompt.pseudonyms,
            json_content=asks_for_json(body, policy.policy),
        )
        limits, span = generation.config.limits, request.state.span
        relay = Relay(forward, limits, gateway.record, gateway.leave, span, journal)
        unless_relayed.pop_all()
        return relay


async def _read_counted(request: Request, gateway: Gateway, key: ClientKey, limits: Limits) -> bytes:
    """The body. Raises `HTTPFailure`, also where the key has too many bodies that are still arriving."""
    if (refusal := gateway.unread.refusal(key, limits.max_streams)) is not None:
        gateway.record(Limited(key.name, refusal.kind))
        raise refusal
    with gateway.unread.one_more(key):
        return await _read_body(request, limits.max_body)


async def _give_back(allowance: Allowance) -> None:
    # It is done to its end, also if the server stops meanwhile.
    await asyncio.shield(in_background(allowance.give_back()))


def _routed(
    request: Request, generation: Generation, key: ClientKey, chat: ChatRequest, body: Json
) -> tuple[Route, CompiledPolicy]:
    """Where a request goes and under which policy; fields that the request table forbids leave the body.

    Raises `BadRequest` and `HTTPFailure`.
    """
    route = generation.router.match(chat.model, key)
    if route is None:
        raise unknown_model()
    policy = generation.policies[route.policy]
    request.state.policy, request.state.route = policy.policy.name, route.model
    apply_request_table(body, policy, chat.dialect)
    return route, policy


async def allowed(gateway: Gateway, key: ClientKey, body_bytes: int) -> Allowance:
    """Raises `HTTPFailure` where the key is at one of its limits."""
    allowance = await Allowance.ask(gateway.limiter, key, body_bytes)
    if allowance.refusal is not None:
        gateway.record(Limited(key.name, allowance.refusal.kind))
        raise allowance.refusal
    return allowance


def _bad_request(error: BadRequest) -> HTTPFailure:
    return client_error(400, str(error), error.code, error.param)


def _refusal(prompt: GuardedPrompt) -> HTTPFailure | None:
    """Why a prompt is not forwarded, if it is not."""
    if prompt.refusal is not None:
        return _bad_request(prompt.refusal)
    if prompt.rule is None:
        return None
    message = prompt.rule.message or f"The request is blocked by rule {prompt.rule.id!r}."
    return client_error(400, message, "content_filter", prompt.rule.id)


async def _refuse_prompt(
    request: Request,
    gateway: Gateway,
    refusal: HTTPFailure,
    texts: tuple[TextScanned, ...],
    journal: RequestJournal | None,
    findings: list[Finding],
    started: float,
) -> NoReturn:
    """Raises the `refusal` of a prompt that was scanned, when everything is said about it."""
    if journal is not None and not await journal.begin(findings):
        raise not_journalled()
    for text in texts:
        gateway.record(text)
    fact = finished(request, refusal.status, started, scanned=texts, error=refusal.kind)
    _record_refusal(request, gateway, fact)
    if journal is not None:
        journal.close(fact, ())
    request.state.recorded = True
    raise refusal


def _span_of(request: Request, gateway: Gateway) -> RequestSpan | None:
    if gateway.tracer is None:
        return None
    headers = request.headers
    return gateway.tracer.begin(
        path=path_of(request),
        traceparent=headers.get("traceparent"),
        tracestate=headers.get("tracestate"),
        request_id=request_id(request),
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


def _json_object(body: bytes) -> Json:
    try:
        received = json.decode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body is {error}.", "invalid_json") from None
    if not isinstance(received, dict):
        raise client_error(400, "The body must be a JSON object.", "invalid_json")
    return received
