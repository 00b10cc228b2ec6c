"""A request between the endpoint that read it and the relay that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.censor.compile import CompiledPolicy
from gateway.guard.channels import Finding
from gateway.guard.prompt import ChatRequest
from gateway.guard.pseudonyms import Pseudonyms
from gateway.observe.facts import TextScanned
from gateway.policy.model import Route, Timeouts
from gateway.proxy.allowance import Allowance
from gateway.proxy.steering.request import RequestRewriter
from gateway.proxy.upstreams.balancer import LoadBalancer


@dataclass(frozen=True, slots=True)
class Forward:
    """A request that was read, routed and censored, ready to go. `headers` are the client's, lower-case names.

    `started` is a time of `perf_counter`; `scanned`, `findings` and `pseudonyms` are about the prompt.
    `json_content`: the answers are to be JSON.
    """

    request_id: str
    path: str
    chat: ChatRequest
    steering: RequestRewriter
    headers: Mapping[str, str]
    route: Route
    policy: CompiledPolicy
    fleet: LoadBalancer
    timeouts: Timeouts
    key: str
    allowance: Allowance
    started: float
    scanned: tuple[TextScanned, ...] = ()
    findings: tuple[Finding, ...] = ()
    pseudonyms: Pseudonyms | None = None
    json_content: bool = False
