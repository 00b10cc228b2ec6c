"""The `policies` part of a configuration file → `Policy` and `Rule`, word lists included."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from gateway.policy.files import Files
from gateway.policy.model import (
    DEFAULT_FOLD,
    DEFAULT_MAX_HOLD,
    DEFAULT_REPLACEMENT,
    Action,
    Channel,
    Direction,
    Fold,
    Mode,
    Overflow,
    Policy,
    Rule,
    Unknown,
)
from gateway.policy.value import NOT_AVAILABLE, ConfigError, Section, Value

FoldWord: TypeAlias = Callable[[str, frozenset[Fold]], str]

MAX_HOLD_LIMIT = 1_000_000
ASCII_SPACE = " \t\n\r\f\v"

POLICY_KEYS = ("mode", "max_hold", "on_overflow", "unknown", "rules")
LATER_POLICY_KEYS = {"constrain": ""}
RULE_KEYS = (
    *("id", "words", "words_file", "action", "replacement", "mask", "message", "whole_word", "fold"),
    *("variants", "edits", "secret", "guard_tail", "apply_to", "channels"),
)
LATER_RULE_KEYS = {
    "pattern": "use words or words_file",
    "detector": "use words or words_file",
    "protect": "use words or words_file",
    "decode": "",
    "exhausted": "",
}
LATER_ACTIONS = ("rollback", "pseudonymize")
LATER_FOLDS = ("confusables", "leet", "spacing")


def read_policies(value: Value, files: Files, fold_word: FoldWord | None) -> dict[str, Policy]:
    """Every policy by its name. Raises `ConfigError`."""
    return {name: _policy(name, policy, files, fold_word) for name, policy in value.named().items()}


def _policy(name: str, value: Value, files: Files, fold_word: FoldWord | None) -> Policy:
    section = value.section(POLICY_KEYS, LATER_POLICY_KEYS)
    rules: dict[str, Rule] = {}
    for rule_value in section["rules"].items() if "rules" in section else []:
        rule = _rule(rule_value, files, fold_word)
        if rule.id in rules:
            raise rule_value.section(RULE_KEYS)["id"].wrong("an id that no earlier rule of the policy has")
        rules[rule.id] = rule
    return Policy(
        name=name,
        rules=tuple(rules.values()),
        mode=section.get("mode", lambda mode: mode.choice(Mode), Mode.ENFORCE),
        max_hold=section.get("max_hold", lambda hold: hold.integer(1, MAX_HOLD_LIMIT), DEFAULT_MAX_HOLD),
        on_overflow=section.get("on_overflow", lambda overflow: overflow.choice(Overflow), Overflow.RELEASE),
        unknown=section.get("unknown", lambda unknown: unknown.choice(Unknown), Unknown.SCAN),
    )


def _rule(value: Value, files: Files, fold_word: FoldWord | None) -> Rule:
    section = value.section(RULE_KEYS, LATER_RULE_KEYS)
    rule_id = section["id"].label()
    _refuse_approximate(section)
    action = section.get("action", lambda name: name.choice(Action, LATER_ACTIONS), Action.REDACT)
    if "mask" in section and "replacement" in section:
        raise section["mask"].fail("give either mask or replacement, not both")
    fold = section.get("fold", _folds, DEFAULT_FOLD)
    return Rule(
        id=rule_id,
        words=_words(section, fold, files, fold_word),
        action=action,
        replacement=section.get("replacement", Value.text, DEFAULT_REPLACEMENT),
        mask=section.get("mask", _mask, None),
        message=section.get("message", Value.text, None),
        whole_word=section.get("whole_word", Value.boolean, False),
        fold=fold,
        guard_tail=section.get("guard_tail", lambda characters: characters.integer(0), None),
        secret=section.get("secret", Value.boolean, False),
        apply_to=section.get("apply_to", _directions, frozenset({Direction.OUTPUT})),
        channels=section.get("channels", _channels, frozenset(Channel)),
    )


def _refuse_approximate(section: Section) -> None:
    """`variants: []` and `edits: 0` say what this version does anyway; every other value would be ignored."""
    if "variants" in section and section["variants"].items():
        raise section["variants"].fail(NOT_AVAILABLE)
    if "edits" in section and section["edits"].integer(0, 2):
        raise section["edits"].fail(NOT_AVAILABLE)


def _mask(value: Value) -> str:
    mask = value.text()
    if len(mask) != 1:
        raise value.wrong("exactly one character")
    return mask


def _folds(value: Value) -> frozenset[Fold]:
    return frozenset(name.choice(Fold, LATER_FOLDS) for name in value.items())


def _directions(value: Value) -> frozenset[Direction]:
    return frozenset(name.choice(Direction) for name in value.nonempty_items())


def _channels(value: Value) -> frozenset[Channel]:
    return frozenset(name.choice(Channel) for name in value.nonempty_items())


# Words


def _words(section: Section, fold: frozenset[Fold], files: Files, fold_word: FoldWord | None) -> tuple[str, ...]:
    sources = [key for key in ("words", "words_file") if key in section]
    if len(sources) != 1:
        found = "both" if sources else "neither"
        raise section.value.fail(f"needs exactly one of words and words_file; it has {found}")
    if sources == ["words"]:
        located = _words_in_place(section["words"])
    else:
        located = _words_of_file(section["words_file"], files)
    if fold_word is not None:
        for word, fail in located:
            if not fold_word(word, fold):
                names = ", ".join(sorted(fold))
                raise fail(f"nothing of this word is left after folding ({names}); remove it, or narrow fold")
    return tuple(word for word, _ in located)


# A word, and how to make an error that says where it stands without quoting it.
LocatedWord: TypeAlias = tuple[str, Callable[[str], ConfigError]]


def _words_in_place(value: Value) -> list[LocatedWord]:
    located: list[LocatedWord] = []
    for item in value.hidden().nonempty_items():
        if not (word := item.text()):
            raise item.fail("is empty; a word needs at least one character")
        located.append((word, item.fail))
    return located


def _words_of_file(value: Value, files: Files) -> list[LocatedWord]:
    """One word a line, spaces around it dropped; `# ` and `//` begin a comment line. `${}` is not looked for here."""
    name = value.nonempty()
    shown = name if value.shown else "the file"

    def fail_at(line: int) -> Callable[[str], ConfigError]:
        return lambda reason: value.fail(f"{shown} line {line}: {reason}")

    text = files.text(name, lambda reason: value.fail(f"{shown}: {reason}"))
    located: list[LocatedWord] = []
    for number, line in enumerate(re.split("\r\n|\n|\r", text), start=1):
        start = line.lstrip(ASCII_SPACE)
        word = start.rstrip(ASCII_SPACE)
        if not word or start.startswith(("# ", "//")):
            continue
        located.append((word, fail_at(number)))
    if not located:
        raise value.fail(f"{shown}: holds no words")
    return located
