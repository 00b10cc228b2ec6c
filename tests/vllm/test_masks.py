"""The masks on a real vLLM: what it says, what it refuses, and that it stays alive."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.decode.maskfile import MaskRequest
from tests.support.vllm_server import (
    LEAK,
    NAME,
    PASSWORD,
    PYTHON,
    QUESTION,
    ROOT,
    START,
    TIMEOUT,
    NotStarted,
    Server,
    arguments,
    chat,
    environment,
    serving,
)
from tests.vllm.conftest import NUMBERS, POLICIES, masked

pytestmark = pytest.mark.vllm

COUNT = " ".join(NUMBERS)


def said(choice: Any) -> str:
    return str(choice["message"]["content"])


def test_the_word_is_never_said(server: Server) -> None:
    assert said(server.chat(QUESTION)) == LEAK
    answer = said(server.chat(QUESTION, masked("secret")))
    assert answer.startswith('The password is "')
    assert PASSWORD.casefold() not in answer.casefold()


def test_it_is_not_said_at_random(server: Server) -> None:
    body = chat(QUESTION, masked("secret"), temperature=1, n=16, max_tokens=40, logit_bias=bias(server, ' "12'))
    for seed in range(8):
        for choice in server.json("/v1/chat/completions", {**body, "seed": seed})["choices"]:
            assert PASSWORD.casefold() not in said(choice).casefold()


def bias(server: Server, text: str) -> dict[str, int]:
    """Makes the tokens of a text likely."""
    return {str(token): 3 for token in server.tokenize(text)}


def test_answers_without_the_word_are_the_same(server: Server) -> None:
    for question in ("Tell me a story.", "Say something in many languages.", "Write some code."):
        assert server.chat(question, masked("secret")) == server.chat(question)


@pytest.mark.parametrize("max_tokens", range(1, 8))
def test_a_whole_word_is_not_cut_out(server: Server, max_tokens: int) -> None:
    answer = said(server.chat(QUESTION, masked("whole"), max_tokens=max_tokens))
    assert not re.search(r"\bpassword\b", answer)


def test_a_resumed_answer_remembers(server: Server) -> None:
    kept = server.tokenize('The password is "12MONK')
    body = {"prompt": server.tokens(QUESTION) + kept, "temperature": 0, "max_tokens": 10}
    rest = server.json("/v1/completions", body)["choices"][0]["text"]
    assert rest == 'EYS".'
    resumed = masked("secret", kept=len(kept))
    rest = server.json("/v1/completions", {**body, **arguments(resumed)})["choices"][0]["text"]
    assert not rest.startswith("EYS")
    # Without what was kept the mask knows nothing of the beginning.
    forgetful = server.json("/v1/completions", {**body, **arguments(masked("secret"))})
    assert forgetful["choices"][0]["text"] == 'EYS".'


def test_a_token_that_must_not_come_first(server: Server) -> None:
    first, *_ = server.chat(QUESTION, return_token_ids=True)["token_ids"]
    answer = server.chat(QUESTION, masked("secret", not_first=(first,)), return_token_ids=True)
    assert answer["token_ids"][0] != first


def test_a_canary(server: Server) -> None:
    """One token of two is allowed, and the likelier one forbidden: only a server with these masks says the other."""
    likely, other = server.tokenize("The")[0], server.tokenize("Once")[0]
    chosen = {"allowed_token_ids": [likely, other], "max_tokens": 1, "return_token_ids": True}
    assert server.chat(QUESTION, **chosen)["token_ids"] == [likely]
    assert server.chat(QUESTION, masked("secret", not_first=(likely,)), **chosen)["token_ids"] == [other]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (MaskRequest(policy="secret", digest="0" * 64).arguments(), "has other words on this server"),
        (MaskRequest(policy="unknown", digest="0" * 64).arguments(), "no policy 'unknown'"),
        ({"portcullis.policy": "secret"}, "portcullis.digest must be a string"),
        ({**masked("secret").arguments(), "portcullis.kept": "x"}, "portcullis.kept must be a number"),
        ({**masked("secret").arguments(), "portcullis.not_first": "x"}, "portcullis.not_first must be a list"),
    ],
)
def test_what_cannot_be_followed_is_refused(server: Server, given: dict[str, Any], message: str) -> None:
    answer = server.post("/v1/chat/completions", {**chat(QUESTION), "vllm_xargs": given})
    assert answer.status_code == 400
    assert message in answer.text


def test_a_grammar_that_leaves_nothing_else(server: Server) -> None:
    """The engine must have something to sample from. What then comes is the censor's."""
    format_ = {"structured_outputs": {"choice": [PASSWORD]}}
    assert said(server.chat(QUESTION, masked("secret"), **format_)) == PASSWORD
    format_ = {"structured_outputs": {"choice": [PASSWORD, "12 monkeys"]}}
    assert said(server.chat(QUESTION, masked("secret"), **format_)) == "12 monkeys"


