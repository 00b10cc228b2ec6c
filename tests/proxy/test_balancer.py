"""Which upstream gets a request: failover, retries, ejection, requests in flight."""

from __future__ import annotations

import asyncio
import itertools

import httpx2
import pytest

from gateway.http1 import DescriptorsExhausted
from gateway.policy.model import Balance, Health, Retries, Timeouts, Upstream
from gateway.proxy.upstreams.client import UpstreamClient
from tests.support.balancing import (
    FIRST,
    GOOD,
    HEAD,
    answering,
    bench,
    closing,
    holding,
    read,
    refusing,
    status,
    until,
)
from tests.support.descriptors import none_left
from tests.support.scripted_server import Script, on_both_loops, serving

# -- failures before the first byte: the next upstream -----------------------------------------------------------------

FAILOVER: dict[str, tuple[Script | str, str]] = {
    "refused": (refusing(), "refused"),
    "unknown host": ("http://nowhere.invalid", "dns"),
    "500": (answering(status(500)), "status"),
    "502": (answering(status(502)), "status"),
    "503": (answering(status(503)), "status"),
    "503, to be asked later": (answering(status(503, b"Retry-After: 60")), "status"),
    "504": (answering(status(504)), "status"),
    "429": (answering(status(429)), "status"),
    "closed": (closing(), "protocol"),
    "closed in the head": (closing(b"HTTP/1.1 200 OK\r\nConte"), "protocol"),
    "closed behind the head": (closing(HEAD), "protocol"),
    "no HTTP": (closing(b"220 mail.example\r\n"), "protocol"),
    "silent": (holding(), "timeout"),
    "silent behind the head": (holding(HEAD), "timeout"),
}


@on_both_loops
@pytest.mark.parametrize("case", FAILOVER)
async def test_failover(case: str) -> None:
    script, kind = FAILOVER[case]
    async with bench(script, answering(GOOD), timeouts=Timeouts(first_byte=0.2)) as made:
        opened = await made.ask("a", "b")
        assert opened.client.upstream.name == "b"
        assert opened.attempts == (("a", kind),)
        assert made.fleet.busy == {"a": 0, "b": 1}
        assert await read(opened) == b"good"
        await opened.close()
        assert made.retried == [("a", kind)]
        assert made.tried == ["a", "b"]
        assert made.pauses == []


@on_both_loops
@pytest.mark.parametrize("code", [200, 204, 301, 400, 401, 403, 404, 422, 501])
async def test_other_answers_are_answers(code: int) -> None:
    async with bench(answering(status(code)), answering(GOOD)) as made:
        assert (await made.body("a", "b"))[:2] == ("a", code)
        assert made.retried == []


@on_both_loops
async def test_no_failover_once_the_body_has_begun() -> None:
    async with bench(closing(HEAD + FIRST), answering(GOOD)) as made:
        opened = await made.ask("a", "b")
        assert opened.client.upstream.name == "a"
        parts = []
        with pytest.raises(httpx2.RemoteProtocolError):
            async for part in opened.response.stream:  # type: ignore[union-attr]
                parts.append(part)
        await opened.close()
        assert parts == [b"first"]
        assert made.retried == []


@on_both_loops
async def test_the_last_upstreams_head_is_an_answer_already() -> None:
    async with bench(holding(HEAD)) as made:
        opened = await made.ask("a")
        assert opened.response.status_code == 200
        await opened.close()


@on_both_loops
async def test_the_last_failure_counts() -> None:
    async with bench(answering(status(500)), refusing(), retries=Retries(attempts=1)) as made:
        with pytest.raises(httpx2.ConnectError):
            await made.ask("a", "b")
        assert made.retried == [("a", "status")]
    async with bench(refusing(), answering(status(500)), retries=Retries(attempts=1)) as made:
        assert await made.body("a", "b") == ("b", 500, b"body")


# -- the same upstream again -------------------------------------------------------------------------------------------


@on_both_loops
async def test_alone_it_is_asked_again_after_a_pause() -> None:
    async with bench(answering(status(503), status(429, b"Retry-After: 1"), GOOD)) as made:
        assert await made.body("a") == ("a", 200, b"good")
        assert made.pauses == [0.025, 1.05]
        assert made.tried == ["a"] * 3


