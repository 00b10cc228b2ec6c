"""Which upstream gets a request: health, order, retries, what a failure leads to, what a reload takes over."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from gateway.http1 import DescriptorsExhausted
from gateway.policy.model import Balance, Health, Retries, Route, Timeouts, Upstream
from gateway.proxy.upstreams.balancer import (
    MAX_SAVED_RETRIES,
    LoadBalancer,
    OpenResponse,
    RetryBudget,
    backoff,
    by_preference,
)
from gateway.proxy.upstreams.client import UpstreamClient, UpstreamRequest
from gateway.proxy.upstreams.health import Breaker, BreakerState, retry_after_of
from tests.support.descriptors import none_left
from tests.support.scripted_server import Conversation, Script, on_both_loops, serving

PATIENCE = 20  # seconds; only ends a hang
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = b"5\r\nfirst\r\n"


def asking(upstream: Upstream) -> UpstreamRequest:
    return UpstreamRequest("/x", b"{}", stream=True)


def status(code: int, *lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 %d Because" % code, *lines, b"Content-Length: 4", b"", b"body"])


def answering(*answers: bytes) -> Script:
    """One answer for each request, on whatever connection; the last one for all further ones."""
    left = list(answers)

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.request()
            await conversation.body()
            await conversation.send(left.pop(0) if len(left) > 1 else left[0])

    return script


def holding(*pieces: bytes) -> Script:
    """Sends these and then nothing, until the client leaves."""

    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.body()
        await conversation.send(*pieces)
        await conversation.until_client_leaves()

    return script


def closing(*pieces: bytes) -> Script:
    async def script(conversation: Conversation) -> None:
        await conversation.request()
        await conversation.body()
        await conversation.send(*pieces)

    return script


def refusing() -> str:
    """The address of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@dataclass
class Bench:
    """A fleet with a clock that stands still, pauses that are only written down, and what the callbacks heard.

    While `awake` is not set, a pause lasts.
    """

    now: float = 1000.0
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    pauses: list[float] = field(default_factory=list)
    retried: list[tuple[str, str]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    fleet: LoadBalancer = field(init=False)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)
            await self.awake.wait()

    async def ask(self, *names: str, balance: Balance = Balance.FIRST) -> OpenResponse:
        route = Route(model="*", upstream=names[0], policy="p", others=names[1:], balance=balance)
        return await self.fleet.open(
            route,
            asking,
            {},
            on_retry=lambda *why: self.retried.append(why),
            on_attempt=self.tried.append,
        )

    async def body(self, *names: str, balance: Balance = Balance.FIRST) -> tuple[str, int, bytes]:
        """Of the answer to a request: whose it is, status and whole body."""
        opened = await self.ask(*names, balance=balance)
        try:
            return opened.client.upstream.name, opened.response.status_code, await read(opened)
        finally:
            await opened.close()


async def read(opened: OpenResponse) -> bytes:
    stream = opened.response.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    return b"".join([part async for part in stream])


@asynccontextmanager
async def bench(
    *scripts: Script | str, max_connections: int = 10, **settings: Health | Retries | Timeouts
) -> AsyncIterator[Bench]:
    """Upstreams `a`, `b`, …, one for each script or address, all with the same settings."""
    made = Bench()
    made.awake.set()
    async with AsyncExitStack() as stack:
        clients = {}
        for name, script in zip("abc", scripts, strict=False):
            url = script if isinstance(script, str) else (await stack.enter_async_context(serving(script))).url
            upstream = Upstream(name=name, base_url=url, **settings)  # type: ignore[arg-type]
            clients[name] = UpstreamClient(upstream, url, max_connections)
        made.fleet = LoadBalancer(clients, lambda: made.now, lambda: 0.5, made.sleep)
        try:
            yield made
        finally:
            await made.fleet.close()
        assert not any(made.fleet.busy.values()), made.fleet.busy


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(Health(eject_after=3, eject_for=10))
    for now in (0, 1):
        breaker.record_failure(now)
    breaker.record_success(2)
    for now in (3, 4):
        breaker.record_failure(now)
    assert breaker.state(4) is BreakerState.CLOSED
    breaker.record_failure(5)
    assert breaker.state(5) is BreakerState.OPEN
    assert not breaker.allows(14.9)


