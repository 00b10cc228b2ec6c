"""Several upstreams behind one route: who answers, what is counted, and when nobody else is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.policy.model import Balance, Health, Listen, ReadyWhen, Retries, Route
from tests.support.descriptors import none_closing, none_left
from tests.support.gateway import TIMEOUT, RunningGateway, before, config_for, error_of, quick, running
from tests.support.upstream import (
    DONE,
    END,
    MODELS,
    Call,
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
    sending_then_resetting,
    stream,
    stream_head,
)

AGAIN = Retries(attempts=2)
NEVER = Health(eject_after=10_000)
BOTH = ("played", "second")


async def answering(call: Call) -> None:
    """Whole or as a stream, as it is asked for."""
    await call.send(stream("from ", "the second") if call.body.get("stream") else plain(completion("from the second")))


@asynccontextmanager
async def two(
    first: Play, second: Play = answering, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, Upstream, Upstream]]:
    """A gateway whose route leads to `played`, which plays `first`, and to `second`."""
    made = {"retries": AGAIN, "health": NEVER, **settings}
    async with (
        playing(second) as other,
        before(first, others={"second": other.base_url}, **made) as (gateway, upstream),
    ):
        yield gateway, upstream, other


@contextmanager
def nobody() -> Iterator[str]:
    """The base URL of a port that refuses connections, and that nobody else can get meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


async def said_by(gateway: RunningGateway, streamed: bool) -> str:
    if streamed:
        answer = await gateway.stream()
        assert answer.done
        return answer.content()
    whole = await gateway.ask()
    assert whole.status_code == 200, whole.text
    content: str = whole.json()["choices"][0]["message"]["content"]
    return content


async def assert_counted(gateway: RunningGateway, retries: dict[str, int], errors: dict[tuple[str, str], int]) -> None:
    """So many retries by upstream, so many errors by upstream and kind, and no others."""
    metrics = await gateway.metrics()
    assert metrics.value("portcullis_retries_total") == sum(retries.values())
    for name, count in retries.items():
        assert metrics.value("portcullis_retries_total", upstream=name) == count
    assert metrics.value("portcullis_upstream_errors_total") == sum(errors.values())
    for (name, kind), count in errors.items():
        assert metrics.value("portcullis_upstream_errors_total", upstream=name, kind=kind) == count
    metrics.assert_covered()


# -- before the first byte ---------------------------------------------------------------------------------------------

