"""Conversations by `/responses` over a chat upstream, whose answers the gateway keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.app import Portcullis
from gateway.observe.log import RequestLog
from gateway.policy.model import Action, ClientKey, Limits, Rule
from tests.support.gateway import INPUT, RULES, before, config_for, error_of
from tests.support.upstream import MODEL, Call, Json, completion, plain, stream

KEPT: Json = {"limits": Limits(stored_responses=2**20)}
SHOWN = "It is [CENSORED]."
FIRST = {"role": "user", "content": "Is [NAME] it?"}
SECOND = {"role": "user", "content": "and now?"}


async def leaking(call: Call) -> None:
    await call.send(
        stream("It is 12", "MONKEYS.") if call.body.get("stream") else plain(completion("It is 12MONKEYS."))
    )


async def ask(gateway: Any, said: Any, key: str = "one", **fields: Any) -> Any:
    body = {"model": MODEL, "input": said, **fields}
    return await gateway.client.post("/v1/responses", json=body, headers={"authorization": f"Bearer {key}"})


def response_of(answer: Any) -> Json:
    assert answer.status_code == 200, answer.text
    if not answer.headers["content-type"].startswith("text/event-stream"):
        whole: Json = answer.json()
        return whole
    last = answer.text.strip().rpartition("data: ")[2]
    ended: Json = json.loads(last)["response"]
    return ended


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_next_turn_by_either_reference(streamed: bool) -> None:
    async with before(leaking, keys=("one",), **KEPT) as (gateway, upstream):
        first = response_of(await ask(gateway, "Is Voldemort it?", stream=streamed))
        assert first["store"] and first["output"][0]["content"][0]["text"] == SHOWN
        item = {"type": "item_reference", "id": first["output"][0]["id"]}
        for said, fields in (("and now?", {"previous_response_id": first["id"]}), ([FIRST, item, SECOND], {})):
            response_of(await ask(gateway, said, stream=streamed, **fields))
        (await gateway.metrics()).assert_covered()
    conversation = [FIRST, {"role": "assistant", "content": SHOWN}, SECOND]
    assert [call.body["messages"] for call in upstream.calls] == [[FIRST], conversation, conversation]


async def test_turns_add_up() -> None:
    async with before(leaking, keys=("one",), **KEPT) as (gateway, upstream):
        last = response_of(await ask(gateway, "a"))
        for said in "bc":
            last = response_of(await ask(gateway, said, previous_response_id=last["id"]))
    roles = [message["role"] for message in upstream.calls[-1].body["messages"]]
    assert roles == ["user", "assistant"] * 2 + ["user"]


REFUSED: dict[str, tuple[Json, Json, Json]] = {
    "another key's": ({}, {}, {"key": "two"}),
    "not to be stored": ({}, {"store": False}, {}),
    "with placeholders": (
        {"rules": (*RULES, Rule(id="who", words=("Moria",), action=Action.PSEUDONYMIZE, apply_to=INPUT))},
        {},
        {},
    ),
    "nothing is kept": ({"limits": Limits()}, {}, {}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_not_kept_for_a_request(case: str) -> None:
    settings, before_it, then = REFUSED[case]
    async with before(leaking, keys=("one", "two"), **{**KEPT, **settings}) as (gateway, upstream):
        first = response_of(await ask(gateway, "a", **before_it))
        item = {"type": "item_reference", "id": first["output"][0]["id"]}
        assert error_of(await ask(gateway, [item], **then), 400)["param"] == "input[0]"
        refused = error_of(await ask(gateway, "b", previous_response_id=first["id"], **then), 400)
        assert refused["param"] == "previous_response_id"
        assert first["store"] is (case == "another key's") and len(upstream.calls) == 1


async def test_what_is_written_out_is_scanned_and_bounded() -> None:
    """What the model said may be more than the rules for input let through."""

    async def play(call: Call) -> None:
        await call.send(plain(completion("Voldemort " + "x" * 3000)))

    limits = Limits(stored_responses=2**20, max_body=4096)
    async with before(play, keys=("one",), limits=limits) as (gateway, upstream):
        first = response_of(await ask(gateway, "a"))
        second = response_of(await ask(gateway, "b", previous_response_id=first["id"]))
        assert upstream.calls[-1].body["messages"][1]["content"].startswith("[NAME] x")
        refused = error_of(await ask(gateway, "c", previous_response_id=second["id"]), 400)
        assert (refused["param"], len(upstream.calls)) == ("input", 2)


async def test_an_upstream_that_stores_answers_gets_the_reference() -> None:
    async def play(call: Call) -> None:
        await call.send(plain({"id": "resp_1", "object": "response", "status": "completed", "output": []}))

    native = {"endpoints": frozenset({"responses"})}
    async with before(play, keys=("one",), upstream=native, **KEPT) as (gateway, upstream):
        await ask(gateway, "a", previous_response_id="resp_0")
    assert upstream.asked.body["previous_response_id"] == "resp_0"


@pytest.mark.parametrize("alone", [True, False])
def test_nothing_is_kept_beside_other_workers(alone: bool, tmp_path: Path) -> None:
    config = config_for("http://127.0.0.1:9/v1", keys=(ClientKey.of("one", "one"),), **KEPT)
    for shared in ("metrics", "limits"):
        (tmp_path / shared).mkdir()
    gateway = Portcullis(config, RequestLog("json"), runtime_dir=None if alone else tmp_path)
    assert (gateway.state.stored is not None) is alone
