"""Rollback through the gateway in front of a real vLLM."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from gateway.policy.model import Action, Config, Decode, Exhausted, Policy, Route, Rule, Timeouts, Upstream
from tests.support.gateway import RunningGateway, Streamed, running
from tests.support.vllm_server import MODEL, NAME, TIMEOUT, Server
from tests.vllm.conftest import NUMBERS

pytestmark = pytest.mark.vllm

QUESTION = "What is the password?"
PASSWORD = Rule(id="password", words=("12MONKEYS",), action=Action.ROLLBACK, secret=True)
COUNT = " ".join(NUMBERS)
PATIENT = Timeouts(connect=TIMEOUT, first_byte=TIMEOUT, idle=TIMEOUT, total=TIMEOUT)


@asynccontextmanager
async def before(server: Server, policies: Mapping[str, tuple[Rule, ...]]) -> AsyncIterator[RunningGateway]:
    """A gateway in which the model's name chooses the policy."""
    config = Config(
        upstreams={
            "local": Upstream(
                name="local", type="vllm", base_url=f"{server.url}/v1", tokenizer=str(MODEL), timeouts=PATIENT
            )
        },
        routes=tuple(Route(model=name, upstream="local", policy=name, rename=NAME) for name in policies),
        policies={name: Policy(name=name, rules=rules) for name, rules in policies.items()},
    )
    async with running(config) as gateway:
        gateway.client.timeout = httpx2.Timeout(TIMEOUT)
        yield gateway


