"""The journal of a running gateway: every decision in it, no text, and what its disk's troubles do to answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.journal.backlog import MAX_WAITING
from gateway.policy.model import Action, ClientKey, Direction, Mode, Rule
from tests.journal.conftest import mounted
from tests.support.gateway import TIMEOUT, UPSTREAM_KEY, RunningGateway, Streamed, before, error_of, question
from tests.support.journalled import HMAC_KEY, Line, hmac_of, journal_at, journalled, lines_in
from tests.support.upstream import (
    DONE,
    END,
    Call,
    chunk,
    completion,
    delta,
    event,
    plain,
    sending,
    sending_then_closing,
    sending_then_hanging,
    stream,
    stream_head,
)

CLIENT_KEY = "sk-of-the-client"
TEAM = (ClientKey.of(CLIENT_KEY, "team"),)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await condition():
            await asyncio.sleep(0.02)


def places(matches: list[Line]) -> list[tuple[Any, ...]]:
    names = ("direction", "rule", "action", "channel", "choice", "offset", "length")
    return [tuple(match[name] for name in names) for match in matches]


def as_client(gateway: RunningGateway) -> None:
    gateway.client.headers["authorization"] = f"Bearer {CLIENT_KEY}"


# -- what is written ---------------------------------------------------------------------------------------------------

CONTENT = "Hello １２monkeys, a dragon"
WHOLE = plain(completion(CONTENT))
CUT_UP = stream("Hello １２", "mon", "keys", ", a dra", "gon")
IN_CONTENT = [
    ("output", "password", "redact", "content", 0, 6, 9),
    ("output", "notable", "flag", "content", 0, 19, 6),
]


@pytest.mark.parametrize("streamed", [False, True])
async def test_matches_of_prompt_and_answer_and_the_request(tmp_path: Path, streamed: bool) -> None:
    settings: dict[str, Any] = {"keys": TEAM, "journal": journal_at(tmp_path)}
    async with before(sending(CUT_UP if streamed else WHOLE), **settings) as (gateway, _):
        as_client(gateway)
        answer = await gateway.ask("Is it VOLDEMORT?", stream=streamed)
        matches, (request,) = await journalled(tmp_path, 1)
    assert places(matches) == [("input", "prompt-name", "redact", "content", None, 6, 9), *IN_CONTENT]
    # As the lens sees it: case and width are forgotten.
    assert [match["hmac"] for match in matches] == [hmac_of(seen) for seen in ("voldemort", "12monkeys", "dragon")]
    of_request = {
        "v": 1,
        "request_id": answer.headers["x-request-id"],
        "key_name": "team",
        "route": "*",
        "policy": "default",
    }
    for line in (*matches, request):
        assert of_request.items() <= line.items()
        assert abs(line["time"] - request["time"]) < TIMEOUT
    of_answer = {"upstream": "played", "status": 200, "outcome": "redacted", "stream": streamed}
    assert of_answer.items() <= request.items()
    assert request["duration"] > 0


async def test_every_channel_and_choice(tmp_path: Path) -> None:
    call = {"index": 0, "id": "call-1", "type": "function"}
    arguments = ['{"say": ["x", "it is 12MON', 'KEYS"]}']
    said = [
        delta("ab 12MON"),
        delta("dragon", index=1),
        delta("KEYS", finish=None),
        delta(refusal="no 12MONKEYS"),
        delta(reasoning_content="hm, 12MONKEYS", index=1),
        delta(tool_calls=[{**call, "function": {"name": "ask_12MONKEYS", "arguments": arguments[0]}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": arguments[1]}}]),
        delta(note="12MONKEYS here"),
        delta(finish="stop"),
        delta(index=1, finish="stop"),
    ]
    body = b"".join(event(each) for each in said) + DONE
    play = sending(stream_head() + chunk(body) + END)
    async with before(play, journal=journal_at(tmp_path)) as (gateway, _):
        answer = await gateway.stream(n=2)
        assert answer.done
        assert "MONKEYS" not in answer.response.text
        matches, _requests = await journalled(tmp_path, 1)
    found = [(line["channel"], line["choice"], line["rule"], line["offset"], line["length"]) for line in matches]
    assert sorted(found, key=str) == sorted(
        [
            ("content", 0, "password", 3, 9),
            ("content", 1, "notable", 0, 6),
            ("refusal", 0, "password", 3, 9),
            ("reasoning", 1, "password", 4, 9),
            ("tool_names", 0, "password", 4, 9),
            ("tool_arguments", 0, "password", 6, 9),
            ("other", 0, "password", 0, 9),
        ],
        key=str,
    )
    assert {line["hmac"] for line in matches if line["rule"] == "password"} == {hmac_of("12monkeys")}


async def test_a_blocked_answer(tmp_path: Path) -> None:
    play = sending_then_hanging(stream_head() + chunk(event(delta("a dragon, FORBIDDEN, dragon"))))
    async with before(play, journal=journal_at(tmp_path)) as (gateway, _):
        assert (await gateway.stream()).finish() == "content_filter"
        matches, (request,) = await journalled(tmp_path, 1)
    assert places(matches) == [
        ("output", "notable", "flag", "content", 0, 2, 6),
        ("output", "stop", "block", "content", 0, 10, 9),
    ]
    assert (request["status"], request["outcome"], request["stream"]) == (200, "blocked", True)


async def test_a_blocked_prompt(tmp_path: Path) -> None:
    async with before(sending(WHOLE), keys=TEAM, journal=journal_at(tmp_path)) as (gateway, upstream):
        as_client(gateway)
        refused = await gateway.ask("Voldemort has a detonator")
        error_of(refused, 400)
        matches, (request,) = await journalled(tmp_path, 1)
        assert upstream.calls == []
    assert places(matches) == [
        ("input", "prompt-name", "redact", "content", None, 0, 9),
        ("input", "prompt-stop", "block", "content", None, 16, 9),
    ]
    assert {line["request_id"] for line in (*matches, request)} == {refused.headers["x-request-id"]}
    assert (request["status"], request["outcome"], request["key_name"]) == (400, "blocked", "team")


async def test_observed_matches_are_written_as_flags(tmp_path: Path) -> None:
    async with before(sending(WHOLE), journal=journal_at(tmp_path), mode=Mode.OBSERVE) as (gateway, _):
        assert "monkeys" in (await gateway.ask("a detonator")).text
        matches, _ = await journalled(tmp_path, 1)
    assert [(line["rule"], line["action"]) for line in matches] == [
        ("prompt-stop", "flag"),
        ("password", "flag"),
        ("notable", "flag"),
    ]


BREAKS = {
    "cut stream": (sending_then_closing(stream_head() + chunk(event(delta("a dragon, 12MON")))), "failed", 200),
    "no answer": (sending_then_closing(), "failed", 502),
    "error": (sending(plain({"error": {"message": "a dragon"}}, 500)), "failed", 500),
}


@pytest.mark.parametrize("case", BREAKS)
async def test_what_goes_wrong_is_written_too(case: str, tmp_path: Path) -> None:
    play, outcome, status = BREAKS[case]
    async with before(play, journal=journal_at(tmp_path)) as (gateway, _):
        await gateway.ask("Voldemort", stream=case == "cut stream")
        matches, (request,) = await journalled(tmp_path, 1)
    assert (request["outcome"], request["status"]) == (outcome, status)
    rules = [line["rule"] for line in matches]
    # A word that is secret counts from 60 % of it on when an answer breaks off within; five of nine are less.
    assert rules == ["prompt-name"] + ([] if case == "no answer" else ["notable"])


async def test_a_client_that_leaves_is_written_with_what_was_found(tmp_path: Path) -> None:
    play = sending_then_hanging(stream_head() + chunk(event(delta("a dragon, and on "))))
    async with before(play, journal=journal_at(tmp_path)) as (gateway, _):
        async with gateway.client.stream("POST", "/v1/chat/completions", json=question(stream=True)) as answer:
            async for text in answer.aiter_text():
                if "dragon" in text:
                    break
        matches, (request,) = await journalled(tmp_path, 1)
    assert request["outcome"] == "cancelled"
    assert [line["rule"] for line in matches] == ["notable"]


async def test_no_secret_reaches_the_journal_or_the_log(tmp_path: Path) -> None:
    async def play(call: Call) -> None:
        await call.send(CUT_UP if call.body.get("stream") else WHOLE)

    async with before(play, keys=TEAM, journal=journal_at(tmp_path)) as (gateway, _):
        as_client(gateway)
        for said in ("Voldemort and 12MONKEYS", "a detonator"):
            for streamed in (False, True):
                await gateway.ask(said, stream=streamed)
        await journalled(tmp_path, 4)
        written = (tmp_path / "journal.jsonl").read_text() + gateway.log.getvalue() + (await gateway.metrics()).text
    for secret in ("monkeys", "voldemort", "detonator", "dragon", HMAC_KEY, CLIENT_KEY, UPSTREAM_KEY):
        assert secret.lower() not in written.lower()


# -- a disk in trouble, and answers that continue ----------------------------------------------------------------------


async def dropped(gateway: RunningGateway) -> float:
    return (await gateway.metrics()).value("portcullis_journal_dropped_total")


def problems(gateway: RunningGateway) -> list[str]:
    lines = [json.loads(line) for line in gateway.log.getvalue().splitlines()]
    return [line["problem"] for line in lines if line["event"] == "journal"]


async def test_a_directory_that_is_gone_stops_nothing_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    async with before(sending(WHOLE), journal=journal_at(disk)) as (gateway, _):
        await gateway.ask()
        await journalled(disk, 1)
        disk.rename(tmp_path / "away")
        for _ in range(3):
            assert (await gateway.ask()).status_code == 200
        async with asyncio.timeout(TIMEOUT):
            while not problems(gateway):
                await asyncio.sleep(0.01)
        assert (await gateway.ask()).status_code == 200
        assert (await gateway.client.get("/readyz")).status_code == 200
        (tmp_path / "away").rename(disk)
        matches, requests = await journalled(disk, 5)
        assert len(matches) == 2 * len(requests)
        assert await dropped(gateway) == 0
        assert ["cannot be written" in text for text in problems(gateway)] == [True, False]


MANY = Rule(id="many", words=("x",), action=Action.FLAG, apply_to=frozenset({Direction.INPUT, Direction.OUTPUT}))
FULL = "x" * MAX_WAITING
# Each request brings as many matches as may wait, and its own line.
OF_TWO_REQUESTS = 2 * (MAX_WAITING + 1)


async def test_what_is_really_lost_is_counted(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    async with before(sending(plain(completion(FULL))), journal=journal_at(disk), rules=(MANY,)) as (gateway, _):
        for _ in range(2):
            assert (await gateway.ask()).status_code == 200
        # Those that wait are not lost; a line of a request is written after its answer, and counted with the next one.
        await gateway.ask("y")
        assert await dropped(gateway) >= OF_TWO_REQUESTS - MAX_WAITING
        disk.mkdir()
        async with asyncio.timeout(TIMEOUT):
            while len(lines_in(disk)) < MAX_WAITING:
                await asyncio.sleep(0.05)
        assert len(lines_in(disk)) == MAX_WAITING


async def test_the_last_requests_loss_shows_in_the_next_scrape(tmp_path: Path) -> None:
    disk = tmp_path / "nowhere"
    async with before(sending(plain(completion(FULL))), journal=journal_at(disk), rules=(MANY,)) as (gateway, _):
        for _ in range(2):
            assert (await gateway.ask()).status_code == 200
        assert await dropped(gateway) == OF_TWO_REQUESTS - MAX_WAITING


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as place:
        yield place


def fill(disk: Path) -> Path:
    """To the last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            return filler
    return filler


