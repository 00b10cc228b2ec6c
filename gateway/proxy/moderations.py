"""`/v1/moderations`: our own rules as a check, without an upstream."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from fastapi.responses import Response
from msgspec.structs import replace as changed

from gateway.guard.moderation import Moderated, moderating
from gateway.guard.prompt import ChatRequest
from gateway.policy.model import Direction
from gateway.proxy import admission
from gateway.proxy.accounting import not_journalled
from gateway.proxy.asgi import offload, scan_cost
from gateway.proxy.context import RequestContext, json_response
from gateway.proxy.errors import client_error
from gateway.proxy.state import AppState
from gateway.wire import moderations
from gateway.wire.dialect import BadRequest
from gateway.wire.json import Json
from gateway.wire.moderations import MAX_CATEGORIES, ModerationInput


async def moderate(request: Request, state: AppState) -> Response:
    """The verdict of the rules of one policy, or the refusal; either is recorded."""
    return await admission.answered(RequestContext.of(request, state), STEPS, _answer)


async def _parse_body(context: RequestContext) -> RequestContext:
    body = await offload(len(context.raw), admission.json_object, context.raw)
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise client_error(400, "`model` must be a string.", None, "model")
    return changed(context, body=body, chat=ChatRequest(model or "", stream=False, choices=0))


async def _route(context: RequestContext) -> RequestContext:
    """The policy is that of the model's route, or of the first route there is for the key."""
    router, model = context.snapshot.router, context.chat.model
    route = router.match(model, context.key) if model else router.first(context.key)
    if route is None:
        raise admission.unknown_model()
    return context.on_route(route)


async def _reserve_quota(context: RequestContext) -> RequestContext:
    """It costs no tokens."""
    return await admission.reserve_quota(changed(context, key=replace(context.key, tpm=None)))


STEPS: tuple[admission.Step, ...] = (
    admission.authenticate,
    admission.acquire_slot,
    admission.read_body,
    _parse_body,
    _route,
    _reserve_quota,
)


async def _answer(context: RequestContext) -> Response:
    record, rules = context.record, [rule.id for rule in context.policy.policy.rules]
    try:
        inputs = moderations.read_input(context.body)
    except BadRequest as error:
        raise client_error(400, str(error), error.code, error.param) from None
    if len(inputs) * len(rules) > MAX_CATEGORIES:
        message = f"The texts of `input` times the {len(rules)} rules are more than {MAX_CATEGORIES} categories."
        raise client_error(400, message, None, "input")
    moderated = await _scan(context, inputs)
    record.scanned += moderated.scanned
    record.journal, record.journal_required = context.state.journal, context.state.journal_required
    if not await record.begin_journal():
        record.scanned, record.journal = [], None
        raise not_journalled()
    await record.correct_quota(0)
    shown: Json = await offload(
        len(inputs) * len(rules),
        moderations.answer,
        f"modr-{record.request_id}",
        record.policy,
        rules,
        inputs,
        moderated.found,
    )
    response = json_response(record, shown)
    if record.quota is not None:
        response.headers.update(record.quota.headers)
    record.close(200)
    return response


async def _scan(context: RequestContext, inputs: list[ModerationInput]) -> Moderated:
    policy, record = context.policy, context.record
    record.on_finding = None if context.state.journal is None else record.findings.append
    steps = moderating([each.texts for each in inputs], policy, record.on_finding)
    cost = max(scan_cost(policy, direction) for direction in Direction)
    return await admission.run_scan(context, len(context.raw), cost, steps)
