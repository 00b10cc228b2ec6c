"""Paths that are nearly right are told, in the shape that their clients read."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncAzureOpenAI, NotFoundError

from gateway.wire.dialect import Dialect
from gateway.wire.dialects import SERVED
from tests.support.gateway import before, error_of, question
from tests.support.upstream import MODEL, completion, plain, sending, stream

ANSWER = sending(plain(completion("It is 12MONKEYS.")))
LISTED = sorted([*(f"/v1{dialect.path}" for dialect in SERVED), "/v1/models", "/v1/moderations"])
KNOWN = f"This gateway has {', '.join(LISTED)}."
NEAR = {
    "/v1/v1/chat/completions": "/v1/chat/completions",
    "/chat/completions": "/v1/chat/completions",
    "/models": "/v1/models",
    "/v1/chat/completions/": "/v1/chat/completions",
    "//v1//chat/completions": "/v1/chat/completions",
    "/V1/Chat/Completions": "/v1/chat/completions",
    "/v1/chat/completion": "/v1/chat/completions",
    "/v1/chat/completions/chat/completions": "/v1/chat/completions",
    "/v1/embedding": "/v1/embeddings",
    "/openai/deployments/gpt/chat/completion": "/openai/deployments/gpt/chat/completions",
    "/metric": "/metrics",
}


@pytest.mark.parametrize("path", NEAR)
async def test_the_path_that_was_meant(path: str) -> None:
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await gateway.client.post(gateway.url + path, json=question()), 404)
        assert error["message"] == f"Unknown path {path!r}. Did you mean {NEAR[path]}?"
        assert not upstream.calls


@pytest.mark.parametrize("path", ["/v1/files", "/", "/x" * 4000, "/v1/12MONKEYS", "/openai/deployments/a/files"])
async def test_all_paths_where_none_is_near(path: str) -> None:
    async with before(ANSWER) as (gateway, _):
        error = error_of(await gateway.client.get(path), 404)
        assert error["message"] == f"Unknown path {path[:200]!r}. {KNOWN}"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/v1/responses/resp_1/input_items", "its input is known"),
        ("/v1/conversations", "send its items as input"),
        ("/v1/conversations/conv_1/items", "send its items as input"),
        ("/chat/completions/chatcmpl-1", "send its items as input"),
    ],
)
async def test_what_an_upstream_keeps_beside_responses_is_not_fetched(path: str, reason: str, method: str) -> None:
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await gateway.client.request(method, path, params={"stream": "true"}), 404)
        assert reason in error["message"] and error["code"] == "unknown_url"
        assert not upstream.calls


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/moderations", "/openai/deployments/a/embeddings"])
async def test_another_method(method: str, path: str) -> None:
    async with before(ANSWER) as (gateway, _):
        answer = await gateway.client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        if method == "HEAD":
            assert answer.content == b""
        else:
            assert error_of(answer, 405)["message"] == f"Method {method!r} is not allowed here. Use POST."


@pytest.mark.parametrize("dialect", SERVED, ids=lambda dialect: dialect.path)
async def test_an_error_has_the_shape_of_the_dialect(dialect: Dialect) -> None:
    async with before(ANSWER) as (gateway, _):
        path = f"/v1{dialect.path}/unknown"
        answer = await gateway.client.post(path, json={})
        assert answer.status_code == 404 and answer.headers["x-request-id"]
        message = f"Unknown path {path!r}. Did you mean /v1{dialect.path}?"
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": "unknown_url"}
        assert answer.json() == dialect.error_body({"error": error}, 404)


# -- Azure's -----------------------------------------------------------------------------------------------------------


def azure(url: str, **options: Any) -> AsyncAzureOpenAI:
    given = {"azure_endpoint": url, "api_key": "sk-1", "api_version": "2024-10-21", "max_retries": 0, **options}
    return AsyncAzureOpenAI(**given)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("options", [{}, {"azure_deployment": "deployed"}], ids=["by model", "by deployment"])
async def test_azures_client(streamed: bool, options: dict[str, Any]) -> None:
    play = sending(stream("It is 12", "MONKEYS.") if streamed else plain(completion("It is 12MONKEYS.")))
    async with before(play, keys=("sk-1",)) as (gateway, upstream), azure(gateway.url, **options) as client:
        messages: Any = [{"role": "user", "content": "hello"}]
        answer: Any = await client.chat.completions.create(model="named", messages=messages, stream=streamed)
        if streamed:
            text = "".join([part.choices[0].delta.content or "" async for part in answer if part.choices])
        else:
            text = answer.choices[0].message.content
        assert text == "It is [CENSORED]."
        assert upstream.asked.body["model"] == options.get("azure_deployment", "named")
        assert upstream.asked.request.target == "/v1/chat/completions"
        assert upstream.asked.request.headers["authorization"] == "Bearer sk-of-the-upstream"
        labels = (await gateway.metrics()).labels("portcullis_requests_total")
        assert labels[0]["path"] == "/openai/deployments/{deployment}/chat/completions"


async def test_azures_other_paths() -> None:
    async with before(ANSWER, keys=("sk-1",)) as (gateway, upstream), azure(gateway.url) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        headers, path = {"api-key": "sk-1"}, "/openai/v1/chat/completions"
        answer = await gateway.client.post(f"{path}?api-version=x", json=question(), headers=headers)
        assert answer.json()["choices"][0]["message"]["content"] == "It is [CENSORED]."
        assert "api-version" not in upstream.asked.request.target
        with pytest.raises(NotFoundError):
            await client.files.list()
        refused = await gateway.client.post(path, json=question(), headers={"api-key": "sk"})
        assert error_of(refused, 401)["code"] == "invalid_api_key"