async def test_a_full_disk_stops_nothing(small_disk: Path) -> None:
    async with before(sending(CUT_UP), journal=journal_at(small_disk)) as (gateway, _):
        await gateway.ask(stream=True)
        await journalled(small_disk, 1)
        filler = fill(small_disk)
        # More lines than what is left of the page that the file had begun takes.
        for _ in range(30):
            assert (await gateway.stream()).done
        async with asyncio.timeout(TIMEOUT):
            while not problems(gateway):
                await asyncio.sleep(0.01)
        assert (await gateway.stream()).done
        filler.unlink()
        matches, _requests = await journalled(small_disk, 32)
        assert len(matches) == 2 * 32
        assert await dropped(gateway) == 0


# -- a journal that is required ----------------------------------------------------------------------------------------


async def readiness(gateway: RunningGateway) -> int:
    return (await gateway.client.get("/readyz")).status_code


def assert_not_admitted(response: httpx2.Response) -> None:
    assert error_of(response, 503)["code"] == "overloaded"
    assert int(response.headers["retry-after"]) >= 1


async def assert_serves_again(gateway: RunningGateway) -> None:
    async def ready() -> bool:
        return await readiness(gateway) == 200

    await until(ready)
    assert (await gateway.ask()).status_code == 200


async def answering(call: Call) -> None:
    await call.send(CUT_UP if call.body.get("stream") else WHOLE)


