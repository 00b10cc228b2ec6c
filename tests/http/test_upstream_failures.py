"""An upstream that is not there, too slow, cut off, or answers with errors: what the client gets."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from gateway.policy.model import Limits
from gateway.wire.json import MAX_VALUES
from tests.support.gateway import TIMEOUT, UPSTREAM_KEY, before, config_for, error_of, quick, running
from tests.support.upstream import (
    DONE,
    END,
    Call,
    Play,
    chunk,
    completion,
    delta,
    event,
    events,
    http,
    plain,
    sending,
    sending_then_closing,
    sending_then_hanging,
    sending_then_resetting,
    stream_head,
)

LEAK = "12MONKEYS"


# -- no answer at all: the same for streams and plain requests ---------------------------------------------------------


async def assert_failure(gateway: Any, status: int, code: str, kind: str) -> None:
    for stream in (False, True):
        response = await gateway.ask(stream=stream)
        error = error_of(response, status)
        assert error["code"] == code
        assert response.headers["x-portcullis-policy"] == "default"
        assert "127.0.0.1" not in response.text
        assert "played" not in response.text
    metrics = await gateway.metrics()
    assert metrics.value("portcullis_upstream_errors_total", upstream="played", kind=kind) == 2
    assert metrics.value("portcullis_requests_total", status=str(status), policy="default", route="*") == 2
    for line in await gateway.logged(2):
        assert (line["outcome"], line["upstream"], line["route"], line["error"]) == ("failed", "played", "*", kind)


async def test_refused_is_502() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with running(config_for(f"http://127.0.0.1:{port}/v1")) as gateway:
        await assert_failure(gateway, 502, "upstream_unreachable", "refused")
        assert (await gateway.client.get("/readyz")).status_code == 503
        error_of(await gateway.client.get("/v1/models"), 502)


async def test_an_unknown_host_is_502() -> None:
    async with running(config_for("http://nowhere.invalid/v1")) as gateway:
        await assert_failure(gateway, 502, "upstream_unreachable", "dns")


async def test_a_connection_not_taken_is_504() -> None:
    # A listener whose backlog is full leaves further connections waiting.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        made = config_for(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", timeouts=quick(connect=0.3))
        async with running(made) as gateway:
            await assert_failure(gateway, 504, "upstream_timeout", "connect_timeout")
        for filler in fillers:
            filler.close()


NO_HEAD: dict[str, tuple[Play, int, str, str]] = {
    "closed": (sending_then_closing(), 502, "upstream_protocol_error", "protocol"),
    "reset": (sending_then_resetting(), 502, "upstream_reset", "reset"),
    "closed in the head": (
        sending_then_closing(b"HTTP/1.1 200 OK\r\nConte"),
        502,
        "upstream_protocol_error",
        "protocol",
    ),
    "reset in the head": (sending_then_resetting(b"HTTP/1.1 200 OK\r\nConte"), 502, "upstream_reset", "reset"),
    "no HTTP": (sending_then_closing(b"220 mail.example 12MONKEYS\r\n"), 502, "upstream_protocol_error", "protocol"),
    "endless head": (
        sending_then_closing(b"HTTP/1.1 200 OK\r\n" + b"X-A: 12MONKEYS\r\n" * 10_000),
        502,
        "upstream_protocol_error",
        "protocol",
    ),
}


@pytest.mark.parametrize("case", NO_HEAD)
async def test_no_head_of_an_answer(case: str) -> None:
    play, status, code, kind = NO_HEAD[case]
    async with before(play) as (gateway, _):
        await assert_failure(gateway, status, code, kind)


@pytest.mark.parametrize("limit", ["first_byte", "total"])
async def test_silence_before_the_head_is_504(limit: str) -> None:
    async with before(sending_then_hanging(), timeouts=quick(**{limit: 0.3})) as (gateway, upstream):
        await assert_failure(gateway, 504, "upstream_timeout", "timeout")
        for call in upstream.calls:
            await asyncio.wait_for(call.conversation.client_left.wait(), TIMEOUT)


# -- broken off in a plain answer --------------------------------------------------------------------------------------

BEGUN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
    + json.dumps(completion(f"some text, {LEAK}")).encode()
)

BROKEN_PLAIN: dict[str, tuple[Play, int]] = {
    "closed in the body": (sending_then_closing(BEGUN), 502),
    "reset in the body": (sending_then_resetting(BEGUN), 502),
    "silent in the body": (sending_then_hanging(BEGUN), 504),
    "half an object": (sending(http(200, b'{"id": "x", "choices": [{"message": {"content": "12MONKEYS')), 502),
    "HTML": (sending(http(200, b"<html><body>12MONKEYS</body></html>", "text/html")), 502),
    "HTML that says it is JSON": (sending(http(200, b"<html>12MONKEYS</html>")), 502),
    "a list": (sending(plain([LEAK])), 502),
    "a string": (sending(plain(LEAK)), 502),
    "nothing": (sending(http(200, b"")), 502),
    "no content": (sending(b"HTTP/1.1 204 No Content\r\n\r\n"), 502),
    "an error inside 200": (sending(plain({"error": {"message": LEAK, "type": LEAK}})), 502),
    "too large": (sending(plain(completion("x" * 300_000 + LEAK))), 502),
    "unknown compression": (sending(http(200, b"12MONKEYS", "application/json", "Content-Encoding: br")), 502),
    "broken compression": (sending(http(200, b"12MONKEYS", "application/json", "Content-Encoding: gzip")), 502),
}


@pytest.mark.parametrize("case", BROKEN_PLAIN)
async def test_a_broken_plain_answer_is_an_error_without_its_text(case: str) -> None:
    play, status = BROKEN_PLAIN[case]
    limits, timeouts = Limits(max_body=200_000), quick(idle=0.5, first_byte=0.5)
    async with before(play, limits=limits, timeouts=timeouts) as (gateway, _):
        response = await gateway.ask()
        error_of(response, status)
        assert "MONKEYS" not in response.text
        assert "some text" not in response.text
        (await gateway.metrics()).assert_covered()


# -- broken off in a stream: what is held and no match comes out, one error event, the end -----------------------------

# The text so far ends in a beginning of the password that is too short for the rule's guard_tail: it comes out.
BEGINNING = chunk(event(delta("Hello ", role="assistant")) + event(delta("world 12MON")))

BROKEN_STREAM: dict[str, tuple[Play, str, str]] = {
    "closed": (sending_then_closing(stream_head() + BEGINNING), "Hello world 12MON", "upstream_protocol_error"),
    "reset": (sending_then_resetting(stream_head() + BEGINNING), "Hello world 12MON", "upstream_reset"),
    "silent": (sending_then_hanging(stream_head() + BEGINNING), "Hello world 12MON", "upstream_timeout"),
    "no JSON": (
        sending(stream_head() + BEGINNING + chunk(b"data: {12MONKEYS\n\n") + END),
        "Hello world 12MON",
        "upstream_protocol_error",
    ),
    "event too large": (
        sending(stream_head() + BEGINNING + chunk(b"data: " + b"12MONKEYS " * 50_000)),
        "Hello world 12MON",
        "upstream_protocol_error",
    ),
    "broken chunk framing": (
        sending_then_closing(stream_head() + BEGINNING + b"12MONKEYS\r\n"),
        "Hello world 12MON",
        "upstream_protocol_error",
    ),
}


@pytest.mark.parametrize("case", BROKEN_STREAM)
async def test_a_stream_that_breaks_off(case: str) -> None:
    play, content, code = BROKEN_STREAM[case]
    async with before(play, limits=Limits(max_event=100_000), timeouts=quick(idle=0.5)) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == content
        assert answer.error is not None
        assert answer.error["code"] == code
        assert sum("error" in each for each in answer.chunks) == 1
        assert not answer.done
        assert answer.finish() is None
        assert "MONKEYS" not in answer.response.text
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_forwarded_chars_total", channel="content") == len("hello" + content)


@pytest.mark.parametrize("begun", [b"", chunk(b": still here\n\n")])
async def test_silence_after_the_head_is_an_error_event(begun: bytes) -> None:
    play = sending_then_hanging(stream_head() + begun)
    async with before(play, timeouts=quick(first_byte=0.3, idle=0.3)) as (gateway, _):
        answer = await gateway.stream()
        assert answer.error is not None
        assert (answer.error["code"], answer.content(), answer.done) == ("upstream_timeout", "", False)


async def test_a_guarded_tail_does_not_come_out_when_a_stream_breaks_off() -> None:
    begun = chunk(event(delta("It is 12MONKEY")))
    async with before(sending_then_closing(stream_head() + begun)) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == "It is [CENSORED]"
        assert answer.error is not None


async def test_the_upstreams_own_error_event_ends_the_stream_scanned() -> None:
    error = {"error": {"message": f"out of memory near {LEAK}", "type": "server_error", "code": 500}}
    play = sending(stream_head() + BEGINNING + chunk(event(error) + event(delta("more")) + DONE) + END)
    async with before(play) as (gateway, _):
        answer = await gateway.stream()
        assert answer.content() == "Hello world 12MON"
        assert answer.error is not None
        assert answer.error["message"] == "out of memory near [CENSORED]"
        assert not answer.done
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize(
    "body",
    [b"<html>12MONKEYS</html>", b"12MONKEYS", b"", b"\n\n\n", b'{"error": {"message": "12MONKEYS"}}', b'["12MONKEYS"]'],
)
async def test_a_200_to_a_stream_request_that_is_no_answer(body: bytes) -> None:
    async with before(sending(http(200, body, "text/html"))) as (gateway, _):
        answer = await gateway.stream()
        assert answer.error is not None
        assert answer.content() == ""
        assert not answer.done
        assert "MONKEYS" not in answer.response.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", ["event", "whole"])
async def test_d26_an_answer_of_too_many_values_is_a_protocol_error(form: str, stream: bool) -> None:
    said = {**(delta("x") if form == "event" else completion("x")), "x": [1] * MAX_VALUES}
    play = sending(stream_head() + chunk(event(said)) + END) if form == "event" else sending(plain(said))
    async with before(play) as (gateway, _):
        if stream:
            answer = await gateway.stream()
            assert answer.error is not None
            assert answer.error["code"] == "upstream_protocol_error"
            assert not answer.done
        else:
            assert error_of(await gateway.ask(), 502)["code"] == "upstream_protocol_error"


async def test_an_end_without_done_is_an_orderly_end() -> None:
    body = b"".join(event(delta(text)) for text in ("Hello ", "12MON"))
    async with before(sending(stream_head() + chunk(body + event(delta(finish="stop"))) + END)) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.error) == ("Hello 12MON", None)


async def test_a_slow_stream_that_never_ends_is_cut_by_total() -> None:
    async def play(call: Call) -> None:
        await call.send(stream_head())
        while not call.conversation.writer.is_closing():
            await call.send(chunk(event(delta("tick "))))
            await asyncio.sleep(0.02)

    async with before(play, timeouts=quick(total=1.0)) as (gateway, upstream):
        answer = await gateway.stream()
        assert answer.content().startswith("tick tick ")
        assert answer.error is not None
        assert answer.error["code"] == "upstream_timeout"
        await asyncio.wait_for(until_closed(upstream.asked), TIMEOUT)
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_upstream_errors_total", kind="timeout") == 1


async def test_a_plain_answer_that_never_ends_is_cut_by_total() -> None:
    async def play(call: Call) -> None:
        await call.send(stream_head(content_type="application/json"), chunk(b'{"choices": ['))
        while not call.conversation.writer.is_closing():
            await call.send(chunk(b" "))
            await asyncio.sleep(0.02)

    async with before(play, timeouts=quick(total=1.0)) as (gateway, upstream):
        assert error_of(await gateway.ask(), 504)["code"] == "upstream_timeout"
        await asyncio.wait_for(until_closed(upstream.asked), TIMEOUT)


async def until_closed(call: Call) -> None:
    while not call.conversation.writer.is_closing():
        await asyncio.sleep(0.01)


# -- error statuses ----------------------------------------------------------------------------------------------------

SAID = {"message": f"Bad thing about {LEAK} here", "type": "some_error", "param": f"x {LEAK}", "code": "some_code"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 409, 422, 429, 500, 503, 529])
async def test_an_error_status_passes_with_its_body_scanned(status: int, stream: bool) -> None:
    play = sending(
        plain({"error": SAID}, status, "Retry-After: 7", "X-RateLimit-Remaining-Tokens: 0", "Set-Cookie: a=b")
    )
    async with before(play) as (gateway, _):
        response = await gateway.ask(stream=stream)
        error = error_of(response, status)
        assert error == {**SAID, "message": "Bad thing about [CENSORED] here", "param": "x [CENSORED]"}
        assert response.headers["retry-after"] == "7"
        assert response.headers["x-ratelimit-remaining-tokens"] == "0"
        assert "set-cookie" not in response.headers
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_requests_total", status=str(status)) == 1
        assert metrics.value("portcullis_upstream_errors_total", kind="status") == 1
        metrics.assert_covered()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_our_own_key_is_502_and_says_nothing_of_it(status: int) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {UPSTREAM_KEY}", "type": "x", "code": "invalid_api_key"}}
    async with before(sending(plain(body, status))) as (gateway, _):
        for stream in (False, True):
            response = await gateway.ask(stream=stream)
            assert error_of(response, 502)["code"] == "upstream_auth"
            assert UPSTREAM_KEY not in response.text
        assert (await gateway.metrics()).value("portcullis_upstream_errors_total", kind="auth") == 2


ODD_ERRORS: dict[str, tuple[bytes, int, str]] = {
    "HTML": (http(502, b"<html>12MONKEYS nginx</html>", "text/html"), 502, "The upstream failed."),
    "text that says it is JSON": (http(500, b"12MONKEYS"), 500, "The upstream failed."),
    "plain text": (http(500, b"no 12MONKEYS", "text/plain; charset=utf-8"), 500, "no [CENSORED]"),
    "empty": (http(503, b""), 503, "The upstream failed."),
    "a list": (plain([LEAK], 500), 500, "The upstream failed."),
    "too many values": (plain({"error": {"message": LEAK}, "x": [1] * MAX_VALUES}, 500), 500, "The upstream failed."),
    "no error inside": (plain({"status": LEAK}, 500), 500, "The upstream failed."),
    "error null": (plain({"error": None}, 500), 500, "The upstream failed."),
    "error a string": (plain({"error": f"no {LEAK}"}, 400), 400, "no [CENSORED]"),
    "message at the top": (plain({"object": "error", "message": f"no {LEAK}", "code": 400}, 400), 400, "no [CENSORED]"),
    "FastAPI's detail": (plain({"detail": f"no {LEAK}"}, 422), 422, "no [CENSORED]"),
    "a redirect": (http(302, b"", "text/html", "Location: http://127.0.0.1:1/12MONKEYS"), 502, "The upstream failed."),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\n\r\n", 502, "The upstream failed."),
    "a status beyond all": (plain({"error": {"message": "odd"}}, 799), 502, "odd"),
    "compressed": (http(400, b"\x1f\x8b12MONKEYS", "application/json", "Content-Encoding: gzip"), 502, ""),
}


@pytest.mark.parametrize("case", ODD_ERRORS)
async def test_an_odd_error_never_passes_raw(case: str) -> None:
    answer, status, message = ODD_ERRORS[case]
    async with before(sending(answer)) as (gateway, _):
        for stream in (False, True):
            response = await gateway.ask(stream=stream)
            error = error_of(response, status)
            assert error["message"] == message or not message
            assert "MONKEYS" not in response.text
            assert "location" not in response.headers


async def test_an_error_whose_text_blocks_says_nothing_of_it() -> None:
    async with before(sending(plain({"error": {"message": "it is FORBIDDEN to", "code": "c"}}, 400))) as (gateway, _):
        response = await gateway.ask()
        error_of(response, 400)
        assert "FORBIDDEN" not in response.text
        assert "it is" not in response.text


async def test_a_connection_that_died_while_idle_is_not_a_failure() -> None:
    answers = 0

    async def play(call: Call) -> None:
        nonlocal answers
        answers += 1
        await call.send(plain(completion(f"answer {answers}")))
        call.close()

    async with before(play) as (gateway, _):
        for number in (1, 2, 3):
            answer = await gateway.ask()
            assert answer.json()["choices"][0]["message"]["content"] == f"answer {number}"


async def test_events_after_an_orderly_end_are_not_read() -> None:
    async with before(sending(stream_head() + chunk(events("all") + event(delta(LEAK))) + END)) as (gateway, _):
        answer = await gateway.stream()
        assert (answer.content(), answer.done) == ("all", True)
