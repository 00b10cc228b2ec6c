"""Checks of rules for the configuration loader: what a pattern means, and whether a rule finds a text."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from gateway.automata.analysis import longest, reopens
from gateway.automata.charset import CharSet
from gateway.automata.regex import RegexError
from gateway.censor.compile import compile_rules, pattern_positions
from gateway.censor.lens import Lens
from gateway.censor.stream import Censor
from gateway.policy.checks import BadPattern, Finds, PatternFacts
from gateway.policy.model import Action, Fold, Policy, Rule


# The loader reads each pattern once, its lint once more.
@lru_cache(1024)
def read_pattern(pattern: str, folds: frozenset[Fold]) -> PatternFacts:
    """Raises `BadPattern`."""
    try:
        found = pattern_positions(pattern, folds)
    except RegexError as error:
        raise BadPattern(error.reason, error.position) from None
    lens = Lens(folds - {Fold.CASE})  # case is in the pattern itself, as its (?i)
    unseen = any(_is_unseen(charset, lens) for charset in set(found.sets))
    return PatternFacts(longest(found), reopens(found), unseen)


def _is_unseen(charset: CharSet, lens: Lens) -> bool:
    """Does the lens remove all of these characters from a text?"""
    chars = (chr(code) for low, high in charset.ranges for code in range(low, high + 1))
    return bool(charset) and all(lens.fold(char).text != char for char in chars)


def finder(rule: Rule) -> Finds:
    """Whether a text that stands alone holds a match of the rule."""
    program = compile_rules(Policy(name=rule.id), replace(rule, action=Action.FLAG))

    def finds(text: str) -> bool:
        censor = Censor(program)
        censor.feed(text)
        censor.finish()
        return bool(censor.matches)

    return finds
