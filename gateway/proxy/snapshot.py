"""One configuration in force, with everything that was made from it.

A reload makes a new generation beside the old one and puts it in its place in one assignment. Whatever runs keeps the
generation it began with; the old one is let go when nothing runs on it any more.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from starlette.datastructures import Headers

from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.policy.listen import check_exposure
from gateway.policy.model import Auth, ClientKey, Config
from gateway.policy.routes import Router
from gateway.proxy.steering.mask_probe import Masks
from gateway.proxy.upstreams.balancer import Fleet

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary

# Sockets, files and exporters are opened once, when the process starts.
FIXED = ("listen", "journal", "telemetry", "state")
Result = TypeVar("Result")
EVERYBODY = ClientKey(name="none", digest=b"")  # whoever calls a gateway that asks for no key


class Keys:
    """The client keys. Compared as digests, all of them every time, so that timing tells nothing."""

    def __init__(self, auth: Auth) -> None:
        self._keys = auth.keys

    @property
    def asked_for(self) -> bool:
        return bool(self._keys)

    def admit(self, headers: Headers) -> ClientKey | None:
        """Whose key a request carries; None if it is nobody's."""
        if not self._keys:
            return EVERYBODY
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        given = credentials.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
        matches = [key for key in self._keys if hmac.compare_digest(digest, key.digest)]
        return matches[0] if matches else None


@dataclass(frozen=True, slots=True)
class Generation:
    config: Config
    policies: Mapping[str, CompiledPolicy]
    router: Router
    keys: Keys
    fleet: Fleet
    vocabularies: Mapping[str, Vocabulary]  # of the upstreams whose answers are rolled back
    masks: Masks

    @staticmethod
    def of(
        config: Config,
        policies: Mapping[str, CompiledPolicy],
        fleet: Fleet,
        vocabularies: Mapping[str, Vocabulary],
        masks: Masks,
    ) -> Generation:
        return Generation(config, policies, Router(config.routes), Keys(config.auth), fleet, vocabularies, masks)


def compile_policies(config: Config, known: Mapping[str, CompiledPolicy]) -> dict[str, CompiledPolicy]:
    """Every policy of a configuration, compiled; one that equals what is known is taken from there.

    Takes seconds for lists of a hundred thousand words. Raises ValueError as `compile_policy` does.
    """
    return {
        name: known[name] if name in known and known[name].policy == policy else compile_policy(policy)
        for name, policy in config.policies.items()
    }


async def gently(work: Callable[..., Result], *arguments: object) -> Result:
    """Do long work in a thread, so that streams hardly notice it.

    The collector would make them wait: it would go through all that is being made several times.
    """

    def working() -> Result:
        gc.disable()
        try:
            return work(*arguments)
        finally:
            gc.enable()

    return await asyncio.to_thread(working)


def keep_fixed(old: Config, new: Config) -> tuple[Config, tuple[str, ...]]:
    """The new configuration with the parts of the old one that only a restart can change, and which of them differ.

    Raises `ConfigError` where that would let everybody in: the address stays, and the new keys must fit it.
    """
    differ = tuple(part for part in FIXED if getattr(old, part) != getattr(new, part))
    kept = replace(new, **{part: getattr(old, part) for part in FIXED})
    check_exposure(kept, kept.listen.host)
    return kept, differ
