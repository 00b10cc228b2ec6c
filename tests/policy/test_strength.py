"""`strength`: what it sets, where a rule's own keys stand, and where it means nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.censor.explain import explain
from gateway.policy.model import PRESETS, Policy, Rule, Strength
from gateway.policy.presets import DEFAULT_FOLD, DEFAULT_PATTERN_FOLD, Fold, false_hits
from tests.support.policies import read, refused, text_of


def rules_of(policy: str) -> tuple[Rule, ...]:
    return read(text_of(policies=f"{{p: {policy}}}")).policies["p"].rules


def test_a_rule_has_its_own_strength_the_policys_or_none() -> None:
    own, ours, pattern = rules_of(
        "{strength: careful, rules: ["
        "{id: a, words: [x], strength: paranoid}, {id: b, words: [x]}, {id: c, pattern: x}]}"
    )
    assert (own.strength, own.fold) == (Strength.PARANOID, PRESETS[Strength.PARANOID].fold)
    assert (ours.strength, ours.fold) == (Strength.CAREFUL, PRESETS[Strength.CAREFUL].fold)
    assert (pattern.strength, pattern.fold) == (Strength.PLAIN, DEFAULT_PATTERN_FOLD)


def test_the_rules_own_keys_stand() -> None:
    (rule,) = rules_of(
        "{rules: [{id: a, words: [swordfish], strength: paranoid, fold: [width], variants: [], edits: 0}]}"
    )
    assert (rule.fold, rule.variants, rule.edits) == ({Fold.WIDTH}, frozenset(), 0)


def test_a_rule_that_a_program_makes_is_the_same() -> None:
    assert Rule(id="r", words=("x",), strength=Strength.CAREFUL).fold == PRESETS[Strength.CAREFUL].fold
    assert PRESETS[Strength.PLAIN].fold == DEFAULT_FOLD


@pytest.mark.parametrize("source", ["pattern: x", "detector: email", "protect: system_prompt"])
def test_it_is_for_words(source: str) -> None:
    text = text_of(policies=f"{{p: {{rules: [{{id: a, {source}, strength: careful}}]}}}}")
    refused(text, "policies.p.rules[0].strength", "is for words only")


def test_more_strength_sees_through_more() -> None:
    presets = [PRESETS[strength] for strength in Strength]
    for less, more in pairwise(presets):
        assert less.fold <= more.fold
        assert less.variants <= more.variants
        assert less.edits <= more.edits


def test_check_says_what_it_costs() -> None:
    plain, careful = (Rule(id=f"r-{strength}", words=("x",), strength=strength) for strength in list(Strength)[:2])
    first, second = explain(Policy(name="p", rules=(plain, careful)))
    assert "strength" not in first
    most = max(false_hits()[Strength.CAREFUL].values())
    assert f"strength careful: at most {most:g} false hits in 10,000 words (" in second


@pytest.mark.parametrize(
    ("strength", "most"),
    [(Strength.PLAIN, 0.0), (Strength.CAREFUL, 0.1), (Strength.PARANOID, 1.0)],
)
def test_false_hits_are_within_the_target(strength: Strength, most: float) -> None:
    """As measured: `python -m loadtest.word_hits`."""
    assert max(false_hits()[strength].values()) <= most


def test_each_strength_was_measured_on_each_kind_of_text() -> None:
    assert {frozenset(figures) for figures in false_hits().values()} == {
        frozenset({"English", "German", "French", "code", "tables"})
    }
