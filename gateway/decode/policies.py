"""The banned words of a configuration's policies, as entries of the file of masks.

    banned_of(config.policies)        # {"strict": ..., "strict/exhausted": ...}

Numpy is imported only where there is such a word, since the base install does without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gateway.policy.model import Action, Decode, Policy, Rule

if TYPE_CHECKING:
    from gateway.decode.maskfile import BannedPolicy

EXHAUSTED = "/exhausted"  # ends the name of a policy's second entry; no policy of a file has a `/` in its name


def banned_of(policies: Mapping[str, Policy]) -> dict[str, BannedPolicy]:
    """The banned words of each policy that has some, by the policy's name.

    A policy that rolls back has a second entry where that one has other words, under its name and `EXHAUSTED`: see
    `exhausted_rules`. Raises ImportError without numpy, unless there is no word at all.
    """
    return {
        entry: _banned(rules)
        for name, policy in policies.items()
        for entry, rules in ((name, policy.masked), (name + EXHAUSTED, exhausted_rules(policy)))
        if rules
    }


def exhausted_rules(policy: Policy) -> tuple[Rule, ...]:
    """The rules whose words are banned when rollback has used up its caps: those that are always masked, and all that
    roll back. Patterns and detectors have no mask. Empty where that is no more than what is always masked."""
    if not policy.rolls_back:
        return ()
    rules = tuple(
        rule for rule in policy.rules if rule.words and (rule.decode is Decode.MASK or rule.action is Action.ROLLBACK)
    )
    return () if rules == policy.masked else rules


def _banned(rules: tuple[Rule, ...]) -> BannedPolicy:
    from gateway.decode.maskfile import BannedPolicy
    from gateway.decode.masks import WordBan

    return BannedPolicy.of([WordBan.of(rule) for rule in rules])
