"""Policies and lenses, made once for all that tests do with them: that takes longer than most of their texts."""

from __future__ import annotations

from functools import lru_cache

from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.censor.lens import Lens
from gateway.policy.model import Fold, Policy


@lru_cache(256)
def compiled(policy: Policy) -> CompiledPolicy:
    """What `compile_policy` makes of it; the same for equal policies, as the gateway's streams share it."""
    return compile_policy(policy)


@lru_cache(64)
def lens_of(folds: frozenset[Fold]) -> Lens:
    """A lens remembers how it has folded a character."""
    return Lens(folds)
