"""A client key at its limit, as the official Python SDK sees it."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from gateway.policy.model import ClientKey
from tests.support.gateway import TIMEOUT, before
from tests.support.upstream import MODEL, completion, plain, sending

pytestmark = pytest.mark.clients

KEY = "sk-limited"


def ask(client: OpenAI) -> ChatCompletion:
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])


async def test_a_limit_is_a_rate_limit_error() -> None:
    key = ClientKey.of(KEY, "team", rpm=1)
    async with before(sending(plain(completion("ok"))), keys=(key,)) as (gateway, _):
        client = OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0, timeout=TIMEOUT)
        assert (await asyncio.to_thread(ask, client)).choices[0].message.content == "ok"
        with pytest.raises(openai.RateLimitError) as raised:
            await asyncio.to_thread(ask, client)
    error = raised.value
    assert (error.status_code, error.code, error.type) == (429, "rate_limit_exceeded", "requests")
    assert "1 requests a minute" in error.message
    assert int(error.response.headers["retry-after"]) >= 1
    assert error.response.headers["x-ratelimit-limit-requests"] == "1"