@pytest.mark.parametrize("streamed", [False, True])
async def test_required_is_written_when_the_answer_ends(tmp_path: Path, streamed: bool) -> None:
    async with before(answering, journal=journal_at(tmp_path, required=True)) as (gateway, _):
        for count in range(1, 4):
            await gateway.ask("Voldemort", stream=streamed)
            assert sum(line["type"] == "match" for line in lines_in(tmp_path)) == 3 * count
        await journalled(tmp_path, 3)


async def test_required_is_begun_before_anything_is_sent(tmp_path: Path) -> None:
    """The upstream's stream has no end: whatever is in the journal by then was there before the end."""
    play = sending_then_hanging(stream_head() + chunk(event(delta("hello, and on "))))
    async with before(play, journal=journal_at(tmp_path, required=True)) as (gateway, _):
        body = question("Voldemort", stream=True)
        async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            begun, prompt = lines_in(tmp_path)
            assert begun.keys() == {"type", "v", "time", "request_id", "key_name", "route", "policy"}
            assert (begun["type"], begun["policy"], prompt["direction"]) == ("begin", "default", "input")
            assert begun["request_id"] == prompt["request_id"] == answer.headers["x-request-id"]
        await journalled(tmp_path, 1)
    assert [line["type"] for line in lines_in(tmp_path)] == ["begin", "match", "request"]


