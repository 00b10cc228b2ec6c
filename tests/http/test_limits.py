"""Limits of client keys: what is refused and how, what an answer costs, and that a place is free when it should be."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable

import httpx2
import pytest

from gateway.policy.model import ClientKey, Direction, Rule
from tests.support.gateway import RULES, TIMEOUT, RunningGateway, before, error_of, question
from tests.support.upstream import (
    DONE,
    END,
    MODEL,
    Call,
    Play,
    chunk,
    completion,
    delta,
    event,
    events,
    plain,
    sending,
    sending_then_closing,
    sending_then_hanging,
    stream,
    stream_head,
)

KEY = "sk-limited"
OK = sending(plain(completion("ok")))
RATE_LIMITS = ("x-ratelimit-limit-", "x-ratelimit-remaining-", "x-ratelimit-reset-")


def limited(**limits: int) -> tuple[ClientKey]:
    return (ClientKey.of(KEY, "team", **limits),)


def as_client(gateway: RunningGateway, key: str = KEY) -> RunningGateway:
    """The gateway, asked with `key` from now on."""
    gateway.client.headers["authorization"] = f"Bearer {key}"
    return gateway


def refusal(response: httpx2.Response, kind: str) -> str:
    """The message of a 429, after all of its shape was looked at."""
    error = error_of(response, 429)
    assert error["code"] == "rate_limit_exceeded"
    assert error["type"] == kind
    assert error["param"] is None
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["x-portcullis-policy"] == "default"
    message: str = error["message"]
    return message


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_requests_a_minute(streamed: bool) -> None:
    async with before(OK, keys=limited(rpm=3)) as (gateway, upstream):
        as_client(gateway)
        for left in (2, 1, 0):
            answer = await gateway.ask(stream=streamed)
            assert answer.status_code == 200
            assert answer.headers["x-ratelimit-limit-requests"] == "3"
            assert int(answer.headers["x-ratelimit-remaining-requests"]) == left
            assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
            assert "x-ratelimit-limit-tokens" not in answer.headers
            assert "retry-after" not in answer.headers
        refused = await gateway.ask(stream=streamed)
        assert "3 requests a minute" in refusal(refused, "requests")
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert int(refused.headers["retry-after"]) <= 20
        assert len(upstream.calls) == 3


async def test_a_refusal_is_counted_and_logged() -> None:
    async with before(OK, keys=limited(rpm=1)) as (gateway, _):
        as_client(gateway)
        await gateway.ask()
        refusal(await gateway.ask(), "requests")
        line = (await gateway.logged(2))[1]
        assert (line["status"], line["key"], line["error"], line["outcome"]) == (429, "team", "requests", "failed")
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_limited_total", key="team", reason="requests") == 1
        assert metrics.value("portcullis_key_requests_total", key="team", status="429") == 1
        assert metrics.value("portcullis_requests_total", status="429", route="*", policy="default") == 1
        assert metrics.value("portcullis_streams_active") == 0


async def test_tokens_a_minute() -> None:
    answer = {**completion("ok"), "usage": {"prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100}}
    async with before(sending(plain(answer)), keys=limited(tpm=90)) as (gateway, upstream):
        as_client(gateway)
        first = await gateway.ask()
        assert first.headers["x-ratelimit-limit-tokens"] == "90"
        assert int(first.headers["x-ratelimit-remaining-tokens"]) == 90 - len(first.request.content) // 4
        assert "x-ratelimit-limit-requests" not in first.headers
        # The answer took more than was left, so the key is in debt.
        refused = await gateway.ask()
        assert "90 tokens a minute" in refusal(refused, "tokens")
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        assert "x-should-retry" not in refused.headers
        assert len(upstream.calls) == 1


async def test_a_request_that_is_larger_than_a_minutes_tokens() -> None:
    async with before(OK, keys=limited(tpm=50)) as (gateway, upstream):
        as_client(gateway)
        refused = await gateway.ask("long " * 100)
        refusal(refused, "tokens")
        assert refused.headers["x-should-retry"] == "false"
        # It cost nothing.
        assert (await gateway.ask()).status_code == 200
        assert len(upstream.calls) == 1


async def test_requests_at_the_same_time() -> None:
    go_on = asyncio.Event()

    async def play(call: Call) -> None:
        await call.send(stream_head(), chunk(event(delta("Hi"))))
        await go_on.wait()
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)

    async with before(play, keys=limited(max_streams=2)) as (gateway, upstream):
        as_client(gateway)
        running = [asyncio.create_task(gateway.stream()) for _ in range(2)]
        while len(upstream.calls) < 2:
            await asyncio.sleep(0.002)
        for streamed in (True, False):
            assert "2 requests at the same time" in refusal(await gateway.ask(stream=streamed), "streams")
        go_on.set()
        assert [(await answer).content() for answer in running] == ["Hi", "Hi"]
        assert (await gateway.stream()).done
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_limited_total", key="team", reason="streams") == 2


async def test_keys_do_not_use_each_others_limits() -> None:
    keys = (ClientKey.of("sk-a", "a", rpm=1), ClientKey.of("sk-b", "b", rpm=1), ClientKey.of("sk-c", "c"))
    async with before(OK, keys=keys) as (gateway, _):
        for key, statuses in (("sk-a", [200, 429]), ("sk-b", [200, 429]), ("sk-c", [200] * 5), ("sk-a", [429])):
            as_client(gateway, key)
            assert [(await gateway.ask()).status_code for _ in statuses] == statuses


async def test_what_is_not_forwarded_for_another_reason_costs_nothing() -> None:
    async with before(OK, keys=limited(rpm=1, max_streams=1)) as (gateway, _):
        error_of(await as_client(gateway, "sk-wrong").ask(), 401)
        as_client(gateway)
        error_of(await gateway.post({"model": MODEL}), 400)
        error_of(await gateway.ask(stream="yes"), 400)
        error_of(await gateway.ask(logit_bias={"1": 1}, vllm_xargs={"a": 1}), 400)
        assert (await gateway.ask()).status_code == 200
        refusal(await gateway.ask(), "requests")


# -- the upstream's own limits -----------------------------------------------------------------------------------------

THEIRS = ("X-RateLimit-Limit-Requests: 98765", "X-RateLimit-Remaining-Tokens: 98765", "X-RateLimit-Other: 98765")
ANSWERS = {
    "plain": (False, plain(completion("ok"), 200, *THEIRS)),
    "stream": (True, stream_head(*THEIRS) + chunk(events("ok")) + END),
    "error": (False, plain({"error": {"message": "slow down"}}, 429, *THEIRS, "Retry-After: 7")),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_a_limited_client_sees_its_own_limits_and_not_the_upstreams(case: str) -> None:
    streamed, answer = ANSWERS[case]
    keys = (*limited(rpm=60), ClientKey.of("sk-free", "free"))
    async with before(sending(answer), keys=keys) as (gateway, _):
        own = await as_client(gateway).ask(stream=streamed)
        assert "98765" not in str(own.headers)
        shown = {name for name in own.headers if name.startswith("x-ratelimit-")}
        assert shown == {f"{beginning}requests" for beginning in RATE_LIMITS}
        free = await as_client(gateway, "sk-free").ask(stream=streamed)
        assert free.headers.get_list("x-ratelimit-limit-requests") == ["98765"]
        assert free.headers["x-ratelimit-other"] == "98765"
        if case == "error":
            assert own.headers["retry-after"] == free.headers["retry-after"] == "7"


# -- what an answer costs ----------------------------------------------------------------------------------------------

TPM = 6000
USAGE = {"prompt_tokens": 1000, "completion_tokens": 2000, "total_tokens": 3000}
COUNTED = event({**delta(), "choices": [], "usage": USAGE})
TEXT = "what the answer says " * 100
CENSORED = "12MONKEYS " * 100
NO_USAGE = {name: value for name, value in completion(TEXT).items() if name != "usage"}
ANSWER_RULES = tuple(rule for rule in RULES if Direction.INPUT not in rule.apply_to)


async def assert_costs(
    gateway: RunningGateway, answer: Awaitable[httpx2.Response], tokens: int, roughly: int = 1
) -> None:
    """After the answer the key has `tokens` fewer than a minute's, give or take what was refilled meanwhile."""
    began = time.monotonic()
    asked = await answer
    probe = await gateway.ask()
    refilled = (time.monotonic() - began) * TPM / 60
    left = int(probe.headers["x-ratelimit-remaining-tokens"]) + len(probe.request.content) // 4
    assert asked.status_code != 429
    assert TPM - tokens - roughly <= left <= TPM - tokens + refilled + roughly


