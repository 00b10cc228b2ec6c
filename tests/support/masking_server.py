"""What a canary sees of a vLLM: tokens, masks that are there, are others, or are ignored, and nothing else of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.decode.maskfile import DIGEST, NOT_FIRST, POLICY, BannedPolicy, MaskRequest, MaskRequestError, select
from tests.support.upstream import Call, Json, http, plain

TOKENS = [1, 11, 12, 12]  # of every prompt
PAIR = (11, 12)

Reply = Callable[[Json], bytes]


@dataclass
class Masking:
    """Plays a server that has `policies` and follows them, unless there is a `reply` for it. With a `hold` it answers
    once that is set."""

    policies: dict[str, BannedPolicy] = field(default_factory=dict)
    reply: Reply | None = None
    hold: asyncio.Event | None = None

    async def play(self, call: Call) -> None:
        assert call.request.target.endswith("/v1/completions")
        if self.hold is not None:
            await self.hold.wait()
        await call.send((self.reply or self.follow)(call.body))

    def follow(self, body: Json) -> bytes:
        """One of the tokens that are allowed and not forbidden; 400 as the plugin has it."""
        try:
            request = self.request(body)
        except MaskRequestError as error:
            return refusing(str(error))
        banned = () if request is None else request.not_first
        return choosing(next(token for token in body.get("allowed_token_ids", TOKENS) if token not in banned))

    def request(self, body: Json) -> MaskRequest | None:
        """The mask that is asked for. Raises MaskRequestError if it is not here."""
        request = MaskRequest.of(body.get("vllm_xargs"))
        if request is not None:
            select(self.policies, request)
        return request


def ignoring(body: Json) -> bytes:
    """As a server without the plugin."""
    return choosing(body.get("allowed_token_ids", TOKENS)[0])


def choosing(token: int) -> bytes:
    choice = {"index": 0, "text": "x", "token_ids": [token], "prompt_token_ids": TOKENS, "finish_reason": "length"}
    return plain({"object": "text_completion", "choices": [choice]})


def refusing(message: str) -> bytes:
    return plain({"error": {"message": message, "type": "BadRequestError", "code": 400}}, 400)


def only_with_masks(answer: bytes) -> Reply:
    """`answer` to whoever asks for a mask; the others are told the tokens."""
    return lambda body: answer if "vllm_xargs" in body else choosing(TOKENS[0])


def garbage(data: bytes = b"{") -> bytes:
    return http(200, data)


def asked(call: Call) -> tuple[Any, ...]:
    """A canary's question in short: the tokens allowed, the policy, the token that must not come first."""
    arguments = call.body.get("vllm_xargs", {})
    assert arguments.keys() <= {POLICY, DIGEST, NOT_FIRST}
    return call.body.get("allowed_token_ids"), arguments.get(POLICY), arguments.get(NOT_FIRST)
