"""Is a policy's mask in force at an upstream? And what a request carries that asks for it.

Nothing that a server says of itself is believed. A canary asks it for one token of two, twice: once the first must not
come, then the second must not. Only a server that has the mask, with these words, answers both times with the other.

What is decided stands in functions; `MaskProbe` and `Masks` perform it, in the background, as probes are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import httpx

from gateway.decode.policies import EXHAUSTED
from gateway.proxy.asgi import aside
from gateway.proxy.steering.entries import Wanted
from gateway.proxy.upstreams.client import PROBE_TIMEOUT, PROBE_TTL, UpstreamClient
from gateway.wire import json
from gateway.wire.chat import Json

if TYPE_CHECKING:
    from gateway.decode.maskfile import MaskRequest

COMPLETIONS, MODELS = "/completions", "/models"
_REFUSED = frozenset({400, 422})  # what the server, asked the same without a mask, answered
_BUSY = frozenset({429, 503})


class State(StrEnum):
    """Of a mask at an upstream, as far as it is known."""

    IN_FORCE = "in force"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why the mask is not, or not known to be, in force. It holds no word of a rule and no digest."""

    state: State
    reason: str = ""


NOT_ASKED = Verdict(State.UNKNOWN, "the server has not been asked yet")
IN_FORCE = Verdict(State.IN_FORCE)
NOT_FOLLOWED = Verdict(
    State.MISSING, "the server does not follow the mask; start it with --logits-processors, not with drafted tokens"
)
DOWN = Verdict(State.UNKNOWN, "the server is down")
SLOW = Verdict(State.UNKNOWN, "the server does not answer in time")
UNREADABLE = Verdict(State.UNKNOWN, "the server's answer is not understood")
UNASKABLE = Verdict(State.UNKNOWN, "the policy bans every text that a canary could ask for")


# -- decisions ---------------------------------------------------------------------------------------------------------


def question(model: str, prompt: str) -> Json:
    """Asks which tokens a prompt is made of."""
    return {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "return_token_ids": True}


