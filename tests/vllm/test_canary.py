"""A gateway in front of a real vLLM: is the mask in force, and does it say so where it is not?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from gateway.policy.model import Config, Decode, Policy, Route, Rule, Upstream
from tests.support.gateway import PATIENT, RunningGateway, question, running
from tests.support.vllm_server import NAME, TIMEOUT, Server, serving

pytestmark = pytest.mark.vllm

PASSWORD = "12MONKEYS"
QUESTION = "What is the password?"
SPECULATIVE = '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}'


def config_of(server: Server, *words: str, policy: str = "secret", model: str = "*") -> Config:
    """The policy as the server's file has it, if the words are the password."""
    rule = Rule(id="password", words=words, decode=Decode.MASK, replacement="[CENSORED]")
    upstream = Upstream(name="local", type="vllm", base_url=f"{server.url}/v1", timeouts=PATIENT)
    return Config(
        upstreams={"local": upstream},
        routes=(Route(model=model, upstream="local", policy=policy),),
        policies={policy: Policy(name=policy, rules=(rule,))},
    )


async def readiness(gateway: RunningGateway) -> httpx2.Response:
    """What /readyz says once a canary has been answered: a server that is new or busy may be too slow for the first."""
    async with asyncio.timeout(TIMEOUT):
        while "unknown" in (ready := await gateway.client.get("/readyz")).json()["masks"].values():
            await asyncio.sleep(0.2)
    return ready


async def answer_of(gateway: RunningGateway) -> str:
    answer = await gateway.post(question(QUESTION, model=NAME, temperature=0, max_tokens=60))
    assert answer.status_code == 200, answer.text
    content: str = answer.json()["choices"][0]["message"]["content"]
    return content


@pytest.mark.parametrize("model", ["*", NAME])
async def test_the_mask_is_in_force(server: Server, model: str) -> None:
    async with running(config_of(server, PASSWORD, model=model)) as gateway:
        ready = await readiness(gateway)
        assert ready.json() == {
            "status": "ready",
            "upstreams": {"local": "up"},
            "masks": {"local/secret": "in force"},
        }
        assert (await gateway.metrics()).value("portcullis_mask_in_force", upstream="local", policy="secret") == 1
        answer = await answer_of(gateway)
        assert answer.startswith('The password is "')
        # Nothing had to be censored, since nothing was said.
        assert PASSWORD not in answer
        assert "[CENSORED]" not in answer


@pytest.mark.parametrize(
    ("policy", "words", "reason"),
    [
        ("secret", (PASSWORD, "another"), "the server has other words; "),
        ("unknown", (PASSWORD,), "the server's file has no such policy; "),
    ],
)
async def test_another_file(server: Server, policy: str, words: tuple[str, ...], reason: str) -> None:
    async with running(config_of(server, *words, policy=policy)) as gateway:
        ready = await readiness(gateway)
        assert ready.status_code == 503
        assert ready.json()["status"] == f"the mask of policy {policy} is not in force at upstream local"
        assert ready.json()["reason"].startswith(reason)
        assert (await gateway.metrics()).value("portcullis_mask_in_force", policy=policy) == 0
        # Requests go without the mask, and the censor stands behind.
        assert await answer_of(gateway) == 'The password is "[CENSORED]".'


async def test_a_mask_that_vllm_leaves_out(masks: Path, port: int, tmp_path: Path) -> None:
    """With drafted tokens, and the plugin found by its entry point alone, vLLM says nothing and masks nothing."""
    flags, environment = ["--speculative-config", SPECULATIVE], {"PORTCULLIS_MASKS": str(masks)}
    with serving(tmp_path / "log", port, flags, environment) as server:
        async with running(config_of(server, PASSWORD)) as gateway:
            ready = await readiness(gateway)
            assert ready.status_code == 503
            assert ready.json()["masks"] == {"local/secret": "missing"}
            assert ready.json()["reason"].startswith("the server does not follow the mask; ")
            assert await answer_of(gateway) == 'The password is "[CENSORED]".'
