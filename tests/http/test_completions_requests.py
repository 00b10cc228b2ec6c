"""Requests to /v1/completions: what the upstream sees of them, what is refused, and keys and limits."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from gateway.policy.model import ClientKey, Limits, Mode, Route
from gateway.proxy import admission
from tests.support.completions import (
    PATH,
    ask,
    asking,
    completed,
    post,
)
from tests.support.gateway import TIMEOUT, before, error_of
from tests.support.upstream import (
    MODEL,
    Json,
    plain,
    sending,
)

ANSWER = sending(plain(completed("fine")))
PROMPTS: dict[str, tuple[Json, Json]] = {
    "untouched": (asking("hi 12MONKEYS FORBIDDEN"), asking("hi 12MONKEYS FORBIDDEN")),
    "a text": (asking("is it VOLDEMORT?"), asking("is it [NAME]?")),
    "texts": (asking(["Voldemort", "Volde", "mort"]), asking(["[NAME]", "Volde", "mort"])),
    "none": ({"model": MODEL}, {"model": MODEL}),
    "a suffix": (asking("a", suffix="Voldemort"), asking("a", suffix="[NAME]")),
    "other fields": (
        asking("a", user="Voldemort", stop=["Voldemort"], Voldemort={"x": "Voldemort"}),
        {**asking("a", user="[NAME]", stop=["[NAME]"]), "[NAME]": {"x": "[NAME]"}},
    ),
    "dropped": (asking("a", return_token_ids=True, prompt_logprobs=1, kv_transfer_params={"x": 1}), asking("a")),
}


@pytest.mark.parametrize("case", PROMPTS)
async def test_what_the_upstream_sees(case: str) -> None:
    given, seen = PROMPTS[case]
    async with before(ANSWER) as (gateway, upstream):
        assert (await post(gateway, given)).status_code == 200
        assert upstream.asked.body == seen
        (await gateway.metrics()).assert_covered()


REFUSED: dict[str, tuple[Json, str | None]] = {
    "token ids": (asking([1, 2, 3]), "prompt"),
    "lists of token ids": (asking([[1, 2], [3]]), "prompt"),
    "vectors": (asking("a", prompt_embeds="gASV"), "prompt_embeds"),
    "no prompt at all": (asking([]), "prompt"),
    "texts and ids": (asking(["a", 1]), "prompt"),
    "too many prompts": (asking(["a"] * 129), "prompt"),
    "too many answers": (asking(["a"] * 65, n=2), "prompt"),
    "another spelling": (asking("a", Prompt="b"), "prompt"),
    "vllm_xargs": (asking("a", vllm_xargs={"a": 1}), "vllm_xargs"),
    "n": (asking("a", n=0), "n"),
    "stream": (asking("a", stream="yes"), "stream"),
    "no model": ({"prompt": "a"}, "model"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused(case: str) -> None:
    body, param = REFUSED[case]
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await post(gateway, body), 400)
        assert (error["param"], error["code"]) == (param, None) and f"`{param}`" in error["message"]
        assert upstream.calls == []
        assert (await gateway.metrics()).value("portcullis_requests_total", path=PATH, status="400") == 1


async def test_token_ids_pass_where_nothing_is_enforced() -> None:
    def table(policy: str) -> tuple[Route, ...]:
        return (Route(model="*", upstream="played", policy=policy),)

    for settings in ({"routes": table("open")}, {"mode": Mode.OBSERVE}):
        async with before(ANSWER, **settings) as (gateway, upstream):
            assert (await ask(gateway, [1, 2])).status_code == 200
            assert (await ask(gateway, [[1], [2, 3]], n=2)).status_code == 200
            assert [call.body["prompt"] for call in upstream.calls] == [[1, 2], [[1], [2, 3]]]


@pytest.mark.parametrize(
    "body", [asking("a detonator"), asking(["a", "deto\u200bnator"]), asking("a", suffix="detonator")]
)
async def test_a_blocked_prompt_is_400_with_the_rules_id(body: Json) -> None:
    async with before(ANSWER) as (gateway, upstream):
        for streams in (False, True):
            response = await post(gateway, body | {"stream": streams})
            error = error_of(response, 400)
            assert (error["code"], error["param"]) == ("content_filter", "prompt-stop")
            assert "detonator" not in response.text
        assert upstream.calls == []
        assert [line["outcome"] for line in await gateway.logged(2)] == ["blocked", "blocked"]
        assert (await gateway.metrics()).value("portcullis_matches_total", rule="prompt-stop", action="block") == 2


async def test_keys_and_limits_are_chats() -> None:
    key = ClientKey.of("sk-limited", "team", rpm=2)
    async with before(ANSWER, keys=(key,)) as (gateway, upstream):
        assert error_of(await ask(gateway), 401)["code"] == "invalid_api_key"
        headers = {"authorization": "Bearer sk-limited"}
        answer = await post(gateway, asking(), headers)
        assert answer.status_code == 200 and answer.headers["x-ratelimit-remaining-requests"] == "1"
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        assert (await gateway.post(chat, headers)).status_code == 200
        assert error_of(await post(gateway, asking(), headers), 429)["code"] == "rate_limit_exceeded"
        assert [call.request.target for call in upstream.calls] == [PATH, "/v1/chat/completions"]


BAD_BODIES = [b"", b"{", b"[]", b'"hello"', b'{"model": "gpt-test", "prompt": NaN}']


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_a_body_that_is_no_request(body: bytes) -> None:
    async with before(ANSWER) as (gateway, _):
        error_of(await gateway.client.post(PATH, content=body), 400)


async def test_a_body_too_large_or_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    async with before(ANSWER, limits=Limits(max_body=1000)) as (gateway, _):
        assert error_of(await ask(gateway, "x" * 2000), 413)["code"] == "request_too_large"
    monkeypatch.setattr(admission, "BODY_TIMEOUT", 0.1)
    async with before(ANSWER) as (gateway, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in await asyncio.wait_for(reader.readline(), TIMEOUT)
        writer.close()


async def test_another_method_is_405_and_a_path_below_404() -> None:
    async with before(ANSWER) as (gateway, upstream):
        response = await gateway.client.get(PATH)
        assert error_of(response, 405)["code"] == "method_not_allowed" and response.headers["allow"] == "POST"
        assert error_of(await gateway.client.post(f"{PATH}/x", json=asking()), 404)["code"] == "unknown_url"
        assert upstream.calls == []
