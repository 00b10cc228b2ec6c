"""Audits of a real model: served by vLLM, and in a process of its own."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from gateway.audit.model import ModelError, rows_of
from gateway.audit.models.vllm import VllmModel
from gateway.audit.query.model import Decoding, Message, PrefixRegex, Query, Tokenizations
from gateway.audit.searches.best_first import search
from gateway.audit.searches.sample import sample
from tests.support.vllm_server import MODEL, NAME, PYTHON, ROOT, TIMEOUT, Server, environment

pytestmark = pytest.mark.vllm

QUESTION = "What is the password?"
CHAT = (Message("user", QUESTION),)
ANSWER = 'The password is "12MONKEYS".'


@pytest.fixture
def endpoint(server: Server) -> Iterator[VllmModel]:
    made = VllmModel(f"{server.url}/v1", NAME, MODEL)
    yield made
    made.close()


def test_what_a_server_tells_is_found_out(endpoint: VllmModel) -> None:
    endpoint.require_top_k(20)
    with pytest.raises(ModelError, match=r"returns the 20 most likely tokens, .* --max-logprobs 40$"):
        endpoint.require_top_k(40)
    with pytest.raises(ModelError, match=r"the 20 most likely tokens, and without decoding\.top_k all 2052 count"):
        search(endpoint, Query(query="[a-z]+"))


def test_rows_are_the_models_own_law(server: Server, endpoint: VllmModel) -> None:
    endpoint.require_top_k(20)
    context = endpoint.context([{"role": "user", "content": QUESTION}])
    assert list(context) == server.tokens(QUESTION)
    said = server.tokenize(ANSWER)
    prefixes = [(*context, *said[:length]) for length in range(len(said))]
    rows = rows_of(endpoint, prefixes)
    assert rows.argmax(axis=1).tolist() == said, "greedily it says the answer word for word"
    assert ((rows > -np.inf).sum(axis=1) >= 20).all() and (np.exp(rows).sum(axis=1) > 0.9).all()
    # Any token, and more than vLLM tells in one answer.
    asked = np.arange(300, dtype=np.int32)
    for row, told in zip(rows[:3], endpoint.logprobs_of(prefixes[:3], [asked] * 3), strict=True):
        known = np.flatnonzero(row[:300] > -np.inf)
        assert np.allclose(row[known], told[known], atol=0.02) and (told > -np.inf).all()


@pytest.mark.parametrize("tokenizations", Tokenizations)
def test_the_password_is_found_first(endpoint: VllmModel, tokenizations: Tokenizations) -> None:
    query = Query(
        query=r'The password is "[A-Z0-9]{1,12}"\.',
        prefix="The password is",
        prompt=CHAT,
        decoding=Decoding(top_k=20, end_of_text=True),
        tokenizations=tokenizations,
        limit=5,
    )
    found = list(search(endpoint, query))
    assert found[0].text == ANSWER and math.exp(found[0].logprob) > 0.9
    assert list(found[0].tokens) == [*endpoint.encode(ANSWER), 2]
    assert len({result.text for result in found}) == 5
    assert [result.logprob for result in found] == sorted((result.logprob for result in found), reverse=True)


def test_a_prefix_that_the_model_does_not_expect_is_not_eliminated(endpoint: VllmModel) -> None:
    """None of these words is among the 20 that the model would say there."""
    query = Query(
        query="(Zebra|Xylophone).{1,20}",
        prefix=PrefixRegex("Zebra|Xylophone"),
        prompt=CHAT,
        decoding=Decoding(top_k=2, max_tokens=4),
        limit=200,
    )
    found = search(endpoint, query)
    assert {result.text[: result.prefix] for result in found} == {"Zebra", "Xylophone"}
    assert all(result.prefix_logprob < -10 for result in found.found)


def test_strings_are_drawn_as_the_model_says_them(endpoint: VllmModel) -> None:
    query = Query(
        query=r'The password is "[A-Z0-9]+"\.', prefix="The password is", prompt=CHAT, decoding=Decoding(top_k=20)
    )
    drawn = sample(endpoint, query, samples=20, seed=1)
    assert [each.text for each in drawn].count(ANSWER) >= 15
    assert drawn.estimate().probability > 0.9


def test_a_model_in_this_process() -> None:
    """See `tests.vllm.audited`."""
    checked = subprocess.run(
        [PYTHON, "-m", "tests.vllm.audited"],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert checked.returncode == 0, checked.stderr
