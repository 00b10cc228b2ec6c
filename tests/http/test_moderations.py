"""/v1/moderations: our own rules as a check; no upstream is asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.guard.moderation import moderating
from gateway.policy.model import Action, Channel, ClientKey, Direction, Journal, Limits, Mode, Policy, Route, Rule
from gateway.wire import moderations
from tests.support.gateway import INPUT, RULES, RunningGateway, before, error_of, question
from tests.support.upstream import completion, plain, sending

PATH = "/v1/moderations"
ANSWER = sending(plain(completion("fine")))
BOTH = frozenset(Direction)
IDS = [rule.id for rule in RULES]


async def check(gateway: RunningGateway, given: Any, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    answer = await gateway.client.post(PATH, json={"input": given, **fields}, headers=headers)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    for result in body["results"]:
        assert result["flagged"] is any(result["categories"].values())
        assert result["category_scores"] == {name: float(found) for name, found in result["categories"].items()}
        assert result["category_applied_input_types"].keys() == result["categories"].keys()
    return body


def found(body: Any) -> list[set[str]]:
    return [{name for name, value in result["categories"].items() if value} for result in body["results"]]


TEXTS = {
    "clean": ("nothing here", set()),
    "empty": ("", set()),
    "redacted": ("so 12MONKEYS", {"password"}),
    "flagged": ("a dragon", {"notable"}),
    "a block is not the end": ("FORBIDDEN, then a detonator, Voldemort, 12monkeys", set(IDS) - {"notable"}),
    "far into a long text": ("x" * 5000 + "12MON" + "KEYS", {"password"}),
    "across a step": ("x" * 4091 + "12MONKEYS", {"password"}),
    "escaped in JSON": ('{"note": "\\u00312MONKEYS", "b": "a \\u0064ragon"}', {"password", "notable"}),
    "escaped in a block of JSON": ('see:\n```json\n{"note": "\\u0056oldemort"}\n```', {"prompt-name"}),
}


@pytest.mark.parametrize("case", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("mode", Mode)
async def test_all_rules_of_both_directions(case: tuple[str, set[str]], mode: Mode) -> None:
    text, expected = case
    async with before(ANSWER, mode=mode) as (gateway, upstream):
        body = await check(gateway, text)
        assert found(body) == [expected] and list(body["results"][0]["categories"]) == IDS
        assert body["model"] == "default" and body["id"].startswith("modr-")
        assert set(map(tuple, body["results"][0]["category_applied_input_types"].values())) == {("text",)}
        assert not upstream.calls
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_forwarded_chars_total") == 0
        assert metrics.value("portcullis_matches_total", action="flag") == len(expected)
        assert metrics.value("portcullis_matches_total") == len(expected)


def test_the_rules_find_what_the_censor_finds_one_by_one() -> None:
    """The naive way: every rule alone, on the text."""
    text = "12MONKEYS FORBIDDEN dragon Voldemort detonator 12monkeys"
    policy = Policy(name="p", rules=RULES, max_hold=4)
    steps = moderating([[text], ["dragon"]], compile_policy(policy), None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            moderated = end.value
            break
    for given, matched in zip((text, "dragon"), moderated.found, strict=True):
        for rule in RULES:
            flagging = Rule(id=rule.id, words=rule.words, action=Action.FLAG, apply_to=BOTH)
            censor = Censor(
                compile_policy(Policy(name="p", rules=(flagging,), max_hold=4)).program(
                    Direction.INPUT, Channel.CONTENT
                )
            )
            censor.feed(given)
            censor.finish()
            assert (rule.id in matched) is bool(censor.matches), rule.id


async def test_a_rule_for_both_directions_counts_once() -> None:
    rules = (Rule(id="r", words=("bad",), action=Action.BLOCK, apply_to=BOTH),)
    async with before(ANSWER, rules=rules) as (gateway, _):
        assert found(await check(gateway, "bad bad")) == [{"r"}]
        assert (await gateway.metrics()).value("portcullis_matches_total", rule="r") == 2


async def test_a_rule_for_another_channel_finds_nothing() -> None:
    rules = (Rule(id="r", words=("bad",), channels=frozenset({Channel.TOOL_NAMES})),)
    async with before(ANSWER, rules=rules) as (gateway, _):
        assert found(await check(gateway, "bad")) == [set()]


async def test_lists_and_parts() -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
    note = "data:text/plain;base64," + base64.b64encode(b"it is 12MONKEYS, and much more than that").decode()

    def image(url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    async with before(ANSWER) as (gateway, _):
        assert found(await check(gateway, ["a dragon", "b", "12MON", "KEYS"])) == [{"notable"}, set(), set(), set()]
        parts = [{"type": "text", "text": "a dragon"}, image(picture), {"type": "text", "text": "detonator"}]
        assert found(await check(gateway, parts)) == [{"notable", "prompt-stop"}]
        pictures = await check(gateway, [image(picture)])
        assert found(pictures) == [set()]
        assert set(map(tuple, pictures["results"][0]["category_applied_input_types"].values())) == {()}
        assert found(await check(gateway, [image("https://h/12MONKEYS")])) == [{"password"}]
        assert found(await check(gateway, [image(note)])) == [{"password"}]


REFUSED: dict[str, tuple[Any, str | None]] = {
    "no input": ({}, "input"),
    "an empty list": ({"input": []}, "input"),
    "a number": ({"input": 1}, "input"),
    "mixed": ({"input": ["a", 1]}, "input"),
    "token ids": ({"input": [1, 2]}, "input"),
    "an unknown part": ({"input": [{"type": "audio", "text": "a"}]}, "input"),
    "a part without text": ({"input": [{"type": "text"}]}, "input"),
    "a model that is no name": ({"input": "a", "model": 1}, "model"),
    "too many categories": ({"input": ["a"] * (moderations.MAX_CATEGORIES // len(RULES) + 1)}, "input"),
    "no object": ([], None),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
async def test_what_is_refused(case: tuple[Any, str | None]) -> None:
    body, param = case
    async with before(ANSWER, limits=Limits(max_streams=1)) as (gateway, _):
        for _ in range(2):  # the slot is free again
            assert error_of(await gateway.client.post(PATH, json=body), 400)["param"] == param
        assert found(await check(gateway, "a")) == [set()]


# -- which policy ------------------------------------------------------------------------------------------------------

ROUTES = (
    Route(model="free-*", upstream="played", policy="open"),
    Route(model="*", upstream="played", policy="default"),
)
KEYS = (ClientKey.of("sk-all", "all"), ClientKey.of("sk-default", "some", policies=frozenset({"default"})))


@pytest.mark.parametrize(
    ("key", "fields", "policy"),
    [
        ("sk-all", {}, "open"),
        ("sk-all", {"model": "free-1"}, "open"),
        ("sk-all", {"model": "omni-moderation-latest"}, "default"),
        ("sk-default", {}, "default"),
        ("sk-default", {"model": "free-1"}, "default"),
    ],
)
async def test_the_policy_is_that_of_the_route(key: str, fields: dict[str, Any], policy: str) -> None:
    async with before(ANSWER, routes=ROUTES, keys=KEYS) as (gateway, _):
        body = await check(gateway, "12MONKEYS", {"x-api-key": key}, **fields)
        assert body["model"] == policy and found(body) == [{"password"} if policy == "default" else set()]
        (line,) = await gateway.logged(1)
        assert (line["policy"], line["outcome"], line["upstream"]) == (
            policy,
            "flagged" if policy == "default" else "ok",
            "none",
        )


async def test_a_model_without_a_route() -> None:
    async with before(ANSWER, routes=ROUTES[:1]) as (gateway, _):
        answer = await gateway.client.post(PATH, json={"input": "a", "model": "other"})
        assert error_of(answer, 404)["code"] == "model_not_found"


# -- keys, limits, the journal -----------------------------------------------------------------------------------------


async def test_it_needs_a_key_and_counts_as_a_request() -> None:
    async with before(ANSWER, keys=(ClientKey.of("sk", "team", rpm=2, tpm=100),)) as (gateway, _):
        assert error_of(await gateway.client.post(PATH, json={"input": "a"}), 401)["code"] == "invalid_api_key"
        headers = {"authorization": "Bearer sk"}
        for left in ("1", "0"):
            answer = await gateway.client.post(PATH, json={"input": "long " * 100}, headers=headers)
            assert answer.status_code == 200 and answer.headers["x-ratelimit-remaining-requests"] == left
        refused = await gateway.client.post(PATH, json={"input": "a"}, headers=headers)
        assert error_of(refused, 429)["type"] == "requests"
        assert error_of(await gateway.post(question(), headers), 429)["type"] == "requests"


async def test_the_journal_has_its_matches(tmp_path: Path) -> None:
    journal = Journal(path=str(tmp_path / "j"), key="k" * 16, required=True)
    async with before(ANSWER, journal=journal) as (gateway, _):
        await check(gateway, "12MONKEYS")
        lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
        assert any(line.get("rule") == "password" for line in lines)
        assert "MONKEYS" not in (tmp_path / "j").read_text().upper()


# -- clients -----------------------------------------------------------------------------------------------------------


async def test_the_official_client() -> None:
    rules = (*RULES, Rule(id="violence", words=("fight",), apply_to=INPUT))
    async with (
        before(ANSWER, rules=rules) as (gateway, _),
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk", max_retries=0) as client,
    ):
        answer = await client.moderations.create(input=["a fight", "peace"])
        named = await client.moderations.create(input="12MONKEYS", model="omni-moderation-latest")
    assert [result.flagged for result in answer.results] == [True, False]
    assert answer.results[0].categories.violence is True
    assert named.results[0].categories.model_dump()["password"] is True


async def test_a_page_may_not_ask_without_a_key() -> None:
    async with before(ANSWER) as (gateway, _):
        content = {"content-type": "text/plain"}
        answer: httpx2.Response = await gateway.client.post(PATH, content=b'{"input": "a"}', headers=content)
        assert error_of(answer, 415)["code"] == "unsupported_media_type"
