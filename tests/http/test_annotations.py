"""What the rules did, told to clients that ask for it, in every dialect and form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.policy.model import Mode
from tests.support.endpoints import BODIES, SPEAKS, STREAMED, answering
from tests.support.gateway import RunningGateway, before, error_of, question
from tests.support.upstream import chunk, delta, event, sending_then_resetting, stream_head

ASK = {"x-portcullis-annotate": "true"}
TEXTS = {
    "pass": (("It is ", "fine."), "fine?", []),
    "flagged": (("a dra", "gon"), "fine?", [("notable", "flag", 1)]),
    "redacted": (("12MON", "KEYS 12MONKEYS"), "fine?", [("password", "redact", 2)]),
    "blocked": (("a FORB", "IDDEN b"), "fine?", [("stop", "block", 1)]),
    "redacted in the prompt": (("It is ", "fine."), "Voldemort", [("prompt-name", "redact", 1)]),
}


def asking(path: str, prompt: str, stream: bool) -> Any:
    return json.loads(json.dumps({**BODIES[path], "stream": stream}).replace("Voldemort and 12MONKEYS?", prompt))


def annotation(text: str, stream: bool) -> Any:
    """The only one of an answer, in the last event that is JSON."""
    if not stream:
        return json.loads(text).get("portcullis")
    payloads = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    assert not any("portcullis" in json.loads(payload) for payload in payloads[:-1])
    return json.loads(payloads[-1]).get("portcullis")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("path", STREAMED)
@SPEAKS
async def test_an_answer_says_what_the_rules_did(path: str, name: str, stream: bool, settings: dict[str, Any]) -> None:
    texts, prompt, matches = TEXTS[name]
    async with before(answering(texts), **settings) as (gateway, _):
        body = asking(path, prompt, stream)
        answer = await gateway.client.post(path, json=body, headers=ASK)
        assert answer.status_code == 200
        found = annotation(answer.text, stream)
        assert found["verdict"] == name.partition(" ")[0]
        content = [match for match in found["matches"] if match["channel"] == "content"]
        assert [(match["rule"], match["action"], match["count"]) for match in content] == matches
        without = await gateway.client.post(path, json=body)
        assert "portcullis" not in without.text
        if stream and path in ("/v1/chat/completions", "/v1/completions"):
            assert answer.text.endswith("data: [DONE]\n\n")
        (await gateway.metrics()).assert_covered()


async def test_embeddings_say_so_too() -> None:
    async with before(answering(("fine",))) as (gateway, _):
        found = (await gateway.client.post("/v1/embeddings", json=BODIES["/v1/embeddings"], headers=ASK)).json()
        match = {"rule": "prompt-name", "action": "redact", "channel": "content", "count": 1}
        assert found["portcullis"] == {"verdict": "redacted", "matches": [match]}


async def said(gateway: RunningGateway, headers: dict[str, str] | None) -> bool:
    return "portcullis" in (await gateway.post(question(), headers)).json()


@pytest.mark.parametrize(
    ("policy", "default", "asked"), [(None, False, True), (True, True, True), (False, False, False)]
)
async def test_the_policy_decides_first(policy: bool | None, default: bool, asked: bool) -> None:
    async with before(answering(("fine",)), annotate=policy) as (gateway, upstream):
        assert (await said(gateway, None), await said(gateway, ASK)) == (default, asked)
        assert await said(gateway, {"x-portcullis-annotate": "false"}) is default
        assert "x-portcullis-annotate" not in upstream.calls[1].request.headers


async def test_what_only_reports_is_told_as_such() -> None:
    async with before(answering(("a 12MONKEYS",)), mode=Mode.OBSERVE) as (gateway, _):
        found = (await gateway.post(question(), ASK)).json()["portcullis"]
        assert found["verdict"] == "flagged" and {match["action"] for match in found["matches"]} == {"flag"}


async def test_errors_are_not_annotated() -> None:
    async with before(answering(("fine",))) as (gateway, _):
        assert "portcullis" not in str(error_of(await gateway.post(question("detonator"), ASK), 400))
    cut = sending_then_resetting(stream_head() + chunk(event(delta("It is 12MONKEYS and"))))
    async with before(cut) as (gateway, _):
        answer = await gateway.post(question(stream=True), ASK)
        assert '"error"' in answer.text and "portcullis" not in answer.text
