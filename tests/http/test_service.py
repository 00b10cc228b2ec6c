"""Paths, methods, health, and what every answer carries, whatever it is an answer to."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.policy.model import Limits
from tests.support.gateway import before, error_of, question
from tests.support.upstream import MODEL, Call, completion, plain, sending, sending_then_hanging, stream, stream_head

ANSWER = sending(plain(completion("fine")))


# -- paths and methods -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/files"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1/chat/completions/chatcmpl-1"),
        ("GET", "/v1/"),
        ("GET", "/v1"),
        ("DELETE", "/v1/assistants/12"),
        ("POST", "/V1/chat/completions"),
        ("POST", "//v1/chat/completions"),
        ("POST", "/v1/chat%2Fcompletions%00"),
        ("GET", "/docs"),
        ("GET", "/openapi.yaml"),
        ("GET", "/"),
    ],
)
async def test_an_unknown_path_is_404_in_openais_shape(method: str, path: str) -> None:
    async with before(ANSWER) as (gateway, upstream):
        error = error_of(await gateway.client.request(method, path, content=json.dumps(question())), 404)
        assert error["code"] == "unknown_url"
        assert upstream.calls == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", f"/v1/models/{MODEL}", "GET"),
        ("POST", "/metrics", "GET"),
    ],
)
async def test_a_method_not_allowed_is_405(method: str, path: str, allowed: str) -> None:
    async with before(ANSWER) as (gateway, upstream):
        response = await gateway.client.request(method, path)
        assert error_of(response, 405)["code"] == "method_not_allowed"
        assert response.headers["allow"] == allowed
        assert upstream.calls == []


# -- what every answer carries -----------------------------------------------------------------------------------------


async def test_every_answer_carries_its_id_and_policy() -> None:
    async with before(ANSWER, limits=Limits(max_body=1000)) as (gateway, _):
        calls: list[tuple[str, str, bytes, int, str]] = [
            ("POST", "/v1/chat/completions", json.dumps(question()).encode(), 200, "default"),
            ("POST", "/v1/chat/completions", json.dumps(question("detonator")).encode(), 400, "default"),
            ("POST", "/v1/chat/completions", b"{", 400, "none"),
            ("POST", "/v1/chat/completions", b" " * 2000, 413, "none"),
            ("GET", "/v1/chat/completions", b"", 405, "none"),
            ("GET", "/v1/models", b"", 200, "none"),
            ("GET", f"/v1/models/{MODEL}", b"", 200, "none"),
            ("GET", "/v1/nothing", b"", 404, "none"),
            ("GET", "/healthz", b"", 200, "none"),
            ("GET", "/readyz", b"", 200, "none"),
            ("GET", "/metrics", b"", 200, "none"),
        ]
        for method, path, body, status, policy in calls:
            for given, kept in (("my.id:1_2-3", True), ("with space", False), ("x" * 129, False), ("", False)):
                answer = await gateway.client.request(method, path, content=body, headers={"x-request-id": given})
                assert answer.status_code == status, (method, path)
                assert answer.headers["x-portcullis-policy"] == policy, (method, path)
                assert answer.headers.get_list("x-request-id") == [answer.headers["x-request-id"]]
                assert (answer.headers["x-request-id"] == given) is kept, (method, path, given)
                assert answer.headers["x-request-id"]


async def test_generated_ids_differ_and_reach_upstream_and_log() -> None:
    async with before(sending(stream("a"))) as (gateway, upstream):
        ids = [(await gateway.stream()).response.headers["x-request-id"] for _ in range(2)]
        assert len(set(ids)) == 2
        assert [call.request.headers["x-request-id"] for call in upstream.calls] == ids
        assert [line["request_id"] for line in await gateway.logged(2)] == ids


# -- health ------------------------------------------------------------------------------------------------------------


async def test_ready_while_any_upstream_answers() -> None:
    async with before(ANSWER) as (gateway, _):
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()["upstreams"]) == (200, {"played": "up"})
        for path in ("/healthz", "/readyz"):
            answer = await gateway.client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
        assert (await gateway.metrics()).value("portcullis_upstream_up", upstream="played") == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_not_ready_when_all_upstreams_fail(status: int) -> None:
    async with before(ANSWER, models=plain({}, status)) as (gateway, _):
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code, ready.json()["upstreams"]) == (503, {"played": "down"})
        assert (await gateway.client.get("/healthz")).status_code == 200
        assert (await gateway.metrics()).value("portcullis_upstream_up", upstream="played") == 0


async def test_probes_are_cached() -> None:
    async with before(ANSWER) as (gateway, upstream):
        for _ in range(5):
            assert (await gateway.client.get("/readyz")).status_code == 200
            await gateway.metrics()
        assert upstream.probes == 1


async def test_a_hanging_upstream_does_not_hold_up_others() -> None:
    async def play(call: Call) -> None:
        if "wait" in call.raw.decode():
            await sending_then_hanging(stream_head())(call)
        await call.send(plain(completion("quick")))

    async with before(play) as (gateway, _):
        waiting = asyncio.create_task(gateway.stream("wait"))
        assert (await gateway.ask()).status_code == 200
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
