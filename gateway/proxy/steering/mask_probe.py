"""Which logits masks requests ask for, and an active probe of whether an upstream applies them.

A server's own word for it is not enough. The probe (docs/masks.md) asks it for one token of two, twice:
once the first is forbidden, then the second. Only a server that has the mask, with these words, answers both times with
the other one. The decisions are functions; `MaskProbe` and `MaskProbes` perform them in the background.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import httpx2

from gateway.censor.lens import Lens
from gateway.decode.maskfile import EXHAUSTED, BannedPolicy, MaskRequest, banned_of, refusal
from gateway.policy.model import Config, Route, UpstreamType
from gateway.proxy.asgi import offload
from gateway.proxy.upstreams.client import PROBE_TIMEOUT, PROBE_TTL, UpstreamClient
from gateway.wire import json
from gateway.wire.json import Json

# -- the masks of a configuration --------------------------------------------------------------------------------------

# A probe chooses from two of its prompt's tokens, so no part of the prompt may be banned.
PROMPTS = ("Once upon a time", "The quick brown fox jumps over the lazy dog", "1 2 3 4 5 6 7 8 9", "+ - * / = ( ) [ ]")


@dataclass(frozen=True, slots=True)
class PolicyMask:
    """A mask that requests to an upstream ask for.

    `entry` of the file of masks: a policy's name, with `EXHAUSTED` or without. `model` for probes, None where no route
    names one; `prompt` for probes, None where every one of `PROMPTS` contains a banned word.
    """

    upstream: str
    entry: str
    request: MaskRequest
    model: str | None
    prompt: str | None

    @property
    def required(self) -> bool:
        """Is the gateway not ready without it? The second entry is a fallback of rollback, which works without."""
        return not self.entry.endswith(EXHAUSTED)


def wanted_masks(config: Config) -> tuple[PolicyMask, ...]:
    """All masks of a configuration; takes a second for 100,000 words."""
    routes = _masked_routes(config)
    banned = banned_of({policy: config.policies[policy] for _, policy in routes})
    requests = {entry: MaskRequest(policy=entry, digest=words.digest) for entry, words in banned.items()}
    prompts = {entry: prompt_for(words) for entry, words in banned.items()}
    return tuple(
        PolicyMask(upstream, entry, requests[entry], _fixed_model(route), prompts[entry])
        for (upstream, policy), route in routes.items()
        for entry in (policy, policy + EXHAUSTED)
        if entry in banned
    )


def _masked_routes(config: Config) -> dict[tuple[str, str], Route]:
    """A route for each (upstream that can mask, policy); one that fixes the model, if there is one."""
    found: dict[tuple[str, str], Route] = {}
    for route in config.routes:
        for upstream in route.upstreams:
            if config.upstreams[upstream].type == UpstreamType.VLLM:
                known = found.setdefault((upstream, route.policy), route)
                if _fixed_model(known) is None:
                    found[upstream, route.policy] = route
    return found


def _fixed_model(route: Route) -> str | None:
    """The model of the upstream's requests; None where the client chooses it."""
    return route.rename or (None if set(route.model) & set("*?[") else route.model)


def prompt_for(banned: BannedPolicy) -> str | None:
    """The first of `PROMPTS` of which no token can contain a banned word; None if there is none."""
    left = list(PROMPTS)
    for each in banned.banned:
        fold = cache(Lens(each.fold).fold)
        words = ["".join(fold(char).text for char in word) for word in each.words]
        texts = {prompt: "".join(fold(char).text for char in f" {prompt} ") for prompt in left}
        left = [prompt for prompt, text in texts.items() if not any(word in text for word in words)]
    return left[0] if left else None


# -- decisions ---------------------------------------------------------------------------------------------------------

_REFUSED = frozenset({400, 422})  # what the server, asked the same without a mask, answered
_BUSY = frozenset({429, 503})


class MaskState(StrEnum):
    """The state of a mask at an upstream."""

    IN_FORCE = "in force"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MaskStatus:
    """`reason`: why the mask is not, or not known to be, in force, without a word of a rule or a digest."""

    state: MaskState
    reason: str = ""


NOT_PROBED = MaskStatus(MaskState.UNKNOWN, "the server has not been asked yet")
IN_FORCE = MaskStatus(MaskState.IN_FORCE)
NOT_FOLLOWED = MaskStatus(
    MaskState.MISSING, "the server does not follow the mask; start it with --logits-processors, not with drafted tokens"
)
DOWN = MaskStatus(MaskState.UNKNOWN, "the server is down")
SLOW = MaskStatus(MaskState.UNKNOWN, "the server does not answer in time")
UNREADABLE = MaskStatus(MaskState.UNKNOWN, "the server's answer is not understood")
NO_PROMPT = MaskStatus(MaskState.UNKNOWN, "the policy bans every prompt that a probe could use")


