"""A defect planted in the censor: nothing of the answer comes out after it, and its text nowhere. And one where a
request is parsed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.censor.stream import Censor
from gateway.guard.answer import StreamAnswer
from gateway.proxy.downstream.protocol import BoundedProtocol
from tests.support.gateway import PASSWORD, TIMEOUT, before, error_of
from tests.support.raw_http import Connection
from tests.support.upstream import (
    END,
    chunk,
    completion,
    delta,
    event,
    plain,
    sending,
    sending_then_hanging,
    stream_head,
)

QUOTE = "the exception quotes 12MONKEYS"


@pytest.fixture
def broken_censor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text with `trigger` in it breaks the censor."""
    feed = Censor.feed

    def breaking(self: Censor, text: str) -> str:
        if "trigger" in text:
            raise RuntimeError(QUOTE)
        return feed(self, text)

    monkeypatch.setattr(Censor, "feed", breaking)


def assert_unsaid(text: str, caplog: pytest.LogCaptureFixture) -> None:
    for each in (text, caplog.text):
        assert "MONKEYS" not in each
        assert "quotes" not in each
    assert "Traceback" not in text


@pytest.mark.usefixtures("broken_censor")
async def test_a_stream_ends_with_an_error_and_nothing_held(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = event(delta("Hello ")) + event(delta("held 12MON")) + event(delta("trigger")) + event(delta(" more"))
    async with before(sending_then_hanging(stream_head() + chunk(body))) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.content() == "Hello held "
        assert answer.error is not None
        assert answer.error["code"] == "guard_failed"
        assert not answer.done
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        assert (await gateway.metrics()).value("portcullis_guard_failures_total", policy="default") == 1
        assert_unsaid(answer.response.text + gateway.log.getvalue(), caplog)


async def test_what_was_lost_within_the_censor_counts_as_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Censor.feed

    def breaking(self: Censor, text: str) -> str:
        out = feed(self, text)
        if "trigger" in text:
            raise RuntimeError(QUOTE)
        return out

    monkeypatch.setattr(Censor, "feed", breaking)
    body = event(delta("Hello ")) + event(delta("a trigger, 12MON"))
    async with before(sending_then_hanging(stream_head() + chunk(body))) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.error and answer.error["code"]) == ("Hello ", "guard_failed")
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_withheld_chars_total", channel="content") == len("a trigger, 12MON")


@pytest.mark.parametrize("where", ["_commands", "close"])
async def test_a_stream_that_has_begun_ends_with_an_error_wherever_the_guard_fails(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaking(*_: object) -> None:
        raise RuntimeError(QUOTE)

    monkeypatch.setattr(StreamAnswer, where, breaking)
    async with before(sending(stream_head() + chunk(event(delta("Hello "))) + END)) as (gateway, _):
        answer = await gateway.stream()
        assert answer.error is not None
        assert (answer.error["code"], answer.done) == ("guard_failed", False)
        assert (await gateway.metrics()).value("portcullis_guard_failures_total", policy="default") == 1
        assert_unsaid(answer.response.text + gateway.log.getvalue(), caplog)


async def test_d26_so_it_is_where_a_prompt_passes_without_a_censor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaking(*_: object) -> bool:
        raise RuntimeError(QUOTE)

    monkeypatch.setattr("gateway.guard.channels.passes", breaking)
    async with before(sending(plain(completion("Hello")))) as (gateway, upstream):
        response = await gateway.ask("hello")
        assert error_of(response, 500)["code"] == "guard_failed"
        assert not upstream.calls
        assert_unsaid(response.text + gateway.log.getvalue(), caplog)


@pytest.mark.usefixtures("broken_censor")
@pytest.mark.parametrize("where", ["content", "header", "error", "models", "prompt", "stream header"])
async def test_anything_else_is_500(where: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    good = plain(completion("Hello"))
    # With a word that a rule takes out: a whole text with nothing in it needs no censor.
    answer = {
        "content": plain(completion(f"Hello trigger {PASSWORD}")),
        "header": plain(completion("Hello"), 200, f"OpenAI-Note: trigger {PASSWORD}"),
        "stream header": stream_head(f"OpenAI-Note: trigger {PASSWORD}"),
        "error": plain({"error": {"message": f"Hello trigger {PASSWORD}"}}, 400),
    }.get(where, good)
    models = plain({"data": [{"id": "trigger"}]}) if where == "models" else None
    async with before(sending(answer), models=models) as (gateway, upstream):
        if where == "models":
            response = await gateway.client.get("/v1/models")
        else:
            said = "trigger Voldemort" if where == "prompt" else "hello"
            response = await gateway.ask(said, stream=where == "stream header")
        assert error_of(response, 500)["code"] == "guard_failed"
        assert len(upstream.calls) == (0 if where in ("models", "prompt") else 1)
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_guard_failures_total", policy="default") == 1
        assert metrics.value("portcullis_streams_active") == 0
        assert metrics.value("portcullis_upstream_errors_total", kind="guard_failed") == 0
        assert_unsaid(response.text + gateway.log.getvalue(), caplog)


@pytest.mark.parametrize("callback", ["on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"])
async def test_a_defect_while_a_request_is_parsed(monkeypatch: pytest.MonkeyPatch, callback: str) -> None:
    original = getattr(BoundedProtocol, callback)

    def broken(self: BoundedProtocol, *given: bytes) -> None:
        if self.parser.get_method() == b"POST":
            raise MemoryError
        original(self, *given)

    monkeypatch.setattr(BoundedProtocol, callback, broken)
    get, request = (
        b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    )
    for received, statuses in [((request,), [500]), ((get, request), [200, 500]), ((get + request,), [200])]:
        connection = Connection()
        for data in received:
            await connection.send(data)
        assert connection.statuses == statuses
        assert statuses[-1] == 200 or connection.answers[-1].body["error"]["code"] == "internal_error"
        assert connection.transport.end == "eof"
