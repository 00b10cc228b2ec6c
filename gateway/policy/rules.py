"""The `policies` section: policies and rules, word lists included."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from gateway.policy.checks import BadPattern, Checks
from gateway.policy.combine import why_not_on_request
from gateway.policy.constraints import CONSTRAIN, read_constrain
from gateway.policy.errors import ConfigError
from gateway.policy.files import Files
from gateway.policy.key_table import (
    BOOLEAN,
    NAME,
    PATH,
    TEXT,
    Form,
    KeyTable,
    choice,
    integer,
    or_reference,
    several,
)
from gateway.policy.model import (
    Action,
    Channel,
    Decode,
    Direction,
    Exhausted,
    Fold,
    Mode,
    Overflow,
    Policy,
    Protect,
    Rule,
    Strength,
    Unknown,
    Variant,
)
from gateway.policy.presets import DISGUISES, EDITS_FROM, PRESETS, default_fold
from gateway.policy.value import Section, Value

MAX_HOLD_LIMIT = 1_000_000
# The words of all rules of a configuration: 1,000,000 of them with 9.2 million characters take 15 seconds and 300 MB.
MAX_WORDS = 1_000_000
MAX_CHARACTERS = 10_000_000
MAX_WORD = 10_000  # characters
ASCII_SPACE = " \t\n\r\f\v"

WORD_SOURCES = ("words", "words_file")
SOURCES = (*WORD_SOURCES, "pattern", "detector", "protect")
MAX_MIN_WORDS = 64  # as many as are plainly copied; the automaton is made of runs of so many words
PLACEHOLDER = ("nothing",)  # the words of a rule whose words were refused
LONE_SIGN = (
    "a lone # could be a comment or a word: leave the line out, or write a text behind `# `; a rule for the word has "
    'words: ["#"]'
)


def _read_mask(value: Value) -> str:
    mask = value.text()
    if len(mask) != 1:
        raise value.wrong("exactly one character")
    return mask


FOLD_NAMES = ", ".join(f"`{fold}`" for fold in Fold)
FOLDS = several(choice(Fold), f"list of {FOLD_NAMES}", frozenset, least=0)
CHANNELS = several(choice(Channel), "list of channels", frozenset)
DIRECTIONS = several(choice(Direction), "list of `output`, `input`", frozenset)
VARIANTS = several(choice(Variant), f"list of {', '.join(f'`{name}`' for name in Variant)}", frozenset, least=0)
RULE = KeyTable(
    "policies.rules",
    Rule,
    {
        "id": NAME,
        "words": Form("list of text", several(TEXT, "").schema),
        "words_file": PATH,
        "pattern": Form("regular expression", {"type": "string", "minLength": 1}),
        "detector": Form("name", TEXT.schema),
        "protect": Form(choice(Protect).shown, choice(Protect).schema),
        "min_words": integer(2, MAX_MIN_WORDS),
        "action": choice(Action),
        "exhausted": choice(Exhausted),
        "decode": Form(choice(Decode).shown, choice(Decode).schema),
        "replacement": TEXT,
        "mask": Form("one character", or_reference({"type": "string", "minLength": 1, "maxLength": 1}), _read_mask),
        "message": TEXT,
        "whole_word": BOOLEAN,
        "strength": choice(Strength),
        "fold": FOLDS,
        "secret": BOOLEAN,
        "guard_tail": integer(0, shown="characters"),
        "carry": BOOLEAN,
        "apply_to": Form(DIRECTIONS.shown, DIRECTIONS.schema),
        "channels": CHANNELS,
        "variants": VARIANTS,
        "edits": integer(0, max(EDITS_FROM)),
    },
    one_of=SOURCES,
    rules={"not": {"required": ["mask", "replacement"]}},
)
POLICY = KeyTable(
    "policies",
    Policy,
    {
        "mode": choice(Mode),
        "max_hold": integer(1, MAX_HOLD_LIMIT),
        "on_overflow": choice(Overflow),
        "unknown": choice(Unknown),
        "constrain": Form("mapping", {"allOf": [CONSTRAIN]}),
        "annotate": BOOLEAN,
        "on_request": BOOLEAN,
        "strength": choice(Strength),
        "rules": Form("list", {"type": "array", "items": RULE}),
    },
)


def read_policies(value: Value, files: Files, checks: Checks) -> dict[str, Policy]:
    """Every policy by its name. Raises `ConfigError`."""
    lists = _WordReader(files, checks)
    return {
        name: policy.attempt(partial(_policy, name, lists, checks), Policy(name=name))
        for name, policy in value.named().items()
    }


def _policy(name: str, lists: _WordReader, checks: Checks, value: Value) -> Policy:
    section = POLICY.section(value)
    rules: dict[str, Rule] = {}
    strength = section.get("strength", RULE.forms["strength"], Strength.PLAIN)
    for item in section["rules"].items() if "rules" in section else []:
        rule = item.attempt(partial(_rule, lists, checks, strength), None)
        if rule is not None and rule.id in rules:
            at = RULE.section(item)["id"]
            at.note(at.wrong("an id that no earlier rule of the policy has"))
        elif rule is not None:
            rules[rule.id] = rule
    policy = Policy(
        name=name,
        rules=tuple(rules.values()),
        **POLICY.values(section, constrain=lambda value: read_constrain(value, checks)),
    )
    if policy.on_request and (reason := why_not_on_request(policy)) is not None:
        raise section["on_request"].fail(f"is not possible for a policy {reason}")
    if policy.constrain is not None and any(rule.action is Action.ROLLBACK for rule in policy.rules):
        raise section["constrain"].fail(
            "cannot be combined with rules of action: rollback: a constraint cannot be taken up in the middle"
        )
    return policy


def _rule(lists: _WordReader, checks: Checks, strength: Strength, value: Value) -> Rule:
    """`strength`: the policy's, for rules for words that have none."""
    section = RULE.section(value)
    action = section.get("action", RULE.forms["action"], Action.REDACT)
    if "mask" in section and "replacement" in section:
        value.note(section["mask"].fail("give either mask or replacement, not both"))
    source = value.attempt(lambda _: section.only_one(SOURCES), "")
    strength = value.attempt(lambda _: _strength_of(section, source, strength), Strength.PLAIN)
    fold = section.get("fold", FOLDS, PRESETS[strength].fold if source in WORD_SOURCES else default_fold(source))
    words: tuple[str, ...] = ()
    pattern = detector = protect = None
    if source in WORD_SOURCES:
        edits = section.get("edits", RULE.forms["edits"], 0)
        words = section[source].attempt(lambda listed: lists.read(listed, source, fold, edits), ())
    elif source == "pattern":
        pattern = value.attempt(lambda _: _pattern(section, fold, checks), None)
    elif source == "detector":
        detector = value.attempt(lambda _: _detector(section, checks), None)
    elif source == "protect":
        protect = value.attempt(lambda _: _protect(section), None)
    value.attempt(lambda _: _check_conversation(section, source, action), None)
    apply_to = value.attempt(lambda _: _apply_to(section, action), frozenset(Direction))
    decode = value.attempt(lambda _: _decode(section, source, action), None)
    return Rule(
        words=words if words or pattern or detector or protect else PLACEHOLDER,
        pattern=pattern,
        detector=detector,
        protect=protect,
        apply_to=apply_to,
        decode=decode,
        **{**RULE.values(section), "fold": fold, "strength": strength},
    )


