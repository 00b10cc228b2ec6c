"""One configuration in force, with everything that is built from it.

A reload builds a new snapshot beside the old one and replaces it in one assignment. A request keeps the snapshot it
began with; the old one is closed when no request runs on it any more.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.policy.combine import combined_policies
from gateway.policy.listen import check_exposure
from gateway.policy.model import Auth, ClientKey, Config
from gateway.policy.routes import Router
from gateway.proxy.steering.mask_probe import MaskProbe, MaskProbes, wanted_masks
from gateway.proxy.steering.vocabularies import read_vocabularies
from gateway.proxy.upstreams.balancer import LoadBalancer

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary

# Sockets, files and exporters are opened once, when the process starts.
STARTUP_SECTIONS = ("listen", "journal", "telemetry", "state")
Result = TypeVar("Result")
OWN_KEY = "x-portcullis-key"  # the header of a client's key where the others hold one for the upstream
ANONYMOUS = ClientKey(name="none", digest=b"")  # every client of a gateway without keys


class ClientKeys:
    """The client keys. Compared as digests, all of them every time, so that timing shows nothing."""

    def __init__(self, auth: Auth) -> None:
        self._keys = auth.keys

    @property
    def required(self) -> bool:
        return bool(self._keys)

    def find(self, headers: Mapping[str, str]) -> ClientKey | None:
        """The key that a request carries; None if it is not one of ours."""
        if not self._keys:
            return ANONYMOUS
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if OWN_KEY in headers:
            given = headers[OWN_KEY]
        elif scheme.lower() == "bearer":
            given = credentials.strip()
        else:
            given = headers.get("x-api-key", "") or headers.get("api-key", "")
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        matches = [key for key in self._keys if hmac.compare_digest(digest, key.digest)]
        return matches[0] if matches else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`vocabularies` are of the upstreams whose answers are rolled back. `shown_models`: may a name be shown in a log,
    by policy and model; admission fills it."""

    config: Config
    policies: Mapping[str, CompiledPolicy]
    router: Router
    keys: ClientKeys
    fleet: LoadBalancer
    vocabularies: Mapping[str, Vocabulary]
    masks: MaskProbes
    shown_models: dict[tuple[str, str], bool] = field(default_factory=dict)


async def build_snapshot(
    config: Config,
    base_urls: Mapping[str, str],
    compiled: Mapping[str, CompiledPolicy],
    old: Snapshot | None,
    on_verdict: Callable[[MaskProbe], None],
) -> Snapshot:
    """What serving `config` takes, at the start and at a reload, which replaces `old`.

    `compiled` policies, and what `old` has of upstreams and masks that are still the same, are taken over;
    `on_verdict` takes every new verdict on a mask. Raises ConfigError, and ValueError as `compile_policy` does.
    """
    policies = await run_in_background_thread(compile_policies, config, compiled)
    vocabularies = await run_in_background_thread(read_vocabularies, config)
    masks_wanted = await run_in_background_thread(wanted_masks, config)
    connections = config.limits.max_streams + 64
    fleet = LoadBalancer.build(config.upstreams, base_urls, connections, None if old is None else old.fleet)
    masks = MaskProbes.build(masks_wanted, fleet.clients, None if old is None else old.masks, on_verdict)
    return Snapshot(config, policies, Router(config.routes), ClientKeys(config.auth), fleet, vocabularies, masks)


def compile_policies(config: Config, known: Mapping[str, CompiledPolicy]) -> dict[str, CompiledPolicy]:
    """Every policy of a configuration, and of two that a request may combine, compiled; one that is equal to a known
    one is not compiled again.

    Takes seconds for lists of a hundred thousand words. Raises ValueError as `compile_policy` does.
    """
    policies = {**config.policies, **{policy.name: policy for policy in combined_policies(config)}}
    return {
        name: known[name] if name in known and known[name].policy == policy else compile_policy(policy)
        for name, policy in policies.items()
    }


async def run_in_background_thread(work: Callable[..., Result], *arguments: object) -> Result:
    """Do long work in a thread, without the garbage collector, whose passes over all that is made would stop every
    stream."""

    def working() -> Result:
        gc.disable()
        try:
            return work(*arguments)
        finally:
            gc.enable()

    return await asyncio.to_thread(working)


def keep_startup_sections(old: Config, new: Config) -> tuple[Config, tuple[str, ...]]:
    """The new configuration with the sections of the old one that only a restart can change, and which of them differ.

    Raises `ConfigError` where that would let everybody in: the address stays, and the new keys must fit it.
    """
    differ = tuple(part for part in STARTUP_SECTIONS if getattr(old, part) != getattr(new, part))
    kept = replace(new, **{part: getattr(old, part) for part in STARTUP_SECTIONS})
    check_exposure(kept, kept.listen.host)
    return kept, differ
