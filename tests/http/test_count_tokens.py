"""/v1/messages/count_tokens: the request is scanned like one for an answer, and only a number comes back."""

from __future__ import annotations

import pytest
from anthropic import AsyncAnthropic, NotFoundError

from tests.support.gateway import TIMEOUT, before
from tests.support.upstream import MODEL, Json, completion, plain, sending

PATH = "/v1/messages/count_tokens"
SPEAKS_MESSAGES = {"endpoints": frozenset({"messages"})}


def asking(text: str, **more: Json) -> Json:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


async def test_the_official_client_counts_a_scanned_request() -> None:
    async with before(sending(plain({"input_tokens": 14})), upstream=SPEAKS_MESSAGES) as (gateway, upstream):
        client = AsyncAnthropic(base_url=gateway.url, api_key="k", timeout=TIMEOUT, max_retries=0)
        counted = await client.messages.count_tokens(**asking("Voldemort?", system="by Voldemort"))
        assert counted.input_tokens == 14
        assert upstream.asked.request.target == PATH
        assert upstream.asked.body == asking("[NAME]?", system="by [NAME]")
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("answer", [{"input_tokens": 1, "note": "12MONKEYS"}, {"input_tokens": "12MONKEYS"}])
async def test_every_text_in_an_answer_is_scanned(answer: Json) -> None:
    async with before(sending(plain(answer)), upstream=SPEAKS_MESSAGES) as (gateway, _):
        got = await gateway.client.post(PATH, json=asking("hello"))
        assert got.status_code == 200 and "MONKEYS" not in got.text and "choices" not in got.json()


async def test_an_upstream_that_cannot_count() -> None:
    async with before(sending(plain(completion("no number")))) as (gateway, upstream):
        client = AsyncAnthropic(base_url=gateway.url, api_key="k", timeout=TIMEOUT, max_retries=0)
        with pytest.raises(NotFoundError, match="serves /v1/messages/count_tokens"):
            await client.messages.count_tokens(**asking("hello"))
        assert not upstream.calls