COUNTED_BY_THE_UPSTREAM: dict[str, tuple[bool, bytes]] = {
    "plain": (False, plain({**completion(TEXT), "usage": USAGE})),
    "stream": (True, stream_head() + chunk(events(TEXT).removesuffix(DONE) + COUNTED + DONE) + END),
    "stream, in the last chunk": (
        True,
        stream_head() + chunk(event(delta(TEXT)) + event({**delta(finish="stop"), "usage": USAGE}) + DONE) + END,
    ),
    "a stream to a plain request": (
        False,
        stream_head() + chunk(events(TEXT).removesuffix(DONE) + COUNTED + DONE) + END,
    ),
    "censored": (False, plain({**completion(CENSORED), "usage": USAGE})),
}


@pytest.mark.parametrize("case", COUNTED_BY_THE_UPSTREAM)
async def test_tokens_are_those_that_the_upstream_counted(case: str) -> None:
    streamed, answer = COUNTED_BY_THE_UPSTREAM[case]
    async with before(sending(answer), keys=limited(tpm=TPM)) as (gateway, _):
        await assert_costs(as_client(gateway), gateway.ask(stream=streamed), 3000)


ESTIMATED: dict[str, tuple[bool, bytes]] = {
    "plain": (False, plain(NO_USAGE)),
    "stream": (True, stream(TEXT)),
    "odd usage": (False, plain({**NO_USAGE, "usage": {"prompt_tokens": "9", "completion_tokens": -1}})),
}
RULES_FOR = [
    pytest.param(ANSWER_RULES, id="answers"),
    pytest.param(RULES, id="prompts too"),
]
LABELS = 25  # tokens; names and ids in an answer are scanned, too


