"""A policy that a request asks for, on top of that of its route."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gateway.policy.model import Action, Config, Mode, Overflow, Policy, Rule, Unknown

SEPARATOR = "+"  # not in the name of a policy


def combined_name(policy: str, added: str) -> str:
    return policy if policy == added else f"{policy}{SEPARATOR}{added}"


def why_not_on_request(policy: Policy) -> str | None:
    """Why a policy cannot be added to another by a request, if it cannot."""
    if any(rule.action is Action.PSEUDONYMIZE for rule in policy.rules):
        return "with action: pseudonymize: its values would be exempt from the rules of the route's policy"
    if policy.constrain is not None or policy.masked or policy.rolls_back:
        return "that steers a model (constrain, decode: mask, action: rollback)"
    return None


def combined_policies(config: Config) -> Iterator[Policy]:
    """Each policy of a route with each that a request may ask for, but where the former is masked: masks are served by
    the name of a policy."""
    for name in dict.fromkeys(route.policy for route in config.routes):
        for added in config.policies.values():
            if added.on_request and added.name != name and not config.policies[name].masked:
                yield combine(config.policies[name], added)


def combine(policy: Policy, added: Policy) -> Policy:
    """The rules of both, and of every other setting the stricter one: no text gets further than under `policy`."""
    rules = {rule.id: rule for rule in _acting(policy)}
    for rule in _acting(added):
        name = rule.id
        while name in rules and rules[name] != replace(rule, id=name):
            name = f"{added.name}:{name}"
        rules[name] = replace(rule, id=name)
    enforced = [each for each in (policy, added) if each.mode is Mode.ENFORCE] or [policy]
    return replace(
        policy,
        name=combined_name(policy.name, added.name),
        rules=tuple(rules.values()),
        mode=enforced[0].mode,
        max_hold=max(policy.max_hold, added.max_hold),
        on_overflow=max((each.on_overflow for each in enforced), key=list(Overflow).index),
        unknown=max((each.unknown for each in enforced), key=list(Unknown).index),
        constrain=policy.constrain if policy in enforced else None,
    )


def _acting(policy: Policy) -> list[Rule]:
    """The rules as they act: those of a policy that observes only report."""
    if policy.mode is Mode.ENFORCE:
        return list(policy.rules)
    return [replace(rule, action=Action.FLAG, decode=None) for rule in policy.rules]