@on_both_loops
@pytest.mark.parametrize("script", [refusing(), answering(status(503))], ids=["refused", "503"])
async def test_attempts_are_counted(script: Script | str) -> None:
    async with bench(script, retries=Retries(attempts=3)) as made:
        try:
            assert await made.body("a") == ("a", 503, b"body")
        except httpx2.ConnectError:
            assert isinstance(script, str)
        assert len(made.retried) == len(made.pauses) == 3


@on_both_loops
@pytest.mark.parametrize("code", [500, 502, 504])
async def test_what_may_have_been_done_is_not_asked_for_again(code: int) -> None:
    async with bench(answering(status(code), GOOD)) as made:
        assert (await made.body("a"))[1] == code


@on_both_loops
async def test_a_timeout_is_not_repeated_on_the_same_upstream() -> None:
    async with bench(holding(), timeouts=Timeouts(first_byte=0.2)) as made:
        with pytest.raises(httpx2.ReadTimeout):
            await made.ask("a")
        assert made.retried == []


@on_both_loops
async def test_a_refusal_that_is_given_up_on_passes_with_its_headers() -> None:
    async with bench(answering(status(429, b"Retry-After: 30"))) as made:
        opened = await made.ask("a")
        assert opened.response.status_code == 429
        assert opened.response.headers["retry-after"] == "30"
        assert await read(opened) == b"body"
        await opened.close()
        assert made.tried == ["a"]


@on_both_loops
async def test_failures_end_with_the_budget() -> None:
    health, retries = Health(eject_after=100), Retries(attempts=2, budget=0.5)
    async with bench(answering(status(503)), answering(GOOD), health=health, retries=retries) as made:
        codes = [(await made.body("a", "b"))[1] for _ in range(29)]
        # What was saved up lasts for 19 requests, each of which adds half a retry; then every other one has one.
        assert codes == [200] * 19 + [503, 200] * 5


@on_both_loops
async def test_no_attempt_begins_behind_the_deadline() -> None:
    async with bench(answering(status(503, b"Retry-After: 1")), timeouts=Timeouts(total=1)) as made:
        assert (await made.body("a"))[1] == 503
        assert made.pauses == []


@on_both_loops
async def test_the_deadline_ends_an_attempt() -> None:
    async with bench(holding(), answering(GOOD), timeouts=Timeouts(total=0.2)) as made:
        asking = asyncio.create_task(made.ask("a", "b"))
        await until(lambda: made.tried == ["a"])
        made.now += 0.2
        with pytest.raises(httpx2.ReadTimeout, match="upstream 'a'"):
            await asking
        assert made.tried == ["a"]


# -- health ------------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_an_ejected_upstream_is_left_out_until_one_request_tries_it() -> None:
    health = Health(eject_after=2, eject_for=10)
    script = answering(status(500), status(500), GOOD)
    async with bench(script, answering(GOOD), health=health) as made:
        assert [(await made.body("a", "b"))[0] for _ in range(4)] == ["b"] * 4
        assert made.retried == [("a", "status")] * 2
        made.now += 10
        first, second = await asyncio.gather(made.ask("a", "b"), made.ask("a", "b"))
        assert [first.client.upstream.name, second.client.upstream.name] == ["a", "b"]
        await first.close()
        await second.close()
        assert (await made.body("a", "b"))[0] == "a"


@on_both_loops
async def test_when_all_are_ejected_they_are_asked_all_the_same() -> None:
    async with bench(answering(status(500), GOOD), health=Health(eject_after=1)) as made:
        assert [(await made.body("a"))[1] for _ in range(2)] == [500, 200]


@on_both_loops
async def test_refusals_say_nothing_against_health() -> None:
    async with bench(answering(status(429, b"Retry-After: 9")), health=Health(eject_after=1)) as made:
        for _ in range(3):
            await made.body("a")
        assert await made.fleet.states() == {"a": True}


@on_both_loops
async def test_no_free_connection_says_nothing_against_health() -> None:
    timeouts, health = Timeouts(connect=0.1), Health(eject_after=1)
    async with bench(holding(HEAD), answering(GOOD), timeouts=timeouts, health=health, max_connections=1) as made:
        held = await made.ask("a")
        assert await made.body("a", "b") == ("b", 200, b"good")
        assert made.retried == [("a", "overloaded")]
        await held.close()
        opened = await made.ask("a")
        assert opened.client.upstream.name == "a"
        await opened.close()