def tokens_request(model: str, prompt: str) -> Json:
    """Its answer holds the prompt's token ids."""
    return {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "return_token_ids": True}


def probe_requests(mask: PolicyMask, model: str, pair: tuple[int, int]) -> list[Json]:
    """Both requests of a probe: the first token of the pair is forbidden, then the second."""
    return [
        {
            **tokens_request(model, mask.prompt or ""),
            "allowed_token_ids": list(pair),
            "vllm_xargs": replace(mask.request, not_first=(token,)).arguments(),
        }
        for token in pair
    ]


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Token ids of the prompt and of the answer, empty where the server returned none; `text` of a refusal's body."""

    status: int
    prompt: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    text: str = ""


def read_answer(status: int, body: bytes) -> ProbeAnswer:
    if status != 200:
        return ProbeAnswer(status, text=body.decode("utf-8", "replace"))
    choice = _first(body, "choices")
    return ProbeAnswer(status, _ids(choice.get("prompt_token_ids")), _ids(choice.get("token_ids")))


def read_model(status: int, body: bytes) -> str | None:
    """The first model that a server lists."""
    model = _first(body, "data").get("id") if status == 200 else None
    return model if isinstance(model, str) else None


def pair_of(prompt: Sequence[int]) -> tuple[int, int] | None:
    """The last two tokens of a prompt that differ; its first one may be a special token."""
    for token in reversed(prompt[:-1]):
        if token != prompt[-1]:
            return token, prompt[-1]
    return None


def status_of(pair: tuple[int, int], answers: Sequence[ProbeAnswer]) -> MaskStatus:
    """By the answers to both `probe_requests`, or to the first if it was refused."""
    for answer in answers:
        if answer.status in _REFUSED:
            return MaskStatus(MaskState.MISSING, refusal(answer.text))
        if answer.status != 200:
            return status_of_error(answer.status)
        if len(answer.chosen) != 1:
            return UNREADABLE
    one, other = pair
    return IN_FORCE if [answer.chosen for answer in answers] == [(other,), (one,)] else NOT_FOLLOWED


def status_of_error(status: int) -> MaskStatus:
    """By another HTTP status than 200 where a server that works has no reason for one."""
    return SLOW if status in _BUSY else MaskStatus(MaskState.UNKNOWN, f"the server answers with status {status}")


def updated(known: MaskStatus, new: MaskStatus) -> MaskStatus:
    """A server that is only slow is still the same, so the known status holds."""
    return known if new == SLOW and known.state is not MaskState.UNKNOWN else new


def _first(body: bytes, name: str) -> Json:
    """The first object of the list under `name`; an empty one where there is none."""
    try:
        received = json.decode(body)
    except json.JSONError:
        return {}
    listed = received.get(name) if isinstance(received, dict) else None
    found = listed[0] if isinstance(listed, list) and listed else None
    return found if isinstance(found, dict) else {}


def _ids(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) and all(type(each) is int for each in value) else ()


# -- what performs them ------------------------------------------------------------------------------------------------


class _ProbeFailed(Exception):
    """The probe cannot continue; `args[0]` is the `MaskStatus`."""