@pytest.mark.parametrize("rules", RULES_FOR)
@pytest.mark.parametrize("case", ESTIMATED)
async def test_tokens_that_nobody_counted_are_estimated(case: str, rules: tuple[Rule, ...]) -> None:
    streamed, answer = ESTIMATED[case]
    said = "a long question " * 200
    body = json.dumps(question(said, stream=streamed), separators=(",", ":"))
    async with before(sending(answer), keys=limited(tpm=TPM), rules=rules) as (gateway, _):
        estimate = len(body) // 4 + len(TEXT) // 4
        await assert_costs(as_client(gateway), gateway.ask(said, stream=streamed), estimate, LABELS)


async def test_a_blocked_prompt_gives_its_tokens_back() -> None:
    async with before(OK, keys=limited(tpm=TPM, rpm=10)) as (gateway, upstream):
        await assert_costs(as_client(gateway), gateway.ask("detonator " * 500), 0)
        assert len(upstream.calls) == 1
        # The request itself counts.
        assert int((await gateway.ask()).headers["x-ratelimit-remaining-requests"]) <= 8


# -- one after the other -----------------------------------------------------------------------------------------------

CUT = stream_head() + chunk(event(delta("Hello 12MON")))
IN_TURN: dict[str, tuple[bool, Play, int]] = {
    "stream": (True, sending(stream("Hello ", "12MON", "KEYS")), 200),
    "plain": (False, OK, 200),
    "blocked stream": (True, sending_then_hanging(stream_head(), chunk(event(delta("a FORBIDDEN word")))), 200),
    "blocked plain": (False, sending(plain(completion("a FORBIDDEN word"))), 200),
    "error": (False, sending(plain({"error": {"message": "no"}}, 500)), 500),
    "error to a stream": (True, sending(plain({"error": {"message": "no"}}, 500)), 500),
    "our own credentials refused": (False, sending(plain({}, 401)), 502),
    "cut stream": (True, sending_then_closing(CUT), 200),
    "cut plain": (False, sending_then_closing(plain(completion("ok"))[:-5]), 502),
    "no answer": (True, sending_then_closing(), 502),
    "error event": (True, sending(stream_head(), chunk(event({"error": {"message": "no"}})), END), 200),
    "JSON to a stream": (True, sending(plain(completion("ok"))), 200),
}


@pytest.mark.parametrize("case", IN_TURN)
async def test_a_client_that_asks_in_turn_always_has_its_one_place(case: str) -> None:
    streamed, play, status = IN_TURN[case]
    async with before(play, keys=limited(max_streams=1)) as (gateway, upstream):
        as_client(gateway)
        for _ in range(20):
            assert (await gateway.ask(stream=streamed)).status_code == status
        assert len(upstream.calls) == 20


@pytest.mark.parametrize("said", ["detonator", "\ud800 detonator"])
async def test_blocked_prompts_in_turn(said: str) -> None:
    async with before(OK, keys=limited(max_streams=1)) as (gateway, _):
        as_client(gateway)
        for _ in range(20):
            body = json.dumps(question(said)).encode()
            answer = await gateway.client.post("/v1/chat/completions", content=body)
            assert error_of(answer, 400)["code"] == "content_filter"


LEFT: dict[str, tuple[bool, Play, bytes]] = {
    "stream, before the head": (True, sending_then_hanging(), b""),
    "stream, within": (True, sending_then_hanging(CUT), b"Hello"),
    "plain": (False, sending_then_hanging(plain(completion("x" * 999))[:300]), b""),
}


@pytest.mark.parametrize("case", LEFT)
async def test_a_client_that_left_has_its_place_back(case: str) -> None:
    streamed, play, seen = LEFT[case]
    async with before(play, keys=limited(max_streams=1)) as (gateway, upstream):
        for number in range(1, 6):
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
            body = json.dumps(question(stream=streamed)).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while len(upstream.calls) < number:
                assert len(gateway.log.getvalue().splitlines()) < number, "it was refused"
                await asyncio.sleep(0.002)
            if seen:
                await asyncio.wait_for(reader.readuntil(seen), TIMEOUT)
            writer.transport.abort()
            lines = await asyncio.wait_for(gateway.logged(number), TIMEOUT)
            assert lines[-1]["error"] == "client left"