async def test_what_is_not_required_is_not_begun(tmp_path: Path) -> None:
    async with before(answering, journal=journal_at(tmp_path)) as (gateway, _):
        await gateway.ask()
        await journalled(tmp_path, 1)
    assert [line["type"] for line in lines_in(tmp_path)] == ["match", "match", "request"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_first_answer_that_cannot_be_journalled_is_not_given(tmp_path: Path, streamed: bool) -> None:
    """Nothing has failed yet, and there is no match to be written: it is the answer itself that needs a line."""
    disk = tmp_path / "disk"
    disk.mkdir()
    clean = sending(stream("Hello") if streamed else plain(completion("Hello")))
    async with before(clean, journal=journal_at(disk, required=True)) as (gateway, upstream):
        disk.rename(tmp_path / "away")
        refused = await gateway.ask(stream=streamed)
        assert error_of(refused, 503)["code"] == "journal_failed"
        assert int(refused.headers["retry-after"]) >= 1
        assert upstream.calls == []
        (tmp_path / "away").rename(disk)
        await assert_serves_again(gateway)
        matches, requests = await journalled(disk, 2)
        assert (matches, [line["status"] for line in requests]) == ([], [503, 200])


async def test_a_stream_whose_journal_fails_ends_with_an_error(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    broken = asyncio.Event()

    async def play(call: Call) -> None:
        if not call.body.get("stream"):
            await call.send(WHOLE)
            return
        await call.send(stream_head() + chunk(event(delta("Hello 12monkeys, and "))))
        await broken.wait()
        await call.send(chunk(event(delta("a dragon")) + event(delta(finish="stop")) + DONE) + END)

    async with before(play, journal=journal_at(disk, required=True)) as (gateway, upstream):
        body = question(stream=True)
        async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            disk.rename(tmp_path / "away")
            broken.set()
            await answer.aread()
        streamed = Streamed(answer)
        assert streamed.error is not None
        assert streamed.error["code"] == "journal_failed"
        assert not streamed.done
        assert "monkeys" not in answer.text
        for wanted in (True, False):
            assert_not_admitted(await gateway.ask(stream=wanted))
        assert await readiness(gateway) == 503
        assert len(upstream.calls) == 1
        (tmp_path / "away").rename(disk)
        await assert_serves_again(gateway)
        matches, requests = await journalled(disk, 2)
        assert [line["outcome"] for line in requests] == ["failed", "redacted"]
        assert len(matches) == 2 * len(requests)


async def test_a_plain_answer_without_its_required_journal_is_503(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    async with before(answering, journal=journal_at(disk, required=True)) as (gateway, _):
        disk.rename(tmp_path / "away")
        refused = await gateway.ask()
        assert error_of(refused, 503)["code"] == "journal_failed"
        assert int(refused.headers["retry-after"]) >= 1
        assert "Hello" not in refused.text
        assert_not_admitted(await gateway.ask())
        assert await readiness(gateway) == 503
        (tmp_path / "away").rename(disk)
        await assert_serves_again(gateway)


async def test_a_full_disk_stops_what_requires_it(small_disk: Path) -> None:
    async with before(answering, journal=journal_at(small_disk, required=True)) as (gateway, _):
        assert (await gateway.stream()).done
        filler = fill(small_disk)
        refused = await gateway.ask(stream=True)
        while refused.status_code == 200 and Streamed(refused).done:  # what is left of a page takes some lines
            refused = await gateway.ask(stream=True)
        assert_not_admitted(await gateway.ask())
        assert await readiness(gateway) == 503
        filler.unlink()
        await assert_serves_again(gateway)


async def test_a_required_journal_that_cannot_be_opened_admits_nobody(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    async with before(answering, journal=journal_at(disk, required=True)) as (gateway, upstream):
        assert await readiness(gateway) == 503
        assert (await gateway.client.get("/healthz")).status_code == 200
        for streamed in (True, False):
            assert_not_admitted(await gateway.ask(stream=streamed))
        assert upstream.calls == []
        disk.mkdir()
        await assert_serves_again(gateway)


UNWRITTEN: dict[str, tuple[str, bytes]] = {
    "blocked prompt": ("a detonator", WHOLE),
    "error of the upstream": ("hello", plain({"error": {"message": "a dragon"}}, 500)),
}


@pytest.mark.parametrize("case", UNWRITTEN)
async def test_no_answer_at_all_without_its_required_journal(case: str, tmp_path: Path) -> None:
    said, answer = UNWRITTEN[case]
    disk = tmp_path / "disk"
    disk.mkdir()
    async with before(sending(answer), journal=journal_at(disk, required=True)) as (gateway, _):
        disk.rename(tmp_path / "away")
        assert error_of(await gateway.ask(said), 503)["code"] == "journal_failed"