async def streamed(client: httpx2.AsyncClient, body: dict[str, object]) -> str:
    """The text of a streamed answer."""
    text = ""
    async with client.stream("POST", "/v1/chat/completions", json={"model": NAME, **body, "stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    return text


async def test_many_streams_under_many_policies(server: Server) -> None:
    chosen = [name for name in POLICIES if name.startswith("without-")]
    assert len(chosen) == 16
    async with httpx2.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
        bodies = [chat("Count to ten.", masked(name)) for name in chosen]
        answers = await asyncio.gather(*(streamed(client, body) for body in [*bodies, chat("Count to ten.")]))
    assert answers.pop() == COUNT
    for name, answer in zip(chosen, answers, strict=True):
        banned = name.split("-")[1:]
        assert not any(word in answer.casefold() for word in banned), name
        # Up to the first banned word nothing has changed.
        assert answer.startswith(COUNT[: COUNT.index(banned[0])].rstrip()), name


async def test_a_disconnect_frees_the_engine(server: Server) -> None:
    body = chat("Tell me a story.", masked("secret"), max_tokens=900, ignore_eos=True, stream=True)
    written = server.written()
    async with (
        httpx2.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client,
        client.stream("POST", "/v1/chat/completions", json={"model": NAME, **body}) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                break
    end = time.monotonic() + TIMEOUT
    while server.running():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    assert server.written() - written < 900


# -- other ways to start -----------------------------------------------------------------------------------------------


def test_found_by_entry_point(masks: Path, port: int, tmp_path: Path) -> None:
    with serving(tmp_path / "log", port, [], {"PORTCULLIS_MASKS": str(masks)}) as server:
        assert PASSWORD not in said(server.chat(QUESTION, masked("secret")))


def test_without_masks_nothing_is_changed_and_requests_are_refused(port: int, tmp_path: Path) -> None:
    with serving(tmp_path / "log", port, START) as server:
        assert said(server.chat(QUESTION)) == LEAK
        answer = server.post("/v1/chat/completions", chat(QUESTION, masked("secret")))
        assert answer.status_code == 400
        assert "start it with PORTCULLIS_MASKS=FILE" in answer.text


SPECULATIVE = '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}'


def test_speculative_decoding_is_refused(masks: Path, port: int, tmp_path: Path) -> None:
    flags = [*START, "--speculative-config", SPECULATIVE]
    with (
        pytest.raises(NotStarted, match="not supported when speculative decoding is enabled"),
        serving(tmp_path / "log", port, flags, {"PORTCULLIS_MASKS": str(masks)}),
    ):
        pass


def test_a_changed_file_is_refused(masks: Path, port: int, tmp_path: Path) -> None:
    changed = tmp_path / "masks.json"
    changed.write_text(masks.read_text().replace("12MONKEYS", "13MONKEYS"))
    with (
        pytest.raises(NotStarted, match="its digest is another") as raised,
        serving(tmp_path / "log", port, START, {"PORTCULLIS_MASKS": str(changed)}),
    ):
        pass
    assert "MONKEYS" not in str(raised.value)


def test_what_only_a_gpu_runs(masks: Path) -> None:
    """As far as it runs without one: see `tests.vllm.runners`."""
    checked = subprocess.run(
        [PYTHON, "-m", "tests.vllm.runners"],
        cwd=ROOT,
        env=environment({"PORTCULLIS_MASKS": str(masks)}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert checked.returncode == 0, checked.stderr
