"""Client keys: what each may use and see, and that only their names are ever written down."""

from __future__ import annotations

import pytest

from gateway.policy.model import ClientKey, Route
from tests.support.gateway import UPSTREAM_KEY, RunningGateway, before, error_of, question
from tests.support.upstream import MODEL, completion, plain, sending, stream

OFFERED = ("gpt-big", "gpt-small", "llama-7b", "secret-1")
MODELS = plain({"object": "list", "data": [{"id": name, "object": "model"} for name in OFFERED]})
ROUTES = (
    Route(model="gpt-*", upstream="played", policy="default"),
    Route(model="named", upstream="played", policy="open", rename="gpt-big"),
    Route(model="*", upstream="played", policy="open"),
)
ANSWER = sending(plain(completion("12MONKEYS")))
EVERYTHING = [*OFFERED, "named"]

# What each key sees of the models, and the policy under which it reaches some.
NARROWED: dict[str, tuple[ClientKey, list[str]]] = {
    "everything": (ClientKey.of("k", "all"), EVERYTHING),
    "one model": (ClientKey.of("k", "one", models=("gpt-big",)), ["gpt-big"]),
    "globs": (ClientKey.of("k", "globs", models=("gpt-*", "llama-?b")), ["gpt-big", "gpt-small", "llama-7b"]),
    "a policy": (ClientKey.of("k", "strict", policies=frozenset({"default"})), ["gpt-big", "gpt-small"]),
    "the other policy": (ClientKey.of("k", "lax", policies=frozenset({"open"})), EVERYTHING),
    "both": (ClientKey.of("k", "both", policies=frozenset({"open"}), models=("named", "s*")), ["named", "secret-1"]),
    "nothing": (ClientKey.of("k", "none", models=()), []),
    "case": (ClientKey.of("k", "case", models=("GPT-*",)), []),
}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def listed(gateway: RunningGateway, key: str) -> list[str]:
    answer = await gateway.client.get("/v1/models", headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return sorted(entry["id"] for entry in answer.json()["data"])


@pytest.mark.parametrize("case", NARROWED)
async def test_a_key_reaches_what_it_sees_and_nothing_else(case: str) -> None:
    key, visible = NARROWED[case]
    async with before(ANSWER, models=MODELS, routes=ROUTES, keys=(key,)) as (gateway, upstream):
        assert await listed(gateway, "k") == sorted(visible)
        for model in EVERYTHING:
            asked = await gateway.post(question(model=model), bearer("k"))
            shown = await gateway.client.get(f"/v1/models/{model}", headers=bearer("k"))
            if model in visible:
                assert (asked.status_code, shown.status_code) == (200, 200), (model, asked.text, shown.text)
            else:
                for refused in (asked, shown):
                    error = error_of(refused, 404)
                    assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert len(upstream.calls) == len(visible)


async def test_a_route_under_a_policy_that_is_not_the_keys_is_not_there() -> None:
    keys = (
        ClientKey.of("strict", "strict", policies=frozenset({"default"})),
        ClientKey.of("lax", "lax", policies=frozenset({"open"})),
    )
    async with before(ANSWER, routes=ROUTES, keys=keys) as (gateway, _):
        censored = await gateway.post(question(model="gpt-big"), bearer("strict"))
        assert censored.headers["x-portcullis-policy"] == "default"
        assert censored.json()["choices"][0]["message"]["content"] == "[CENSORED]"
        plainly = await gateway.post(question(model="gpt-big"), bearer("lax"))
        assert plainly.headers["x-portcullis-policy"] == "open"
        assert plainly.json()["choices"][0]["message"]["content"] == "12MONKEYS"


async def test_a_refused_model_is_not_named_as_existing() -> None:
    key = ClientKey.of("k", "one", models=("gpt-big",))
    async with before(ANSWER, models=MODELS, routes=ROUTES, keys=(key,)) as (gateway, _):
        known = await gateway.post(question(model="secret-1"), bearer("k"))
        unknown = await gateway.post(question(model="never-heard-of"), bearer("k"))
        assert known.json() == unknown.json()


async def test_two_keys_are_told_apart_and_a_wrong_one_is_nobodys() -> None:
    keys = (ClientKey.of("sk-one", "team-one"), ClientKey.of("sk-two", "team-two"))
    async with before(sending(plain(completion("ok"))), keys=keys) as (gateway, _):
        for headers in (bearer("sk-one"), {"x-api-key": "sk-two"}, bearer("sk-two")):
            assert (await gateway.post(question(), headers)).status_code == 200
        for headers in ({}, bearer("sk-thr"), {"x-api-key": "SK-ONE"}, bearer("sk-one sk-two")):
            error_of(await gateway.post(question(), headers), 401)
        assert [line["key"] for line in await gateway.logged(7)] == ["team-one", "team-two", "team-two", *[None] * 4]
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_key_requests_total", key="team-one", status="200") == 1
        assert metrics.value("portcullis_key_requests_total", key="team-two", status="200") == 2
        assert metrics.value("portcullis_key_requests_total") == 3


async def test_no_key_is_ever_written_down() -> None:
    given, wrong = "sk-of-the-client-9876", "sk-of-a-stranger-5432"
    key = ClientKey.of(given, "team", rpm=3, models=(MODEL,))
    async with before(sending(plain({"error": {"message": "no"}}, 500)), keys=(key,)) as (gateway, upstream):
        answers = [
            await gateway.post(question(stream=True), bearer(given)),
            await gateway.post({"model": MODEL}, bearer(given)),
            await gateway.post(question("detonator"), bearer(given)),
            await gateway.post(question(model="another"), bearer(given)),
            await gateway.post(question(), bearer(wrong)),
            await gateway.client.get("/v1/nothing", headers=bearer(given)),
            await gateway.client.get("/v1/models", headers=bearer(wrong)),
            await gateway.post(question(), bearer(given)),
            await gateway.post(question(), bearer(given)),
        ]
        assert [answer.status_code for answer in answers] == [500, 400, 400, 404, 401, 404, 401, 500, 429]
        written = [gateway.log.getvalue(), (await gateway.metrics()).text]
        forwarded = [call.request.raw_head + call.raw for call in upstream.calls]
    assert '"key":"team"' in written[0]
    said = [*written, *(f"{answer.text} {answer.headers}" for answer in answers)]
    for secret in (given, wrong, key.digest.hex(), UPSTREAM_KEY):
        assert not [text for text in said if secret in text], secret
    assert not [request for request in forwarded if given.encode() in request]


async def test_the_first_of_two_entries_with_one_key_counts() -> None:
    keys = (ClientKey.of("k", "first", models=("gpt-*",)), ClientKey.of("k", "second"))
    async with before(sending(plain(completion("ok"))), keys=keys) as (gateway, _):
        assert (await gateway.post(question(model="gpt-4"), bearer("k"))).status_code == 200
        assert (await gateway.post(question(model="llama"), bearer("k"))).status_code == 404
        assert {line["key"] for line in await gateway.logged(2)} == {"first"}


async def test_a_stream_is_routed_by_the_key_too() -> None:
    key = ClientKey.of("k", "one", models=("gpt-big",))
    answer = sending(stream("12MON", "KEYS"))
    async with before(answer, routes=ROUTES, keys=(key,)) as (gateway, upstream):
        gateway.client.headers.update(bearer("k"))
        assert (await gateway.stream(model="gpt-big")).content() == "[CENSORED]"
        error_of(await gateway.ask(model="gpt-small", stream=True), 404)
        assert upstream.asked.body["model"] == "gpt-big"