def body(policy: str, said: str = QUESTION, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": said}
    return {"model": policy, "messages": [message], "temperature": 0, "max_tokens": 60, **more}


def choice_of(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_password_is_not_said(server: Server, stream: bool) -> None:
    async with before(server, {"secret-back": (PASSWORD,)}) as gateway:
        options = {"stream_options": {"include_usage": True}} if stream else {}
        answer = await gateway.post(body("secret-back", stream=stream, **options))
        metrics = await gateway.metrics()
    if stream:
        streamed = Streamed(answer)
        text, usage, reason = streamed.content(), streamed.chunks[-1]["usage"], streamed.finish()
        assert streamed.done
    else:
        text, usage, reason = choice_of(answer)["message"]["content"], answer.json()["usage"], "stop"
    assert text.startswith('The password is "')
    assert "12MONKEYS" not in text.upper()
    assert "REDACTED" not in text
    assert reason == "stop"
    assert usage["portcullis"]["rollbacks"] >= 1
    assert usage["prompt_tokens"] == len(server.tokens(QUESTION))
    assert usage["completion_tokens"] <= 60
    assert metrics.value("portcullis_rollbacks_total", outcome="banned") >= 1
    metrics.assert_covered()


async def test_an_answer_without_the_word_is_the_one_without_a_gateway(server: Server) -> None:
    async with before(server, {"p": (PASSWORD,)}) as gateway:
        for question in ("Tell me a story.", "Say something in many languages.", "Write some code."):
            direct = server.chat(question)
            choice = choice_of(await gateway.post(body("p", question)))
            assert (choice["message"]["content"], choice["finish_reason"]) == (
                direct["message"]["content"],
                direct["finish_reason"],
            )
            streamed = Streamed(await gateway.post(body("p", question, stream=True)))
            assert streamed.content() == direct["message"]["content"]


async def test_at_random(server: Server) -> None:
    """Many answers, drawn: none says what it must not, and none is stopped for it."""
    rules = (
        Rule(id="numbers", words=("three", "seven"), action=Action.ROLLBACK, exhausted=Exhausted.BLOCK),
        Rule(id="doubled", pattern=r"(?i)\bn\w+ t\w+", action=Action.ROLLBACK, exhausted=Exhausted.BLOCK),
    )
    async with before(server, {"p": rules}) as gateway:
        bodies = [body("p", "Count to ten.", temperature=1, seed=seed) for seed in range(48)]
        answers = await asyncio.gather(*map(gateway.post, bodies))
        metrics = await gateway.metrics()
    texts = [choice_of(answer)["message"]["content"] for answer in answers]
    assert not [text for text in texts if re.search(r"(?i)three|seven|\bn\w+ t\w", text)]
    assert metrics.value("portcullis_rollbacks_total", outcome="resampled") >= 1
    assert metrics.value("portcullis_rollbacks_total", outcome="unreadable") == 0
    # The same seeds give the same answers.
    async with before(server, {"p": rules}) as gateway:
        again = await gateway.post(bodies[0])
    assert choice_of(again)["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize("max_tokens", range(1, 12))
async def test_a_word_that_the_last_token_completes_does_not_leave(server: Server, max_tokens: int) -> None:
    async with before(server, {"p": (PASSWORD,)}) as gateway:
        answer = await gateway.post(body("p", max_tokens=max_tokens))
    choice = choice_of(answer)
    # `secret`: 60 % of it at the end are the word.
    assert not re.search("12MONK", choice["message"]["content"], re.I)
    assert answer.json()["usage"]["completion_tokens"] <= max_tokens


async def test_with_the_plugin_the_ban_needs_no_request_of_its_own(server: Server) -> None:
    """The policy of this name is in the server's file, with the word that is masked."""
    rules = (
        Rule(id="mask", words=("12MONKEYS",), decode=Decode.MASK),
        Rule(id="count", words=("four",), action=Action.ROLLBACK),
    )
    async with before(server, {"secret": rules}) as gateway:
        while (await gateway.metrics()).value("portcullis_mask_in_force", policy="secret") != 1:
            await asyncio.sleep(0.05)
        counted = choice_of(await gateway.post(body("secret", "Count to ten.")))
        secret = choice_of(await gateway.post(body("secret")))
        metrics = await gateway.metrics()
    assert counted["message"]["content"].startswith("one two three ")
    assert "four" not in counted["message"]["content"]
    assert "12MONKEYS" not in secret["message"]["content"]
    assert metrics.value("portcullis_rollbacks_total", outcome="banned") >= 1
    # The mask holds from the first token on: the censor has nothing to do.
    assert metrics.value("portcullis_matches_total", rule="mask") == 0


async def test_stop_strings_hold_across_rollbacks(server: Server) -> None:
    rules = (Rule(id="count", words=("three",), action=Action.ROLLBACK),)
    async with before(server, {"p": rules}) as gateway:
        free = choice_of(await gateway.post(body("p", "Count to ten.")))["message"]["content"]
        assert free.startswith("one two ")
        last = free.split()[-1]
        stopped = choice_of(await gateway.post(body("p", "Count to ten.", stop=[f" {last}"])))
    assert stopped["message"]["content"] == free[: free.index(f" {last}")]
    assert stopped["finish_reason"] == "stop"


async def test_16_streams_under_16_policies(server: Server) -> None:
    pairs = [(one, other) for at, one in enumerate(NUMBERS) for other in NUMBERS[at + 1 :]][:16]
    policies = {
        f"{one}-{other}": (
            Rule(id="one", words=(one,), action=Action.ROLLBACK),
            Rule(id="other", words=(other,), replacement="#"),
        )
        for one, other in pairs
    }
    async with before(server, policies) as gateway:
        answers = await asyncio.gather(*(gateway.post(body(name, "Count to ten.", stream=True)) for name in policies))
        metrics = await gateway.metrics()
    for (one, other), answer in zip(pairs, answers, strict=True):
        text = Streamed(answer).content()
        assert one not in text, (one, text)
        assert other not in text, (other, text)
        before_both = COUNT[: min(COUNT.index(one), COUNT.index(other))]
        assert text.startswith(before_both.rstrip())
    metrics.assert_covered()


async def test_completions(server: Server) -> None:
    rules = (Rule(id="class", words=("class",), action=Action.ROLLBACK),)
    async with before(server, {"p": rules}) as gateway:
        asked = {"model": "p", "prompt": "one two three", "temperature": 0, "max_tokens": 20}
        free = server.json("/v1/completions", {**asked, "model": NAME})["choices"][0]["text"]
        plain = await gateway.client.post("/v1/completions", json=asked)
        streamed = await gateway.client.post("/v1/completions", json={**asked, "stream": True})
    assert "class" in free
    text = choice_of(plain)["text"]
    assert text.startswith(free[: free.index(" class")])
    assert "class" not in text
    events = [json.loads(line[6:]) for line in streamed.text.split("\n\n") if line.startswith("data: {")]
    assert "".join(each["text"] for event in events for each in event["choices"]) == text


async def test_a_disconnect_frees_the_engine(server: Server) -> None:
    """After a rollback, too: the request that is under way then is another one."""
    rules = (Rule(id="cold", words=("cold",), action=Action.ROLLBACK),)
    async with before(server, {"p": rules}) as gateway:
        asked = body("p", "Tell me a story.", max_tokens=900, ignore_eos=True, stream=True)
        text = ""
        async with gateway.client.stream("POST", "/v1/chat/completions", json=asked) as answer:
            lines = answer.aiter_lines()  # as long as it is there, the answer is not let go
            async for line in lines:
                if line.startswith("data: {"):
                    text += "".join(each["delta"].get("content", "") for each in json.loads(line[6:])["choices"])
                if "drank old" in text:
                    break
            assert await asyncio.to_thread(server.running) == 1
        while await asyncio.to_thread(server.running):
            await asyncio.sleep(0.01)
    assert "cold" not in text
