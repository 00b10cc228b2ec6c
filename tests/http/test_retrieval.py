"""Responses that an upstream has stored: fetched whole and as streams, cancelled and deleted, always guarded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import openai
import pytest

from gateway.policy.model import Action, ClientKey, Journal, Mode, Policy, Protect, Route, Rule
from tests.support import response_streams
from tests.support.event_client import script
from tests.support.gateway import RULES, UPSTREAM_KEY, RunningGateway, before, config_for, error_of, running
from tests.support.upstream import END, MODEL, Call, chunk, http, plain, playing, sending, stream_head
from tests.support.upstream import Upstream as PlayedUpstream

ID = "resp_68a"
PATH = f"/v1/responses/{ID}"
SPEAKS = {"endpoints": frozenset({"chat/completions", "responses"})}
ITEMS = (response_streams.message("It is 12MON", "KEYS", ". Bye."), response_streams.function_call('{"a":"12MONKEYS"}'))
EVENTS = response_streams.events(*ITEMS)
STORED = response_streams.response(*(item.done for item in ITEMS))


async def keeping(call: Call) -> None:
    """A store with one response."""
    path, _, query = call.request.target.partition("?")
    if not path.startswith(PATH):
        await call.send(plain({"error": {"message": "12MONKEYS has no such response"}}, 404))
    elif call.request.method == "DELETE":
        await call.send(plain({"id": ID, "object": "response", "deleted": True}))
    elif "stream=true" in query:
        await call.send(stream_head() + chunk(script(EVENTS)) + END)
    else:
        await call.send(plain({**STORED, "status": "cancelled"} if path.endswith("/cancel") else STORED))


@asynccontextmanager
async def serving(play: Any = keeping, **settings: Any) -> AsyncIterator[tuple[RunningGateway, PlayedUpstream]]:
    async with before(play, **{"upstream": SPEAKS, **settings}) as (gateway, upstream):
        yield gateway, upstream
        (await gateway.metrics()).assert_covered()


def of_openai(gateway: RunningGateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)


def read(answer: Any) -> list[dict[str, Any]]:
    lines = answer.text.split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def test_a_stored_response() -> None:
    async with serving() as (gateway, upstream), of_openai(gateway) as client:
        answer = await client.responses.retrieve(ID, include=["reasoning.encrypted_content"])
        assert answer.output_text == "It is [CENSORED]. Bye." and answer.usage is not None
        assert json.loads(answer.output[1].arguments) == {"a": "[CENSORED]"}  # type: ignore[union-attr]
        call = upstream.asked
        assert (call.request.method, call.raw) == ("GET", b"") and call.request.target.startswith(PATH)
        assert "reasoning.encrypted_content" in call.request.target
        assert call.request.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
        (line,) = await gateway.logged(1)
        assert line["path"] == "/v1/responses/resp_{name}" and line["policy"] == "default"
        assert "prompt_tokens" not in line, "they were counted when it was made"


async def test_a_stored_response_as_a_stream() -> None:
    async with serving() as (gateway, upstream), of_openai(gateway) as client:
        events: list[Any] = [event async for event in await client.responses.retrieve(ID, stream=True)]
        texts = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert texts == ["It is ", "[CENSORED]", ". Bye."] and events[-1].response.output_text == "".join(texts)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert upstream.asked.request.target.endswith("?stream=true")


async def test_every_place_to_continue_from() -> None:
    async with serving() as (gateway, upstream), of_openai(gateway) as client:
        whole = read(await gateway.client.get(PATH, params={"stream": "true"}))
        for after in range(-1, len(whole) + 1):
            params = {"stream": "true", "starting_after": str(after)} if after >= 0 else {"stream": "true"}
            assert read(await gateway.client.get(PATH, params=params)) == whole[after + 1 :]
        assert all("starting_after" not in call.request.target for call in upstream.calls)
        stream = await client.responses.retrieve(ID, stream=True, starting_after=len(whole) - 2)
        assert [event.type async for event in stream] == ["response.completed"]


@pytest.mark.parametrize("after", ["-1", "x", "1" * 10, "\u0661"])
async def test_a_place_that_is_none(after: str) -> None:
    async with serving() as (gateway, upstream):
        answer = await gateway.client.get(PATH, params={"stream": "true", "starting_after": after})
        assert error_of(answer, 400)["param"] == "starting_after" and not upstream.calls


async def test_a_failure_before_that_place_is_told() -> None:
    broken = stream_head() + chunk(script(EVENTS[:3]) + b"data: {}[]\n\n") + END
    async with serving(sending(broken)) as (gateway, _):
        answer = await gateway.client.get(PATH, params={"stream": "true", "starting_after": "9"})
        (event,) = read(answer)
        assert (event["type"], event["code"]) == ("error", "upstream_protocol_error")


async def test_an_answer_in_the_background() -> None:
    """It is polled: as long as it is written, the end of its text is none."""
    states = iter(("queued", "in_progress", "completed"))

    async def play(call: Call) -> None:
        status = next(states)
        half = response_streams.message("It is 12MON")
        output = {"queued": (), "in_progress": (half.done,), "completed": (ITEMS[0].done,)}[status]
        await call.send(plain(response_streams.response(*output, status=status, id=ID, background=True)))

    async with serving(play) as (gateway, upstream), of_openai(gateway) as client:
        answer = await client.responses.create(model=MODEL, input="x", background=True)
        assert answer.status == "queued" and upstream.asked.body["background"] is True
        answer = await client.responses.retrieve(answer.id)
        assert (answer.status, answer.output) == ("in_progress", [])
        answer = await client.responses.retrieve(answer.id)
        assert (answer.status, answer.output_text) == ("completed", "It is [CENSORED]. Bye.")


async def test_observing_changes_nothing() -> None:
    half = response_streams.response(response_streams.message("It is 12MON").done, status="in_progress")
    async with serving(sending(plain(half)), mode=Mode.OBSERVE) as (gateway, _):
        assert (await gateway.client.get(PATH)).json() == half


async def test_a_block() -> None:
    rules = (Rule(id="r", words=("12MONKEYS",), action=Action.BLOCK, message="Not shown."),)
    async with serving(rules=rules) as (gateway, _), of_openai(gateway) as client:
        answer = await client.responses.retrieve(ID)
        assert answer.output_text == "It is Not shown." and answer.status == "incomplete"
        events: list[Any] = [event async for event in await client.responses.retrieve(ID, stream=True)]
        assert events[-1].type == "response.incomplete" and events[-1].response.output_text == answer.output_text


@pytest.mark.parametrize("streamed", [False, True])
async def test_json_that_was_asked_for(streamed: bool) -> None:
    """The request is not known; the answer repeats what was asked for."""
    item = response_streams.message('{"note":"\\u00312MON', 'KEYS"}')
    asked = {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}
    whole = plain(response_streams.response(item.done, **asked))
    events = stream_head() + chunk(script(response_streams.events(item, **asked))) + END
    async with serving(sending(events if streamed else whole)) as (gateway, _):
        answer = await gateway.client.get(PATH, params={"stream": str(streamed).lower()})
        said = read(answer)[-1]["response"] if streamed else answer.json()
        assert json.loads(said["output"][0]["content"][0]["text"]) == {"note": "[CENSORED]"}


async def test_cancelling_and_deleting() -> None:
    async with serving() as (gateway, upstream), of_openai(gateway) as client:
        answer = await client.responses.cancel(ID)
        assert answer.status == "cancelled" and answer.output_text == "It is [CENSORED]. Bye."
        await client.responses.delete(ID)
        asked = [(call.request.method, call.request.target, call.raw) for call in upstream.calls]
        assert asked == [("POST", f"{PATH}/cancel", b""), ("DELETE", PATH, b"")]


@pytest.mark.parametrize("name", ["resp_", "resp_a%2F..%2Fb", "resp_a.b", "resp_a%3Fx=1", "68a", "..%2F..%2Fadmin"])
async def test_ids_that_are_none(name: str) -> None:
    async with serving() as (gateway, upstream):
        error_of(await gateway.client.get(f"/v1/responses/{name}"), 404)
        assert not upstream.calls


async def test_the_upstreams_error_is_guarded() -> None:
    async with serving() as (gateway, _):
        answer = await gateway.client.get("/v1/responses/resp_none")
        assert error_of(answer, 404)["message"] == "[CENSORED] has no such response"


@pytest.mark.parametrize("body", [b"nothing", b"[1]", b'{"error": {"message": "12MONKEYS"}}'])
async def test_what_is_no_answer(body: bytes) -> None:
    async with serving(sending(http(200, body))) as (gateway, _):
        answer = await gateway.client.get(PATH)
        assert answer.status_code == 502 and "12MONKEYS" not in answer.text


async def test_a_key_and_its_limits(tmp_path: Any) -> None:
    key = ClientKey.of("k", "team", rpm=1)
    journal = Journal(path=tmp_path / "journal", key="k" * 32, required=True)
    async with serving(keys=(key,), journal=journal) as (gateway, upstream):
        assert error_of(await gateway.client.get(PATH), 401)["code"] == "invalid_api_key"
        headers = {"authorization": "Bearer k"}
        assert (await gateway.client.get(PATH, headers=headers)).status_code == 200
        assert error_of(await gateway.client.get(PATH, headers=headers), 429)["type"]
        assert len(upstream.calls) == 1
        assert (await gateway.metrics()).value("portcullis_streams_active") == 0
        lines = (tmp_path / "journal").read_text().splitlines()
        assert {json.loads(line).get("rule") for line in lines} >= {"password"}


# -- which upstream, under which policy --------------------------------------------------------------------------------


@asynccontextmanager
async def routed(
    *routes: tuple[str, str, str], models: tuple[str, ...] | None = None, policies: frozenset[str] | None = None
) -> AsyncIterator[tuple[RunningGateway, dict[str, PlayedUpstream]]]:
    """Upstreams `a` and `b` store responses, `chat` does not; each route is (model, upstream, policy)."""
    async with playing(keeping) as first, playing(keeping) as second:
        key = replace(ClientKey.of("k", "team"), models=models, policies=policies)
        config = config_for(first.base_url, upstream=SPEAKS, keys=(key,))
        (kept,) = config.upstreams.values()
        upstreams = {
            "a": replace(kept, name="a"),
            "b": replace(kept, name="b", base_url=second.base_url),
            "chat": replace(kept, name="chat", endpoints=frozenset({"chat/completions"})),
        }
        others = {"lax": Policy(name="lax"), "extra": Policy(name="extra", on_request=True, rules=RULES[:1])}
        config = replace(
            config,
            upstreams=upstreams,
            policies={**config.policies, **others},
            routes=tuple(Route(model=model, upstream=name, policy=policy) for model, name, policy in routes),
        )
        async with running(config) as gateway:
            yield gateway, {"a": first, "b": second}


ONE = (("gpt-*", "a", "default"), ("*", "chat", "lax"))
TWO = (("gpt-*", "a", "default"), ("o-*", "b", "default"), ("*", "chat", "lax"))
MIXED = (("gpt-*", "a", "default"), ("*", "a", "lax"))
ROUTED: dict[str, tuple[tuple[tuple[str, str, str], ...], dict[str, Any], str, int, str]] = {
    "the only one": (ONE, {}, "", 200, ""),
    "a model of another's": (ONE, {}, "?model=llama", 404, "model_not_found"),
    "one of two": (TWO, {}, "?model=o-1", 200, ""),
    "neither": (TWO, {}, "", 400, "route_ambiguous"),
    "two policies": (MIXED, {}, "", 400, "route_ambiguous"),
    "two policies, and a model of the lax one": (MIXED, {}, "?model=x", 400, "route_ambiguous"),
    "two policies, one of them the key's": (MIXED, {"policies": frozenset({"default"})}, "", 200, ""),
    "a key with models": (ONE, {"models": ("gpt-5",)}, "", 400, ""),
    "its model": (ONE, {"models": ("gpt-5",)}, "?model=gpt-5", 200, ""),
    "not its model": (ONE, {"models": ("llama",)}, "?model=gpt-5", 404, "model_not_found"),
    "no store": (ONE[1:], {}, "", 404, "endpoint_not_served"),
}


@pytest.mark.parametrize("case", ROUTED.values(), ids=list(ROUTED))
async def test_the_policy_is_that_of_the_routes(case: Any) -> None:
    routes, key, query, status, code = case
    async with routed(*routes, **key) as (gateway, upstreams):
        answer = await gateway.client.get(PATH + query, headers={"x-api-key": "k"})
        if status == 200:
            assert "12MONKEYS" not in answer.text and answer.headers["x-portcullis-policy"] == "default"
            assert answer.json()["output"] and upstreams["b" if "o-1" in query else "a"].asked
        else:
            assert error_of(answer, status)["code"] == (code or None)
            assert not any(each.calls for each in upstreams.values())


@pytest.mark.parametrize("fields", [{"protect": Protect.SYSTEM_PROMPT}, {"words": ("12MONKEYS",), "carry": True}])
async def test_rules_that_need_the_request(fields: dict[str, Any]) -> None:
    async with serving(rules=(Rule(id="r", **fields),)) as (gateway, upstream):
        assert error_of(await gateway.client.get(PATH), 400)["code"] == "request_unknown" and not upstream.calls


async def test_a_policy_that_is_asked_for_is_added() -> None:
    async with routed(*ONE) as (gateway, _):
        headers = {"x-api-key": "k", "x-portcullis-policy": "extra"}
        answer = await gateway.client.get(PATH, headers=headers)
        assert answer.headers["x-portcullis-policy"] == "default+extra" and "12MONKEYS" not in answer.text
        headers["x-portcullis-policy"] = "lax"
        assert error_of(await gateway.client.get(PATH, headers=headers), 400)["code"] == "policy_not_allowed"
