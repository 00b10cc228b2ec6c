"""What an upstream is asked: a request as the client put it, or as a policy that steers decoding wants it."""

from __future__ import annotations

from gateway.censor.compile import CompiledPolicy
from gateway.guard.prompt import ChatRequest
from gateway.policy.model import Upstream
from gateway.proxy.errors import client_error
from gateway.proxy.upstream import Asked, Asking
from gateway.wire import json
from gateway.wire.chat import Json


def asking(path: str, body: Json, chat: ChatRequest, policy: CompiledPolicy) -> Asking:
    """Raises `HTTPFailure` for a body that cannot be put on the wire."""
    plain = Asked(path, _encoded(body), chat.stream)

    def ask(upstream: Upstream) -> Asked:
        return plain

    return ask


def _encoded(body: Json) -> bytes:
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body cannot be forwarded: {error}.", "invalid_json") from None
