"""Answers in JSON from request to client, at both endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.policy.model import Constrain, Language, Rule
from tests.support.completions import ask as ask_for_text
from tests.support.completions import completed, streamed
from tests.support.completions import stream as stream_text
from tests.support.gateway import before
from tests.support.upstream import completion, plain, sending, stream

RULES = (Rule(id="secret", words=("secretword",)), Rule(id="card", detector="credit_card"))
TEXT = r'{"note": "the \u0073ecretword", "card": 4111111111111111}'
SHOWN = {"note": "the [REDACTED]", "card": "[REDACTED]"}
ASKED = {"response_format": {"type": "json_object"}}


async def test_e5_chat_answers_in_json() -> None:
    async with before(sending(stream(*TEXT)), rules=RULES) as (gateway, _):
        answer = await gateway.stream(**ASKED)
        assert answer.done and json.loads(answer.content()) == SHOWN
        shown = (await gateway.stream()).content()
        assert shown == '{"note": "the [REDACTED]", "card": [REDACTED]}', "it was not asked for as JSON"
        (await gateway.metrics()).assert_covered()
    async with before(sending(plain(completion(TEXT))), rules=RULES) as (gateway, _):
        choice = (await gateway.ask(**ASKED)).json()["choices"][0]
        assert json.loads(choice["message"]["content"]) == SHOWN


async def test_e5_completions_in_json() -> None:
    async with before(sending(streamed(*TEXT)), rules=RULES) as (gateway, _):
        answer = await stream_text(gateway, guided_json={"type": "object"})
        assert answer.done and json.loads(answer.text()) == SHOWN
    async with before(sending(plain(completed(TEXT, TEXT))), rules=RULES) as (gateway, _):
        body = (await ask_for_text(gateway, n=2, structured_outputs={"json": {}})).json()
        assert [json.loads(choice["text"]) for choice in body["choices"]] == [SHOWN, SHOWN]


@pytest.mark.parametrize("conflict", [{}, {"response_format": {"type": "text"}}])
async def test_e5_a_policys_own_json(conflict: dict[str, Any]) -> None:
    constrain = Constrain(language=Language.JSON_SCHEMA, texts=('{"type": "object"}',))
    async with before(sending(stream(*TEXT)), rules=RULES, constrain=constrain) as (gateway, _):
        answer = await gateway.stream(**conflict)
        assert answer.finish() == "stop" and json.loads(answer.content()) == SHOWN
