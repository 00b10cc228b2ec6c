"""Every endpoint of a real vLLM behind the gateway, asked by the official clients: in its own words and translated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from gateway.policy.model import Action, Config, Decode, Policy, Route, Rule, Unknown, Upstream
from gateway.policy.servers import Endpoint
from tests.support.gateway import PATIENT, RunningGateway, running
from tests.support.sdk_answers import ASKED, Answer, anthropic_client, openai_client
from tests.support.vllm_server import LEAK, MODEL, NAME, QUESTION, TIMEOUT, Server

pytestmark = pytest.mark.vllm

WORD = "12MONKEYS"
SEEN = LEAK.replace(WORD, "[CENSORED]")
REDACT = (Rule(id="password", words=(WORD,), replacement="[CENSORED]"),)
BLOCK = (Rule(id="password", words=(WORD,), action=Action.BLOCK, message="No."),)
WEATHER = "What is the weather in Paris?"
# By name: the endpoint, and what the upstream is said to speak.
WAYS = {
    "chat": ("chat", frozenset(Endpoint)),
    "completions": ("completions", frozenset(Endpoint)),
    "responses": ("responses", frozenset(Endpoint)),
    "responses by chat": ("responses", frozenset({Endpoint.CHAT})),
    "messages": ("messages", frozenset(Endpoint)),
    "messages by chat": ("messages", frozenset({Endpoint.CHAT})),
}
ways = pytest.mark.parametrize("way", WAYS)
streamed_or_not = pytest.mark.parametrize("stream", [False, True])


@asynccontextmanager
async def before(
    server: Server, rules: tuple[Rule, ...], way: str = "chat", policy: str = "default"
) -> AsyncIterator[RunningGateway]:
    """A gateway that refuses an answer with anything in it that its tables do not know."""
    upstream = Upstream(
        name="local",
        type="vllm",
        base_url=f"{server.url}/v1",
        endpoints=WAYS[way][1],
        tokenizer=str(MODEL) if any(rule.action is Action.ROLLBACK for rule in rules) else None,
        timeouts=PATIENT,
    )
    config = Config(
        upstreams={"local": upstream},
        routes=(Route(model=NAME, upstream="local", policy=policy),),
        policies={policy: Policy(name=policy, rules=rules, unknown=Unknown.REFUSE)},
    )
    async with running(config) as gateway:
        gateway.client.timeout = httpx2.Timeout(TIMEOUT)
        yield gateway


async def asked(
    server: Server, gateway: RunningGateway, way: str, stream: bool, question: str = QUESTION, **more: Any
) -> Answer:
    """A question, by an official client."""
    name = WAYS[way][0]
    if name == "completions":
        question = str(server.json("/detokenize", {"tokens": server.tokens(question)})["prompt"])
    return await ASKED[name](gateway.url, question, stream, **more)


@ways
@streamed_or_not
async def test_the_password_is_redacted(server: Server, way: str, stream: bool) -> None:
    async with before(server, REDACT, way) as gateway:
        answer = await asked(server, gateway, way, stream)
        metrics = await gateway.metrics()
    assert answer.text == SEEN and "MONKEYS" not in answer.raw
    assert answer.reason in ("stop", "completed", "end_turn")
    prompt = len(server.tokens(QUESTION))
    written = len(server.tokenize(LEAK)) + 1
    assert answer.usage == (prompt, written)
    counted = [metrics.value("portcullis_tokens_total", kind=kind) for kind in ("prompt", "completion")]
    assert counted == [prompt, written]
    assert metrics.value("portcullis_matches_total", rule="password") == 1
    metrics.assert_covered()


@ways
@streamed_or_not
async def test_the_password_blocks(server: Server, way: str, stream: bool) -> None:
    async with before(server, BLOCK, way) as gateway:
        answer = await asked(server, gateway, way, stream, limit=500)
        metrics = await gateway.metrics()
        await idle(server)
    assert answer.text == LEAK[: LEAK.index(WORD)] + "No." and "MONKEYS" not in answer.raw
    assert answer.reason in ("content_filter", "refusal")
    metrics.assert_covered()


@ways
async def test_a_stream_that_the_client_leaves_stops_the_engine(server: Server, way: str) -> None:
    async with before(server, REDACT, way) as gateway:
        written = server.written()
        await asked(server, gateway, way, True, limit=900, temperature=2, leave=True)
        await idle(server)
    assert server.written() - written < 900


async def idle(server: Server) -> None:
    async with asyncio.timeout(TIMEOUT):
        while await asyncio.to_thread(server.running):
            await asyncio.sleep(0.02)


# -- steering ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["responses", "messages"])
@streamed_or_not
async def test_a_mask_is_in_force(server: Server, way: str, stream: bool) -> None:
    """An upstream that speaks the endpoint is asked by chat all the same: there the mask is in force, so that the
    censor has nothing to do. The policy of this name is in the server's file."""
    rules = (Rule(id="mask", words=(WORD,), decode=Decode.MASK),)
    async with before(server, rules, way, "secret") as gateway:
        async with asyncio.timeout(TIMEOUT):
            while (await gateway.metrics()).value("portcullis_mask_in_force", policy="secret") != 1:
                await asyncio.sleep(0.05)
        answer = await asked(server, gateway, way, stream)
        metrics = await gateway.metrics()
    assert answer.text.startswith('The password is "') and WORD not in answer.raw.upper()
    assert metrics.value("portcullis_matches_total", rule="mask") == 0
    metrics.assert_covered()


