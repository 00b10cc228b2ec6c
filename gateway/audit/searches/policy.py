"""Search for answers that violate a policy: best-first over all texts, each followed up to its first match of a rule.

The censor itself looks at every text that the search comes to, so what counts as a match is what counts in an answer:
words through their lenses, patterns, detectors with their checks. A text is a finding as soon as a match in it is
certain, and is not gone on from. So findings exclude each other, and the sum of their probabilities is the probability
that an answer of so many tokens breaks a rule. A whole word at the end of a text waits for what comes behind it, which
may be the end of the answer: the model's own, or where an answer of `max_tokens` is cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.audit.language.automaton import Numbered
from gateway.audit.matcher import MatchedRules, RuleMatcher, complete_text
from gateway.audit.model import LanguageModel
from gateway.audit.query.model import Decoding, Message, Query
from gateway.audit.searches.best_first import BestFirstSearch, Result, SearchProgress, digest
from gateway.audit.searches.checkpoint import Checkpoint
from gateway.audit.searches.frontier import ENDED, Node, States
from gateway.audit.searches.steps import Steps
from gateway.policy.model import Channel, Direction, Policy, Rule

ANY_TEXT = "(?s).*"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicySteps(Steps):
    """Expands any text up to its first match of a rule."""

    matcher: RuleMatcher

    def text(self, node: Node) -> bytes:
        """What can be read of it: what is no character reads as U+FFFD."""
        return complete_text(self._bytes(node)).encode()

    def is_complete(self, node: Node) -> bool:
        if node.state == ENDED:
            return True
        matched_rules = self._matched_rules(node)
        return (matched_rules.at_end if node.behind >= self.max_tokens else matched_rules.certain) is not None

    def is_extendable(self, node: Node) -> bool:
        return node.state != ENDED and node.behind < self.max_tokens and self._matched_rules(node).certain is None

    def _complete(self, targets: States) -> NDArray[np.bool_]:
        return np.ones(len(targets), bool)  # any token may be the last of a match

    def _may_end(self, node: Node) -> bool:
        return self._matched_rules(node).at_end is not None

    def _matched_rules(self, node: Node) -> MatchedRules:
        return self.matcher.matched_rules(self._bytes(node))

    def _bytes(self, node: Node) -> bytes:
        return Steps.text(self, node)


def output_rules(policy: Policy) -> tuple[Rule, ...]:
    """The rules that apply to a model's output, whatever their actions."""
    return tuple(
        rule for rule in policy.rules if Direction.OUTPUT in rule.apply_to and Channel.CONTENT in rule.channels
    )


def prompt_query(prompt: str, *, chat: bool, decoding: Decoding, limit: int, source: str) -> Query:
    """The query for one prompt; `chat`: it is a user's message, and the model's template stands around it."""
    return Query(
        query=ANY_TEXT,
        prompt=(Message("user", prompt),) if chat else prompt,
        decoding=decoding,
        limit=limit,
        source=source,
    )


def search_violations(
    model: LanguageModel,
    query: Query,
    matcher: RuleMatcher,
    *,
    batch: int | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
    resume: Checkpoint | None = None,
) -> BestFirstSearch:
    """Search for texts that violate a rule. Raises as `search` does."""
    # All byte strings: a model may also generate invalid UTF-8.
    anything = Numbered(1, lambda state: [(0, 255, state)], lambda _: True)
    steps = PolicySteps.of(model, query, anything, matcher=matcher)
    return BestFirstSearch(steps, None, query, policy_digest(query, matcher), batch, progress, resume)


def violation_of(matcher: RuleMatcher, result: Result) -> dict[str, str]:
    """The `rule` that a finding violates, and the `match`."""
    text = result.text
    matched_rules = matcher.matched_rules(text.encode())
    rule = matched_rules.certain or matched_rules.at_end
    assert rule is not None
    ends = [match for match in matcher.matches(text) if match.rule == rule]
    # The last token may have brought others, of which some need not be certain.
    match = min(ends, key=lambda each: (each.end, each.start), default=None)
    return {"rule": rule, "match": text if match is None else text[match.start : match.end]}


def policy_digest(query: Query, matcher: RuleMatcher) -> str:
    """SHA-256, in hexadecimal, of all that decides what a prompt finds."""
    return hashlib.sha256(f"{digest(query)} {matcher.digest}".encode()).hexdigest()
