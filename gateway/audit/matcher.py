"""Does a text hold what rules look for? The censor's own answer, for texts that are tried by the thousand."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from gateway.censor.compile import Program, compile_policy
from gateway.censor.stream import Censor, Match
from gateway.policy.model import DEFAULT_MAX_HOLD, Action, Channel, Direction, Policy, Rule

KEPT = 4096  # texts of which the verdict is kept


class MatchedRules(NamedTuple):
    """The ids of the rules of the first match that is certain in a text, None if there is none: whatever comes after
    it, or if it ends there."""

    certain: str | None
    at_end: str | None


class RuleMatcher:
    """Rules as they look at what a model says, whatever they do about it. `digest`: SHA-256, in hexadecimal, of all
    that decides what they find. Raises ValueError without rules, or for one that cannot be compiled."""

    def __init__(self, rules: Iterable[Rule], max_hold: int = DEFAULT_MAX_HOLD) -> None:
        self.rules = tuple(rules)
        if not self.rules:
            raise ValueError("there is no rule to look for")
        # What blocks is known as soon as it is certain; what is flagged is told with its whole length.
        self._blocking = self._program(Action.BLOCK, max_hold)
        self._flagging = self._program(Action.FLAG, max_hold)
        self.matched_rules = lru_cache(KEPT)(self._matched_rules)
        described = [
            (rule.id, rule.words, rule.pattern, rule.detector, sorted(rule.fold), rule.whole_word)
            for rule in self.rules
        ]
        self.digest = hashlib.sha256(repr((max_hold, described)).encode()).hexdigest()

    def _program(self, action: Action, max_hold: int) -> Program:
        output, everywhere = frozenset({Direction.OUTPUT}), frozenset(Channel)
        rules = tuple(
            # The beginning of a match is none here, however secret: it is what was said that is looked for.
            replace(rule, action=action, guard_tail=0, decode=None, apply_to=output, channels=everywhere)
            for rule in self.rules
        )
        policy = Policy(name="audit", rules=rules, max_hold=max_hold)
        program = compile_policy(policy).program(Direction.OUTPUT, Channel.CONTENT)
        assert program is not None
        return program

    def _matched_rules(self, text: bytes) -> MatchedRules:
        censor = Censor(self._blocking)
        # A character of which the last byte is still to come says nothing yet.
        censor.feed(codecs.getincrementaldecoder("utf-8")("replace").decode(text))
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
