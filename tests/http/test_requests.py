"""What is refused before anything is forwarded, and how: keys, bodies, models, load."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from gateway.policy.model import Limits, Route
from gateway.proxy import admission
from gateway.proxy.upstreams.client import MAX_LISTED
from gateway.wire.json import LONG_RUN, MAX_LONG_RUNS, MAX_VALUES
from tests.support.gateway import TIMEOUT, before, error_of, question, running
from tests.support.gateway import config_for as config
from tests.support.upstream import (
    MODEL,
    Call,
    completion,
    event,
    events,
    http,
    plain,
    playing,
    sending,
    stream_head,
)
from tests.support.upstream import chunk as http_chunk

ANSWER = sending(plain(completion("fine")))
KEYS = ("sk-first", "sk-second")


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer sk-first"},
        {"authorization": "bearer sk-second"},
        {"x-api-key": "sk-second"},
    ],
)
async def test_a_known_key_is_admitted(headers: dict[str, str]) -> None:
    async with before(ANSWER, keys=KEYS) as (gateway, upstream):
        assert (await gateway.post(question(), headers)).status_code == 200
        assert upstream.asked.request.headers["authorization"] == "Bearer sk-of-the-upstream"
        assert (await gateway.client.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-firs"},
        {"authorization": "Bearer sk-first2"},
        {"authorization": "Bearer"},
        {"authorization": "sk-first"},
        {"authorization": "Basic sk-first"},
        {"x-api-key": "sk-other"},
        {"x-api-key": ""},
        {"authorization": "Bearer sk-wröng".encode().decode("latin-1")},
    ],
)
async def test_a_wrong_key_is_401_and_nothing_is_forwarded(headers: dict[str, str]) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    async with before(ANSWER, keys=KEYS) as (gateway, upstream):
        for response in (
            await gateway.client.post("/v1/chat/completions", json=question(), headers=raw),  # type: ignore[arg-type]
            await gateway.client.get("/v1/models", headers=raw),  # type: ignore[arg-type]
            await gateway.client.get(f"/v1/models/{MODEL}", headers=raw),  # type: ignore[arg-type]
        ):
            error = error_of(response, 401)
            assert error["code"] == "invalid_api_key"
            assert "sk-" not in response.text
        assert upstream.calls == []


async def test_health_and_metrics_need_no_key() -> None:
    async with before(ANSWER, keys=KEYS) as (gateway, _):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await gateway.client.get(path)).status_code == 200


# -- bodies ------------------------------------------------------------------------------------------------------------

MESSAGE = {"role": "user", "content": "hi"}
BAD_BODIES: dict[str, tuple[bytes, str | None]] = {
    "empty": (b"", None),
    "no JSON": (b"model=gpt", None),
    "cut off": (b'{"model": "gpt-test", "mess', None),
    "NaN": (b'{"model": "gpt-test", "messages": [{"role": "user", "content": "x"}], "top_p": NaN}', None),
    "nested too deeply": (b"[" * 100_000, None),
    "a list": (b"[]", None),
    "a string": (b'"hello"', None),
    "no model": (json.dumps({"messages": [MESSAGE]}).encode(), "model"),
    "model no string": (json.dumps({"model": 3, "messages": [MESSAGE]}).encode(), "model"),
    "model empty": (json.dumps({"model": "", "messages": [MESSAGE]}).encode(), "model"),
    "model with half a character": (json.dumps({"model": "\ud800", "messages": [MESSAGE]}).encode(), "model"),
    "no messages": (json.dumps({"model": MODEL}).encode(), "messages"),
    "messages empty": (json.dumps({"model": MODEL, "messages": []}).encode(), "messages"),
    "messages a string": (json.dumps({"model": MODEL, "messages": "hi"}).encode(), "messages"),
    "a message no object": (json.dumps({"model": MODEL, "messages": [MESSAGE, "hi"]}).encode(), "messages[1]"),
    "stream no boolean": (json.dumps(question(stream="yes")).encode(), "stream"),
    "n zero": (json.dumps(question(n=0)).encode(), "n"),
    "n too large": (json.dumps(question(n=1000)).encode(), "n"),
    "n a boolean": (json.dumps(question(n=True)).encode(), "n"),
    "vllm_xargs": (json.dumps(question(vllm_xargs={"a": 1})).encode(), "vllm_xargs"),
    "chat_template": (json.dumps(question(chat_template="{{ x }}")).encode(), "chat_template"),
    "too many values": (b'{"x": [' + b"[]," * MAX_VALUES + b"[]]}", None),
    "too many long numbers": (b'{"x": [' + b"7" * LONG_RUN * MAX_LONG_RUNS + b"," + b"7" * LONG_RUN + b"]}", None),
    "audio asked for": (json.dumps(question(modalities=["text", "audio"])).encode(), "modalities"),
}


async def test_d26_a_body_of_too_many_values_is_400_and_says_how_many() -> None:
    most = MAX_VALUES - 20  # beside what the request needs
    async with before(ANSWER) as (gateway, upstream):
        assert (await gateway.post(question(x=[1] * most))).status_code == 200
        error = error_of(await gateway.post(question(x=[1] * (MAX_VALUES + 1))), 400)
        assert error["code"] == "invalid_json"
        assert error["message"] == f"The body is JSON of more than {MAX_VALUES} values."
        assert len(upstream.calls) == 1


async def test_bad_bodies_are_400_and_name_the_field() -> None:
    async with before(ANSWER) as (gateway, upstream):
        for name, (body, param) in BAD_BODIES.items():
            response = await gateway.client.post("/v1/chat/completions", content=body)
            error = error_of(response, 400)
            assert error["param"] == param, name
            assert error["type"] == "invalid_request_error", name
        assert upstream.calls == []


async def test_a_deep_field_is_refused_or_forwarded_but_never_crashes() -> None:
    deep = json.dumps(question())[:-1].encode() + b', "x": ' + b"[" * 900 + b"]" * 900 + b"}"
    async with before(ANSWER) as (gateway, _):
        response = await gateway.client.post("/v1/chat/completions", content=deep)
        assert response.status_code in (200, 400)
        assert response.headers["content-type"] == "application/json"


async def test_unknown_fields_reach_the_upstream_and_bypasses_do_not() -> None:
    body = question(stream=False, temperature=0.5, seed=7, future={"a": [1, None]}, return_token_ids=True)
    async with before(ANSWER) as (gateway, upstream):
        assert (await gateway.post(body)).status_code == 200
        del body["return_token_ids"]
        assert upstream.asked.body == body
        assert upstream.asked.request.target == "/v1/chat/completions"


@pytest.mark.parametrize("framing", ["declared", "chunked"])
async def test_a_body_too_large_is_413(framing: str) -> None:
    async def pieces() -> Any:
        for _ in range(64):
            yield b" " * 1024

    content = b" " * 65536 if framing == "declared" else pieces()
    async with before(ANSWER, limits=Limits(max_body=10_000)) as (gateway, upstream):
        response = await gateway.client.post("/v1/chat/completions", content=content)
        assert error_of(response, 413)["code"] == "request_too_large"
        assert (await gateway.ask("x" * 5_000)).status_code == 200
        assert len(upstream.calls) == 1


async def test_a_body_that_does_not_arrive_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "BODY_TIMEOUT", 0.2)
    async with before(ANSWER) as (gateway, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        status = await asyncio.wait_for(reader.readline(), TIMEOUT)
        writer.close()
        assert b" 408 " in status


async def test_a_client_that_leaves_within_its_body_is_let_go() -> None:
    async with before(ANSWER) as (gateway, upstream):
        _, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(gateway.url).port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()
        assert (await gateway.logged(1))[0]["error"] == "client_left"
        assert (await gateway.metrics()).value("portcullis_streams_active") == 0
        assert upstream.calls == []


# -- models and routes -------------------------------------------------------------------------------------------------


async def test_an_unknown_model_is_404() -> None:
    only = (Route(model="gpt-*", upstream="played", policy="default"),)
    async with before(ANSWER, routes=only) as (gateway, upstream):
        for model in ("llama", "GPT-test", "xgpt-test", "gpt"):
            error = error_of(await gateway.post(question() | {"model": model}), 404)
            assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert upstream.calls == []
        assert (await gateway.ask()).status_code == 200


async def test_the_first_matching_route_wins_and_renames() -> None:
    async def first(call: Call) -> None:
        await call.send(plain(completion("from the first, 12MONKEYS")))

    async def second(call: Call) -> None:
        await call.send(plain(completion("from the second, 12MONKEYS")))

    async with playing(first) as one, playing(second) as two:
        made = config(one.base_url)
        other = config(two.base_url).upstreams["played"]
        table = (
            Route(model="gpt-secret", upstream="played", policy="default", rename="inner/model"),
            Route(model="gpt-*", upstream="second", policy="open"),
            Route(model="gpt-secret*", upstream="played", policy="default"),
        )
        made = replace(made, upstreams={**made.upstreams, "second": replace(other, name="second")}, routes=table)
        async with running(made) as gateway:
            answer = await gateway.post(question() | {"model": "gpt-secret"})
            assert answer.json()["choices"][0]["message"]["content"] == "from the first, [CENSORED]"
            assert answer.headers["x-portcullis-policy"] == "default"
            assert one.asked.body["model"] == "inner/model"
            answer = await gateway.post(question() | {"model": "gpt-secret2"})
            assert answer.json()["choices"][0]["message"]["content"] == "from the second, 12MONKEYS"
            assert answer.headers["x-portcullis-policy"] == "open"
            assert two.asked.body["model"] == "gpt-secret2"


async def test_models_are_listed_with_nothing_of_the_upstreams_but_clean_names() -> None:
    offered = {
        "object": "list",
        "data": [{"id": MODEL, "note": "12MONKEYS"}, {"id": "has-12MONKEYS"}, {"id": "a b"}, 3],
    }
    async with before(ANSWER, models=plain(offered)) as (gateway, _):
        answer = await gateway.client.get("/v1/models")
        assert answer.status_code == 200
        listed = answer.json()
        assert listed["object"] == "list"
        assert [entry["id"] for entry in listed["data"]] == [MODEL]
        assert listed["data"][0].keys() == {"id", "object", "created", "owned_by"}
        assert "MONKEYS" not in answer.text
        assert (await gateway.client.get(f"/v1/models/{MODEL}")).json() == listed["data"][0]
        for unknown in ("nothing", "has-12MONKEYS"):
            error = error_of(await gateway.client.get(f"/v1/models/{unknown}"), 404)
            assert error["code"] == "model_not_found"


@pytest.mark.parametrize(
    "models",
    [
        plain({"error": {"message": "12MONKEYS"}}, 401),
        plain({"error": {"message": "12MONKEYS"}}, 500),
        http(200, b"<html>12MONKEYS</html>", "text/html"),
        plain({"data": "12MONKEYS"}),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\n12MONKEYS",
        plain({"data": [{"id": "a" * MAX_LISTED}]}),
    ],
)
async def test_models_of_a_broken_upstream_are_502(models: bytes) -> None:
    async with before(ANSWER, models=models) as (gateway, _):
        response = await gateway.client.get("/v1/models")
        error_of(response, 502)
        assert "MONKEYS" not in response.text


# -- load --------------------------------------------------------------------------------------------------------------


async def test_overload_is_503_with_retry_after_and_passes_when_a_stream_ends() -> None:
    release = asyncio.Event()

    async def play(call: Call) -> None:
        await call.send(stream_head() + http_chunk(event({"choices": []})))
        await release.wait()
        await call.send(http_chunk(events("ok")) + b"0\r\n\r\n")

    async with before(play, limits=Limits(max_streams=2)) as (gateway, upstream):
        running_streams = [asyncio.create_task(gateway.stream()) for _ in range(2)]
        while len(upstream.calls) < 2:
            await asyncio.sleep(0.01)
        for body in (question(), question(stream=True)):
            response = await gateway.post(body)
            assert error_of(response, 503)["code"] == "overloaded"
            assert int(response.headers["retry-after"]) >= 1
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_streams_active") == 2
        release.set()
        for answer in await asyncio.gather(*running_streams):
            assert answer.content() == "ok"
        assert (await gateway.stream()).content() == "ok"
        assert (await gateway.metrics()).value("portcullis_streams_active") == 0


async def test_refusals_leave_no_stream_behind() -> None:
    async with before(ANSWER, limits=Limits(max_streams=1, max_body=1000)) as (gateway, _):
        for _ in range(3):
            await gateway.client.post("/v1/chat/completions", content=b"{")
            await gateway.client.post("/v1/chat/completions", content=b" " * 2000)
            await gateway.ask("detonator")
        assert (await gateway.ask()).status_code == 200
