"""The list of models: what it counts, how often upstreams are asked for it, and how often it is scanned."""

from __future__ import annotations

import asyncio

import pytest

from gateway.policy.model import ClientKey, Route
from gateway.proxy.cached import Cached
from gateway.proxy.state import AppState
from gateway.proxy.upstreams import models
from tests.support.gateway import TIMEOUT, before, config_for, error_of, question, running
from tests.support.scripted_server import Conversation, serving
from tests.support.upstream import MODEL, MODELS, completion, plain, sending, sending_then_hanging

OK = sending(plain(completion("ok")))
KEY = {"x-api-key": "sk-limited"}


def limited(**limits: int) -> tuple[ClientKey]:
    return (ClientKey.of("sk-limited", "team", **limits),)


@pytest.mark.parametrize("path", ["/v1/models", f"/v1/models/{MODEL}", "/v1/models/unknown"])
async def test_d24_it_counts_as_a_request_of_its_key(path: str) -> None:
    async with before(OK, keys=limited(rpm=3)) as (gateway, upstream):
        for left in (2, 1, 0):
            answer = await gateway.client.get(path, headers=KEY)
            assert answer.status_code == (404 if path.endswith("unknown") else 200)
            if answer.status_code == 200:
                assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
        for _ in range(47):
            refused = await gateway.client.get(path, headers=KEY)
            assert error_of(refused, 429)["type"] == "requests"
            assert int(refused.headers["retry-after"]) >= 1
        assert error_of(await gateway.post(question(), KEY), 429)["type"] == "requests"
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_limited_total", key="team", reason="requests") == 48
        assert upstream.probes <= 2  # the list, and what the metrics ask


async def test_d24_it_takes_no_tokens_and_runs_beside_the_streams_of_its_key() -> None:
    async with before(sending_then_hanging(), keys=limited(tpm=100, max_streams=1)) as (gateway, upstream):
        asking = asyncio.create_task(gateway.post(question(), KEY))
        while not upstream.calls:
            await asyncio.sleep(0.002)
        for _ in range(5):
            answer = await gateway.client.get("/v1/models", headers=KEY)
            assert answer.status_code == 200
            assert "x-ratelimit-remaining-tokens" not in answer.headers
        assert error_of(await gateway.post(question(), KEY), 429)["type"] == "streams"
        asking.cancel()


async def test_d24_an_upstream_is_asked_once_for_all_who_want_to_know() -> None:
    asked, go_on = 0, asyncio.Event()

    async def script(conversation: Conversation) -> None:
        nonlocal asked
        while True:
            await conversation.request()
            asked += 1
            await go_on.wait()
            await conversation.send(plain(MODELS))

    async with serving(script) as server:
        config = config_for(f"http://127.0.0.1:{server.port}/v1", keys=limited())
        async with running(config) as gateway:
            asking = [asyncio.create_task(gateway.client.get("/v1/models", headers=KEY)) for _ in range(20)]
            while not asked:
                await asyncio.sleep(0.002)
            asking.pop().cancel()  # the others still get theirs
            go_on.set()
            for answer in await asyncio.gather(*asking):
                assert [entry["id"] for entry in answer.json()["data"]] == [MODEL]
            for _ in range(20):
                assert (await gateway.client.get("/v1/models", headers=KEY)).status_code == 200
            assert asked == 1


async def test_d24_a_failure_is_remembered_too_and_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with before(OK, models=plain({}, 500)) as (gateway, upstream):
        for _ in range(20):
            error_of(await gateway.client.get("/v1/models"), 502)
        assert upstream.probes == 1
    monkeypatch.setattr(models, "MODELS_TTL", -1.0)
    async with before(OK, models=plain({}, 500)) as (gateway, upstream):
        for _ in range(5):
            error_of(await gateway.client.get("/v1/models"), 502)
        assert upstream.probes == 5


async def test_d24_an_id_is_scanned_once_for_each_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[tuple[str, str]] = []
    is_clean = AppState._is_clean

    def counting(self: AppState, policy: models.CompiledPolicy, text: str) -> bool:
        scanned.append((policy.policy.name, text))
        return is_clean(self, policy, text)

    monkeypatch.setattr(AppState, "_is_clean", counting)
    ids = [f"model-{number}-{'x' * 200}" for number in range(1000)] + ["open-1", "model-12MONKEYS"]
    offered = plain({"object": "list", "data": [{"id": each} for each in ids]})
    routes = (
        Route(model="open-*", upstream="played", policy="open"),
        Route(model="*", upstream="played", policy="default"),
    )
    keys = (*limited(), ClientKey.of("sk-b", "b", models=("open-*",)))
    async with before(OK, models=offered, keys=keys, routes=routes) as (gateway, _):
        for _ in range(3):
            answer = await gateway.client.get("/v1/models", headers=KEY)
            assert [entry["id"] for entry in answer.json()["data"]] == ids[:-1]
            narrowed = await gateway.client.get("/v1/models", headers={"x-api-key": "sk-b"})
            assert [entry["id"] for entry in narrowed.json()["data"]] == ["open-1"]
    assert sorted(scanned) == sorted(("open" if each == "open-1" else "default", each) for each in ids)


async def test_a_cached_result_survives_whoever_asked_for_it() -> None:
    calls, go_on = 0, asyncio.Event()

    async def ask() -> int:
        nonlocal calls
        calls += 1
        await go_on.wait()
        return calls

    cached = Cached(ask, TIMEOUT, 0)
    first, second = asyncio.create_task(cached.get()), asyncio.create_task(cached.get())
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert await second == 1
    assert await cached.get() == 1
    await cached.close()


async def test_a_cached_call_that_fails_leaves_what_held_at_first() -> None:
    results: list[int | Exception] = [7, RuntimeError("a defect")]

    async def ask() -> int:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    cached = Cached(ask, -1.0, 0)
    assert [await cached.get(), await cached.get()] == [7, 0]
