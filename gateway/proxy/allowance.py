"""What a client's key may use of its limits for one request: asked for at its beginning, settled at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.limits import Decision, Limiter, headers
from gateway.policy.model import ClientKey
from gateway.proxy.errors import HTTPFailure, client_error

CHARS_A_TOKEN = 4  # an estimate, until the upstream says how many tokens it counted
# Of the gateway's places (`limits.max_streams`), the part 1 / this that the unfinished bodies of one key may take.
UNREAD_PART = 2
UNREAD_PAUSE = 1  # seconds after which a client may ask again; nobody knows when a body ends
_LIMITED = {
    "requests": "requests a minute",
    "tokens": "tokens a minute",
    "streams": "requests at the same time",
}


@dataclass
class Allowance:
    """`headers` tell the client where it stands; they are empty for a key without limits."""

    limiter: Limiter
    key: ClientKey
    reserved: int
    headers: dict[str, str]
    refusal: HTTPFailure | None = None
    settled: bool = False

    @classmethod
    async def ask(cls, limiter: Limiter, key: ClientKey, body_bytes: int) -> Allowance:
        """Count a request, with as many tokens as its body makes probable."""
        if key.rpm is None and key.tpm is None and key.max_streams is None:
            return cls(limiter, key, 0, {}, settled=True)
        tokens = max(body_bytes // CHARS_A_TOKEN, 1)
        decision = await limiter.reserve(key, tokens)
        shown = headers(decision)
        if decision.admitted:
            return cls(limiter, key, tokens, shown)
        return cls(limiter, key, 0, shown, refusal=_refusal(key, decision, shown), settled=True)

    async def settle(self, tokens: int | None, written_chars: int) -> None:
        """The request ended. `tokens` as the upstream counted them, None if it did not say."""
        if self.settled:
            return
        self.settled = True
        used = tokens if tokens is not None else self.reserved + written_chars // CHARS_A_TOKEN
        await self.limiter.release(self.key, self.reserved, used)

    async def give_back(self) -> None:
        """The request went nowhere: its tokens are not counted, only that it was made."""
        if not self.settled:
            self.settled = True
            await self.limiter.release(self.key, self.reserved, 0)


class Unread:
    """The requests of each key whose bodies are still arriving, in this process.

    The limiter counts a request when it is whole, so that one that is refused costs nothing. Until then a key has no
    more of them than it may have streams, nor than a part of the gateway's places. Limits a minute are not looked at
    here: a burst beyond them is refused by the limiter, which knows when to come again.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # by the name of the key; names come from the configuration only

    def refusal(self, key: ClientKey, places: int) -> HTTPFailure | None:
        """429 where `key` has as many as it may; `places` are all that the gateway has."""
        most = _most_unread(key, places)
        if self._counts.get(key.name, 0) < most:
            return None
        message = f"This key is at its limit of {most} requests whose bodies are still arriving."
        refused = client_error(429, message, "rate_limit_exceeded", kind="streams")
        refused.headers, refused.kind = {"retry-after": str(UNREAD_PAUSE)}, "streams"
        return refused

    @contextmanager
    def one_more(self, key: ClientKey) -> Iterator[None]:
        """A request of `key` while its body is read."""
        self._counts[key.name] = self._counts.get(key.name, 0) + 1
        try:
            yield
        finally:
            self._counts[key.name] -= 1
            if not self._counts[key.name]:
                del self._counts[key.name]


def _most_unread(key: ClientKey, places: int) -> int:
    if not key.digest:  # everybody: there are no others to keep a part for
        return places
    part = max(places // UNREAD_PART, 1)
    return part if key.max_streams is None else min(key.max_streams, part)


def _refusal(key: ClientKey, decision: Decision, shown: dict[str, str]) -> HTTPFailure:
    limit = {"requests": key.rpm, "tokens": key.tpm, "streams": key.max_streams}[decision.reason]
    message = f"This key is at its limit of {limit} {_LIMITED[decision.reason]}."
    if decision.too_large:
        message = f"The request is larger than this key's limit of {limit} tokens a minute; make it smaller."
    refused = client_error(429, message, "rate_limit_exceeded", kind=decision.reason)
    refused.headers = dict(shown)
    refused.kind = decision.reason
    return refused
