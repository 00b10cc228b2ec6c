"""/v1/completions from client to upstream and back: as chat is, in its own shape."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.policy.model import Action, Journal, Mode, Retries, Rule
from tests.support.completions import (
    PATH,
    USAGE,
    ask,
    asking,
    completed,
    part,
    parts,
    stream,
    streamed,
)
from tests.support.gateway import INPUT, TIMEOUT, UPSTREAM_KEY, before, error_of
from tests.support.upstream import (
    DONE,
    END,
    MODEL,
    Call,
    Play,
    chunk,
    completion,
    event,
    http,
    plain,
    playing,
    sending,
    sending_then_closing,
    sending_then_hanging,
    sending_then_resetting,
    stream_head,
)

ANSWER = sending(plain(completed("fine")))
CUTS = (("It is 12", "MON", "KEY", "S."), tuple("It is 12MONKEYS."), ("It is 12MONKEYS.",))


async def saying(call: Call) -> None:
    """Repeats each prompt, whole or letter by letter, n times."""
    prompt: Any = call.body["prompt"]
    texts = [text for text in (prompt if isinstance(prompt, list) else [prompt]) for _ in range(call.body.get("n", 1))]
    if not call.body.get("stream"):
        await call.send(plain(completed(*texts)))
        return
    await call.send(stream_head())
    for at in range(max(map(len, texts))):
        events = [event(part(text[at], index)) for index, text in enumerate(texts) if at < len(text)]
        await call.send(chunk(b"".join(events)))
    ends = b"".join(event(part(index=index, finish="stop")) for index in range(len(texts)))
    await call.send(chunk(ends + DONE) + END)


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", CUTS)
async def test_a_stream(texts: tuple[str, ...]) -> None:
    async with before(sending(streamed(*texts))) as (gateway, upstream):
        answer = await stream(gateway)
        assert (answer.text(), answer.finish(), answer.done, answer.error) == ("It is [CENSORED].", "stop", True, None)
        assert answer.response.headers["x-portcullis-policy"] == "default" and answer.response.headers["x-request-id"]
        assert answer.chunks[0]["id"] == "cmpl-1" and answer.chunks[0]["model"] == MODEL
        assert upstream.asked.request.target == PATH
        assert upstream.asked.request.headers["accept"] == "text/event-stream"
        assert upstream.asked.request.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
        assert upstream.asked.body == asking(stream=True)
        (await gateway.metrics()).assert_covered()


async def test_a_plain_answer() -> None:
    async with before(sending(plain(completed("It is 12MONKEYS.")))) as (gateway, upstream):
        answer = await ask(gateway)
        assert answer.status_code == 200 and answer.json() == completed("It is [CENSORED].")
        assert upstream.asked.request.target == PATH and upstream.asked.body == asking()
        (await gateway.metrics()).assert_covered()


async def test_a_block_ends_the_stream_and_stops_the_upstream() -> None:
    body = event(part("Hello 12MON")) + event(part("KEYS. FORB")) + event(part("IDDEN and more"))
    async with before(sending_then_hanging(stream_head() + chunk(body))) as (gateway, upstream):
        answer = await stream(gateway)
        assert answer.text() == "Hello [CENSORED].  (stopped)"
        assert (answer.finish(), answer.done, answer.error) == ("content_filter", True, None)
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_matches_total", rule="stop", action="block", channel="content") == 1
        assert (await gateway.logged(1))[-1]["outcome"] == "blocked"


async def test_a_blocked_plain_answer() -> None:
    async with before(sending(plain(completed("so 12MONKEYS, then FORBIDDEN things", "b")))) as (gateway, _):
        choices = (await ask(gateway, ["x", "y"])).json()["choices"]
        assert [(each["text"], each["finish_reason"]) for each in choices] == [
            ("so [CENSORED], then  (stopped)", "content_filter"),
            ("b", "stop"),
        ]
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("n", [1, 3])
async def test_every_prompt_has_its_answers(n: int) -> None:
    prompts = ["one 12MONKEYS", "two", "three FORBIDDEN x"]
    shown = ["one [CENSORED]", "two", "three  (stopped)"]
    async with before(saying) as (gateway, upstream):
        answer = await stream(gateway, prompts, n=n)
        assert [answer.text(index) for index in range(3 * n)] == [text for text in shown for _ in range(n)]
        assert [answer.finish(index) for index in range(3 * n)] == [
            reason for reason in ("stop", "stop", "content_filter") for _ in range(n)
        ]
        assert answer.done
        choices = (await ask(gateway, prompts, n=n)).json()["choices"]
        assert [each["text"] for each in choices] == [text for text in shown for _ in range(n)]
        assert [each["index"] for each in choices] == list(range(3 * n))
        assert upstream.calls[0].body["prompt"] == prompts
        (await gateway.metrics()).assert_covered()


async def test_the_upstream_is_stopped_when_all_prompts_have_ended_in_blocks() -> None:
    some = b"".join(event(part("FORBIDDEN", index)) for index in (0, 1, 3))
    last_may_come = asyncio.Event()

    async def play(call: Call) -> None:
        await call.send(stream_head(), chunk(some))
        await asyncio.wait_for(last_may_come.wait(), TIMEOUT)
        assert not call.conversation.client_left.is_set()
        await call.send(chunk(event(part("a FORBIDDEN", 2))))
        await call.hang()

    async with before(play) as (gateway, upstream):
        body = asking(["a", "b"], n=2, stream=True)
        async with gateway.client.stream("POST", PATH, json=body) as response:
            lines = response.aiter_lines()
            seen = 0
            async for line in lines:
                seen += line.count("content_filter")
                if seen == 3:
                    break
            last_may_come.set()
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]" and json.loads(rest[0][6:])["choices"][0]["text"] == "a "
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)


async def test_an_echoed_prompt_is_scanned_like_all_else() -> None:
    async with before(saying) as (gateway, upstream):
        for prompt, shown in (("say 12MONKEYS", "say [CENSORED]"), ("a FORBIDDEN b", "a  (stopped)")):
            assert (await stream(gateway, prompt, echo=True)).text() == shown
            answer = (await ask(gateway, prompt, echo=True, max_tokens=0)).json()
            assert answer["choices"][0]["text"] == shown
        assert upstream.calls[-1].body["echo"] is True


async def test_what_spells_the_text_is_taken_out() -> None:
    logprobs = {"tokens": ["12MON", "KEYS"], "token_logprobs": [-1.0, -1.0], "top_logprobs": None, "text_offset": [0]}
    spelling = {"logprobs": logprobs, "token_ids": [1], "prompt_token_ids": [2], "prompt_logprobs": [None]}
    whole = completed("a")
    whole["choices"][0] |= spelling
    body = event(part("a", finish="stop", **spelling)) + DONE
    for play in (sending(plain(whole)), sending(stream_head() + chunk(body) + END)):
        async with before(play) as (gateway, upstream):
            for answer in (await ask(gateway, logprobs=1, return_token_ids=True), await ask(gateway, stream=True)):
                assert answer.status_code == 200
                assert not any(name in answer.text for name in ("MONKEYS", "token_ids", "prompt_logprobs"))
            assert upstream.calls[0].body["logprobs"] == 1 and "return_token_ids" not in upstream.calls[0].body
    async with before(sending(plain(whole)), mode=Mode.OBSERVE) as (gateway, _):
        assert (await ask(gateway)).json() == whole


async def test_usage_and_labels_pass() -> None:
    body = event(part("a", stop_reason=None)) + event(part(finish="length", stop_reason="\n"))
    body += event({**part(), "choices": [], "usage": USAGE}) + DONE
    async with before(sending(stream_head() + chunk(body) + END)) as (gateway, upstream):
        options = {"include_usage": True}
        answer = await stream(gateway, stream_options=options, stop=["\n"], best_of=1, suffix="b")
        assert answer.chunks[-1]["usage"] == USAGE and answer.chunks[-1]["choices"] == []
        assert answer.chunks[-2]["choices"][0]["stop_reason"] == "\n" and answer.finish() == "length"
        assert upstream.asked.body == asking(stream=True, stream_options=options, stop=["\n"], best_of=1, suffix="b")


async def test_a_client_reads_text_as_soon_as_it_is_safe() -> None:
    seen = asyncio.Condition()
    readable = ""
    steps = [("It is 12", "It is "), ("MON", "It is "), ("KEYS", "It is [CENSORED]"), (" now", "It is [CENSORED] now")]

    async def play(call: Call) -> None:
        await call.send(stream_head())
        for text, expected in steps:
            await call.send(chunk(event(part(text))))
            # The next text leaves only when the client has read all that this one makes certain.
            async with asyncio.timeout(TIMEOUT), seen:
                while len(readable) < len(expected):
                    await seen.wait()
            assert readable == expected
        await call.send(chunk(event(part(finish="stop")) + DONE) + END)

    async with (
        before(play) as (gateway, _),
        gateway.client.stream("POST", PATH, json=asking(stream=True)) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                async with seen:
                    readable += json.loads(line[6:])["choices"][0]["text"]
                    seen.notify_all()
    assert readable == steps[-1][1]


# -- the other form ----------------------------------------------------------------------------------------------------


async def test_json_to_a_stream_and_a_stream_to_json() -> None:
    async with before(sending(plain(completed("It is 12MONKEYS.", "b")))) as (gateway, _):
        answer = await stream(gateway, ["x", "y"])
        assert [answer.text(0), answer.text(1), answer.done] == ["It is [CENSORED].", "b", True]
        assert answer.chunks[-1]["usage"] == USAGE
    async with before(sending(streamed("It is 12", "MONKEYS."))) as (gateway, _):
        whole = (await ask(gateway)).json()
        assert whole["object"] == "text_completion" and whole["id"] == "cmpl-1"
        assert whole["choices"] == [{"text": "It is [CENSORED].", "index": 0, "finish_reason": "stop"}]


async def test_a_chat_answer_hides_nothing() -> None:
    async with before(sending(plain(completion("It is 12MONKEYS")))) as (gateway, _):
        for streams in (False, True):
            answer = await ask(gateway, stream=streams)
            assert answer.status_code == 200 and "[CENSORED]" in answer.text and "MONKEYS" not in answer.text


# -- prompts -----------------------------------------------------------------------------------------------------------


async def test_a_policy_for_prompts_alone_refuses_token_ids() -> None:
    rule = Rule(id="r", words=("detonator",), apply_to=INPUT)
    async with before(ANSWER, rules=(rule,)) as (gateway, upstream):
        assert error_of(await ask(gateway, [1, 2]), 400)["param"] == "prompt"
        assert upstream.calls == []


MAIL = "ann.lee@mail.example.org"
PSEUDONYMS = (
    Rule(id="mail", detector="email", action=Action.PSEUDONYMIZE),
    Rule(id="leak", detector="email", replacement="[MAIL]"),
)


@pytest.mark.parametrize("streams", [False, True])
async def test_pseudonyms_come_back_echoed_or_not(streams: bool) -> None:
    async def play(call: Call) -> None:
        said = [f"{text} or eve@example.com" for text in call.body["prompt"]]
        if call.body.get("stream"):
            body = b"".join(event(part(char, index)) for index, text in enumerate(said) for char in text)
            await call.send(stream_head() + chunk(body + DONE) + END)
        else:
            await call.send(plain(completed(*said)))

    async with before(play, rules=PSEUDONYMS) as (gateway, upstream):
        prompts = [f"write to {MAIL}", f"{MAIL}!"]
        if streams:
            answer = await stream(gateway, prompts, echo=True)
            texts = [answer.text(0), answer.text(1)]
        else:
            texts = [each["text"] for each in (await ask(gateway, prompts, echo=True)).json()["choices"]]
        assert texts == [f"write to {MAIL} or [MAIL]", f"{MAIL}! or [MAIL]"]
        first, second = upstream.asked.body["prompt"]
        found = re.fullmatch(r"write to (<EMAIL_1_[a-z2-7]{8}>)", first)
        assert found is not None and second == f"{found[1]}!"
        assert (await gateway.metrics()).value("portcullis_restored_total", channel="content", policy="default") == 2


# -- failures ----------------------------------------------------------------------------------------------------------


FAILURES: dict[str, tuple[Play, int, str | None]] = {
    "closed": (sending_then_closing(), 502, "upstream_protocol_error"),
    "reset": (sending_then_resetting(), 502, "upstream_reset"),
    "its own error": (sending(plain({"error": {"message": "no 12MONKEYS", "code": "boom"}}, 429)), 429, "boom"),
    "our key": (sending(plain({}, 401)), 502, "upstream_auth"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_an_upstream_that_fails(case: str) -> None:
    play, status, code = FAILURES[case]
    async with before(play) as (gateway, _):
        for streams in (False, True):
            response = await ask(gateway, stream=streams)
            assert error_of(response, status)["code"] == code and "MONKEYS" not in response.text
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_requests_total", path=PATH, status=str(status)) == 2
        assert metrics.value("portcullis_upstream_errors_total", upstream="played") == 2


BREAKS: dict[str, tuple[Play, str]] = {
    "an error event": (
        sending(stream_head() + chunk(event(part("Hello 12")) + event({"error": {"message": "12MONKEYS"}})) + END),
        "[CENSORED]",
    ),
    "cut off": (sending_then_closing(stream_head() + chunk(event(part("Hello 12")))), ""),
    "no JSON": (sending(stream_head() + chunk(event(part("Hello 12")) + b"data: {12MONKEYS\n\n") + END), ""),
}


@pytest.mark.parametrize("case", BREAKS)
async def test_an_upstream_that_breaks_off_in_a_stream(case: str) -> None:
    play, message = BREAKS[case]
    async with before(play) as (gateway, _):
        answer = await stream(gateway)
        assert answer.text() == "Hello 12" and not answer.done and answer.finish() is None
        assert answer.error is not None and message in answer.error["message"]
        assert "MONKEYS" not in answer.response.text
        (line,) = await gateway.logged(1)
        assert line["outcome"] == "failed"


@pytest.mark.parametrize(
    "play", [sending(http(200, b"<html>12MONKEYS", "text/html")), sending_then_closing(plain(completed("x"))[:-9])]
)
async def test_what_is_no_answer_is_502(play: Play) -> None:
    async with before(play) as (gateway, _):
        response = await ask(gateway)
        assert error_of(response, 502)["code"] == "upstream_protocol_error" and "MONKEYS" not in response.text


async def test_another_upstream_takes_over() -> None:
    async with (
        playing(saying) as second,
        before(
            sending(plain({}, 503)), others={"second": second.base_url}, retries=Retries(attempts=1)
        ) as (gateway, first),
    ):  # fmt: skip
        assert (await stream(gateway, "It is 12MONKEYS")).text() == "It is [CENSORED]"
        assert first.asked.body == second.asked.body and second.asked.request.target == PATH


async def test_a_client_that_leaves_stops_the_upstream() -> None:
    async with before(sending_then_hanging(stream_head(), chunk(event(part("Hello"))))) as (gateway, upstream):
        async with gateway.client.stream("POST", PATH, json=asking(stream=True)) as response:
            async for line in response.aiter_lines():
                assert "Hello" in line
                break
        await asyncio.wait_for(upstream.asked.conversation.client_left.wait(), TIMEOUT)
        assert (await gateway.logged(1))[0]["error"] == "client left"


# -- the books ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
async def test_log_metrics_and_journal(tmp_path: Path, streams: bool) -> None:
    path = tmp_path / "journal.jsonl"
    play = sending(streamed("It is 12", "MONKEYS") if streams else plain(completed("It is 12MONKEYS")))
    async with before(play, journal=Journal(path=str(path), key="a key for the journal's texts")) as (gateway, _):
        await ask(gateway, ["x", "Is it Voldemort?"], stream=streams)
        (line,) = await gateway.logged(1)
        assert (line["path"], line["status"], line["outcome"]) == (PATH, 200, "redacted")
        assert line["stream"] is streams and line["matches"] == {"password": 1, "prompt-name": 1}
        metrics = await gateway.metrics()
        metrics.assert_covered()
        labels = {"path": PATH, "route": "*", "policy": "default"}
        assert metrics.value("portcullis_requests_total", status="200", **labels) == 1
        assert metrics.value("portcullis_requests_total", path="/v1/chat/completions") == 0
        assert metrics.value("portcullis_scanned_chars_total", channel="content") == len("xIs it Voldemort?") + 15
    entries = [json.loads(each) for each in path.read_text().splitlines()]
    matches = [entry for entry in entries if entry["type"] == "match"]
    names = ("direction", "rule", "channel", "choice", "offset", "length")
    assert [tuple(match[name] for name in names) for match in matches] == [
        ("input", "prompt-name", "content", None, 6, 9),
        ("output", "password", "content", 0, 6, 9),
    ]
    for text in (gateway.log.getvalue(), metrics.text, path.read_text()):
        assert "MONKEYS" not in text.upper() and "Voldemort" not in text


# -- every cut ---------------------------------------------------------------------------------------------------------

LONG = (
    "The password is 12MONKEYS, and 12monkeys again: 12MONK-12MONKEY. １２ＭＯＮＫＥＹＳ dragon 12MON\u200bKEYS 12MONKE"
)
CUT_LONG = "The password is [CENSORED], and [CENSORED] again: 12MONK-12MONKEY. [CENSORED] dragon [CENSORED] [CENSORED]"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
async def test_the_same_comes_out_however_the_text_is_cut(size: int) -> None:
    texts = [LONG[start : start + size] for start in range(0, len(LONG), size)]
    async with before(sending(streamed(*texts))) as (gateway, _):
        assert (await stream(gateway)).text() == CUT_LONG


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
async def test_the_same_comes_out_however_the_bytes_are_cut(size: int) -> None:
    body = parts(*(LONG[start : start + 4] for start in range(0, len(LONG), 4)))
    pieces = [chunk(body[start : start + size]) for start in range(0, len(body), size)]
    async with before(sending(stream_head(), *pieces, END)) as (gateway, _):
        assert (await stream(gateway)).text() == CUT_LONG
