"""/v1/completions of a real vLLM behind the gateway: its own shapes, guarded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.policy.model import Action, Route, Rule
from tests.support.completions import PATH, TextStream
from tests.support.gateway import TIMEOUT, RunningGateway, config_for, running
from tests.support.vllm_server import LEAK, NAME, QUESTION, Server

pytestmark = pytest.mark.vllm

WORD = "12MONKEYS"
REDACT = (Rule(id="password", words=(WORD,), replacement="[CENSORED]"),)
BLOCK = (Rule(id="password", words=(WORD,), action=Action.BLOCK, message="No."),)
SEEN = LEAK.replace(WORD, "[CENSORED]")


@asynccontextmanager
async def before(server: Server, rules: tuple[Rule, ...] = REDACT) -> AsyncIterator[RunningGateway]:
    """A gateway whose model `tiny` is guarded, and `free` is not."""
    free = Route(model="free", upstream="played", policy="open", rename=NAME)
    guarded = Route(model=NAME, upstream="played", policy="default")
    async with running(config_for(f"{server.url}/v1", rules=rules, routes=(free, guarded))) as gateway:
        yield gateway


async def asked(gateway: RunningGateway, prompt: Any, **fields: Any) -> Any:
    body = {"model": NAME, "prompt": prompt, "temperature": 0, "max_tokens": 30, **fields}
    response = await gateway.client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return TextStream(response) if fields.get("stream") else response.json()


def prompt_for(server: Server) -> str:
    """The text that a question becomes."""
    return str(server.json("/detokenize", {"tokens": server.tokens(QUESTION)})["prompt"])


async def test_whole_and_streamed(server: Server) -> None:
    prompt = prompt_for(server)
    async with before(server) as gateway:
        whole = await asked(gateway, prompt)
        assert whole["object"] == "text_completion" and whole["choices"][0]["text"] == SEEN
        answer = await asked(gateway, prompt, stream=True, stream_options={"include_usage": True})
        assert (answer.text(), answer.done, answer.error) == (SEEN, True, None)
        assert answer.finish() == whole["choices"][0]["finish_reason"]
        assert answer.chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("streamed", [False, True])
async def test_prompts_times_n(server: Server, streamed: bool) -> None:
    prompts = [prompt_for(server), "one two"]
    async with before(server) as gateway:
        answer = await asked(gateway, prompts, n=2, stream=streamed, temperature=0.01, seed=1)
        if streamed:
            texts = [answer.text(index) for index in range(4)]
            assert answer.done and all(answer.finish(index) for index in range(4))
        else:
            assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
            texts = [choice["text"] for choice in answer["choices"]]
        assert texts[:2] == [SEEN, SEEN] and WORD not in "".join(texts)


async def test_an_echo_is_scanned_and_its_logprobs_spell_what_is_shown(server: Server) -> None:
    prompt = f'The password is "{WORD}".'
    fields = {"echo": True, "logprobs": 1, "return_token_ids": True, "prompt_logprobs": 1}
    # The first logprobs of a server take long, and the gateway's patience with it is shorter than this.
    await asyncio.to_thread(server.json, PATH, {"prompt": prompt, "logprobs": 1, "max_tokens": 1})
    async with before(server) as gateway:
        for fields_ in (fields, {**fields, "max_tokens": 1}):
            choice = (await asked(gateway, prompt, **fields_))["choices"][0]
            assert choice["text"].startswith(SEEN)
            described = choice["logprobs"] or {"tokens": [], "text_offset": []}
            for token, offset in zip(described["tokens"], described["text_offset"], strict=True):
                assert choice["text"].startswith(token, offset)
            assert WORD not in "".join(described["tokens"])
            assert not choice.keys() & {"token_ids", "prompt_token_ids", "prompt_logprobs"}
        answer = await asked(gateway, prompt, **{**fields, "prompt_logprobs": None}, stream=True)
        assert answer.text().startswith(SEEN) and "MONKEYS" not in answer.response.text


async def test_a_block_stops_the_engine(server: Server) -> None:
    async with before(server, BLOCK) as gateway:
        answer = await asked(gateway, prompt_for(server), stream=True, max_tokens=500, ignore_eos=True)
        assert (answer.finish(), answer.done) == ("content_filter", True) and answer.text().endswith('"No.')
        async with asyncio.timeout(TIMEOUT):
            while server.running():
                await asyncio.sleep(0.05)


async def test_token_ids_go_where_nothing_is_enforced(server: Server) -> None:
    ids = server.tokens(QUESTION)
    async with before(server) as gateway:
        refused = await gateway.client.post(PATH, json={"model": NAME, "prompt": ids})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt"
        assert (await asked(gateway, ids, model="free"))["choices"][0]["text"] == LEAK
        both = await asked(gateway, [ids, ids], model="free", stream=True)
        assert both.text(0) == both.text(1) == LEAK
        limit = await asked(gateway, ids, model="free", stop=[WORD[:2]], stream=True)
        assert limit.finish() == "stop"


async def test_what_vllm_refuses(server: Server) -> None:
    async with before(server) as gateway:
        for fields in ({}, {"prompt": "a", "max_tokens": 5000}, {"prompt": "a", "suffix": WORD}):
            response = await gateway.client.post(PATH, json={"model": NAME, **fields})
            assert response.status_code == 400 and response.json()["error"]["message"]
            assert WORD not in response.text
