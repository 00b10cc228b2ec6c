"""Which upstream is asked, which is left out, and whether another is asked after a failure.

The decisions are plain objects and functions that get the time passed in; `Fleet` performs them. Nobody is asked again
once the answer has begun: from then on a failure is the relay's to tell the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from gateway.policy.model import Balance, Route, Upstream
from gateway.proxy.upstreams.client import (
    FAILURES,
    Asking,
    Breaker,
    Fault,
    State,
    UpstreamClient,
    begun,
    fault_of_answer,
    fault_of_error,
)

MAX_BALANCE = 10.0  # retries that a quiet gateway has saved up at most
MAX_BACKOFF = 1.0  # seconds; whoever is told to wait for longer gets the refusal instead
FIRST_BACKOFF = 0.05
# Seconds for which an upstream that was up may be down before the gateway is not ready for it. A gateway beside each
# application sees the same provider: were they unready with its every hiccup, all applications would be so at once.
BLIP = 30.0
SETTLING = 75.0  # seconds; a request that came before a reload has 60 to arrive, and then asks the old fleet


# -- decisions ---------------------------------------------------------------------------------------------------------


class RetryBudget:
    """Retries as a share of requests: each request adds `share`, each retry takes 1, at most `MAX_BALANCE` is saved.

    So a server that is down does not get a multiple of its load from those who retry.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._balance = MAX_BALANCE if share else 0.0

    def deposit(self) -> None:
        self._balance = min(self._balance + self._share, MAX_BALANCE)

    def spend(self) -> bool:
        if self._balance < 1 - 1e-9:  # ten times 0.1 is a little less than 1
            return False
        self._balance -= 1
        return True


def order(
    names: Sequence[str], balance: Balance, busy: Mapping[str, int], admits: Mapping[str, bool]
) -> tuple[str, ...]:
    """In which order upstreams are asked. Those left out come last, not never: the gateway itself refuses nothing."""

    def rank(name: str) -> tuple[bool, int]:
        return not admits[name], busy[name] if balance is Balance.LEAST_BUSY else 0

    return tuple(sorted(names, key=rank))


def backoff(attempt: int, retry_after: float | None, chance: float) -> float | None:
    """Seconds to wait before the same server is asked again, for the `attempt`-th time counted from 0.

    `chance` in [0, 1) spreads those who were refused together. None: the server wants to be left alone for longer.
    """
    if retry_after is not None and retry_after > MAX_BACKOFF:
        return None
    return (retry_after or 0.0) + chance * min(FIRST_BACKOFF * 2.0**attempt, MAX_BACKOFF)


# -- what performs them ------------------------------------------------------------------------------------------------


class _Member:
    """An upstream and what is known about it; shared by the fleets before and after a reload that left it alone."""

    def __init__(self, client: UpstreamClient) -> None:
        self.client = client
        self.breaker = Breaker(client.upstream.health)
        self.budget = RetryBudget(client.upstream.retries.budget)
        self.busy = 0
        self.owners = 0
        self.down_since: float | None = float("-inf")  # None while it is up; not up yet is down for ever
        self._idle = asyncio.Event()
        self._idle.set()

    def serves(self, upstream: Upstream, base_url: str, max_connections: int) -> bool:
        client = self.client
        return (client.upstream, client.base_url, client.max_connections) == (upstream, base_url, max_connections)

    def enter(self) -> None:
        self.busy += 1
        self._idle.clear()

    def leave(self) -> None:
        self.busy -= 1
        if not self.busy:
            self._idle.set()

    async def until_idle(self, patience: float) -> None:
        """Or until `patience` seconds have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._idle.wait()


class Opened:
    """An answer whose head has arrived. It counts as one of its upstream's requests until `release` or `close`.

    `attempts` are those that failed before: name of the upstream, kind of the failure.
    """

    def __init__(self, response: httpx.Response, member: _Member, attempts: tuple[tuple[str, str], ...]) -> None:
        self.response = response
        self.client = member.client
        self.attempts = attempts
        self._member: _Member | None = member

    def release(self) -> None:
        """Give back the place, the first time it is called."""
        member, self._member = self._member, None
        if member is not None:
            member.leave()

    async def close(self) -> None:
        """Give back the place and let go of the response."""
        self.release()
        with contextlib.suppress(httpx.HTTPError):
            await self.response.aclose()


@dataclass(frozen=True, slots=True)
class _Call:
    """A request; `first` is the member whose limits bound it, `deadline` is on the fleet's clock."""

    first: _Member
    upstreams: int
    ask: Asking
    headers: Mapping[str, str]
    deadline: float


