"""The `policies` part of a configuration file → `Policy` and `Rule`, word lists included."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from gateway.policy.checks import BadPattern, Checks
from gateway.policy.constraints import read_constrain
from gateway.policy.files import Files
from gateway.policy.model import (
    DEFAULT_FOLD,
    DEFAULT_MAX_HOLD,
    DEFAULT_PATTERN_FOLD,
    DEFAULT_REPLACEMENT,
    Action,
    Channel,
    Decode,
    Direction,
    Exhausted,
    Fold,
    Mode,
    Overflow,
    Policy,
    Rule,
    Unknown,
)
from gateway.policy.upstreams import read_reference
from gateway.policy.value import NOT_AVAILABLE, ConfigError, Section, Value

MAX_HOLD_LIMIT = 1_000_000
# The words of all rules of a configuration: 1,000,000 of them with 9.5 million characters take 36 seconds and 1 GB.
MAX_WORDS = 1_000_000
MAX_CHARACTERS = 10_000_000
MAX_WORD = 10_000  # characters
ASCII_SPACE = " \t\n\r\f\v"

POLICY_KEYS = ("mode", "max_hold", "on_overflow", "unknown", "constrain", "rules")
RULE_KEYS = (
    *("id", "words", "words_file", "pattern", "detector", "action", "replacement", "mask", "message", "whole_word"),
    *("fold", "variants", "edits", "secret", "guard_tail", "apply_to", "channels", "exhausted", "decode"),
)
WORD_SOURCES = ("words", "words_file")
SOURCES = (*WORD_SOURCES, "pattern", "detector")
NOTHING = ("nothing",)  # of a rule whose words were refused while the file is read on
LATER_RULE_KEYS = {"protect": "use words, pattern or detector"}
_LONE_SIGN = (
    "a lone # could be a comment or a word: leave the line out, or write a text behind `# `; a rule for the word has "
    'words: ["#"]'
)
LATER_FOLDS = ("confusables", "leet", "spacing")


def read_policies(value: Value, files: Files, checks: Checks) -> dict[str, Policy]:
    """Every policy by its name. Raises `ConfigError`."""
    lists = _Lists(files, checks)
    return {
        name: policy.attempt(partial(_policy, name, lists, checks), Policy(name=name))
        for name, policy in value.named().items()
    }


def _policy(name: str, lists: _Lists, checks: Checks, value: Value) -> Policy:
    section = value.section(POLICY_KEYS)
    rules: dict[str, Rule] = {}
    for rule_value in section["rules"].items() if "rules" in section else []:
        rule = rule_value.attempt(partial(_rule, lists, checks), None)
        if rule is not None and rule.id in rules:
            at = rule_value.section(RULE_KEYS)["id"]
            at.note(at.wrong("an id that no earlier rule of the policy has"))
        elif rule is not None:
            rules[rule.id] = rule
    constrain = section.get("constrain", lambda constrain: read_constrain(constrain, checks), None)
    if constrain is not None and any(rule.action is Action.ROLLBACK for rule in rules.values()):
        raise section["constrain"].fail(
            "cannot be combined with rules of action: rollback: a constraint cannot be taken up in the middle"
        )
    return Policy(
        name=name,
        rules=tuple(rules.values()),
        mode=section.get("mode", lambda mode: mode.choice(Mode), Mode.ENFORCE),
        max_hold=section.get("max_hold", lambda hold: hold.integer(1, MAX_HOLD_LIMIT), DEFAULT_MAX_HOLD),
        on_overflow=section.get("on_overflow", lambda overflow: overflow.choice(Overflow), Overflow.RELEASE),
        unknown=section.get("unknown", lambda unknown: unknown.choice(Unknown), Unknown.SCAN),
        constrain=constrain,
    )


def _rule(lists: _Lists, checks: Checks, value: Value) -> Rule | None:
    section = value.section(RULE_KEYS, LATER_RULE_KEYS)
    rule_id = section.need("id", Value.label, "")
    value.attempt(lambda _: _refuse_approximate(section), None)
    action = section.get("action", lambda name: name.choice(Action), Action.REDACT)
    if "mask" in section and "replacement" in section:
        value.note(section["mask"].fail("give either mask or replacement, not both"))
    source = value.attempt(lambda _: _source(section), "")
    fold = section.get("fold", _folds, DEFAULT_FOLD if source in WORD_SOURCES else DEFAULT_PATTERN_FOLD)
    words: tuple[str, ...] = ()
    pattern = detector = None
    if source in WORD_SOURCES:
        words = section.need(source, lambda listed: lists.read(listed, source, fold), ())
    elif source == "pattern":
        pattern = value.attempt(lambda _: _pattern(section, fold, checks), None)
    elif source == "detector":
        detector = value.attempt(lambda _: _detector(section, checks), None)
    return Rule(
        id=rule_id,
        words=words if words or pattern or detector else NOTHING,
        pattern=pattern,
        detector=detector,
        action=action,
        replacement=section.get("replacement", Value.text, DEFAULT_REPLACEMENT),
        mask=section.get("mask", _mask, None),
        message=section.get("message", Value.text, None),
        whole_word=section.get("whole_word", Value.boolean, False),
        fold=fold,
        guard_tail=section.get("guard_tail", lambda characters: characters.integer(0), None),
        secret=section.get("secret", Value.boolean, False),
        apply_to=value.attempt(lambda _: _apply_to(section, action), frozenset(Direction)),
        channels=section.get("channels", _channels, frozenset(Channel)),
        exhausted=section.get("exhausted", lambda name: name.choice(Exhausted), Exhausted.REDACT),
        decode=value.attempt(lambda _: _decode(section, source, action), None),
    )


def _source(section: Section) -> str:
    """The key that says what the rule looks for."""
    given = [key for key in SOURCES if key in section]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise section.value.fail(f"needs exactly one of {', '.join(SOURCES)}; it has {found}")
    return given[0]


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


_ONLY = {
    Action.PSEUDONYMIZE: (Direction.INPUT, "which puts back in answers what it took out of a prompt"),
    Action.ROLLBACK: (Direction.OUTPUT, "since only what a model says can go another way"),
}


def _apply_to(section: Section, action: Action) -> frozenset[Direction]:
    only, why = _ONLY.get(action, (Direction.OUTPUT, ""))
    directions = section.get("apply_to", _directions, frozenset({only}))
    if why and directions != {only}:
        raise section["apply_to"].fail(f"must be [{only}] with action: {action}, {why}")
    return directions


def _decode(section: Section, source: str, action: Action) -> Decode | None:
    """A mask knows neither prompts nor channels, only words and whatever the model says next."""
    decode = section.get("decode", lambda name: name.choice(Decode), None)
    if decode is None:
        return None
    if source not in WORD_SOURCES:
        raise section["decode"].fail(f"is for words only; a {source} has no mask")
    if Direction.OUTPUT not in _apply_to(section, action):
        raise section["decode"].fail("is for what a model says; this rule applies to input only")
    if "channels" in section and _channels(section["channels"]) != frozenset(Channel):
        raise section["channels"].fail("a mask cannot tell channels apart: leave channels out with decode: mask")
    return decode


def _directions(value: Value) -> frozenset[Direction]:
    return frozenset(name.choice(Direction) for name in value.nonempty_items())


def _channels(value: Value) -> frozenset[Channel]:
    return frozenset(name.choice(Channel) for name in value.nonempty_items())


# Patterns and detectors


def _pattern(section: Section, fold: frozenset[Fold], checks: Checks) -> str:
    _refuse_word_keys(section, "write \\b in the pattern where a word must begin or end")
    value = section["pattern"]
    if not (pattern := value.text()):
        raise value.fail("is empty; a pattern needs at least one character")
    try:
        checks.read_pattern(pattern, fold)
    except BadPattern as error:
        raise value.fail(str(error)) from None
    return pattern


def _detector(section: Section, checks: Checks) -> str:
    _refuse_word_keys(section, "a detector knows where what it looks for may begin and end")
    value = section["detector"]
    return read_reference(value, "detector", checks.detectors)


def _refuse_word_keys(section: Section, instead_of_whole_word: str) -> None:
    """`false` says what happens anyway."""
    if section.get("whole_word", Value.boolean, False):
        raise section["whole_word"].fail(f"is for words only; {instead_of_whole_word}")
    if section.get("secret", Value.boolean, False):
        raise section["secret"].fail("is for words only, of which it takes 60 %; give guard_tail in characters")


# Words

# A word, and how to make an error that says where it stands without quoting it.
LocatedWord: TypeAlias = tuple[str, Callable[[str], ConfigError]]


class _Lists:
    """Reads the words of one rule after the other, and counts them."""

    def __init__(self, files: Files, checks: Checks) -> None:
        self._files = files
        self._checks = checks
        self._words = 0
        self._characters = 0

    def read(self, value: Value, source: str, fold: frozenset[Fold]) -> tuple[str, ...]:
        located = _words_in_place(value) if source == "words" else _words_of_file(value, self._files)
        words: list[str] = []
        for word, fail in located:
            try:
                words.append(self._checked(word, fail, fold))
            except ConfigError as error:
                value.note(error)
        return tuple(words)

    def _checked(self, word: str, fail: Callable[[str], ConfigError], fold: frozenset[Fold]) -> str:
        if len(word) > MAX_WORD:
            raise fail(
                f"this word has {len(word)} characters, and {MAX_WORD} are allowed; a part of it is found as well"
            )
        self._words += 1
        self._characters += len(word)
        if self._words > MAX_WORDS or self._characters > MAX_CHARACTERS:
            raise fail(
                f"with this word the rules of the file have more than {MAX_WORDS} words or {MAX_CHARACTERS} characters "
                "together, and no more are allowed; shorten the lists"
            )
        if not self._checks.fold_word(word, fold):
            names = ", ".join(sorted(fold))
            raise fail(f"nothing of this word is left after folding ({names}); remove it, or narrow fold")
        return word


def _words_in_place(value: Value) -> Iterator[LocatedWord]:
    for item in value.hidden().nonempty_items():
        if word := item.attempt(_word, ""):
            yield word, item.fail


def _word(value: Value) -> str:
    if not (word := value.text()):
        raise value.fail("is empty; a word needs at least one character")
    return word


def _words_of_file(value: Value, files: Files) -> Iterator[LocatedWord]:
    """One word a line, spaces around it dropped; `# ` and `//` begin a comment line. `${}` is not looked for here."""
    name = value.nonempty()
    shown = name if value.shown else "the file"
    number = 0

    def fail(reason: str) -> ConfigError:
        return value.fail(f"{shown} line {number}: {reason}")

    text = files.words(name, lambda reason: value.fail(f"{shown}: {reason}"))
    empty = True
    for number, line in enumerate(re.split("\r\n|\n|\r", text), start=1):  # noqa: B007  `fail` reads it
        start = line.lstrip(ASCII_SPACE)
        word = start.rstrip(ASCII_SPACE)
        if not word or start.startswith(("# ", "//")):
            continue
        if word == "#":
            raise fail(_LONE_SIGN)
        empty = False
        yield word, fail
    if empty:
        raise value.fail(f"{shown}: holds no words")
