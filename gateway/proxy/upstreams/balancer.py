"""Load balancing over a route's upstreams: order, ejection, retries and failover.

The decisions are plain objects and functions that get the time passed in; `LoadBalancer` performs them. There is no
retry once an answer's body has started: from then on a failure ends the stream, and the relay reports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import httpx2
from msgspec import Struct

from gateway.http1 import Response
from gateway.policy.model import Balance, Route, Upstream
from gateway.proxy.timer import TimeLimit
from gateway.proxy.upstreams.client import RequestFor, UpstreamClient, UpstreamResponse, wait_for_body
from gateway.proxy.upstreams.health import (
    TRANSPORT_FAILURES,
    Breaker,
    BreakerState,
    Fault,
    fault_of_error,
    fault_of_response,
)

MAX_SAVED_RETRIES = 10.0  # retries that a quiet gateway saves up at most
MAX_BACKOFF = 1.0  # seconds; a server that asks for a longer pause is not asked again, its refusal is the answer
FIRST_BACKOFF = 0.05
# Seconds for which an upstream that was up may be down before the gateway is not ready for it. Gateways beside many
# applications share a provider: were they unready with its every hiccup, all applications would be so at once.
READINESS_GRACE = 30.0
DRAIN_DELAY = 75.0  # seconds; a request that came before a reload has 60 to arrive, and then uses the old balancer


# -- decisions ---------------------------------------------------------------------------------------------------------


class RetryBudget:
    """Retries as a share of requests, so that a server that is down does not get a multiple of its load.

    Each request adds `share`, each retry takes 1, at most `MAX_SAVED_RETRIES` are saved.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._balance = MAX_SAVED_RETRIES if share else 0.0

    def deposit(self) -> None:
        self._balance = min(self._balance + self._share, MAX_SAVED_RETRIES)

    def spend(self) -> bool:
        if self._balance < 1 - 1e-9:  # ten times 0.1 is a little less than 1
            return False
        self._balance -= 1
        return True


def by_preference(
    names: Sequence[str], balance: Balance, busy: Mapping[str, int], allows: Mapping[str, bool]
) -> list[str]:
    """The order in which upstreams get the request. Ejected ones come last, not never: no request fails for them."""
    return sorted(names, key=lambda name: (not allows[name], busy[name] if balance is Balance.LEAST_BUSY else 0))


def backoff(attempt: int, retry_after: float | None, chance: float) -> float | None:
    """Seconds before the same server gets the request again, for the `attempt`-th time counted from 0.

    `chance` in [0, 1) spreads clients that were refused together. None: the server asks for a longer pause.
    """
    if retry_after is not None and retry_after > MAX_BACKOFF:
        return None
    return (retry_after or 0.0) + chance * min(FIRST_BACKOFF * 2.0**attempt, MAX_BACKOFF)


# -- what performs them ------------------------------------------------------------------------------------------------


class _Member:
    """An upstream, its health and its load; shared by the balancers before and after a reload."""

    def __init__(self, client: UpstreamClient) -> None:
        self.client = client
        self.breaker = Breaker(client.upstream.health)
        self.budget = RetryBudget(client.upstream.retries.budget)
        self.busy = 0
        self.owners = 0
        self.down_since: float | None = float("-inf")  # None while it is up; -inf until it was up for the first time
        self._idle = asyncio.Event()
        self._idle.set()

    def serves(self, upstream: Upstream, base_url: str, max_connections: int) -> bool:
        client = self.client
        return (client.upstream, client.base_url, client.max_connections) == (upstream, base_url, max_connections)

    def enter(self) -> None:
        if not self.busy:
            self._idle.clear()
        self.busy += 1

    def leave(self) -> None:
        self.busy -= 1
        if not self.busy:
            self._idle.set()

    async def until_idle(self, seconds: float) -> None:
        """Or until `seconds` have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()


class OpenResponse:
    """An answer whose head has arrived. It counts as one of its upstream's requests until `release` or `close`.

    `attempts` are those that failed before: name of the upstream, kind of the failure.
    """

    def __init__(self, response: UpstreamResponse, member: _Member, attempts: tuple[tuple[str, str], ...]) -> None:
        self.response = response
        self.client = member.client
        self.attempts = attempts
        self._member: _Member | None = member

    def release(self) -> None:
        """Stop counting it; idempotent."""
        member, self._member = self._member, None
        if member is not None:
            member.leave()

    async def close(self) -> None:
        """Stop counting it, and close the response."""
        self.release()
        if isinstance(self.response, Response):
            self.response.abort()
            return
        try:  # `suppress` would take as long as the rest
            await self.response.aclose()
        except httpx2.HTTPError:
            return


class _BalancedRequest(Struct, frozen=True):
    """`first` is the member whose limits bound all attempts, `deadline` is on the balancer's clock."""

    first: _Member
    upstreams: int
    request_for: RequestFor
    headers: Mapping[str, str]
    deadline: float