def test_half_open_lets_one_through_at_a_time() -> None:
    breaker = Breaker(Health(eject_after=1, eject_for=10))
    breaker.record_failure(0)
    assert breaker.state(10) is BreakerState.HALF_OPEN
    assert breaker.allows(10)
    trial = breaker.start_trial(10)
    assert trial is not None
    assert not breaker.allows(11)
    assert breaker.start_trial(11) is None
    breaker.abandon_trial(None)  # one that was no trial ends without an outcome
    assert not breaker.allows(11)
    breaker.abandon_trial(trial)
    assert breaker.allows(11)


def test_the_trial_decides() -> None:
    breaker = Breaker(Health(eject_after=3, eject_for=10))
    for now in (0, 0, 0):
        breaker.record_failure(now)
    breaker.start_trial(10)
    breaker.record_failure(12)
    assert breaker.state(21.9) is BreakerState.OPEN
    breaker.start_trial(22)
    breaker.record_success(23)
    assert breaker.state(23) is BreakerState.CLOSED
    breaker.record_failure(24)
    assert breaker.allows(24), "the count begins again"


def test_late_failures_do_not_prolong_an_ejection() -> None:
    breaker = Breaker(Health(eject_after=1, eject_for=10))
    breaker.record_failure(0)
    breaker.record_failure(9)
    assert breaker.allows(10)


def test_a_budget_is_a_share_of_requests() -> None:
    budget = RetryBudget(0.1)
    assert sum(budget.spend() for _ in range(100)) == MAX_SAVED_RETRIES
    spent = 0
    for _ in range(1000):
        budget.deposit()
        spent += budget.spend()
    assert spent == 100
    for _ in range(1000):
        budget.deposit()
    assert sum(budget.spend() for _ in range(100)) == MAX_SAVED_RETRIES


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = RetryBudget(0.0)
    budget.deposit()
    assert not budget.spend()


# Name → balance, names, requests in flight, the ejected, and the order that comes of it.
ORDERS: dict[str, tuple[Balance, str, dict[str, int], str, str]] = {
    "as written": (Balance.FIRST, "abc", {}, "", "abc"),
    "first does not count": (Balance.FIRST, "abc", {"a": 9}, "", "abc"),
    "ejected last": (Balance.FIRST, "abc", {}, "a", "bca"),
    "all ejected": (Balance.FIRST, "abc", {}, "abc", "abc"),
    "least busy": (Balance.LEAST_BUSY, "abc", {"a": 2, "b": 3, "c": 1}, "", "cab"),
    "ties by position": (Balance.LEAST_BUSY, "abc", {"a": 1, "c": 1}, "", "bac"),
    "idle but ejected": (Balance.LEAST_BUSY, "abc", {"b": 2, "c": 1}, "a", "cba"),
}


@pytest.mark.parametrize("case", ORDERS)
def test_order(case: str) -> None:
    balance, names, busy, ejected, expected = ORDERS[case]
    in_flight = {name: busy.get(name, 0) for name in names}
    assert "".join(by_preference(names, balance, in_flight, {name: name not in ejected for name in names})) == expected


def test_backoff_doubles_up_to_a_second() -> None:
    assert [backoff(attempt, None, 0.5) for attempt in range(6)] == [0.025, 0.05, 0.1, 0.2, 0.4, 0.5]
    assert backoff(3, None, 0.0) == 0


