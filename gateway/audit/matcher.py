"""Matches a policy's rules against texts by means of the censor, with a cache for the thousands that a search tries."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from gateway.censor.compile import Program, compile_rules
from gateway.censor.stream import Censor, Match
from gateway.policy.model import DEFAULT_MAX_HOLD, Action, Policy, Rule

KEPT = 4096  # texts whose result is cached


def complete_text(data: bytes) -> str:
    """The text of some bytes, but for a last character of which bytes are still to come."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


class MatchedRules(NamedTuple):
    """The ids of the rules that match first in a text, None for no match. `certain`: whatever text follows; `at_end`:
    if the text ends there."""

    certain: str | None
    at_end: str | None


class RuleMatcher:
    """Finds matches of rules, whatever their actions. `digest`: SHA-256, in hexadecimal, of all that decides what they
    match. Raises ValueError without rules, or for one that cannot be compiled."""

    def __init__(self, rules: Iterable[Rule], max_hold: int = DEFAULT_MAX_HOLD) -> None:
        self.rules = tuple(rules)
        if not self.rules:
            raise ValueError("no rules are given")
        # A block is decided as soon as a match is certain; a flagged match has its full span.
        self._blocking = self._program(Action.BLOCK, max_hold)
        self._flagging = self._program(Action.FLAG, max_hold)
        self.matched_rules = lru_cache(KEPT)(self._matched_rules)
        described = [
            (rule.id, rule.words, rule.pattern, rule.detector, sorted(rule.fold), rule.whole_word)
            for rule in self.rules
        ]
        self.digest = hashlib.sha256(repr((max_hold, described)).encode()).hexdigest()

    def _program(self, action: Action, max_hold: int) -> Program:
        # Only full matches count, so the guarded tail of secrets is off.
        rules = [replace(rule, action=action, guard_tail=0, decode=None) for rule in self.rules]
        return compile_rules(Policy(name="audit", max_hold=max_hold), *rules)

    def _matched_rules(self, text: bytes) -> MatchedRules:
        censor = Censor(self._blocking)
        censor.feed(complete_text(text))
        if censor.blocked is not None:
            return MatchedRules(censor.blocked.id, censor.blocked.id)
        censor.finish()
        return MatchedRules(None, None if censor.blocked is None else censor.blocked.id)

    def matches(self, text: str) -> list[Match]:
        """All matches in a text that stands alone, in order."""
        censor = Censor(self._flagging)
        censor.feed(text)
        censor.finish()
        return sorted(censor.matches, key=lambda match: (match.start, match.end, match.rule))