UNAVAILABLE = plain({"error": {"message": "no 12MONKEYS"}}, 503, "Retry-After: 9")
FAILS: dict[str, tuple[Play, str]] = {
    "503": (sending(UNAVAILABLE), "status"),
    "500": (sending(plain({}, 500)), "status"),
    "429": (sending(plain({}, 429)), "status"),
    "closed": (sending_then_closing(), "protocol"),
    "reset": (sending_then_resetting(), "reset"),
    "closed in the head": (sending_then_closing(b"HTTP/1.1 200 OK\r\nConte"), "protocol"),
    "closed after the head": (sending_then_closing(stream_head()), "protocol"),
    "silent": (sending_then_hanging(), "timeout"),
    "silent after the head": (sending_then_hanging(stream_head()), "timeout"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", FAILS)
async def test_the_second_answers_for_the_first(case: str, streamed: bool) -> None:
    play, kind = FAILS[case]
    timeouts = quick(first_byte=1.0) if kind == "timeout" else quick()
    async with two(play, timeouts=timeouts) as (gateway, first, second):
        assert await said_by(gateway, streamed) == "from the second"
        line = (await gateway.logged(1))[0]
        assert (line["upstream"], line["status"], line["outcome"], line["error"]) == ("second", 200, "ok", None)
        await assert_counted(gateway, {"played": 1}, {("played", kind): 1})
        assert len(first.calls) == len(second.calls) == 1
        assert first.asked.body == second.asked.body
        if kind == "timeout":
            await asyncio.wait_for(first.asked.conversation.client_left.wait(), TIMEOUT)


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_second_answers_for_one_that_refuses_connections(streamed: bool) -> None:
    async with playing(answering) as second:
        with nobody() as refusing:
            made = config_for(refusing, others={"second": second.base_url}, retries=AGAIN)
            async with running(made) as gateway:
                assert await said_by(gateway, streamed) == "from the second"
                assert (await gateway.logged(1))[0]["upstream"] == "second"
                await assert_counted(gateway, {"played": 1}, {("played", "refused"): 1})
                assert (await gateway.client.get("/readyz")).status_code == 200


async def test_the_answer_of_the_second_is_censored() -> None:
    async with two(sending(UNAVAILABLE), sending(stream("so 12MON", "KEYS"))) as (gateway, _, _second):
        answer = await gateway.stream()
        assert answer.content() == "so [CENSORED]"
        assert "MONKEYS" not in answer.response.text


async def test_when_all_fail_the_last_failure_is_the_answer() -> None:
    refusal = plain({"error": {"message": "busy with 12MONKEYS", "code": "busy"}}, 503, "Retry-After: 9")
    async with two(sending(plain({}, 500)), sending(refusal)) as (gateway, first, second):
        refused = await gateway.ask()
        error = error_of(refused, 503)
        assert (error["code"], error["message"]) == ("busy", "busy with [CENSORED]")
        assert refused.headers["retry-after"] == "9"
        assert (await gateway.logged(1))[0]["upstream"] == "second"
        await assert_counted(gateway, {"played": 1}, {("played", "status"): 1, ("second", "status"): 1})
        assert len(first.calls) == len(second.calls) == 1


async def test_a_single_upstream_is_asked_again() -> None:
    calls = iter([plain({}, 503), plain({}, 429), plain(completion("at last"))])

    async def play(call: Call) -> None:
        await call.send(next(calls))

    async with before(play, retries=AGAIN) as (gateway, _):
        assert (await gateway.ask()).json()["choices"][0]["message"]["content"] == "at last"
        await assert_counted(gateway, {"played": 2}, {("played", "status"): 2})


async def test_without_retries_nobody_else_is_asked() -> None:
    async with two(sending(UNAVAILABLE), retries=Retries(attempts=0)) as (gateway, _, second):
        error_of(await gateway.ask(), 503)
        assert second.calls == []
        await assert_counted(gateway, {}, {("played", "status"): 1})


# -- where another upstream is not asked -------------------------------------------------------------------------------

BEGUN = stream_head() + chunk(event(delta("Hello ")))
BREAKS: dict[str, tuple[Play, str]] = {
    "reset": (sending_then_resetting(BEGUN), "reset"),
    "closed": (sending_then_closing(BEGUN), "protocol"),
    "silent": (sending_then_hanging(BEGUN), "timeout"),
    "error event": (sending(BEGUN, chunk(event({"error": {"message": "no"}})) + END), "error_event"),
}


@pytest.mark.parametrize("case", BREAKS)
async def test_a_stream_that_has_begun_is_not_begun_again(case: str) -> None:
    play, kind = BREAKS[case]
    timeouts = quick(idle=1.0) if kind == "timeout" else quick()
    async with two(play, timeouts=timeouts) as (gateway, _, second):
        answer = await gateway.stream()
        assert answer.error is not None
        assert not answer.done
        assert second.calls == []
        line = (await gateway.logged(1))[0]
        assert (line["upstream"], line["outcome"], line["error"]) == ("played", "failed", kind)
        await assert_counted(gateway, {}, {("played", kind): 1})


async def test_a_plain_answer_that_has_begun_is_not_begun_again() -> None:
    async with two(sending_then_closing(plain(completion("ok"))[:-5])) as (gateway, _, second):
        error_of(await gateway.ask(), 502)
        assert second.calls == []
        await assert_counted(gateway, {}, {("played", "protocol"): 1})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_our_own_key_is_no_reason_to_ask_another(status: int, streamed: bool) -> None:
    async with two(sending(plain({"error": {"message": "bad key"}}, status))) as (gateway, _, second):
        refused = await gateway.ask(stream=streamed)
        assert error_of(refused, 502)["code"] == "upstream_auth"
        assert "bad key" not in refused.text
        assert second.calls == []
        await assert_counted(gateway, {}, {("played", "auth"): 1})


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_request_that_is_wrong_is_wrong_everywhere(status: int) -> None:
    async with two(sending(plain({"error": {"message": "wrong"}}, status))) as (gateway, _, second):
        error_of(await gateway.ask(), status)
        assert second.calls == []


async def test_a_client_that_leaves_during_the_first_attempt_ends_all() -> None:
    async with two(sending_then_hanging()) as (gateway, first, second):
        asking = asyncio.create_task(gateway.ask())
        while not first.calls:
            await asyncio.sleep(0.002)
        asking.cancel()
        await asyncio.wait_for(first.asked.conversation.client_left.wait(), TIMEOUT)
        assert (await gateway.logged(1))[0]["error"] == "client left"
        assert second.calls == []
        await assert_counted(gateway, {}, {})


# -- the order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("balance", Balance)
async def test_who_is_asked_while_the_first_is_busy(balance: Balance) -> None:
    go_on = asyncio.Event()

    async def slow(call: Call) -> None:
        await call.send(stream_head() + chunk(event(delta("Hi"))))
        await go_on.wait()
        await call.send(chunk(event(delta(finish="stop")) + DONE) + END)

    async with two(slow, slow, balance=balance) as (gateway, first, second):
        asking = []
        for count in range(1, 5):
            asking.append(asyncio.create_task(gateway.stream()))
            while len(first.calls) + len(second.calls) < count:
                await asyncio.sleep(0.002)
        asked = (len(first.calls), len(second.calls))
        go_on.set()
        assert [(await each).content() for each in asking] == ["Hi"] * 4
        assert asked == ((4, 0) if balance is Balance.FIRST else (2, 2))
        # All places are free again: the first of equals is asked.
        await gateway.stream()
        assert len(first.calls) == asked[0] + 1


async def test_upstreams_that_other_routes_keep_busy_count() -> None:
    routes = (
        Route(model="slow", upstream="played", policy="default"),
        Route(model="*", upstream="played", policy="default", others=("second",), balance=Balance.LEAST_BUSY),
    )
    async with two(sending_then_hanging(), routes=routes) as (gateway, first, _):
        asking = asyncio.create_task(gateway.ask(model="slow"))
        while not first.calls:
            await asyncio.sleep(0.002)
        assert await said_by(gateway, streamed=True) == "from the second"
        asking.cancel()


# -- left out ----------------------------------------------------------------------------------------------------------


class FaultyUpstream:
    """Answers or fails, as it is told."""

    well = False

    async def play(self, call: Call) -> None:
        await call.send(plain(completion("well")) if self.well else plain({"error": {}}, 500))


async def is_up(gateway: RunningGateway, name: str = "played") -> bool:
    value = (await gateway.metrics()).value("portcullis_upstream_up", upstream=name)
    assert value in (0, 1)
    return value == 1


async def test_the_gauge_follows_ejection_and_recovery() -> None:
    faulty = FaultyUpstream()
    # For so long that no time passes by itself; a single upstream is asked although it is left out.
    health = Health(eject_after=3, eject_for=100_000)
    async with before(faulty.play, health=health) as (gateway, _):
        for up in (True, True, False, False):
            error_of(await gateway.ask(), 500)
            assert await is_up(gateway) is up
        ready = await gateway.client.get("/readyz")  # it was up a moment ago
        assert (ready.status_code, ready.json()["upstreams"]) == (200, {"played": "down"})
        faulty.well = True
        assert (await gateway.ask()).status_code == 200
        assert await is_up(gateway)
        assert (await gateway.client.get("/readyz")).status_code == 200


async def test_an_upstream_that_is_left_out_is_not_asked_first() -> None:
    faulty = FaultyUpstream()
    health = Health(eject_after=2, eject_for=100_000)
    async with two(faulty.play, health=health) as (gateway, first, second):
        for _ in range(6):
            assert await said_by(gateway, streamed=False) == "from the second"
        assert (len(first.calls), len(second.calls)) == (2, 6)
        assert [await is_up(gateway, name) for name in BOTH] == [False, True]
        assert (await gateway.client.get("/readyz")).json() == {
            "status": "ready",
            "upstreams": {"played": "down", "second": "up"},
        }
        await assert_counted(gateway, {"played": 2}, {("played", "status"): 2})


async def test_an_upstream_that_was_left_out_comes_back() -> None:
    faulty = FaultyUpstream()
    async with two(faulty.play, health=Health(eject_after=1, eject_for=0.2)) as (gateway, first, _):
        assert await said_by(gateway, streamed=False) == "from the second"
        faulty.well = True
        async with asyncio.timeout(TIMEOUT):
            while await said_by(gateway, streamed=False) != "well":
                await asyncio.sleep(0.01)
        assert len(first.calls) == 2
        assert await is_up(gateway)
        assert await said_by(gateway, streamed=False) == "well"


async def test_all_down_is_not_ready() -> None:
    with nobody() as one, nobody() as other:
        made = config_for(one, others={"second": other}, retries=AGAIN)
        async with running(made) as gateway:
            assert error_of(await gateway.ask(), 502)["code"] == "upstream_unreachable"
            assert [await is_up(gateway, name) for name in BOTH] == [False, False]
            assert (await gateway.client.get("/readyz")).status_code == 503


@pytest.mark.parametrize(
    ("when", "one_down", "both_down"),
    [
        (ReadyWhen.ALWAYS, "ready", "ready"),
        (ReadyWhen.ANY, "ready", "all upstreams are down"),
        (ReadyWhen.ALL, "upstream second is down", "upstream second is down"),
    ],
)
async def test_readiness_follows_as_many_upstreams_as_it_is_told(
    when: ReadyWhen, one_down: str, both_down: str
) -> None:
    async def status(gateway: RunningGateway) -> str:
        ready = await gateway.client.get("/readyz")
        assert (ready.status_code == 200) is (ready.json()["status"] == "ready")
        return str(ready.json()["status"])

    with nobody() as absent, nobody() as other:
        async with playing(answering) as first:
            made = config_for(first.base_url, others={"second": absent})
            async with running(replace(made, listen=Listen(ready_when=when))) as gateway:
                assert await status(gateway) == one_down
        made = config_for(other, others={"second": absent})
        async with running(replace(made, listen=Listen(ready_when=when))) as gateway:
            assert await status(gateway) in (both_down, both_down.replace("second", "played"))


# -- connections that were kept ----------------------------------------------------------------------------------------


def keeping(answered: int, ending: str) -> Play:
    """Answers so many requests of each connection; the next one is read, then the connection ends."""

    async def play(call: Call) -> None:
        if len(call.conversation.requests) <= answered:
            await answering(call)
        elif ending == "reset":
            call.conversation.reset()
        else:
            call.close()

    return play


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_d15_without_retries_every_request_is_sent_once(ending: str, streamed: bool) -> None:
    async with before(keeping(1, ending), retries=Retries(attempts=0)) as (gateway, upstream):
        await said_by(gateway, streamed)
        lost = await gateway.ask(stream=streamed)
        assert error_of(lost, 502)["code"] == "upstream_reset"
        assert len(upstream.calls) == 2
        await assert_counted(gateway, {}, {("played", "reset"): 1})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_d15_a_request_is_sent_again_where_retries_allow_it(ending: str, streamed: bool) -> None:
    async with before(keeping(1, ending), retries=Retries(attempts=1)) as (gateway, upstream):
        await said_by(gateway, streamed)
        await said_by(gateway, streamed)
        assert len(upstream.calls) == 3
        await assert_counted(gateway, {"played": 1}, {("played", "reset"): 1})


@pytest.mark.parametrize("streamed", [False, True])
async def test_d19_without_descriptors_the_gateway_is_overloaded_and_no_upstream_to_blame(streamed: bool) -> None:
    health = Health(eject_after=1, eject_for=100_000)
    play, listed = sending_then_closing(plain(completion("ok"))), plain(MODELS, 200, "Connection: close")
    async with before(play, models=listed, health=health) as (gateway, upstream):
        await gateway.metrics()  # the client's connection is there, and the upstream has been probed
        await none_closing()
        with none_left():
            for _ in range(3):
                refused = await gateway.ask(stream=streamed)
                assert error_of(refused, 503)["code"] == "overloaded"
                assert refused.headers["retry-after"] == "1"
        assert upstream.calls == []
        assert await is_up(gateway)
        assert (await gateway.ask()).status_code == 200
        await assert_counted(gateway, {}, {("played", "overloaded"): 3})
