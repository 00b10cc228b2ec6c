"""Over every endpoint: scanned = forwarded + replaced + withheld; the tokens, the model and the cause in the log."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from gateway.policy.model import Route
from gateway.wire.dialects import SERVED
from tests.support.endpoints import BODIES, COUNT_TOKENS, NATIVE, SPEAKS, STREAMED, answering
from tests.support.gateway import RunningGateway, before
from tests.support.upstream import (
    DONE,
    MODEL,
    Json,
    chunk,
    completion,
    delta,
    event,
    plain,
    sending,
    sending_then_closing,
    sending_then_resetting,
    stream_head,
)

TEXTS = {
    "clean": ("It is ", "fine."),
    "redacted": ("It is 12", "MONKEYS."),
    "flagged": ("a dra", "gon"),
    "blocked": ("so 12MONKEYS, FORB", "IDDEN and more"),
    "held at the end": ("It is ", "12MONK"),
}


def test_every_endpoint_is_tried() -> None:
    elsewhere = {"/v1/messages/count_tokens"}  # not served by an upstream that speaks chat; see test_count_tokens
    assert BODIES.keys() | elsewhere == {f"/v1{dialect.path}" for dialect in SERVED} | {"/v1/moderations"}


async def assert_covered(gateway: RunningGateway, requests: int) -> Json:
    (await gateway.metrics()).assert_covered()
    *_, line = await gateway.logged(requests)
    assert "coverage_errors" not in line
    assert line["scanned"] == line["forwarded"] + line["replaced"] + line["withheld"] > 0
    return line


@pytest.mark.parametrize("texts", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("path", BODIES)
@SPEAKS
async def test_what_is_scanned_is_forwarded_replaced_or_withheld(
    path: str, texts: tuple[str, ...], settings: dict[str, Any]
) -> None:
    if path == COUNT_TOKENS:
        settings = NATIVE
    async with before(answering(texts), **settings) as (gateway, _):
        for number, stream in enumerate((False, True), start=1):
            if stream and path not in STREAMED:
                continue
            answer: httpx2.Response = await gateway.client.post(path, json={**BODIES[path], "stream": stream})
            assert answer.status_code == 200, answer.text
            if path != "/v1/moderations":
                assert "12MONKEYS" not in answer.text and "FORBIDDEN" not in answer.text
            await assert_covered(gateway, number)


@pytest.mark.parametrize("path", STREAMED)
async def test_a_stream_that_breaks_off_is_covered(path: str) -> None:
    part = delta("It is 12MON") if path != "/v1/completions" else {"choices": [{"index": 0, "text": "It is 12MON"}]}
    async with before(sending_then_resetting(stream_head() + chunk(event(part)))) as (gateway, _):
        await gateway.client.post(path, json={**BODIES[path], "stream": True})
        assert (await assert_covered(gateway, 1))["error"] == "reset"


# -- tokens and the model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "tokens"),
    [
        ("/v1/chat/completions", (3, 5)),
        ("/v1/completions", (3, 5)),
        ("/v1/responses", (3, 5)),
        ("/v1/messages", (3, 5)),
        ("/v1/embeddings", (3, 0)),
    ],
)
async def test_the_tokens_that_the_upstream_counted(path: str, tokens: tuple[int, int]) -> None:
    async with before(answering(("fine",))) as (gateway, _):
        await gateway.client.post(path, json=BODIES[path])
        (line,) = await gateway.logged(1)
        assert (line["model"], line["prompt_tokens"], line["completion_tokens"]) == (MODEL, *tokens)
        metrics = await gateway.metrics()
        for kind, count in zip(("prompt", "completion"), tokens, strict=True):
            assert metrics.value("portcullis_tokens_total", route="*", kind=kind) == count


async def test_tokens_of_a_stream_and_of_none() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    body = event(delta("a")) + event({**delta(), "choices": [], "usage": usage}) + DONE
    async with before(sending_then_closing(stream_head() + chunk(body))) as (gateway, _):
        await gateway.stream()
        (line,) = await gateway.logged(1)
        assert (line["prompt_tokens"], line["completion_tokens"]) == (7, 2)
    async with before(answering(("a",))) as (gateway, _):
        await gateway.stream()
        (line,) = await gateway.logged(1)
        assert "prompt_tokens" not in line
        assert (await gateway.metrics()).labels("portcullis_tokens_total") == []


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("org/gpt-4o_2024-08-06:free@1+x", True),
        ("12MONKEYS", False),
        ("voldemort", False),
        ("a-dragon", False),
        ("my key is secret", False),
        ("a\nb", False),
        ("ä", False),
        ("x" * 257, False),
    ],
)
async def test_the_log_shows_a_model_and_no_text(model: str, shown: bool) -> None:
    async with before(sending(plain(completion("fine")))) as (gateway, _):
        await gateway.ask(model=model)
        (line,) = await gateway.logged(1)
        assert line["model"] == (model if shown else None)
        assert shown or model not in gateway.log.getvalue()


async def test_a_request_without_a_route_has_no_model() -> None:
    routes = (Route(model="a", upstream="played", policy="default"),)
    async with before(sending(plain(completion("fine"))), routes=routes) as (gateway, _):
        await gateway.ask(model="b")
        assert (await gateway.logged(1))[0]["model"] is None
