"""What a policy wants of the models behind it, and which upstreams can give it."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.policy.model import Config, Mode, Policy, Upstream
from gateway.policy.value import ConfigError

STEERED = "vllm"  # the type of upstream that takes part


def check_decoding(config: Config) -> None:
    """Raises `ConfigError` where a route leads to an upstream that cannot do what its policy requires."""
    for at, policy, upstream in _used(config):
        constrain = policy.constrain
        if constrain is not None and constrain.require and upstream.type != STEERED:
            raise ConfigError(
                config.source,
                f"policies.{policy.name}.constrain",
                f"upstream {upstream.name} of {at} cannot hold a model to it: make it type: vllm, or say "
                "require: false, and answers are only checked",
            )
        if policy.rolls_back and upstream.type == STEERED and upstream.tokenizer is None:
            raise ConfigError(
                config.source,
                f"upstreams.{upstream.name}.tokenizer",
                f"is required: {at} has policy {policy.name}, which rolls back, token by token",
            )


def decoding_warnings(config: Config) -> Iterator[str]:
    """What a policy asks for and an upstream will not do."""
    for at, policy, upstream in _used(config):
        if upstream.type == STEERED:
            continue
        who = f"{at}: upstream {upstream.name} is not of type: vllm"
        if policy.constrain is not None and policy.mode is Mode.ENFORCE:
            yield f"{who}, so answers under policy {policy.name} are checked against its constraint, not held to it"
        if policy.rolls_back:
            yield f"{who}, so rules of policy {policy.name} with action: rollback act as their exhausted says"
        if policy.masked:
            yield f"{who}, so decode: mask has no effect there; the rules of policy {policy.name} act on what is said"


def _used(config: Config) -> Iterator[tuple[str, Policy, Upstream]]:
    for i, route in enumerate(config.routes):
        for name in route.upstreams:
            yield f"routes[{i}]", config.policies[route.policy], config.upstreams[name]