@pytest.mark.parametrize("way", ["responses", "messages"])
@streamed_or_not
async def test_it_is_rolled_back(server: Server, way: str, stream: bool) -> None:
    rules = (Rule(id="password", words=(WORD,), action=Action.ROLLBACK, secret=True),)
    async with before(server, rules, way) as gateway:
        answer = await asked(server, gateway, way, stream)
        metrics = await gateway.metrics()
    assert answer.text.startswith('The password is "') and WORD not in answer.raw.upper()
    assert "REDACTED" not in answer.text and answer.reason in ("completed", "end_turn")
    assert metrics.value("portcullis_rollbacks_total", outcome="banned") >= 1
    metrics.assert_covered()


# -- tools, log probabilities, errors ----------------------------------------------------------------------------------

TOOL = "get_weather"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "completions"])
@streamed_or_not
async def test_arguments_of_tools_are_redacted(server: Server, way: str, stream: bool) -> None:
    """This server reads the model's calls of tools by itself."""
    rules = (Rule(id="city", words=("Paris",), replacement="[CITY]"),)
    async with before(server, rules, way) as gateway:
        answer = await ASKED[WAYS[way][0]](gateway.url, WEATHER, stream, tool=TOOL)
        metrics = await gateway.metrics()
    assert answer.calls == [(TOOL, {"city": "[CITY]", "unit": "celsius"})]
    assert "Paris" not in answer.raw
    assert answer.reason in ("tool_calls", "completed", "tool_use")
    metrics.assert_covered()


THINKING: dict[str, Any] = {"extra_body": {"chat_template_kwargs": {"thinking": True}, "temperature": 0}}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "completions"])
@streamed_or_not
async def test_reasoning_is_redacted(server: Server, way: str, stream: bool) -> None:
    """This server tells what the model thinks from what it says."""
    async with before(server, (Rule(id="city", words=("Madrid",), replacement="[CITY]"),), way) as gateway:
        answer = await asked(server, gateway, way, stream, question="Think about the capital of Spain.", **THINKING)
        metrics = await gateway.metrics()
    assert answer.text.strip() == "The capital of Spain is [CITY]." and "Madrid" not in answer.raw
    for channel in ("reasoning", "content"):
        assert metrics.value("portcullis_matches_total", rule="city", channel=channel) == 1
    metrics.assert_covered()


async def test_a_stored_response_is_redacted(server: Server) -> None:
    """Made in the background, it is asked for until it is there; a stream of it continues from each of its events."""
    async with before(server, REDACT, "responses") as gateway, openai_client(gateway.url) as client:
        fields: dict[str, Any] = {"model": NAME, "input": QUESTION, "temperature": 0, "max_output_tokens": 60}
        made = await client.responses.create(**fields, background=True, store=True)
        async with asyncio.timeout(TIMEOUT):
            while (found := await client.responses.retrieve(made.id)).status in ("queued", "in_progress"):
                await asyncio.sleep(0.05)
        assert found.output_text == SEEN and "MONKEYS" not in found.model_dump_json()
        begun = await client.responses.create(**fields, background=True, store=True, stream=True)
        events: list[Any] = [event async for event in begun]
        assert events[-1].response.output_text == SEEN
        last = events[-1].sequence_number
        for after in (0, last // 2, last - 1):
            rest = await client.responses.retrieve(events[-1].response.id, stream=True, starting_after=after)
            assert [event async for event in rest] == events[after + 1 :]
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("way", ["chat", "completions"])
@streamed_or_not
async def test_logprobs_spell_what_is_kept(server: Server, way: str, stream: bool) -> None:
    more = {"logprobs": 2} if way == "completions" else {"logprobs": True, "top_logprobs": 2}
    async with before(server, (Rule(id="other", words=("elsewhere",)),), way) as gateway:
        answer = await asked(server, gateway, way, stream, **more)
        assert (answer.text, answer.spelled) == (LEAK, LEAK)
    async with before(server, REDACT, way) as gateway:
        answer = await asked(server, gateway, way, stream, **more)
        # Of what was replaced no token is left.
        assert (answer.text, answer.spelled) == (SEEN, SEEN.replace("[CENSORED]", ""))
        assert "MONK" not in answer.raw


async def test_tokens_are_counted_before_a_message(server: Server) -> None:
    async with before(server, REDACT, "messages") as gateway, anthropic_client(gateway.url) as client:
        counted = await client.messages.count_tokens(model=NAME, messages=[{"role": "user", "content": QUESTION}])
    assert counted.input_tokens == len(server.tokens(QUESTION))


@pytest.mark.parametrize("way", ["responses", "messages"])
async def test_what_vllm_refuses(server: Server, way: str) -> None:
    """The client raises the exception that it has for it, and nothing of the request is in it."""
    async with before(server, REDACT, way) as gateway:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as raised:
            await asked(server, gateway, way, False, limit=5000)
    assert "5000" in raised.value.message and QUESTION not in str(raised.value.body)