def _strength_of(section: Section, source: str, default: Strength) -> Strength:
    if source in WORD_SOURCES:
        return section.get("strength", RULE.forms["strength"], default)
    if "strength" in section:
        raise section["strength"].fail(f"is for words only; with {source} say what is meant: fold")
    return Strength.PLAIN


FIXED_DIRECTIONS = {
    Action.PSEUDONYMIZE: (Direction.INPUT, "which puts back in answers what it took out of a prompt"),
    Action.ROLLBACK: (Direction.OUTPUT, "since only an answer can be rolled back"),
}


def _apply_to(section: Section, action: Action) -> frozenset[Direction]:
    only, why = FIXED_DIRECTIONS.get(action, (Direction.OUTPUT, ""))
    directions = section.get("apply_to", DIRECTIONS, frozenset({only}))
    if why and directions != {only}:
        raise section["apply_to"].fail(f"must be [{only}] with action: {action}, {why}")
    return directions


def _decode(section: Section, source: str, action: Action) -> Decode | None:
    """A logits mask holds for words in answers, whatever the channel."""
    decode = section.get("decode", lambda name: name.choice(Decode), None)
    if decode is None:
        return None
    if source not in WORD_SOURCES:
        raise section["decode"].fail(f"is for words only; a {source} has no mask")
    if Direction.OUTPUT not in _apply_to(section, action):
        raise section["decode"].fail("is for answers; this rule applies to input only")
    if "channels" in section and CHANNELS(section["channels"]) != frozenset(Channel):
        raise section["channels"].fail("a mask cannot tell channels apart: leave channels out with decode: mask")
    return decode


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
    return section["detector"].reference("detector", checks.detectors)


