"""A balancer over time: readiness, what a reload takes over, connections that were kept."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from gateway.policy.model import Health, Retries, Route, Timeouts, Upstream
from gateway.proxy.upstreams.balancer import (
    LoadBalancer,
    OpenResponse,
)
from tests.support.balancing import (
    FIRST,
    GOOD,
    HEAD,
    TIMEOUT,
    Bench,
    answering,
    asking,
    bench,
    holding,
    read,
    status,
)
from tests.support.scripted_server import Conversation, Script, on_both_loops, serving

# -- readiness ---------------------------------------------------------------------------------------------------------


async def _with_probes(made: Bench, up: dict[str, bool]) -> None:
    for name, client in made.fleet.clients.items():

        async def probed(name: str = name) -> bool:
            return up[name]

        client.up = probed  # type: ignore[method-assign]


def usable(made: Bench) -> bool:
    return len(made.fleet.down) < len(made.fleet.clients)


async def test_e10_a_hiccup_of_all_upstreams_leaves_the_gateway_usable() -> None:
    async with bench(answering(GOOD), answering(GOOD)) as made:
        up = {"a": True, "b": False}
        await _with_probes(made, up)
        assert await made.fleet.states() == up
        assert usable(made)
        up["a"] = False
        made.now += 10
        for passed, expected in ((0, True), (29.9, True), (0.1, False), (100, False)):
            made.now += passed
            assert not any((await made.fleet.states()).values())
            assert usable(made) is expected, passed
        up["b"] = True
        assert (await made.fleet.states())["b"]
        assert usable(made)


async def test_e10_every_answer_begins_the_time_anew() -> None:
    async with bench(answering(GOOD)) as made:
        up = {"a": True}
        await _with_probes(made, up)
        for _ in range(4):
            for up["a"], passed in ((True, 1), (False, 20)):
                await made.fleet.states()
                assert usable(made)
                made.now += passed


async def test_e10_an_upstream_that_was_never_up_is_not_waited_for() -> None:
    async with bench(answering(GOOD)) as made:
        await _with_probes(made, {"a": False})
        assert not usable(made)
        await made.fleet.states()
        assert not usable(made)


async def test_e10_requests_that_fail_are_a_hiccup_too() -> None:
    async with bench(answering(status(500)), health=Health(eject_after=1, eject_for=1000)) as made:
        await _with_probes(made, {"a": True})
        assert await made.fleet.states() == {"a": True}
        await made.body("a")
        assert await made.fleet.states() == {"a": False}
        assert usable(made)
        made.now += 30
        await made.fleet.states()
        assert not usable(made)


# -- reloads -----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_reload_takes_over_what_stays_the_same() -> None:
    async with serving(answering(GOOD)) as same, serving(answering(GOOD)) as changed:
        urls = {"a": same.url, "b": changed.url}
        old = LoadBalancer.build({name: Upstream(name=name) for name in "ab"}, urls, 10, None)
        for name in "ab":
            await (await open_on(old, name)).close()
        new = LoadBalancer.build({"a": Upstream(name="a"), "b": Upstream(name="b", api_key="another")}, urls, 10, old)
        assert new.clients["a"] is old.clients["a"]
        assert new.clients["b"] is not old.clients["b"]
        await old.close()
        for name in "ab":
            await (await open_on(new, name)).close()
        assert [len(same.conversations), len(changed.conversations)] == [1, 2]
        await new.close()
        with pytest.raises(httpx2.ConnectError):
            await open_on(new, "a")


@on_both_loops
async def test_a_reload_that_comes_to_nothing_closes_nothing() -> None:
    async with serving(answering(GOOD)) as server:
        upstreams, urls = {"a": Upstream(name="a")}, {"a": server.url}
        old = LoadBalancer.build(upstreams, urls, 10, None)
        await LoadBalancer.build(upstreams, urls, 10, old).close()
        await (await open_on(old, "a")).close()
        wider = LoadBalancer.build(upstreams, urls, 20, old)
        assert wider.clients["a"] is not old.clients["a"]
        await wider.close()
        await old.close()


@on_both_loops
async def test_a_retired_fleet_waits_for_what_runs() -> None:
    async with bench(holding(HEAD + FIRST), answering(GOOD)) as made:
        opened = await made.ask("a")
        await made.body("b")
        retiring = asyncio.create_task(made.fleet.retire())
        # The idle one's client is closed, the other's not.
        with pytest.raises(httpx2.ConnectError):
            while made.tried.count("b") < 100_000:
                await made.body("b")
        part = await anext(aiter(opened.response.stream))  # type: ignore[arg-type]
        assert part == b"first"
        assert not retiring.done()
        await opened.close()
        await asyncio.wait_for(retiring, TIMEOUT)


@on_both_loops
async def test_retirement_does_not_wait_for_what_another_fleet_has() -> None:
    async with bench(holding(HEAD + FIRST)) as made:
        client = made.fleet.clients["a"]
        upstreams, urls = {"a": client.upstream}, {"a": client.base_url}
        later = LoadBalancer.build(upstreams, urls, client.max_connections, made.fleet)
        opened = await made.ask("a")
        await asyncio.wait_for(made.fleet.retire(), TIMEOUT)
        assert made.pauses == []
        assert later.busy == {"a": 1}
        assert await anext(aiter(opened.response.stream)) == b"first"  # type: ignore[arg-type]
        await opened.close()
        await later.close()


@on_both_loops
@pytest.mark.parametrize("how", ["total", "cancelled", "closed"])
async def test_retirement_ends(how: str) -> None:
    total = 0.2 if how == "total" else 600
    async with bench(holding(HEAD + FIRST), timeouts=Timeouts(total=total)) as made:
        opened = await made.ask("a")
        retiring = asyncio.create_task(made.fleet.retire())
        await asyncio.sleep(0)
        if how == "cancelled":
            retiring.cancel()
        elif how == "closed":
            await made.fleet.close()
        with pytest.raises(httpx2.ReadError):
            await read(opened)
        await opened.close()
        await asyncio.wait((retiring,), timeout=TIMEOUT)
        assert retiring.done()


async def open_on(fleet: LoadBalancer, name: str) -> OpenResponse:
    """An answer, all of it read."""
    route = Route(model="*", upstream=name, policy="p")
    opened = await fleet.open(route, asking, {}, on_retry=lambda *_: None, on_attempt=lambda _: None)
    await read(opened)
    return opened


# -- connections that were kept ----------------------------------------------------------------------------------------


def keeping(*answers: bytes, sent: list[bytes]) -> Script:
    """Answers the first request on a connection and closes on the second, once it has read it; `sent` gets all."""
    left = list(answers)

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        sent.append(await conversation.body())
        await conversation.send(left.pop(0) if len(left) > 1 else left[0])
        await conversation.request()
        sent.append(await conversation.body())

    return script


@on_both_loops
@pytest.mark.parametrize(("attempts", "sent_in_all"), [(0, 2), (1, 3), (2, 3)])
async def test_d15_no_request_is_sent_more_often_than_its_attempts_allow(attempts: int, sent_in_all: int) -> None:
    sent: list[bytes] = []
    health = Health(eject_after=1)
    async with bench(keeping(GOOD, sent=sent), retries=Retries(attempts=attempts), health=health) as made:
        assert await made.body("a") == ("a", 200, b"good")
        if attempts:
            assert await made.body("a") == ("a", 200, b"good")
            assert made.retried == [("a", "reset")]
        else:
            with pytest.raises(httpx2.ReadError):
                await made.body("a")
            assert made.retried == []
        assert len(sent) == sent_in_all
        assert made.pauses == []
        # Servers close idle connections; that says nothing about their health.
        assert (await made.fleet.states())["a"]


@on_both_loops
async def test_d15_the_same_upstream_is_asked_again_on_a_new_connection_then_the_next() -> None:
    sent: list[bytes] = []
    scripts = (keeping(GOOD, status(500), sent=sent), answering(GOOD))
    async with bench(*scripts, retries=Retries(attempts=2)) as made:
        assert await made.body("a", "b") == ("a", 200, b"good")
        assert await made.body("a", "b") == ("b", 200, b"good")
        assert made.tried == ["a", "a", "a", "b"]
        assert made.retried == [("a", "reset"), ("a", "status")]
        assert made.pauses == []


@on_both_loops
async def test_d15_without_a_budget_nothing_is_sent_again() -> None:
    sent: list[bytes] = []
    async with bench(keeping(GOOD, sent=sent), retries=Retries(attempts=5, budget=0)) as made:
        await made.body("a")
        with pytest.raises(httpx2.ReadError):
            await made.body("a")
        assert len(sent) == 2


@on_both_loops
async def test_d15_a_small_call_of_our_own_is_repeated_if_it_may_be_and_else_never_needs_it() -> None:
    sent: list[bytes] = []
    async with bench(keeping(GOOD, sent=sent)) as made:
        client = made.fleet.clients["a"]
        for _ in range(2):
            assert await client.call("GET", "/models", TIMEOUT) == (200, b"good")
        assert len(sent) == 3
        for _ in range(2):
            assert await client.call("POST", "/completions", TIMEOUT, b"{}") == (200, b"good")
        assert len(sent) == 5