class LoadBalancer:
    """The upstreams of a configuration by name. It owns their clients, together with the balancers it shares them with.

    `clock`, `chance` and `sleep` are injectable for tests.
    """

    def __init__(
        self,
        clients: Mapping[str, UpstreamClient],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._sleep = sleep
        self._members: dict[str, _Member] = {}
        self._owned: set[str] = set()
        for name, client in clients.items():
            self._add_member(name, _Member(client))

    @classmethod
    def build(
        cls,
        upstreams: Mapping[str, Upstream],
        base_urls: Mapping[str, str],
        max_connections: int,
        previous: LoadBalancer | None = None,
    ) -> LoadBalancer:
        """A balancer that shares the unchanged upstreams of `previous`: their connections and their health.

        `previous` continues working; both are to be closed or retired, in any order.
        """
        balancer = cls({}) if previous is None else cls({}, previous._clock, previous._chance, previous._sleep)
        known = {} if previous is None else {name: previous._members[name] for name in previous._owned}
        for name, upstream in upstreams.items():
            member = known.get(name)
            if member is None or not member.serves(upstream, base_urls[name], max_connections):
                member = _Member(UpstreamClient(upstream, base_urls[name], max_connections))
            balancer._add_member(name, member)
        return balancer

    @property
    def clients(self) -> dict[str, UpstreamClient]:
        return {name: member.client for name, member in self._members.items()}

    @property
    def busy(self) -> dict[str, int]:
        """Requests in flight."""
        return {name: member.busy for name, member in self._members.items()}

    async def states(self) -> dict[str, bool]:
        """Which upstreams are up: they answer a cached probe and are not ejected."""
        probed = await asyncio.gather(*(member.client.up() for member in self._members.values()))
        now = self._clock()
        states: dict[str, bool] = {}
        for (name, member), answers in zip(self._members.items(), probed, strict=True):
            states[name] = answers and member.breaker.state(now) is not BreakerState.OPEN
            if states[name]:
                member.down_since = None
            elif member.down_since is None:
                member.down_since = now
        return states

    @property
    def down(self) -> list[str]:
        """The upstreams that were not up within the last `READINESS_GRACE` seconds, by the calls of `states`."""
        now = self._clock()
        lasting = (
            (name, now - member.down_since) for name, member in self._members.items() if member.down_since is not None
        )
        return [name for name, seconds in lasting if seconds >= READINESS_GRACE]

    async def open(
        self,
        route: Route,
        request_for: RequestFor,
        client_headers: Mapping[str, str],
        *,
        on_retry: Callable[[str, str], None],
        on_attempt: Callable[[str], None],
    ) -> OpenResponse:
        """The answer of one of the route's upstreams; the caller closes it.

        `on_attempt` is called with the upstream's name before each attempt, `on_retry` with (upstream, kind) for each
        failure that is followed by another attempt. The first upstream's `retries` and `timeouts.total` bound all
        attempts together. An error status that no further attempt may replace is returned like any answer. Raises the
        last attempt's `httpx2.TransportError`.
        """
        first = self._members[route.upstream]
        first.budget.deposit()
        deadline = self._clock() + first.client.upstream.timeouts.total
        request = _BalancedRequest(first, len(route.upstreams), request_for, client_headers, deadline)
        left = list(route.upstreams)
        failed: list[tuple[str, str]] = []
        stale = 0  # attempts that only lost an idle connection
        fault: Fault | None = None
        name = self._choose(left, route.balance)
        while True:
            on_attempt(name)
            replaceable = bool(left) and len(failed) < first.client.upstream.retries.attempts
            fresh = fault is not None and fault.stale
            outcome, fault = await self._attempt(name, request, tuple(failed), await_body=replaceable, fresh=fresh)
            if fault is None or (delay := self._retry_delay(request, fault, len(failed), stale)) is None:
                break
            if isinstance(outcome, OpenResponse):
                await outcome.close()
            failed.append((name, fault.kind))
            on_retry(name, fault.kind)
            await self._sleep(delay)
            if fault.stale:
                stale += 1
            elif left:
                name = self._choose(left, route.balance)
        if isinstance(outcome, OpenResponse):
            return outcome
        raise outcome

    async def retire(self) -> None:
        """Close each client when nothing runs on it any more, at the latest `timeouts.total` after `DRAIN_DELAY`.

        For the balancer that a reload has replaced: requests that came before may use it for `DRAIN_DELAY` seconds.
        Members shared with a later balancer stay open and are not waited for. When cancelled, it closes at once.
        """
        try:
            await asyncio.gather(*(self._release_member(name, drain=True) for name in tuple(self._owned)))
        finally:
            await self.close()

    async def close(self) -> None:
        """Close every client that no other balancer has; requests in flight on it fail."""
        await asyncio.gather(*(self._release_member(name, drain=False) for name in tuple(self._owned)))

    def _add_member(self, name: str, member: _Member) -> None:
        self._members[name] = member
        self._owned.add(name)
        member.owners += 1

    async def _release_member(self, name: str, *, drain: bool) -> None:
        member = self._members[name]
        if drain and member.owners == 1:
            await self._sleep(DRAIN_DELAY)
            # An answer lives as long as the route's first upstream allows, whichever it came from.
            await member.until_idle(max(m.client.upstream.timeouts.total for m in self._members.values()))
        if name not in self._owned:
            return
        self._owned.discard(name)
        member.owners -= 1
        if not member.owners:
            await member.client.close()

    def _choose(self, left: list[str], balance: Balance) -> str:
        """Remove the preferred upstream from `left` and return it."""
        if len(left) == 1:
            return left.pop()
        now = self._clock()
        allows = {name: self._members[name].breaker.allows(now) for name in left}
        chosen = by_preference(left, balance, self.busy, allows)[0]
        left.remove(chosen)
        return chosen

    def _retry_delay(self, request: _BalancedRequest, fault: Fault, failed: int, stale: int) -> float | None:
        """Seconds before the next attempt, which this takes from the budget; None: there is none.

        `failed`: attempts before this one, `stale` of them repeated at once.
        """
        repeated = failed - stale + 1 - request.upstreams
        delay: float | None = 0.0
        if repeated >= 0 and not fault.stale:  # every upstream has had the request
            delay = backoff(repeated, fault.retry_after, self._chance()) if fault.repeatable else None
        attempts = request.first.client.upstream.retries.attempts
        if delay is None or failed >= attempts or self._clock() + delay >= request.deadline:
            return None
        return delay if request.first.budget.spend() else None

    async def _attempt(
        self,
        name: str,
        request: _BalancedRequest,
        failed: tuple[tuple[str, str], ...],
        *,
        await_body: bool,
        fresh: bool,
    ) -> tuple[OpenResponse | httpx2.TransportError, Fault | None]:
        """One attempt and its fault, if another may replace it; the breaker records the outcome. It ends with the
        response's head, with `await_body` with a first byte of the body."""
        member = self._members[name]
        trial = member.breaker.start_trial(self._clock())
        member.enter()
        outcome: OpenResponse | httpx2.TransportError
        fault: Fault | None
        left = max(request.deadline - self._clock(), 0.0)
        try:
            with TimeLimit(left):
                response = await member.client.open(request.request_for(member.client.upstream), request.headers, fresh)
                if await_body and response.is_success:
                    await _first_byte(response)
        except TimeoutError:
            member.leave()
            total = f"the {left:g} seconds that were left of timeouts.total ran out"
            outcome = httpx2.ReadTimeout(f"upstream {name!r}: {total}")
            fault = fault_of_error(outcome)
        except TRANSPORT_FAILURES as error:
            member.leave()
            outcome, fault = error, fault_of_error(error)
        except BaseException:
            member.leave()
            member.breaker.abandon_trial(trial)
            raise
        else:
            outcome, fault = OpenResponse(response, member, failed), fault_of_response(response)
        if fault is None or fault.healthy:
            member.breaker.record_success(self._clock())
        elif fault.healthy is None:
            member.breaker.abandon_trial(trial)
        else:
            member.breaker.record_failure(self._clock())
        return outcome, fault


async def _first_byte(response: UpstreamResponse) -> None:
    """Wait for the first byte of the body, which is left unread.

    Servers send the head of a stream before the model has generated anything, so only the body shows whether the model
    hangs. Where no other upstream could replace it, the client gets the head at once.
    """
    try:
        await wait_for_body(response)
    except BaseException:
        await response.aclose()
        raise
