"""Constraints from client to upstream and back: in front of an upstream that does not care, and of one that could."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.policy.model import Action, Conflict, Constrain, Language, Mode, Rule, Violation
from tests.support.completions import ask as ask_for_text
from tests.support.completions import completed, streamed
from tests.support.completions import stream as stream_text
from tests.support.gateway import RunningGateway, before, config_for, error_of, running
from tests.support.journalled import hmac_of, journal_at, journalled
from tests.support.upstream import (
    END,
    Call,
    Json,
    Play,
    Upstream,
    chunk,
    completion,
    delta,
    event,
    plain,
    playing,
    sending,
    sending_then_closing,
    sending_then_hanging,
    stream,
    stream_head,
)

YEAR = Constrain(language=Language.REGEX, texts=("[A-Z][a-z]+ [0-9]{4}",))
YES = Constrain(language=Language.CHOICE, texts=("yes", "no"))
OBJECT = Constrain(language=Language.JSON_SCHEMA, texts=('{"type": "object", "required": ["a"]}',))
CONSTRAINED: dict[str, Any] = {"rules": (), "constrain": YEAR}


async def outcomes(gateway: RunningGateway) -> dict[str, float]:
    metrics = await gateway.metrics()
    metrics.assert_covered()
    name = "portcullis_constraints_total"
    return {labels["outcome"]: metrics.value(name, **labels) for labels in metrics.labels(name)}


@asynccontextmanager
async def before_vllm(play: Play, **settings: Any) -> AsyncIterator[tuple[RunningGateway, Upstream]]:
    """A gateway in front of an upstream that it takes for a vLLM."""
    async with playing(play) as upstream:
        config = config_for(upstream.base_url, **settings)
        steered = {name: replace(each, type="vllm") for name, each in config.upstreams.items()}
        async with running(replace(config, upstreams=steered)) as gateway:
            yield gateway, upstream


# text, finish reason → what comes out, finish reason, outcome, the log's word
ANSWERS = [
    ("Anna 2024", "stop", "Anna 2024", "stop", "held", "ok"),
    ("Anna was", "stop", "Anna ", "content_filter", "left", "blocked"),
    ("Anna 20", "stop", "Anna 20", "content_filter", "left", "blocked"),
    ("Anna 20", "length", "Anna 20", "length", "unfinished", "ok"),
]


@pytest.mark.parametrize(("text", "reason", "shown", "finish", "outcome", "word"), ANSWERS)
async def test_streamed(text: str, reason: str, shown: str, finish: str, outcome: str, word: str) -> None:
    async with before(sending(stream(*text, finish=reason)), **CONSTRAINED) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish(), answer.done, answer.error) == (shown, finish, True, None)
        assert await outcomes(gateway) == {outcome: 1}
        (line,) = await gateway.logged(1)
        assert (line["outcome"], line["constraints"]) == (word, {outcome: 1})


@pytest.mark.parametrize(("text", "reason", "shown", "finish", "outcome", "word"), ANSWERS)
async def test_plain(text: str, reason: str, shown: str, finish: str, outcome: str, word: str) -> None:
    async with before(sending(plain(completion(text, reason))), **CONSTRAINED) as (gateway, _):
        choice = (await gateway.ask()).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (shown, finish)
        assert await outcomes(gateway) == {outcome: 1}
        (line,) = await gateway.logged(1)
        assert (line["outcome"], line["constraints"]) == (word, {outcome: 1})


async def test_an_answer_that_leaves_is_stopped_at_the_upstream() -> None:
    """Which would continue for ever."""
    play = sending_then_hanging(stream_head() + chunk(event(delta("Anna ")) + event(delta("was"))))
    async with before(play, **CONSTRAINED) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish(), answer.done) == ("Anna ", "content_filter", True)


async def test_one_that_breaks_off_is_unfinished() -> None:
    async with before(sending_then_closing(stream_head() + chunk(event(delta("Anna ")))), **CONSTRAINED) as (
        gateway,
        _,
    ):
        answer = await gateway.stream()
        assert answer.content() == "Anna " and answer.finish() is None and answer.error is not None
        assert await outcomes(gateway) == {"unfinished": 1}


async def test_other_choices_go_on() -> None:
    events = [delta("no", index=0), delta("Bert 19", index=1), delta("99", index=1), delta(index=1, finish="stop")]
    async with before(sending(stream_head() + chunk(b"".join(map(event, events))) + END), **CONSTRAINED) as (
        gateway,
        _,
    ):
        answer = await gateway.stream(n=2)
        assert (answer.content(0), answer.finish(0)) == ("", "content_filter")
        assert (answer.content(1), answer.finish(1)) == ("Bert 1999", "stop")
        assert await outcomes(gateway) == {"left": 1, "held": 1}


@pytest.mark.parametrize("lenient", [{"constrain": replace(YEAR, on_violation=Violation.FLAG)}, {"mode": Mode.OBSERVE}])
async def test_only_reported(lenient: dict[str, Any]) -> None:
    async with before(sending(stream("Anna was")), **{**CONSTRAINED, **lenient}) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish()) == ("Anna was", "stop")
        assert await outcomes(gateway) == {"left": 1}
        assert (await gateway.logged(1))[0]["outcome"] == "flagged"


async def test_text_completions_too() -> None:
    async with before(sending(streamed("Anna ", "was")), **CONSTRAINED) as (gateway, _):
        answer = await stream_text(gateway)
        assert answer.finish() == "content_filter" and "was" not in answer.response.text
        assert await outcomes(gateway) == {"left": 1}
    async with before(sending(plain(completed("Anna 2024", "Anna 202"))), **CONSTRAINED) as (gateway, _):
        choices = (await ask_for_text(gateway, n=2)).json()["choices"]
        assert [choice["finish_reason"] for choice in choices] == ["stop", "content_filter"]
        assert await outcomes(gateway) == {"held": 1, "left": 1}


async def test_a_long_answer_is_checked_aside() -> None:
    """A whole answer that is scanned in a thread, under a grammar that only the parser knows."""
    text = '{"a": [' + ", ".join(["1"] * 20_000) + "]"
    settings = {**CONSTRAINED, "constrain": OBJECT}
    async with before(sending(plain(completion(text + "}"))), **settings) as (gateway, _):
        assert (await gateway.ask()).json()["choices"][0]["message"]["content"] == text + "}"
    async with before(sending(plain(completion(text + "]"))), **settings) as (gateway, _):
        choice = (await gateway.ask()).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, "content_filter")


async def test_the_journal_has_it(tmp_path: Path) -> None:
    settings = {**CONSTRAINED, "journal": journal_at(tmp_path)}
    async with before(sending(stream("Anna ", "was")), **settings) as (gateway, _):
        await gateway.stream()
        (match,), (request,) = await journalled(tmp_path, 1)
    assert request["outcome"] == "blocked"
    found = {name: match[name] for name in ("rule", "action", "channel", "choice", "offset", "length", "hmac")}
    assert found == {
        "rule": "constrain",
        "action": "block",
        "channel": "content",
        "choice": 0,
        "offset": 5,
        "length": 0,
        "hmac": hmac_of(""),
    }


# -- what the upstream is asked ----------------------------------------------------------------------------------------


def asked(upstream: Upstream) -> Json:
    body: Json = upstream.asked.body
    return {name: value for name, value in body.items() if name not in ("model", "messages")}


async def held(call: Call) -> None:
    await call.send(plain(completion("yes")))


async def test_a_vllm_is_told() -> None:
    async with before_vllm(held, rules=(), constrain=YES) as (gateway, upstream):
        own: Json = {
            "response_format": {"type": "json_object"},
            "guided_regex": "x",
            "tool_choice": "required",
            "tools": [],
        }
        assert (await gateway.ask(**own, max_tokens=5)).status_code == 200
        assert asked(upstream) == {"max_tokens": 5, "structured_outputs": {"choice": ["yes", "no"]}}


async def test_others_are_not_told() -> None:
    async with before(held, rules=(), constrain=YES) as (gateway, upstream):
        assert (await gateway.ask(response_format={"type": "json_object"}, tools=[])).status_code == 200
        assert asked(upstream) == {"tools": []}


async def test_nothing_is_changed_under_observe() -> None:
    async with before_vllm(held, rules=(), constrain=YES, mode=Mode.OBSERVE) as (gateway, upstream):
        own: Json = {"response_format": {"type": "json_object"}}
        assert (await gateway.ask(**own)).status_code == 200
        assert asked(upstream) == own


@pytest.mark.parametrize("stream", [True, False])
async def test_a_clients_own_format_is_refused(stream: bool) -> None:
    rejecting = replace(YES, on_conflict=Conflict.REJECT)
    async with before_vllm(held, rules=(), constrain=rejecting) as (gateway, upstream):
        error = error_of(await gateway.ask(structured_outputs={"regex": "x"}, stream=stream), 400)
        assert error["param"] == "structured_outputs"
        assert error["message"] == "`structured_outputs` is not accepted here: the policy says what form an answer has."
        assert upstream.calls == []
        assert (await gateway.ask(response_format={"type": "text"})).status_code == 200


async def test_rules_act_beside_it() -> None:
    blocking = Rule(id="no", words=("no",), action=Action.BLOCK, message="Not so.")
    async with before_vllm(sending(stream("n", "o")), rules=(blocking,), constrain=YES) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.finish()) == ("Not so.", "content_filter")
        assert json.dumps(answer.chunks).count("Not so.") == 1
