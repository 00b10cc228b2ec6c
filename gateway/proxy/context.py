"""The data of one request: the context that admission passes on, and what the relay needs to answer it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from fastapi import Request
from fastapi.responses import Response
from msgspec import Struct
from msgspec.structs import replace as changed

from gateway.censor.compile import CompiledPolicy
from gateway.censor.protect import Conversation
from gateway.guard.prompt import ChatRequest, GuardedPrompt
from gateway.guard.pseudonyms import Pseudonyms
from gateway.observe.facts import Fact
from gateway.policy.combine import combined_name
from gateway.policy.model import ClientKey, Limits, Policy, Route, Timeouts
from gateway.proxy.accounting import RequestRecord
from gateway.proxy.asgi import ORIGIN_HEADERS
from gateway.proxy.errors import HTTPFailure, client_error
from gateway.proxy.head import POLICY_HEADER, head_of
from gateway.proxy.snapshot import ANONYMOUS, Snapshot
from gateway.proxy.state import AppState
from gateway.proxy.steering.request import RequestRewriter
from gateway.proxy.upstreams.balancer import LoadBalancer
from gateway.wire import json
from gateway.wire.chat import CHAT
from gateway.wire.dialect import Dialect
from gateway.wire.json import Json

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACE_CONTEXT = ("traceparent", "tracestate")
_RECORD = "portcullis.record"  # in an ASGI scope: the `RequestRecord`, also for answers that the framework gives
_UNDECODED: Json = {}  # it is replaced before anything is changed
_UNREAD = ChatRequest(model="", stream=False, choices=0)
_UNSCANNED = GuardedPrompt()
_SILENT = Conversation()
_UNROUTED = Route(model="none", upstream="none", policy="none")
_NO_POLICY = CompiledPolicy(Policy(name="none", rules=()), {})


class RequestContext(Struct, frozen=True):
    """A request in admission, whose steps replace the defaults below, each of them some; `record` is shared by all.

    `headers` are those of its `Head`. `raw` is the body as it came, `body` the same decoded, which the later steps
    change in place.
    """

    request: Request
    headers: Mapping[str, str]
    state: AppState
    snapshot: Snapshot
    record: RequestRecord
    dialect: Dialect = CHAT
    key: ClientKey = ANONYMOUS
    raw: bytes = b""
    body: Json = _UNDECODED
    chat: ChatRequest = _UNREAD
    route: Route = _UNROUTED
    policy: CompiledPolicy = _NO_POLICY
    prompt: GuardedPrompt = _UNSCANNED
    conversation: Conversation = _SILENT

    @classmethod
    def of(cls, request: Request, state: AppState, dialect: Dialect = CHAT, path: str | None = None) -> RequestContext:
        """Of a request that has arrived; its record is opened, for the `path` of its endpoint."""
        headers = head_of(request.scope).headers
        record = record_of(request, state.record, path, headers.get("x-request-id", ""))
        return cls(request, headers, state, state.current, record, dialect)

    def on_route(self, route: Route) -> RequestContext:
        """On a route, under its policy and the one that the request asks for. Raises `HTTPFailure`."""
        given = self.request.headers.getlist(POLICY_HEADER) if POLICY_HEADER in self.headers else []
        if given and given != [route.policy]:
            name, allowed = combined_name(route.policy, given[0]), self.key.policies
            if len(given) > 1 or name not in self.snapshot.policies or not (allowed is None or given[0] in allowed):
                message = f"`{POLICY_HEADER}` names no policy that this key may ask for here."
                raise client_error(400, message, "policy_not_allowed", POLICY_HEADER)
            route = replace(route, policy=name)
        self.record.policy, self.record.route = route.policy, route.model
        return changed(self, route=route, policy=self.snapshot.policies[route.policy])


class RoutedRequest(Struct, frozen=True):
    """A request that was read, routed and censored. Its body is in `rewriter` alone, since an answer may take long.

    `headers` are the client's, with lower-case names; `pseudonyms` are those of the prompt; `json_content`: the answers
    must be JSON; `annotates`: they say what the rules did.
    """

    chat: ChatRequest
    rewriter: RequestRewriter
    headers: Mapping[str, str]
    route: Route
    policy: CompiledPolicy
    fleet: LoadBalancer
    timeouts: Timeouts
    limits: Limits
    pseudonyms: Pseudonyms | None
    json_content: bool
    annotates: bool

    def headers_up(self, record: RequestRecord) -> Mapping[str, str]:
        """The client's headers, with this request's trace context; the span of the upstream call begins here."""
        if record.span is None:
            return self.headers
        # The client's own context was followed if it was sound; one that was not must not travel on beside ours.
        others = {name: text for name, text in self.headers.items() if name not in _TRACE_CONTEXT}
        return {**others, **record.span.headers()}


def _discard(fact: Fact) -> None:
    pass


def record_of(
    request: Request, emit: Callable[[Fact], None] = _discard, path: str | None = None, given: str | None = None
) -> RequestRecord:
    """The record of a request, which the first call opens. Its id is the client's own, `given` where it is known, if
    that is a plain one; `path` is that of its endpoint, where the framework has found none."""
    record: RequestRecord | None = request.scope.get(_RECORD)
    if record is None:
        given = request.headers.get("x-request-id", "") if given is None else given
        request_id = given if given and _REQUEST_ID.fullmatch(given) else f"req_{os.urandom(16).hex()}"
        # The path as the gateway spells it: metrics have no label of a client's making.
        route = request.scope.get("route")
        record = RequestRecord(request_id, path or ("other" if route is None else str(route.path)), emit)
        record.origin_headers = request.scope.get(ORIGIN_HEADERS, record.origin_headers)
        request.scope[_RECORD] = record
    return record


def json_response(record: RequestRecord, value: object, status: int = 200) -> Response:
    return Response(json.encode(value), status, record.headers, "application/json")


def failure_response(record: RequestRecord, failure: HTTPFailure, dialect: Dialect = CHAT) -> Response:
    body = json.encode(dialect.error_body(failure.body, failure.status))
    return Response(body, failure.status, {**record.headers, **failure.headers}, "application/json")


def refuse(request: Request, failure: HTTPFailure, emit: Callable[[Fact], None], dialect: Dialect = CHAT) -> Response:
    """The answer to a request that did not get as far as admission, or broke in it; it is recorded."""
    record = record_of(request, emit)
    record.error = failure.kind
    record.close(failure.status)
    return failure_response(record, failure, dialect)
