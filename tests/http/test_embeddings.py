"""/v1/embeddings from client to upstream and back: inputs are scanned, vectors pass as they are."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI

from gateway.policy.model import Action, ClientKey, Limits, Mode, Rule, Unknown
from tests.support.embeddings import PATH, VECTOR, embedded, encoded
from tests.support.gateway import INPUT, RULES, before, error_of
from tests.support.upstream import MODEL, Call, Json, chunk, completion, event, http, plain, sending, stream_head

CARDS = Rule(id="cards", detector="credit_card", replacement="[CARD]")
OUTPUT_RULES = tuple(rule for rule in RULES if not rule.apply_to & INPUT)


async def embedding(call: Call) -> None:
    """A vector for each input, in the encoding that was asked for."""
    given = call.body["input"]
    count = len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1
    wants_base64 = call.body.get("encoding_format") == "base64"
    await call.send(plain(embedded(*[encoded(VECTOR) if wants_base64 else VECTOR] * count)))


async def post(gateway: Any, body: Json) -> httpx2.Response:
    answer: httpx2.Response = await gateway.client.post(PATH, json=body)
    return answer


def asking(given: Any = "hello", **fields: Any) -> Json:
    return {"model": MODEL, "input": given, **fields}


# -- answers -----------------------------------------------------------------------------------------------------------

CLEAN = {
    "numbers": embedded(VECTOR, [0.0, 0.0, 0.5]),
    "base64": embedded(encoded(VECTOR), encoded([0.0, -1.0])),
    "whole numbers": embedded([-12, 3, -90, 4111111111111111]),
    "no entries": embedded(),
    "no index": {"object": "list", "data": [{"object": "embedding", "embedding": VECTOR}], "model": MODEL},
    "with more": {**embedded(VECTOR), "data": [{**embedded(VECTOR)["data"][0], "note": "fine"}], "id": "e-1"},
    "many": embedded(*[[0.5] for _ in range(1500)]),
}


@pytest.mark.parametrize("answer", CLEAN.values(), ids=list(CLEAN))
@pytest.mark.parametrize("unknown", [Unknown.SCAN, Unknown.DROP])
async def test_vectors_pass_as_they_are(answer: Json, unknown: Unknown) -> None:
    async with before(sending(plain(answer)), rules=(*RULES, CARDS), unknown=unknown) as (gateway, upstream):
        got = await post(gateway, asking())
        expected = json.loads(json.dumps(answer))
        if unknown is Unknown.DROP:
            for entry in expected["data"]:
                entry.pop("note", None)
        assert got.status_code == 200 and got.json() == expected
        assert upstream.asked.request.target == PATH and upstream.asked.body == asking()
        assert upstream.asked.request.headers["accept"] == "application/json"
        (await gateway.metrics()).assert_covered()


CODES = list(b"12MONKEYS")
TEXTS: dict[str, tuple[Json, Json]] = {
    "labels": (embedded(VECTOR, id="12MONKEYS", note={"12MONKEYS": 1}), {"id": "[CENSORED]"}),
    "a vector that is text": (embedded("12MONKEYS"), {}),
    "in base64 that is no vector": (embedded(VECTOR, note="12MONKEYS"), {"note": "[CENSORED]"}),
    "characters as numbers": (embedded(CODES), {}),
    "beside the vector": ({**embedded(), "data": [{"index": 0, "embedding": VECTOR, "text": "12MONKEYS"}]}, {}),
    "data that is no list": (embedded(data={"a": "12MONKEYS"}), {}),
    "entries that are none": (embedded(data=["12MONKEYS", *CODES]), {}),
    "choices": (embedded(VECTOR, choices=completion("12MONKEYS")["choices"]), {}),
}


@pytest.mark.parametrize("case", TEXTS.values(), ids=list(TEXTS))
async def test_every_text_in_an_answer_is_scanned(case: tuple[Json, Json]) -> None:
    answer, shown = case
    async with before(sending(plain(answer))) as (gateway, _):
        got = await post(gateway, asking())
        assert got.status_code == 200 and shown.items() <= got.json().items()
        assert "MONKEYS" not in got.text and str(CODES)[1:-1].replace(" ", "") not in got.text
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize(
    "body",
    [b"nothing", b'"text"', stream_head() + chunk(event(embedded(VECTOR)))],
    ids=["no JSON", "no object", "a stream"],
)
async def test_what_is_no_answer(body: bytes) -> None:
    whole = body if body.startswith(b"HTTP") else http(200, body)

    async def play(call: Call) -> None:
        await call.send(whole)
        call.close()

    async with before(play) as (gateway, _):
        assert error_of(await post(gateway, asking()), 502)["code"] == "upstream_protocol_error"


async def test_an_answer_may_be_larger_than_a_request() -> None:
    answer = embedded(*[encoded(VECTOR * 20)] * 200)
    async with before(sending(plain(answer)), limits=Limits(max_body=8 * 1024)) as (gateway, _):
        assert (await post(gateway, asking())).json() == answer
    answer = embedded(*[encoded(VECTOR * 20)] * 400)
    async with before(sending(plain(answer)), limits=Limits(max_body=8 * 1024)) as (gateway, _):
        assert error_of(await post(gateway, asking()), 502)["code"] == "upstream_protocol_error"


# -- inputs ------------------------------------------------------------------------------------------------------------

INPUTS: dict[str, tuple[Json, Json]] = {
    "a text": (asking("is it VOLDEMORT?"), asking("is it [NAME]?")),
    "texts": (asking(["Voldemort", "b", "Volde", "mort"]), asking(["[NAME]", "b", "Volde", "mort"])),
    "other fields": (
        asking("a", user="Voldemort", dimensions=2, encoding_format="base64"),
        asking("a", user="[NAME]", dimensions=2, encoding_format="base64"),
    ),
    "dropped": (asking("a", return_token_ids=True), asking("a")),
}


@pytest.mark.parametrize("case", INPUTS.values(), ids=list(INPUTS))
async def test_rules_for_input_act_on_every_text(case: tuple[Json, Json]) -> None:
    given, forwarded = case
    async with before(embedding) as (gateway, upstream):
        assert (await post(gateway, given)).status_code == 200
        assert upstream.asked.body == forwarded
        (await gateway.metrics()).assert_covered()


async def test_a_blocked_input() -> None:
    async with before(embedding) as (gateway, upstream):
        error = error_of(await post(gateway, asking(["a", "a detonator"])), 400)
        assert (error["code"], error["param"]) == ("content_filter", "prompt-stop") and not upstream.calls


REFUSED: dict[str, tuple[Json, str]] = {
    "no input": ({"model": MODEL}, "input"),
    "an empty list": (asking([]), "input"),
    "an object": (asking({"text": "a"}), "input"),
    "objects": (asking([{"text": "a"}]), "input"),
    "mixed": (asking(["a", 1]), "input"),
    "nothing in a list": (asking([[]]), "input"),
    "an encoding": (asking(encoding_format="bytes"), "encoding_format"),
    "a stream": (asking(stream=True), "stream"),
    "no model": ({"input": "a"}, "model"),
    "other letters": ({"model": MODEL, "Input": "a", "input": "a"}, "input"),
    "token ids": (asking([1, 2]), "input"),
    "lists of token ids": (asking([[1], [2]]), "input"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
async def test_what_is_refused(case: tuple[Json, str]) -> None:
    given, param = case
    async with before(embedding) as (gateway, upstream):
        assert error_of(await post(gateway, given), 400)["param"] == param and not upstream.calls


@pytest.mark.parametrize("given", [[1, 2], [[1], [2]]])
@pytest.mark.parametrize("settings", [{"rules": OUTPUT_RULES}, {"mode": Mode.OBSERVE}], ids=["output", "observe"])
async def test_token_ids_pass_where_no_rule_is_for_input(given: Any, settings: dict[str, Any]) -> None:
    async with before(embedding, **settings) as (gateway, upstream):
        assert (await post(gateway, asking(given))).status_code == 200
        assert upstream.asked.body == asking(given)


async def test_it_counts_the_tokens_that_the_upstream_counted() -> None:
    key = ClientKey.of("sk", "team", tpm=100, rpm=100)
    async with before(embedding, keys=(key,)) as (gateway, _):
        headers = {"x-api-key": "sk"}
        answer = await gateway.client.post(PATH, json=asking("x" * 200), headers=headers)
        assert answer.status_code == 200
        again = await gateway.client.post(PATH, json=asking("x"), headers=headers)
        left = int(again.headers["x-ratelimit-remaining-tokens"])
        assert left >= 100 - 3 - len(json.dumps(asking("x"))) // 4 - 1
        assert again.headers["x-ratelimit-remaining-requests"] == "98"


# -- clients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"encoding_format": "float"}], ids=["the default", "float"])
async def test_the_official_client(fields: dict[str, Any]) -> None:
    rules = (*RULES, Rule(id="blocked", words=("kept",), action=Action.BLOCK))
    async with before(embedding, rules=rules) as (gateway, upstream):
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk", max_retries=0) as client:
            answer = await client.embeddings.create(model=MODEL, input=["Voldemort", "b"], **fields)
        assert [each.embedding for each in answer.data] == [pytest.approx(VECTOR)] * 2
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (3, 3)
        assert upstream.asked.body["input"] == ["[NAME]", "b"]


async def test_azures_client() -> None:
    async with before(embedding) as (gateway, upstream):
        async with AsyncAzureOpenAI(
            azure_endpoint=gateway.url, api_key="sk", api_version="2024-10-21", max_retries=0
        ) as client:
            answer = await client.embeddings.create(model="name", input="Voldemort")
        assert answer.data[0].embedding == pytest.approx(VECTOR)
        assert upstream.asked.request.target == PATH
        assert (upstream.asked.body["model"], upstream.asked.body["input"]) == ("name", "[NAME]")
