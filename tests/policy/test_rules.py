"""Rules with patterns and detectors, rules that pseudonymize, and rules made in Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.config import ConfigError, load
from gateway.policy.model import (
    DEFAULT_FOLD,
    Action,
    Channel,
    Decode,
    Direction,
    Exhausted,
    Fold,
    Policy,
    Rule,
)
from gateway.policy.presets import DEFAULT_DETECTOR_FOLD, DEFAULT_PATTERN_FOLD
from tests.support.policies import SECRET, read_rule, refused, text_of


def test_a_pattern_is_read_as_it_is_written() -> None:
    rule = read_rule(r"{id: r, pattern: '(?i)\bPROJ-\d{1,6}\b', action: flag, guard_tail: 4}")
    assert rule == Rule(id="r", pattern=r"(?i)\bPROJ-\d{1,6}\b", action=Action.FLAG, guard_tail=4)
    assert rule.fold == DEFAULT_PATTERN_FOLD
    assert rule.words == ()
    assert read_rule("{id: r, pattern: ' ', fold: [case]}").fold == {Fold.CASE}


def test_a_detector_is_read_by_its_name() -> None:
    rule = read_rule("{id: r, detector: email, whole_word: false, secret: false}")
    assert rule == Rule(id="r", detector="email")
    assert rule.fold == DEFAULT_DETECTOR_FOLD


def test_pseudonymize_is_for_prompts() -> None:
    for source in ("words: [x]", "pattern: x", "detector: email"):
        for apply_to in ("", ", apply_to: [input]"):
            rule = read_rule(f"{{id: r, {source}, action: pseudonymize{apply_to}}}")
            assert rule.action is Action.PSEUDONYMIZE
            assert rule.apply_to == {Direction.INPUT}


REFUSED = [
    (
        "words: [x], pattern: x",
        "",
        "needs exactly one of words, words_file, pattern, detector, protect; it has words and pattern",
    ),
    ("pattern: x, detector: email", "", "it has pattern and detector"),
    ("pattern: 12", "pattern", "must be text, not 12; unquoted, YAML reads this as a number: quote it"),
    ("pattern: ''", "pattern", "is empty; a pattern needs at least one character"),
    ("pattern: 'a*'", "pattern", "the pattern matches the empty string"),
    ("pattern: 'ab(?=c)'", "pattern", "(at position 2)"),
    (r"pattern: '(a)\1'", "pattern", "(at position 3)"),
    ("pattern: 'ab*?'", "pattern", "(at position "),
    ("pattern: 'a{20000}'", "pattern", "10000"),
    ("pattern: '\u200b'", "pattern", "the pattern matches the empty string"),
    ("pattern: x, whole_word: true", "whole_word", "is for words only; write \\b in the pattern"),
    ("pattern: x, secret: true", "secret", "is for words only, of which it takes 60 %; give guard_tail in characters"),
    ("detector: email, whole_word: true", "whole_word", "is for words only; a detector knows"),
    ("detector: email, secret: true", "secret", "is for words only"),
    ("detector: e-mail", "detector", "unknown detector 'e-mail'; did you mean 'email'?"),
    ("detector: xyz", "detector", "unknown detector 'xyz'; known: "),
    ("detector: [email]", "detector", "must be text, not a list"),
    ("words: [x], action: pseudonymize, apply_to: [output]", "apply_to", "must be [input] with action: pseudonymize"),
    ("words: [x], action: pseudonymize, apply_to: [input, output]", "apply_to", "must be [input]"),
]


@pytest.mark.parametrize(("rule", "key", "reason"), REFUSED)
def test_refused_rules(rule: str, key: str, reason: str) -> None:
    path = "policies.p.rules[0]" + (f".{key}" if key else "")
    refused(text_of(policies=f"{{p: {{rules: [{{id: r, {rule}}}]}}}}"), path, reason)


@pytest.mark.parametrize("key", ["pattern", "detector"])
def test_what_came_from_the_environment_is_not_shown(key: str) -> None:
    text = text_of(policies=f'{{p: {{rules: [{{id: r, {key}: "${{S}}"}}]}}}}')
    refused(text, f"policies.p.rules[0].{key}", "", {"S": f"({SECRET}"})


def test_the_obvious_call_refuses_a_pattern_that_cannot_run(tmp_path: Path) -> None:
    file = tmp_path / "portcullis.yaml"
    for rule, key in (("pattern: '('", "pattern"), ("detector: anything", "detector")):
        file.write_text(text_of(policies=f"{{p: {{rules: [{{id: r, {rule}}}]}}}}"))
        with pytest.raises(ConfigError, match=rf"policies\.p\.rules\[0\]\.{key}: "):
            load(file, {})


# Rules made in Python


def test_defaults_depend_on_what_a_rule_looks_for() -> None:
    assert Rule(id="r", words=("x",)).fold == DEFAULT_FOLD
    assert Rule(id="r", detector="email").fold == DEFAULT_DETECTOR_FOLD
    assert Rule(id="r", pattern="x", fold=frozenset()).fold == frozenset()
    assert Rule(id="r", pattern="x").apply_to == {Direction.OUTPUT}
    assert Rule(id="r", pattern="x", action=Action.PSEUDONYMIZE).apply_to == {Direction.INPUT}


def test_a_rule_looks_for_one_thing() -> None:
    for sources in ({}, {"words": ("x",), "pattern": "x"}, {"pattern": "x", "detector": "email"}):
        with pytest.raises(ValueError, match=r"^rule 'r': give exactly one of words, pattern, detector and protect$"):
            Rule(id="r", **sources)  # type: ignore[arg-type]


@pytest.mark.parametrize("many", [tuple, list, set, frozenset, iter])
def test_e9_several_values_may_come_in_any_iterable(many: Any) -> None:
    rule = Rule(
        id="r",
        words=many(["x"]),
        fold=many(["case", Fold.WIDTH]),
        apply_to=many(["output"]),
        channels=many([Channel.CONTENT]),
        action="block",
        exhausted="block",
        decode="mask",
    )
    assert rule == Rule(
        id="r",
        words=("x",),
        fold=frozenset({Fold.CASE, Fold.WIDTH}),
        apply_to=frozenset({Direction.OUTPUT}),
        channels=frozenset({Channel.CONTENT}),
        action=Action.BLOCK,
        exhausted=Exhausted.BLOCK,
        decode=Decode.MASK,
    )
    assert hash(rule.fold) and rule.action is Action.BLOCK and rule.decode is Decode.MASK
    assert Rule(id="r", words=("x",), fold=many([])).fold == frozenset()
    assert Policy(name="p", rules=many([rule]), mode="observe").rules == (rule,)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"words": SECRET}, "words: expected words, as in a tuple, got str"),
        ({"words": b"abc"}, "words: expected words, as in a tuple, got bytes"),
        ({"words": None, "pattern": "x"}, "words: expected words, as in a tuple, got NoneType"),
        ({"words": (SECRET, 7)}, "words[1]: expected one of the words, got int"),
        ({"pattern": re.compile(SECRET)}, "pattern: expected a string, got Pattern"),
        ({"detector": ("email",)}, "detector: expected a string, got tuple"),
        ({"words": ("x",), "fold": "case"}, "fold: expected names, as in a tuple, got str"),
        ({"words": ("x",), "fold": Fold.CASE}, "fold: expected names, as in a tuple, got Fold"),
        ({"words": ("x",), "fold": {"cases"}}, f"fold: expected {', '.join(Fold)}, got 'cases'"),
        ({"words": ("x",), "fold": [[]]}, f"fold: expected {', '.join(Fold)}, got []"),
        ({"words": ("x",), "apply_to": "output"}, "apply_to: expected names, as in a tuple, got str"),
        ({"words": ("x",), "apply_to": ()}, "apply_to: expected at least 1 of input, output"),
        ({"words": ("x",), "apply_to": ("outputs",)}, "apply_to: expected input, output, got 'outputs'"),
        ({"words": ("x",), "channels": ()}, "channels: expected at least 1 of content, refusal"),
        ({"words": ("x",), "channels": 7}, "channels: expected names, as in a tuple, got int"),
        (
            {"words": ("x",), "action": "blok"},
            "action: expected redact, block, flag, rollback, pseudonymize, got 'blok'",
        ),
        ({"words": ("x",), "action": None}, "action: expected redact, block"),
        ({"words": ("x",), "exhausted": "flag"}, "exhausted: expected redact, block, got 'flag'"),
        ({"words": ("x",), "decode": True}, "decode: expected mask, got True"),
        ({"words": ("x",), "mask": ""}, "mask: expected one character, got 0"),
        ({"words": ("x",), "mask": "**"}, "mask: expected one character, got 2"),
        ({"words": ("x",), "mask": 7}, "mask: expected a string, got int"),
        ({"words": ("x",), "replacement": None}, "replacement: expected a string, got NoneType"),
        ({"words": ("x",), "message": 7}, "message: expected a string, got int"),
        ({"words": ("x",), "whole_word": 1}, "whole_word: expected True or False, got int"),
        ({"words": ("x",), "secret": "yes"}, "secret: expected True or False, got str"),
        ({"words": ("x",), "guard_tail": -1}, "guard_tail: expected a whole number of at least 0, got -1"),
        ({"words": ("x",), "guard_tail": "3"}, "guard_tail: expected a whole number of at least 0, got str"),
        ({"words": ("x",), "guard_tail": True}, "guard_tail: expected a whole number of at least 0, got bool"),
    ],
)
def test_e9_what_no_field_can_be_is_refused_by_name(given: Any, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        Rule(id="r", **given)
    assert str(refused.value).startswith(f"rule 'r': {reason}")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"rules": Rule(id="r", words=("x",))}, "rules: expected rules, as in a tuple, got Rule"),
        ({"rules": SECRET}, "rules: expected rules, as in a tuple, got str"),
        ({"rules": (SECRET,)}, "rules[0]: expected one of the rules, got str"),
        ({"max_hold": 0}, "max_hold: expected a whole number of at least 1, got 0"),
        ({"max_hold": "5"}, "max_hold: expected a whole number of at least 1, got str"),
        ({"max_hold": None}, "max_hold: expected a whole number of at least 1, got NoneType"),
        ({"mode": "observed"}, "mode: expected enforce, observe, got 'observed'"),
        ({"on_overflow": "blocked"}, "on_overflow: expected release, redact, block, got 'blocked'"),
        ({"unknown": "ignore"}, "unknown: expected scan, drop, refuse, got 'ignore'"),
    ],
)
def test_e9_what_no_policy_can_have_is_refused_by_name(given: Any, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        Policy(name="p", **given)
    assert str(refused.value) == f"policy 'p': {reason}"


def test_e9_an_identifier_is_a_string() -> None:
    with pytest.raises(ValueError, match="rule 7: id: expected a string, got int"):
        Rule(id=7, words=("x",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="policy None: name: expected a string, got NoneType"):
        Policy(name=None)  # type: ignore[arg-type]


def test_what_a_rule_looks_for_is_not_in_its_representation() -> None:
    assert SECRET not in repr(Rule(id="r", words=(SECRET,))) + repr(Rule(id="r", pattern=SECRET))