class MaskProbe:
    """One mask at one upstream and its status. Shared by the `MaskProbes` before and after a reload without a change.

    `attempted`: has a probe ended? `timeout`: seconds for all requests of a probe.
    """

    def __init__(
        self,
        mask: PolicyMask,
        client: UpstreamClient,
        on_status: Callable[[MaskProbe], None],
        clock: Callable[[], float],
        timeout: float,
    ) -> None:
        self.mask = mask
        self.client = client
        self.status = NOT_PROBED
        self.attempted = False
        self.task: asyncio.Task[None] | None = None
        self._on_status = on_status
        self._clock = clock
        self._timeout = timeout
        self._probed_at = float("-inf")
        self._tokens: tuple[str, tuple[int, int]] | None = None  # model, two token ids

    def start(self) -> None:
        """Probe in the background, unless that was done in the last `PROBE_TTL` seconds or is in progress."""
        now = self._clock()
        if now - self._probed_at > PROBE_TTL and (self.task is None or self.task.done()):
            self._probed_at = now
            self.task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait((self.task,))

    async def _run(self) -> None:
        try:
            status = updated(self.status, await self._probe())
        except Exception as error:  # a defect of ours: the next probe may succeed
            status = MaskStatus(MaskState.UNKNOWN, f"the probe failed: {type(error).__name__}")
        if status.state is not MaskState.IN_FORCE:
            self._tokens = None  # another server may be there next time, with other tokens
        changed = status != self.status
        self.status, self.attempted = status, True
        if changed:
            self._on_status(self)

    async def _probe(self) -> MaskStatus:
        if self.mask.prompt is None:
            return NO_PROMPT
        if not await self.client.up():
            return DOWN
        try:
            async with asyncio.timeout(self._timeout):
                model, pair = self._tokens = self._tokens or await self._find_tokens(self.mask.prompt)
                answers: list[ProbeAnswer] = []
                for body in probe_requests(self.mask, model, pair):
                    answers.append(await self._send(body))
                    if answers[-1].status != 200:
                        break
                return status_of(pair, answers)
        except _ProbeFailed as error:
            return error.args[0]  # type: ignore[no-any-return]
        except (httpx2.NetworkError, httpx2.ConnectTimeout):
            return DOWN
        except (TimeoutError, httpx2.TimeoutException):
            return SLOW
        except httpx2.HTTPError:
            return UNREADABLE

    async def _find_tokens(self, prompt: str) -> tuple[str, tuple[int, int]]:
        """The model to probe, and two tokens of the prompt. Raises `_ProbeFailed` and httpx2's errors."""
        model = self.mask.model
        if model is None:
            status, body = await self.client.call("GET", "/models", self._timeout)
            model = await offload(len(body), read_model, status, body)
        if model is None:
            raise _ProbeFailed(UNREADABLE)
        answer = await self._send(tokens_request(model, prompt))
        if answer.status != 200:
            raise _ProbeFailed(status_of_error(answer.status))
        if (pair := pair_of(answer.prompt)) is None:
            raise _ProbeFailed(UNREADABLE)
        return model, pair

    async def _send(self, body: Json) -> ProbeAnswer:
        status, answer = await self.client.call("POST", "/completions", self._timeout, json.encode(body))
        return await offload(len(answer), read_answer, status, answer)


class MaskProbes:
    """The masks of a configuration's policies at its upstreams, and whether they are in force."""

    def __init__(self, probes: Iterable[MaskProbe] = ()) -> None:
        self._probes = {(each.mask.upstream, each.mask.entry): each for each in probes}

    @classmethod
    def build(
        cls,
        masks: Iterable[PolicyMask],
        clients: Mapping[str, UpstreamClient],
        previous: MaskProbes | None = None,
        on_status: Callable[[MaskProbe], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = PROBE_TIMEOUT,
    ) -> MaskProbes:
        """Probes of `masks`; those that `previous` has of the same mask at the same upstream are shared.

        `on_status` is called with each probe whose status changes.
        """
        known = {} if previous is None else previous._probes
        probes = []
        for each in masks:
            probe, client = known.get((each.upstream, each.entry)), clients[each.upstream]
            if probe is None or probe.mask != each or probe.client is not client:
                probe = MaskProbe(each, client, on_status, clock, timeout)
            probes.append(probe)
        return cls(probes)

    def request(self, upstream: str, policy: str) -> MaskRequest | None:
        """The mask that a request to this upstream under this policy asks for; None where there is none, or where it is
        known to be missing. While its status is unknown, requests ask for it: the first ones must not go without."""
        probe = self._probes.get((upstream, policy))
        return None if probe is None or probe.status.state is MaskState.MISSING else probe.mask.request

    def exhausted(self, upstream: str, policy: str) -> MaskRequest | None:
        """The mask for a request after rollback has reached its caps: it contains the words that roll back as well.

        None unless it is known to be in force: then the rule's `exhausted` applies. Only words have masks.
        """
        probe = self._probes.get((upstream, policy + EXHAUSTED)) or self._probes.get((upstream, policy))
        return probe.mask.request if probe is not None and probe.status.state is MaskState.IN_FORCE else None

    @property
    def states(self) -> dict[str, MaskState]:
        """By upstream and entry, with a `/` between them."""
        return {f"{upstream}/{entry}": each.status.state for (upstream, entry), each in self._probes.items()}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The upstream and the entry of each mask."""
        return tuple(self._probes)

    @property
    def missing(self) -> MaskProbe | None:
        """A required mask that was found missing, if there is one."""
        missing = (each for each in self._probes.values() if each.status.state is MaskState.MISSING)
        return next((each for each in missing if each.mask.required), None)

    def start(self) -> None:
        """Start the probes that are due, in the background."""
        for probe in self._probes.values():
            probe.start()

    async def refresh(self) -> None:
        """`start`, and wait for the first probe of each mask: at most for the upstream's probe and the mask's."""
        self.start()
        first = [each.task for each in self._probes.values() if each.task is not None and not each.attempted]
        if first:
            await asyncio.wait(first)  # unlike awaiting them: cancelling one caller does not cancel them for others

    async def close(self, besides: MaskProbes | None = None) -> None:
        """Stop the probes that are not shared with `besides`."""
        kept = [] if besides is None else besides._probes.values()
        await asyncio.gather(*(each.close() for each in self._probes.values() if each not in kept))