def test_backoff_honours_what_the_server_asks_for() -> None:
    assert backoff(0, 0.5, 0.5) == 0.525
    assert backoff(0, 1.0, 0.0) == 1.0
    assert backoff(0, 1.01, 0.0) is None


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "30"}, 30),
        ({"retry-after": "1", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, float("inf")),
        ({"retry-after": "-1"}, float("inf")),
        ({"retry-after": "nan"}, float("inf")),
        ({"retry-after": ""}, float("inf")),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(headers) == seconds


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
        with pytest.raises(httpx.RemoteProtocolError):
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
        with pytest.raises(httpx.ConnectError):
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
        except httpx.ConnectError:
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
        with pytest.raises(httpx.ReadTimeout):
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
        with pytest.raises(httpx.ReadTimeout, match="upstream 'a'"):
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
            if not asking.cancelled() and not isinstance(asking.exception(), httpx.TimeoutException):
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


# -- readiness ---------------------------------------------------------------------------------------------------------


async def _with_probes(made: Bench, up: dict[str, bool]) -> None:
    for name, client in made.fleet.clients.items():

        async def probed(name: str = name) -> bool:
            return up[name]

        client.up = probed  # type: ignore[method-assign]


async def test_e10_a_hiccup_of_all_upstreams_leaves_the_gateway_usable() -> None:
    async with bench(answering(GOOD), answering(GOOD)) as made:
        up = {"a": True, "b": False}
        await _with_probes(made, up)
        assert await made.fleet.states() == up
        assert made.fleet.usable
        up["a"] = False
        made.now += 10
        for passed, usable in ((0, True), (29.9, True), (0.1, False), (100, False)):
            made.now += passed
            assert not any((await made.fleet.states()).values())
            assert made.fleet.usable is usable, passed
        up["b"] = True
        assert (await made.fleet.states())["b"]
        assert made.fleet.usable


async def test_e10_every_answer_begins_the_time_anew() -> None:
    async with bench(answering(GOOD)) as made:
        up = {"a": True}
        await _with_probes(made, up)
        for _ in range(4):
            for up["a"], passed in ((True, 1), (False, 20)):
                await made.fleet.states()
                assert made.fleet.usable
                made.now += passed


async def test_e10_an_upstream_that_was_never_up_is_not_waited_for() -> None:
    async with bench(answering(GOOD)) as made:
        await _with_probes(made, {"a": False})
        assert not made.fleet.usable
        await made.fleet.states()
        assert not made.fleet.usable


async def test_e10_requests_that_fail_are_a_hiccup_too() -> None:
    async with bench(answering(status(500)), health=Health(eject_after=1, eject_for=1000)) as made:
        await _with_probes(made, {"a": True})
        assert await made.fleet.states() == {"a": True}
        await made.body("a")
        assert await made.fleet.states() == {"a": False}
        assert made.fleet.usable
        made.now += 30
        await made.fleet.states()
        assert not made.fleet.usable


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
        with pytest.raises(httpx.ConnectError):
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
        with pytest.raises(httpx.ConnectError):
            while made.tried.count("b") < 100_000:
                await made.body("b")
        part = await anext(aiter(opened.response.stream))  # type: ignore[arg-type]
        assert part == b"first"
        assert not retiring.done()
        await opened.close()
        await asyncio.wait_for(retiring, PATIENCE)


@on_both_loops
async def test_retirement_does_not_wait_for_what_another_fleet_has() -> None:
    async with bench(holding(HEAD + FIRST)) as made:
        client = made.fleet.clients["a"]
        upstreams, urls = {"a": client.upstream}, {"a": client.base_url}
        later = LoadBalancer.build(upstreams, urls, client.max_connections, made.fleet)
        opened = await made.ask("a")
        await asyncio.wait_for(made.fleet.retire(), PATIENCE)
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
        with pytest.raises(httpx.ReadError):
            await read(opened)
        await opened.close()
        await asyncio.wait((retiring,), timeout=PATIENCE)
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
            with pytest.raises(httpx.ReadError):
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
        with pytest.raises(httpx.ReadError):
            await made.body("a")
        assert len(sent) == 2


@on_both_loops
async def test_d15_a_small_call_of_our_own_is_repeated_if_it_may_be_and_else_never_needs_it() -> None:
    sent: list[bytes] = []
    async with bench(keeping(GOOD, sent=sent)) as made:
        client = made.fleet.clients["a"]
        for _ in range(2):
            assert await client.call("GET", "/models", PATIENCE) == (200, b"good")
        assert len(sent) == 3
        for _ in range(2):
            assert await client.call("POST", "/completions", PATIENCE, b"{}") == (200, b"good")
        assert len(sent) == 5
