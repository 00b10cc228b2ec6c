"""Which masks a configuration's requests can ask for: entries of the file of masks, each at an upstream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gateway.censor.lens import Lens
from gateway.decode.policies import EXHAUSTED, banned_of
from gateway.policy.model import Config, Route, UpstreamType

if TYPE_CHECKING:
    from gateway.decode.maskfile import BannedPolicy, MaskRequest

# Two of the tokens that a prompt is made of are what a canary chooses from; so none of its text may be banned.
PROMPTS = ("Once upon a time", "The quick brown fox jumps over the lazy dog", "1 2 3 4 5 6 7 8 9", "+ - * / = ( ) [ ]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A mask that requests to an upstream are to carry: an `entry` of the file of masks, which is a policy's name,
    with `EXHAUSTED` or without.

    `model` is what the upstream is to be asked for, None where no route says it; `prompt` is None where every one of
    `PROMPTS` holds a banned word.
    """

    upstream: str
    entry: str
    request: MaskRequest
    model: str | None
    prompt: str | None

    @property
    def required(self) -> bool:
        """Is the gateway not ready without it? The second entry is a net under rollback, which does without."""
        return not self.entry.endswith(EXHAUSTED)


def wanted_masks(config: Config) -> tuple[Wanted, ...]:
    """Every mask that requests to the upstreams of a configuration can carry. Raises ImportError without numpy.

    Takes a second for lists of a hundred thousand words.
    """
    routes = _masked_routes(config)
    banned = banned_of({policy: config.policies[policy] for _, policy in routes})
    prompts = {entry: prompt_for(words) for entry, words in banned.items()}
    return tuple(
        Wanted(upstream, entry, _request(entry, banned[entry]), _asked_model(route), prompts[entry])
        for (upstream, policy), route in routes.items()
        for entry in (policy, policy + EXHAUSTED)
        if entry in banned
    )


def _masked_routes(config: Config) -> dict[tuple[str, str], Route]:
    """For each upstream that can mask and each policy that requests come to it under, a route that leads there; one
    that says which model it asks for, if there is one."""
    found: dict[tuple[str, str], Route] = {}
    for route in config.routes:
        for upstream in route.upstreams:
            if config.upstreams[upstream].type == UpstreamType.VLLM:
                known = found.setdefault((upstream, route.policy), route)
                if _asked_model(known) is None:
                    found[upstream, route.policy] = route
    return found


def _asked_model(route: Route) -> str | None:
    """The model that the upstream is asked for; None where that is the client's choice."""
    return route.rename or (None if set(route.model) & set("*?[") else route.model)


def _request(entry: str, banned: BannedPolicy) -> MaskRequest:
    from gateway.decode.maskfile import MaskRequest

    return MaskRequest(policy=entry, digest=banned.digest)


def prompt_for(banned: BannedPolicy) -> str | None:
    """The first of `PROMPTS` of which no token can hold a banned word; None if there is none."""
    left = list(PROMPTS)
    for each in banned.banned:
        fold = cache(Lens(each.fold).fold)
        words = ["".join(fold(char).text for char in word) for word in each.words]
        texts = {prompt: "".join(fold(char).text for char in f" {prompt} ") for prompt in left}
        left = [prompt for prompt, text in texts.items() if not any(word in text for word in words)]
    return left[0] if left else None
