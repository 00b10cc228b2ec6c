"""Policies, compiled once for all the ways in which tests run them: that takes longer than most of their texts."""

from __future__ import annotations

from functools import lru_cache

from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.policy.model import Policy


@lru_cache(256)
def compiled(policy: Policy) -> CompiledPolicy:
    """What `compile_policy` makes of it; the same for equal policies, as the gateway's streams share it."""
    return compile_policy(policy)