def _refuse_word_keys(section: Section, instead_of_whole_word: str) -> None:
    """Their defaults are allowed."""
    for index, fold in enumerate(section["fold"].items() if "fold" in section else ()):
        if fold.choice(Fold) in DISGUISES:
            raise section["fold"].items()[index].fail(f"is for words only: {', '.join(sorted(DISGUISES))}")
    of_words = ", of which it takes 60 %; give guard_tail in characters"
    more = {"variants": "", "edits": "", "whole_word": f"; {instead_of_whole_word}", "secret": of_words}
    for key, advice in more.items():
        if section.get(key, RULE.forms[key], None):
            raise section[key].fail(f"is for words only{advice}")


# What depends on the conversation


def _protect(section: Section) -> Protect:
    _refuse_word_keys(section, "min_words says how much of the prompt counts")
    if section.get("guard_tail", lambda value: value.integer(0), 0):
        raise section["guard_tail"].fail("is for words and patterns; min_words says how much of the prompt counts")
    if Direction.INPUT in section.get("apply_to", DIRECTIONS, frozenset()):
        raise section["apply_to"].fail("must be [output] with protect: the prompt itself is what is protected")
    return Protect(section["protect"].choice(Protect))


def _check_conversation(section: Section, source: str, action: Action) -> None:
    if source != "protect" and "min_words" in section:
        raise section["min_words"].fail("is for protect only")
    if not section.get("carry", Value.boolean, False):
        return
    if source not in WORD_SOURCES:
        raise section["carry"].fail(f"is for words only; a {source} is looked for in each answer by itself")
    if Direction.OUTPUT not in _apply_to(section, action):
        raise section["carry"].fail("is for answers; this rule applies to input only")
    if Channel.CONTENT not in section.get("channels", CHANNELS, frozenset(Channel)):
        raise section["carry"].fail("is for the channel content, which this rule leaves out")


# Words

# A word, and a function that makes an error with its place, which does not quote it.
LocatedWord: TypeAlias = tuple[str, Callable[[str], ConfigError]]


class _WordReader:
    """Reads the words of one rule after the other and enforces the bounds of all of them together."""

    def __init__(self, files: Files, checks: Checks) -> None:
        self._files = files
        self._checks = checks
        self._words = 0
        self._characters = 0

    def read(self, value: Value, source: str, fold: frozenset[Fold], edits: int) -> tuple[str, ...]:
        located = _words_in_place(value) if source == "words" else _words_of_file(value, self._files)
        words: list[str] = []
        for word, fail in located:
            self._count(word, fail)
            try:
                words.append(self._checked(word, fail, fold, edits))
            except ConfigError as error:
                value.note(error)
        return tuple(words)

    def _count(self, word: str, fail: Callable[[str], ConfigError]) -> None:
        self._words += 1
        self._characters += len(word)
        if self._words > MAX_WORDS or self._characters > MAX_CHARACTERS:
            raise fail(
                f"with this word the rules of the file have more than {MAX_WORDS} words or {MAX_CHARACTERS} characters "
                "together, and no more are allowed; shorten the lists"
            )

    def _checked(self, word: str, fail: Callable[[str], ConfigError], fold: frozenset[Fold], edits: int) -> str:
        if len(word) > MAX_WORD:
            raise fail(
                f"this word has {len(word)} characters, and {MAX_WORD} are allowed; a part of it is found as well"
            )
        seen = len(self._checks.fold_word(word, fold))
        if seen < (least := EDITS_FROM.get(edits, 0)):
            raise fail(
                f"this word has {seen} characters, and edits: {edits} is for words of at least {least}: a shorter one "
                "is too much like other words of ordinary texts"
            )
        if not seen:
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
    # A line at a time: while a thread splits a long list, every stream waits for the interpreter's lock.
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):  # noqa: B007  `fail` reads it
        start = line.lstrip(ASCII_SPACE)
        word = start.rstrip(ASCII_SPACE)
        if not word or start.startswith(("# ", "//")):
            continue
        if word == "#":
            raise fail(LONE_SIGN)
        empty = False
        yield word, fail
    if empty:
        raise value.fail(f"{shown}: holds no words")