def questions(wanted: Wanted, model: str, pair: tuple[int, int]) -> list[Json]:
    """Both requests of a canary: the first token of the pair must not come, then the second."""
    return [
        {
            **question(model, wanted.prompt or ""),
            "allowed_token_ids": list(pair),
            "vllm_xargs": replace(wanted.request, not_first=(token,)).arguments(),
        }
        for token in pair
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: the ids of the prompt's tokens and of those that it chose, empty where it told none;
    `text` is the body of a refusal."""

    status: int
    prompt: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    text: str = ""


def read_answer(status: int, body: bytes) -> Answer:
    if status != 200:
        return Answer(status, text=body.decode("utf-8", "replace"))
    choice = _first(_decoded(body), "choices")
    return Answer(status, _ids(choice.get("prompt_token_ids")), _ids(choice.get("token_ids")))


def read_model(status: int, body: bytes) -> str | None:
    """The first model that a server lists."""
    model = _first(_decoded(body), "data").get("id") if status == 200 else None
    return model if isinstance(model, str) else None


def pair_of(prompt: Sequence[int]) -> tuple[int, int] | None:
    """Two tokens of a prompt, the last ones that differ: one at its beginning may be no text."""
    for token in reversed(prompt[:-1]):
        if token != prompt[-1]:
            return token, prompt[-1]
    return None


def judge(pair: tuple[int, int], answers: Sequence[Answer]) -> Verdict:
    """By the answers to both `questions`, or to the first if it was refused."""
    for answer in answers:
        if answer.status in _REFUSED:
            from gateway.decode.maskfile import refusal

            return Verdict(State.MISSING, refusal(answer.text))
        if answer.status != 200:
            return unanswered(answer.status)
        if len(answer.chosen) != 1:
            return UNREADABLE
    one, other = pair
    return IN_FORCE if [answer.chosen for answer in answers] == [(other,), (one,)] else NOT_FOLLOWED


def unanswered(status: int) -> Verdict:
    """Of a server that did not answer 200 to what it should know how to answer."""
    return SLOW if status in _BUSY else Verdict(State.UNKNOWN, f"the server answers with status {status}")


def revised(known: Verdict, new: Verdict) -> Verdict:
    """A server that is only slow is the one it was, so what was known of it holds."""
    return known if new == SLOW and known.state is not State.UNKNOWN else new


def _decoded(body: bytes) -> object:
    try:
        return json.decode(body)
    except json.JSONError:
        return None


def _first(received: object, name: str) -> Json:
    """The first object of the list under `name`; an empty one where there is none."""
    listed = received.get(name) if isinstance(received, dict) else None
    found = listed[0] if isinstance(listed, list) and listed else None
    return found if isinstance(found, dict) else {}


def _ids(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) and all(type(each) is int for each in value) else ()


# -- what performs them ------------------------------------------------------------------------------------------------


class Unanswered(Exception):
    """A server told nothing that a canary could go on with."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class MaskProbe:
    """One mask at one upstream, and what is known of it. Shared by the masks before and after a reload that left it
    alone."""

    def __init__(
        self,
        wanted: Wanted,
        client: UpstreamClient,
        on_verdict: Callable[[MaskProbe], None],
        clock: Callable[[], float],
        patience: float,
    ) -> None:
        self.wanted = wanted
        self.client = client
        self.verdict = NOT_ASKED
        self.heard = False  # has an attempt ended?
        self.task: asyncio.Task[None] | None = None
        self._on_verdict = on_verdict
        self._clock = clock
        self._patience = patience
        self._asked_at = float("-inf")
        self._known: tuple[str, tuple[int, int]] | None = None  # the model and its two tokens

    def begin(self) -> None:
        """Ask, unless that was done in the last `PROBE_TTL` seconds or is still under way."""
        now = self._clock()
        if now - self._asked_at > PROBE_TTL and (self.task is None or self.task.done()):
            self._asked_at = now
            self.task = asyncio.create_task(self._look())

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait((self.task,))

    async def _look(self) -> None:
        try:
            verdict = revised(self.verdict, await self._ask())
        except Exception as error:  # a defect of ours: then nothing is known, and the next one may succeed
            verdict = Verdict(State.UNKNOWN, f"the canary failed: {type(error).__name__}")
        if verdict.state is not State.IN_FORCE:
            self._known = None  # another server may be there next time, with other tokens
        changed = verdict != self.verdict
        self.verdict, self.heard = verdict, True
        if changed:
            self._on_verdict(self)

    async def _ask(self) -> Verdict:
        if self.wanted.prompt is None:
            return UNASKABLE
        if not await self.client.up():
            return DOWN
        try:
            async with asyncio.timeout(self._patience):
                model, pair = self._known = self._known or await self._learn(self.wanted.prompt)
                answers: list[Answer] = []
                for body in questions(self.wanted, model, pair):
                    answers.append(await self._answer(body))
                    if answers[-1].status != 200:
                        break
                return judge(pair, answers)
        except Unanswered as error:
            return error.verdict
        except (httpx.NetworkError, httpx.ConnectTimeout):
            return DOWN
        except (TimeoutError, httpx.TimeoutException):
            return SLOW
        except httpx.HTTPError:
            return UNREADABLE

    async def _learn(self, prompt: str) -> tuple[str, tuple[int, int]]:
        """The model to ask, and two tokens of the prompt. Raises `Unanswered` and httpx's errors."""
        model = self.wanted.model
        if model is None:
            status, body = await self.client.call("GET", MODELS, self._patience)
            model = await aside(len(body), read_model, status, body)
        if model is None:
            raise Unanswered(UNREADABLE)
        answer = await self._answer(question(model, prompt))
        if answer.status != 200:
            raise Unanswered(unanswered(answer.status))
        pair = pair_of(answer.prompt)
        if pair is None:
            raise Unanswered(UNREADABLE)
        return model, pair

    async def _answer(self, body: Json) -> Answer:
        status, answer = await self.client.call("POST", COMPLETIONS, self._patience, json.encode(body))
        return await aside(len(answer), read_answer, status, answer)


def _unnoticed(canary: MaskProbe) -> None:
    pass


class Masks:
    """The masks of a configuration's policies at its upstreams, and whether they are in force."""

    def __init__(self, canaries: Iterable[MaskProbe] = ()) -> None:
        self._canaries = {(each.wanted.upstream, each.wanted.entry): each for each in canaries}

    @classmethod
    def build(
        cls,
        wanted: Iterable[Wanted],
        clients: Mapping[str, UpstreamClient],
        previous: Masks | None = None,
        on_verdict: Callable[[MaskProbe], None] = _unnoticed,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PROBE_TIMEOUT,
    ) -> Masks:
        """Masks that take over what `previous` knows of those that are still the same at an upstream that is.

        `on_verdict` hears of each new verdict. `clock`, and `patience` in seconds for all questions of a canary, are
        for those who want other ones.
        """
        known = {} if previous is None else previous._canaries
        canaries = []
        for each in wanted:
            canary, client = known.get((each.upstream, each.entry)), clients[each.upstream]
            if canary is None or canary.wanted != each or canary.client is not client:
                canary = MaskProbe(each, client, on_verdict, clock, patience)
            canaries.append(canary)
        return cls(canaries)

    def request(self, upstream: str, policy: str) -> MaskRequest | None:
        """What a request to this upstream under this policy is to carry; None where no mask is wanted, or where it is
        known to be missing. While nothing is known, requests ask for it: the first ones must not go without."""
        canary = self._canaries.get((upstream, policy))
        return None if canary is None or canary.verdict.state is State.MISSING else canary.wanted.request

    def exhausted(self, upstream: str, policy: str) -> MaskRequest | None:
        """What a request is to carry when rollback has used up its caps: a mask of the words that roll back as well.

        None unless it is known to be in force, since a rule's `exhausted` is there instead. It knows nothing of
        patterns and detectors.
        """
        canary = self._canaries.get((upstream, policy + EXHAUSTED)) or self._canaries.get((upstream, policy))
        return canary.wanted.request if canary is not None and canary.verdict.state is State.IN_FORCE else None

    @property
    def states(self) -> dict[str, State]:
        """By upstream and entry, with a `/` between them."""
        return {f"{upstream}/{entry}": each.verdict.state for (upstream, entry), each in self._canaries.items()}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The upstream and the entry of each mask."""
        return tuple(self._canaries)

    @property
    def missing(self) -> MaskProbe | None:
        """One of the masks that a canary has found missing and that the gateway is not ready without."""
        for canary in self._canaries.values():
            if canary.wanted.required and canary.verdict.state is State.MISSING:
                return canary
        return None

    def begin(self) -> None:
        """Ask, in the background, where that is due."""
        for canary in self._canaries.values():
            canary.begin()

    async def look(self) -> None:
        """`begin`, and wait where nobody has been heard of yet: for a probe, and as long again for the canary."""
        self.begin()
        unheard = [each.task for each in self._canaries.values() if each.task is not None and not each.heard]
        if unheard:
            await asyncio.wait(unheard)  # unlike awaiting them: a caller who leaves does not end them for the others

    async def close(self, besides: Masks | None = None) -> None:
        """Ask no more, but for what `besides` has taken over."""
        kept = [] if besides is None else besides._canaries.values()
        await asyncio.gather(*(each.close() for each in self._canaries.values() if each not in kept))
