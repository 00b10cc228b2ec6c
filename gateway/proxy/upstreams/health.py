"""The health of an upstream, by the outcome of requests: a circuit breaker, and which failures allow a retry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import httpx2

from gateway.http1 import DescriptorsExhausted, Response, StaleConnection
from gateway.policy.model import Health
from gateway.proxy.errors import from_transport

_UNHEALTHY = frozenset({500, 502, 503, 504})  # statuses by which the server, not the request, is at fault
_NOT_PROCESSED = frozenset({429, 503})  # statuses by which the server did no work
_FAULTS = _UNHEALTHY | _NOT_PROCESSED
# Out of connections, or of the resources for one, in this process: not the upstream's failure.
LOCAL_SHORTAGE = (httpx2.PoolTimeout, DescriptorsExhausted)
# Failures before an answer that may be the upstream's fault.
TRANSPORT_FAILURES = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ProxyError)


class BreakerState(StrEnum):
    """All requests pass, none does, one at a time does."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Circuit breaker of one upstream. Times are seconds of one monotonic clock."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._failures = 0  # in a row
        self._opened_at: float | None = None
        self._trial: object | None = None

    def state(self, now: float) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now - self._opened_at < self._health.eject_for else BreakerState.HALF_OPEN

    def allows(self, now: float) -> bool:
        state = self.state(now)
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self._trial is None)

    def start_trial(self, now: float) -> object | None:
        """To be called with each request; if that is the trial of a half-open breaker, what `abandon_trial` takes.

        A request that is sent although `allows` is False is no trial, but its outcome counts.
        """
        if self._opened_at is None or self.state(now) is not BreakerState.HALF_OPEN or self._trial is not None:
            return None
        self._trial = object()
        return self._trial

    def abandon_trial(self, trial: object | None) -> None:
        """A request ended without an outcome; if it was the trial, another one may follow."""
        if trial is self._trial:
            self._trial = None

    def record_success(self, now: float) -> None:
        self._failures = 0
        self._opened_at = self._trial = None

    def record_failure(self, now: float) -> None:
        self._failures += 1
        state = self.state(now)
        tripped = state is BreakerState.CLOSED and self._failures >= self._health.eject_after
        # Requests from before the ejection that fail late do not prolong it.
        if state is BreakerState.HALF_OPEN or tripped:
            self._opened_at, self._trial = now, None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an attempt may be followed by another.

    `healthy`: what it says about the upstream, None if nothing. `repeatable`: the same upstream may get the request
    again, since it has certainly not started on it. `stale`: at once and on a new connection, since only an idle
    connection was lost.
    """

    kind: str
    healthy: bool | None
    repeatable: bool
    retry_after: float | None = None
    stale: bool = False


def fault_of_response(response: Response | httpx2.Response) -> Fault | None:
    status = response.status_code
    if status not in _FAULTS:
        return None
    return Fault("status", status not in _UNHEALTHY, status in _NOT_PROCESSED, retry_after_of(response.headers))


def fault_of_error(error: httpx2.TransportError) -> Fault:
    kind = from_transport(error).kind
    if isinstance(error, LOCAL_SHORTAGE):
        return Fault(kind, None, repeatable=False)
    if isinstance(error, StaleConnection):
        return Fault(kind, None, repeatable=True, stale=True)
    return Fault(kind, False, repeatable=isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout))


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds. Infinite where the header is present but holds no number of seconds: a date means a longer wait."""
    milliseconds, seconds = headers.get("retry-after-ms"), headers.get("retry-after")
    if milliseconds is None and seconds is None:
        return None
    try:
        value = float(seconds or "") if milliseconds is None else float(milliseconds) / 1000
    except ValueError:
        return float("inf")
    return value if value >= 0 else float("inf")
