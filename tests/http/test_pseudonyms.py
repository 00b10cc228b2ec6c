"""Pseudonyms from a client's request to its answer: the upstream sees none of the values, the client all of its own."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from gateway.guard import channels as texts
from gateway.guard import pseudonyms
from gateway.policy.model import Action, Journal, Mode, Rule
from gateway.proxy.hotpath import HotPath
from tests.support.gateway import INPUT, TIMEOUT, RunningGateway, before, error_of, question
from tests.support.upstream import (
    DONE,
    END,
    MODEL,
    Call,
    Json,
    Play,
    Upstream,
    chunk,
    completion,
    delta,
    event,
    plain,
    stream_head,
)

HMAC_KEY = "a key that the journal's texts are kept under"
MINE = "ann.lee+shop@mail.example.org"
OTHER = "eve@example.com"
RULES = (
    Rule(id="mail", detector="email", action=Action.PSEUDONYMIZE),
    Rule(id="names", words=("Ann Lee",), whole_word=True, action=Action.PSEUDONYMIZE),
    Rule(id="leak", detector="email", replacement="[MAIL]"),
    Rule(id="stop", words=("detonator",), action=Action.BLOCK, apply_to=INPUT),
)
PROMPT = f"Ann Lee asks: is {MINE} mine? Or <EMAIL_1_abc>? {MINE}!"
SEEN = re.compile(r"<NAMES_1_([a-z2-7]{8})> asks: is <EMAIL_1_\1> mine\? Or <TEXT_1_\1>\? <EMAIL_1_\1>!")


def said_in(body: Json) -> str:
    """What the client said last."""
    said = body["messages"][-1]["content"]
    assert isinstance(said, str)
    return said


def echoing(deltas: Callable[[str], list[Json]], message: Callable[[str], Json], pause: float = 0.0) -> Play:
    """An upstream that repeats what it was told: as these deltas, each in a write of its own, or as this message."""

    async def play(call: Call) -> None:
        said = said_in(call.body)
        if not call.body.get("stream"):
            fields = {"content": None, **message(said)}
            await call.send(plain(completion(**fields)))
            return
        await call.send(stream_head())
        for each in deltas(said):
            await call.send(chunk(event(each)))
            await asyncio.sleep(pause)
        await call.send(chunk(DONE) + END)

    return play


def as_content(said: str) -> list[Json]:
    return [*(delta(char) for char in f"{said} {OTHER}"), delta(finish="stop")]


ECHO = echoing(as_content, lambda said: {"content": f"{said} {OTHER}"})


@asynccontextmanager
async def asked(play: Play = ECHO, **settings: Any) -> AsyncIterator[tuple[RunningGateway, Upstream]]:
    async with before(play, **{"rules": RULES, **settings}) as (gateway, upstream):
        yield gateway, upstream
        for call in upstream.calls:
            assert MINE not in call.raw.decode() and "Ann Lee" not in call.raw.decode()
        (await gateway.metrics()).assert_covered()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_sees_placeholders_and_the_client_its_values(streamed: bool) -> None:
    async with asked() as (gateway, upstream):
        if streamed:
            answer = await gateway.stream(PROMPT)
            content = answer.content()
            assert answer.done and answer.finish() == "stop"
        else:
            content = (await gateway.ask(PROMPT)).json()["choices"][0]["message"]["content"]
        assert content == f"{PROMPT} [MAIL]"
        assert SEEN.fullmatch(said_in(upstream.asked.body))


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_official_client_notices_nothing(streamed: bool) -> None:
    async with asked() as (gateway, _):
        client = AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT)
        messages: Any = [
            {"role": "system", "content": f"You write to {MINE}."},
            {"role": "user", "content": [{"type": "text", "text": "who?"}]},
            {"role": "user", "content": PROMPT},
        ]
        async with client:
            if streamed:
                stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
                content = "".join([part.choices[0].delta.content or "" async for part in stream])
            else:
                whole = await client.chat.completions.create(model=MODEL, messages=messages)
                content = whole.choices[0].message.content or ""
        assert content == f"{PROMPT} [MAIL]"


def tool_call(said: str) -> Json:
    arguments = json.dumps({"to": said, "cc": [OTHER], "n": 1})
    return {"index": 0, "id": "c1", "type": "function", "function": {"name": "send", "arguments": arguments}}


def as_tool_call(said: str) -> list[Json]:
    whole = tool_call(said)
    arguments = whole["function"].pop("arguments")
    pieces = [{"index": 0, "function": {"arguments": char}} for char in arguments]
    return [*(delta(tool_calls=[each]) for each in (whole, *pieces)), delta(finish="tool_calls")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_tool_arguments_get_values_that_need_escapes(streamed: bool) -> None:
    quoting = Rule(id="quoted", pattern='"[^"]*"', action=Action.PSEUDONYMIZE)
    prompt = f'send "a \\ b\u2028" to {MINE}'
    async with asked(
        echoing(as_tool_call, lambda said: {"tool_calls": [tool_call(said)]}), rules=(*RULES, quoting)
    ) as (gateway, upstream):
        if streamed:
            answer = await gateway.stream(prompt)
            calls = [entry for each in answer.deltas() for entry in each.get("tool_calls", ())]
            arguments = "".join(entry["function"].get("arguments", "") for entry in calls)
        else:
            message = (await gateway.ask(prompt)).json()["choices"][0]["message"]
            arguments = message["tool_calls"][0]["function"]["arguments"]
        assert json.loads(arguments) == {"to": prompt, "cc": ["[MAIL]"], "n": 1}
        assert "a \\ b" not in said_in(upstream.asked.body)


async def test_every_channel_of_every_choice() -> None:
    def deltas(said: str) -> list[Json]:
        half = len(said) // 2
        return [
            *(delta(char) for char in said),
            delta(reasoning_content=said[:half]),
            delta(refusal=said, index=1),
            delta(note=said, index=1),
            delta(reasoning_content=said[half:]),
            delta(finish="stop"),
            delta(index=1, finish="stop"),
        ]

    async with asked(echoing(deltas, lambda said: {})) as (gateway, _):
        answer = await gateway.stream(PROMPT, n=2)
        for index, field in ((0, "content"), (0, "reasoning_content"), (1, "refusal"), (1, "note")):
            assert answer.content(index, field) == PROMPT
        restored = await gateway.metrics()
        for channel, count in (("content", 4), ("reasoning", 4), ("refusal", 4), ("other", 4)):
            assert restored.value("portcullis_restored_total", channel=channel, policy="default") == count


async def test_the_hot_path_restores_too(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    take = HotPath._on_data

    def noting(self: HotPath, data: bytes) -> bool:
        taken.append(take(self, data))
        return taken[-1]

    monkeypatch.setattr(HotPath, "_on_data", noting)
    async with asked(echoing(as_content, lambda said: {}, pause=0.002)) as (gateway, _):
        assert (await gateway.stream(PROMPT)).content() == f"{PROMPT} [MAIL]"
        assert True in taken  # reads may fall together on a busy machine


@pytest.mark.parametrize("streamed", [False, True])
async def test_short_reads_that_become_long_texts_leave_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{'A' * 30_000}\n-----END PRIVATE KEY-----"
    keys = (Rule(id="key", detector="private_key", action=Action.PSEUDONYMIZE), *RULES)
    on_the_loop: list[bool] = []
    feed = pseudonyms.Restorer.feed

    def noting(self: pseudonyms.Restorer, text: str) -> list[pseudonyms.RestoredPiece]:
        on_the_loop.append(asyncio._get_running_loop() is not None)
        return feed(self, text)

    monkeypatch.setattr(pseudonyms.Restorer, "feed", noting)
    play = echoing(lambda said: [delta(said), delta(finish="stop")], lambda said: {"content": said})
    async with asked(play, rules=keys) as (gateway, _):
        if streamed:
            content = (await gateway.stream(key)).content()
        else:
            content = (await gateway.ask(key)).json()["choices"][0]["message"]["content"]
        assert content == key
        assert on_the_loop and not any(on_the_loop)


async def test_an_upstreams_error_that_repeats_too_much_is_the_upstreams_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_RESTORED", 10)

    async def refusing(call: Call) -> None:
        await call.send(plain({"error": {"message": said_in(call.body)}}, 400))

    async with asked(refusing) as (gateway, _):
        error = error_of(await gateway.ask(MINE), 502)
        assert error["code"] == "upstream_protocol_error" and MINE not in error["message"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tools_name_comes_back(streamed: bool) -> None:
    """What a request calls its tool is what its client must be able to call."""
    tool = {"type": "function", "function": {"name": "ask_Ann Lee", "description": f"mails {MINE}", "parameters": {}}}

    async def calling(call: Call) -> None:
        asked = call.body["tools"][0]["function"]
        assert asked["name"].startswith("ask_<NAMES_1_") and asked["description"].startswith("mails <EMAIL_1_")
        function = {"name": asked["name"], "arguments": json.dumps({"to": asked["description"]})}
        entry = {"index": 0, "id": "c1", "type": "function", "function": function}
        if call.body.get("stream"):
            await call.send(stream_head())
            pieces = [{"name": function["name"], "arguments": function["arguments"][:20]}]
            pieces.append({"arguments": function["arguments"][20:]})
            for piece in pieces:
                await call.send(chunk(event(delta(tool_calls=[{**entry, "function": piece}]))))
            await call.send(chunk(event(delta(finish="tool_calls")) + DONE) + END)
        else:
            await call.send(plain(completion(content=None, tool_calls=[entry])))

    names = Rule(id="names", words=("Ann Lee",), action=Action.PSEUDONYMIZE)
    async with asked(calling, rules=(RULES[0], names)) as (gateway, upstream):
        if streamed:
            answer = await gateway.stream("hi", tools=[tool])
            calls = [entry["function"] for each in answer.deltas() for entry in each.get("tool_calls", ())]
        else:
            message = (await gateway.ask("hi", tools=[tool])).json()["choices"][0]["message"]
            calls = [entry["function"] for entry in message["tool_calls"]]
        assert "".join(call.get("name", "") for call in calls) == "ask_Ann Lee"
        assert json.loads("".join(call.get("arguments", "") for call in calls)) == {"to": f"mails {MINE}"}
        assert MINE not in upstream.asked.raw.decode()


async def test_requests_at_the_same_time_have_tables_of_their_own() -> None:
    async with asked() as (gateway, upstream):
        names = [f"user{number}@example.net" for number in range(8)]
        answers = await asyncio.gather(*(gateway.stream(f"I am {name}") for name in names))
        assert [answer.content() for answer in answers] == [f"I am {name} [MAIL]" for name in names]
        assert len({said_in(call.body) for call in upstream.calls}) == len(names)


async def test_a_placeholder_of_another_request_stays_what_it_is() -> None:
    async with asked() as (gateway, upstream):
        await gateway.ask(MINE)
        stolen = said_in(upstream.calls[0].body)
        content = (await gateway.ask(f"And {stolen}?")).json()["choices"][0]["message"]["content"]
        assert content == f"And {stolen}? [MAIL]"


@pytest.mark.parametrize("streamed", [False, True])
async def test_no_value_is_in_log_metrics_or_journal(tmp_path: Path, streamed: bool) -> None:
    path = tmp_path / "journal.jsonl"
    async with asked(journal=Journal(path=str(path), key=HMAC_KEY)) as (gateway, _):
        await gateway.ask(PROMPT, stream=streamed)
        (line,) = await gateway.logged(1)
        assert line["matches"] == {"mail": 2, "names": 1, "leak": 1}
        metrics = await gateway.metrics()
        assert metrics.value("portcullis_matches_total", rule="mail", action="pseudonymize", channel="content") == 2
        assert metrics.value("portcullis_restored_total", channel="content", policy="default") == 4
    entries = [json.loads(each) for each in path.read_text().splitlines()]
    seen = [entry["hmac"] for entry in entries if entry.get("rule") == "mail"]
    assert seen == [hmac.new(HMAC_KEY.encode(), MINE.encode(), "sha256").hexdigest()[:32]] * 2
    assert [entry["action"] for entry in entries if entry.get("direction") == "input"] == ["pseudonymize"] * 3
    for text in (gateway.log.getvalue(), metrics.text, path.read_text()):
        assert MINE not in text and "Ann" not in text and "EMAIL_1" not in text


async def test_a_blocked_prompt_goes_nowhere() -> None:
    async with asked() as (gateway, upstream):
        error = error_of(await gateway.ask(f"{MINE} has a detonator"), 400)
        assert error["code"] == "content_filter" and upstream.calls == []


async def test_more_values_than_there_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudonyms, "MAX_PLACEHOLDERS", 5)
    async with asked() as (gateway, upstream):
        error = error_of(await gateway.ask(" ".join(f"u{number}@example.net" for number in range(6))), 400)
        assert error["param"] == "messages" and "more than 5 different values" in error["message"]
        assert "example.net" not in error["message"]
        assert upstream.calls == []
        (line,) = await gateway.logged(1)
        assert (line["outcome"], line["status"], line["matches"]) == ("failed", 400, {"mail": 6})
        metrics = await gateway.metrics()
        metrics.assert_covered()
        assert metrics.value("portcullis_matches_total", rule="mail", action="pseudonymize") == 6
        assert (await gateway.ask(" ".join(f"u{number % 5}@example.net" for number in range(6)))).status_code == 200


async def test_observe_forwards_the_values() -> None:
    async with before(ECHO, rules=RULES, mode=Mode.OBSERVE) as (gateway, upstream):
        content = (await gateway.ask(PROMPT)).json()["choices"][0]["message"]["content"]
        assert content == f"{PROMPT} {OTHER}"
        assert upstream.asked.body == question(PROMPT)
