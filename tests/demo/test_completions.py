"""Text completions, embeddings and models of the demo upstream."""

from __future__ import annotations

import array
import base64
import json
import math
from typing import Any

import httpx2
import pytest

from tests.demo.conftest import Post

PLAIN = 'The password is "12MONKEYS".'
PATH = "/completions"


async def ask(post: Post, **body: Any) -> dict[str, Any]:
    """The whole answer, after its stream was compared with it."""
    answer = await post(PATH, **body)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    streamed = await post(PATH, **body, stream=True, stream_options={"include_usage": True})
    *events, done, end = streamed.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    *chunks, last = [json.loads(event.removeprefix("data: ")) for event in events]
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    parts = [part for chunk in chunks for part in chunk["choices"]]
    for choice in whole["choices"]:
        mine = [part for part in parts if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in mine) == choice["text"]
        assert [part["finish_reason"] for part in mine] == [None] * (len(mine) - 1) + [choice["finish_reason"]]
        if choice["logprobs"] is not None:
            for key, listed in choice["logprobs"].items():
                assert listed == [each for part in mine[:-1] for each in part["logprobs"][key] or []] or listed is None
    return whole


def texts(answer: dict[str, Any]) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


@pytest.mark.parametrize("prompt", ["The password is", ["The password is"]])
async def test_a_prompt_is_continued(post: Post, prompt: Any) -> None:
    assert texts(await ask(post, prompt=prompt)) == [PLAIN]


async def test_each_prompt_gets_n_answers_and_the_indices_go_on(post: Post) -> None:
    answer = await ask(post, prompt=["password", "hello"], n=2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    first, second, *others = texts(answer)
    assert first == PLAIN != second and "12MONKEYS" in second
    assert len(set(others)) == 1 and "Gandalf" in others[0]


@pytest.mark.parametrize(("prompt", "count"), [([1, 2, 3], 1), ([[1, 2], [3]], 2)])
async def test_token_ids_are_prompts_too(post: Post, prompt: Any, count: int) -> None:
    assert len(texts(await ask(post, prompt=prompt))) == count


async def test_stop_and_max_tokens(post: Post) -> None:
    assert texts(await ask(post, prompt="password", stop=" is")) == ["The password"]
    answer = await ask(post, prompt="password", max_tokens=1)
    assert [(choice["text"], choice["finish_reason"]) for choice in answer["choices"]] == [("The", "length")]


@pytest.mark.parametrize("top", [0, 2, 5])
async def test_logprobs(post: Post, top: int) -> None:
    (choice,) = (await ask(post, prompt="password", logprobs=top))["choices"]
    listed = choice["logprobs"]
    assert "".join(listed["tokens"]) == choice["text"]
    assert [choice["text"].index(token, at) for token, at in zip(listed["tokens"], listed["text_offset"], strict=True)]
    assert [len("".join(listed["tokens"][:n])) for n in range(len(listed["tokens"]))] == listed["text_offset"]
    assert all(logprob <= 0 for logprob in listed["token_logprobs"])
    if top == 0:
        assert listed["top_logprobs"] is None
        return
    for token, logprob, alternatives in zip(
        listed["tokens"], listed["token_logprobs"], listed["top_logprobs"], strict=True
    ):
        assert len(alternatives) == top and alternatives[token] == logprob


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 2, "n": 100}, "n"),
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "echo": True}, "echo"),
    ],
)
async def test_what_is_no_valid_completion_is_refused(post: Post, body: dict[str, Any], param: str) -> None:
    answer = await post(PATH, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# -- embeddings --------------------------------------------------------------------------------------------------------


async def vectors(post: Post, given: Any, **body: Any) -> list[list[float]]:
    """The vectors, after those of the other encoding were compared with them."""
    answer = await post("/embeddings", input=given, **body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [each["index"] for each in found["data"]] == list(range(len(found["data"])))
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 0
    encoded = (await post("/embeddings", input=given, **body, encoding_format="base64")).json()
    listed: list[list[float]] = [each["embedding"] for each in found["data"]]
    assert [array.array("f", base64.b64decode(each["embedding"])).tolist() for each in encoded["data"]] == listed
    return listed


def closeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("given", ["a text", ["one", "two"], [1, 2, 3], [[1], [2, 3]], "   ", "é" * 1000])
@pytest.mark.parametrize("dimensions", [None, 1, 256, 3072])
async def test_vectors_have_the_length_one(post: Post, given: Any, dimensions: int | None) -> None:
    listed = await vectors(post, given, **({} if dimensions is None else {"dimensions": dimensions}))
    for vector in listed:
        assert len(vector) == (dimensions or 1536)
        assert math.isclose(closeness(vector, vector), 1, rel_tol=1e-6)


async def test_texts_that_share_words_are_close(post: Post) -> None:
    cat, cats, wizard = await vectors(
        post, ["A cat sat on the mat.", "Two cats sat on mats", "Speak, friend, and enter"]
    )
    assert closeness(cat, cats) > 0.3 > closeness(cat, wizard)
    assert await vectors(post, "A cat sat on the mat.") == [cat]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 3073}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
async def test_what_is_no_valid_input_is_refused(post: Post, body: dict[str, Any], param: str) -> None:
    answer = await post("/embeddings", **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# -- models ------------------------------------------------------------------------------------------------------------


async def test_the_model_is_listed_and_described(client: httpx2.AsyncClient) -> None:
    (listed,) = (await client.get("/models")).json()["data"]
    assert (await client.get(f"/models/{listed['id']}")).json() == listed
    missing = await client.get("/models/gpt/x")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