@on_both_loops
async def test_d19_no_descriptor_says_nothing_against_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.proxy.upstreams.client.PROBE_TTL", -1.0)
    async with bench(closing(GOOD), health=Health(eject_after=1)) as made:
        assert await made.body("a") == ("a", 200, b"good")
        assert await made.fleet.states() == {"a": True}
        with none_left():
            for _ in range(3):
                with pytest.raises(DescriptorsExhausted):
                    await made.body("a")
                assert await made.fleet.states() == {"a": True}
        assert made.retried == []
        assert await made.body("a") == ("a", 200, b"good")


@on_both_loops
async def test_states_join_probe_and_breaker() -> None:
    scripts = (answering(GOOD, status(500), GOOD), refusing(), answering(GOOD))
    async with bench(*scripts, health=Health(eject_after=1, eject_for=10)) as made:
        assert await made.fleet.states() == {"a": True, "b": False, "c": True}
        await made.body("a")
        assert await made.fleet.states() == {"a": False, "b": False, "c": True}
        made.now += 10
        assert await made.fleet.states() == {"a": True, "b": False, "c": True}


@on_both_loops
async def test_those_who_ask_at_once_share_a_probe() -> None:
    async with serving(answering(GOOD)) as server:
        client = UpstreamClient(Upstream(name="a"), server.url, 10)
        impatient = asyncio.create_task(client.up())
        await asyncio.sleep(0)
        patient = [asyncio.create_task(client.up()) for _ in range(5)]
        await asyncio.sleep(0)
        impatient.cancel()
        assert await asyncio.gather(*patient) == [True] * 5
        assert await client.up()
        assert len(server.requests) == 1
        await client.close()


@on_both_loops
async def test_closing_ends_a_probe() -> None:
    async with serving(holding()) as server:
        client = UpstreamClient(Upstream(name="a"), server.url, 10)
        asking = asyncio.create_task(client.up())
        await until(lambda: bool(server.requests))
        await client.close()
        assert not await asking


# -- in flight ---------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_least_busy_goes_by_held_streams() -> None:
    async with bench(holding(HEAD + FIRST), holding(HEAD + FIRST), holding(HEAD + FIRST)) as made:
        held = [await made.ask(*"abc", balance=Balance.LEAST_BUSY) for _ in range(7)]
        assert [opened.client.upstream.name for opened in held] == list("abcabca")
        await held[1].close()
        held[1].release()
        await held[1].close()
        assert made.fleet.busy == {"a": 3, "b": 1, "c": 2}
        held.append(await made.ask(*"abc", balance=Balance.LEAST_BUSY))
        assert held[-1].client.upstream.name == "b"
        for opened in held:
            await opened.close()


@on_both_loops
async def test_leaving_at_any_point_leaves_nothing_behind() -> None:
    """A request that refuses, pauses, fails over and waits for a body, cancelled in every turn of the loop it takes."""
    turns_taken = 0
    scripts = (answering(status(503)), holding(HEAD), holding(HEAD + FIRST))
    settings = {"timeouts": Timeouts(first_byte=0.02), "retries": Retries(attempts=2, budget=1)}
    for turns in itertools.count():
        async with bench(*scripts, **settings) as made:  # type: ignore[arg-type]
            asking = asyncio.create_task(made.ask(*"abc"))
            for _ in range(turns):
                await asyncio.sleep(0.002 if made.tried[-1:] == ["b"] else 0)
            asking.cancel()
            await asyncio.wait((asking,))
            # On a busy machine the last one, too, can be slower than it may; then it is tried once more.
            if not asking.cancelled() and not isinstance(asking.exception(), httpx2.TimeoutException):
                await asking.result().close()
                turns_taken = turns
                break
            assert not any(made.fleet.busy.values()), turns
    assert turns_taken > 5


@on_both_loops
async def test_leaving_in_a_pause() -> None:
    async with bench(answering(status(503))) as made:
        made.awake.clear()
        asking = asyncio.create_task(made.ask("a"))
        await until(lambda: bool(made.pauses))
        assert made.fleet.busy == {"a": 0}
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@on_both_loops
async def test_a_trial_that_is_left_is_none() -> None:
    script = answering(status(500), b"", GOOD)
    async with bench(script, answering(GOOD), health=Health(eject_after=1, eject_for=10)) as made:
        await made.body("a", "b")
        made.now += 10
        trying = asyncio.create_task(made.ask("a", "b"))
        await until(lambda: made.fleet.busy == {"a": 1, "b": 0})
        assert (await made.body("a", "b"))[0] == "b"
        trying.cancel()
        await asyncio.wait((trying,))
        assert (await made.body("a", "b"))[0] == "a"