def _unnoticed(name: str) -> None:
    pass


class Fleet:
    """The upstreams of a configuration by name. It owns their clients, together with the fleets it shares them with.

    `clock`, `chance` and `sleep` are for those who want other ones than the real.
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
            self._adopt(name, _Member(client))

    @classmethod
    def build(
        cls,
        upstreams: Mapping[str, Upstream],
        base_urls: Mapping[str, str],
        max_connections: int,
        previous: Fleet | None = None,
    ) -> Fleet:
        """A fleet that takes over what `previous` knows about upstreams that are still the same: connections, health.

        `previous` goes on working; both are to be closed or retired, in any order.
        """
        fleet = cls({}) if previous is None else cls({}, previous._clock, previous._chance, previous._sleep)
        known = {} if previous is None else {name: previous._members[name] for name in previous._owned}
        for name, upstream in upstreams.items():
            member = known.get(name)
            if member is None or not member.serves(upstream, base_urls[name], max_connections):
                member = _Member(UpstreamClient(upstream, base_urls[name], max_connections))
            fleet._adopt(name, member)
        return fleet

    @property
    def clients(self) -> dict[str, UpstreamClient]:
        return {name: member.client for name, member in self._members.items()}

    @property
    def busy(self) -> dict[str, int]:
        """Requests in flight."""
        return {name: member.busy for name, member in self._members.items()}

    async def states(self) -> dict[str, bool]:
        """Which upstreams are up: they answer a probe, which is cached, and are not left out."""
        probed = await asyncio.gather(*(member.client.up() for member in self._members.values()))
        now = self._clock()
        states: dict[str, bool] = {}
        for (name, member), answers in zip(self._members.items(), probed, strict=True):
            states[name] = answers and member.breaker.state(now) is not State.OPEN
            if states[name]:
                member.down_since = None
            elif member.down_since is None:
                member.down_since = now
        return states

    @property
    def usable(self) -> bool:
        """Whether any upstream was up within the last `BLIP` seconds, as far as `states` was asked."""
        now = self._clock()
        return any(m.down_since is None or now - m.down_since < BLIP for m in self._members.values())

    async def open(
        self,
        route: Route,
        ask: Asking,
        client_headers: Mapping[str, str],
        *,
        on_retry: Callable[[str, str], None],
        on_try: Callable[[str], None] = _unnoticed,
    ) -> Opened:
        """The answer of one of the route's upstreams; the caller closes it. `ask` says what each is asked.

        `on_try` hears whom each attempt asks, `on_retry` of each failure (upstream, kind) that another attempt follows.
        The first upstream's `retries` and `timeouts.total` bound them all together. An error status that no further
        attempt may replace is an answer like another. Raises the last attempt's `httpx.TransportError`.
        """
        first = self._members[route.upstream]
        first.budget.deposit()
        deadline = self._clock() + first.client.upstream.timeouts.total
        call = _Call(first, len(route.upstreams), ask, client_headers, deadline)
        left = list(route.upstreams)
        failed: list[tuple[str, str]] = []
        stale = 0  # attempts that only lost an idle connection
        fault: Fault | None = None
        name = self._next(left, route.balance)
        while True:
            on_try(name)
            replaceable = bool(left) and len(failed) < first.client.upstream.retries.attempts
            fresh = fault is not None and fault.stale
            outcome, fault = await self._ask(name, call, tuple(failed), until_begun=replaceable, fresh=fresh)
            if fault is None or (pause := self._pause(call, fault, len(failed), stale)) is None:
                break
            if isinstance(outcome, Opened):
                await outcome.close()
            failed.append((name, fault.kind))
            on_retry(name, fault.kind)
            await self._sleep(pause)
            if fault.stale:
                stale += 1
            elif left:
                name = self._next(left, route.balance)
        if isinstance(outcome, Opened):
            return outcome
        raise outcome

    async def retire(self) -> None:
        """Close each client when nothing runs on it any more, at the latest `timeouts.total` after it has settled.

        For the fleet that a reload has replaced: requests that came before may still ask it for `SETTLING` seconds.
        What a later fleet has taken over stays open and is not waited for. When cancelled, it closes at once.
        """
        try:
            await asyncio.gather(*(self._let_go(name, patient=True) for name in tuple(self._owned)))
        finally:
            await self.close()

    async def close(self) -> None:
        """Close every client that no other fleet has; what is under way on it fails."""
        await asyncio.gather(*(self._let_go(name, patient=False) for name in tuple(self._owned)))

    def _adopt(self, name: str, member: _Member) -> None:
        self._members[name] = member
        self._owned.add(name)
        member.owners += 1

    async def _let_go(self, name: str, *, patient: bool) -> None:
        member = self._members[name]
        if patient and member.owners == 1:
            await self._sleep(SETTLING)
            # An answer lives as long as the route's first upstream gives it, whichever it came from.
            await member.until_idle(max(m.client.upstream.timeouts.total for m in self._members.values()))
        if name not in self._owned:
            return
        self._owned.discard(name)
        member.owners -= 1
        if not member.owners:
            await member.client.close()

    def _next(self, left: list[str], balance: Balance) -> str:
        """Take the upstream to ask out of those `left`."""
        now = self._clock()
        admits = {name: self._members[name].breaker.admits(now) for name in left}
        chosen = order(left, balance, self.busy, admits)[0]
        left.remove(chosen)
        return chosen

    def _pause(self, call: _Call, fault: Fault, failed: int, stale: int) -> float | None:
        """Seconds before the next attempt, which is paid for herewith; None: there is none. `failed`: attempts before
        this one, `stale` of them repeated at once."""
        retries = call.first.client.upstream.retries
        repeated = failed - stale + 1 - call.upstreams
        pause: float | None = 0.0
        if repeated >= 0 and not fault.stale:  # everybody has been asked
            pause = backoff(repeated, fault.retry_after, self._chance()) if fault.again else None
        if pause is None or failed >= retries.attempts or self._clock() + pause >= call.deadline:
            return None
        return pause if call.first.budget.spend() else None

    async def _ask(
        self, name: str, call: _Call, failed: tuple[tuple[str, str], ...], *, until_begun: bool, fresh: bool
    ) -> tuple[Opened | httpx.TransportError, Fault | None]:
        """One attempt, and what is wrong with it if it may be replaced by another. The breaker hears of it."""
        member = self._members[name]
        trial = member.breaker.begin(self._clock())
        member.enter()
        outcome: Opened | httpx.TransportError
        fault: Fault | None
        try:
            response = await self._answer(member.client, call, until_begun=until_begun, fresh=fresh)
        except FAILURES as error:
            member.leave()
            outcome, fault = error, fault_of_error(error)
        except BaseException:
            member.leave()
            member.breaker.abandon(trial)
            raise
        else:
            outcome, fault = Opened(response, member, failed), fault_of_answer(response)
        if fault is None or fault.healthy:
            member.breaker.success(self._clock())
        elif fault.healthy is None:
            member.breaker.abandon(trial)
        else:
            member.breaker.failure(self._clock())
        return outcome, fault

    async def _answer(self, client: UpstreamClient, call: _Call, *, until_begun: bool, fresh: bool) -> httpx.Response:
        """The response's head; with `until_begun` also a first byte of a good one's body, unread.

        Servers send the head of a stream before their model has said anything, so that only the body tells whether
        it hangs. Where nobody else could be asked, the client gets the head at once.
        """
        patience = max(call.deadline - self._clock(), 0.0)
        try:
            async with asyncio.timeout(patience):
                response = await client.open(call.ask(client.upstream), call.headers, fresh=fresh)
                try:
                    if until_begun and response.is_success:
                        await begun(response)
                except BaseException:
                    await response.aclose()
                    raise
                return response
        except TimeoutError:
            total = f"the {patience:g} seconds that were left of timeouts.total ran out"
            raise httpx.ReadTimeout(f"upstream {client.upstream.name!r}: {total}") from None
