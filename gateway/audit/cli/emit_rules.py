"""Word rules from findings, as YAML for the `rules` of a policy.

A rule for each string, so that what is matched later tells which finding it was. A word that holds another one, as a
rule's lens sees them, would never be needed: the shorter one is found wherever it is. A string that is longer than a
match can be becomes several words of one rule, its parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import ahocorasick

from gateway.censor.compile import fold_word
from gateway.policy.model import DEFAULT_FOLD, DEFAULT_MAX_HOLD, Action, Decode, Rule

FEW_CHARACTERS = 4  # words of fewer stand in ordinary text, too
ACTIONS = (Action.REDACT, Action.BLOCK, Action.FLAG, Action.ROLLBACK)

_HEAD = """\
# Written by portcullis audit: what a model says, as rules against it. They go under `rules` of a policy:
# policies: {default: {rules: [...]}}. `portcullis check` says whether the file with them is right.
"""


def rules_of(found: Iterable[str], *, action: Action = Action.REDACT, masked: bool = False) -> tuple[Rule, ...]:
    """A rule for each string that is needed, the shortest first; their ids are audit-1, audit-2 and so on.

    Space around a string is left out, since it need not be said. Strings of which a lens leaves nothing have no rule.
    `masked`: a model of one's own is not to say them at all.
    """
    decode = Decode.MASK if masked else None
    return tuple(
        Rule(id=f"audit-{number}", words=_parts(word), action=action, decode=decode)
        for number, word in enumerate(_needed(found), start=1)
    )


def short_words(rules: Iterable[Rule]) -> int:
    """The number of rules with a word so short that ordinary text is likely to contain it."""
    return sum(len(fold_word(word, rule.fold)) < FEW_CHARACTERS for rule in rules for word in rule.words)


def rules_yaml(rules: Iterable[Rule]) -> str:
    """The rules as YAML: a list, which is empty if there are none."""
    entries = [_entry(rule) for rule in rules]
    return _HEAD + ("".join(entries) if entries else "[]\n")


def _needed(found: Iterable[str]) -> list[str]:
    """The strings that hold no other one, the shortest first, each once."""
    by_form: dict[str, str] = {}
    for text in found:
        word = text.strip()
        if form := fold_word(word, DEFAULT_FOLD):
            known = by_form.setdefault(form, word)
            # Of two that a rule sees as one, the choice does not depend on the order in which they were found.
            by_form[form] = min(known, word)
    if not by_form:
        return []
    forms: ahocorasick.Automaton = ahocorasick.Automaton()
    for form in by_form:
        forms.add_word(form, len(form))
    forms.make_automaton()
    needed = [form for form in by_form if all(length == len(form) for _, length in forms.iter(form))]
    return [by_form[form] for form in sorted(needed, key=lambda form: (len(form), form))]


def _parts(word: str) -> tuple[str, ...]:
    """The word; or where no match can be so long its parts, about equally long, as a lens sees them."""
    form = fold_word(word, DEFAULT_FOLD)
    count = -(-len(form) // DEFAULT_MAX_HOLD)
    if count == 1:
        return (word,)
    return tuple(dict.fromkeys(form[len(form) * at // count : len(form) * (at + 1) // count] for at in range(count)))


def _entry(rule: Rule) -> str:
    words = ", ".join(map(_quoted, rule.words))
    decode = f", decode: {rule.decode}" if rule.decode else ""
    return f"- {{id: {json.dumps(rule.id)}, words: [{words}], action: {rule.action}{decode}}}\n"


def _quoted(word: str) -> str:
    """In double quotes, with escapes for what YAML does not take as it is, and for what would be a variable."""
    escaped = (_escaped(char) for char in word.replace("${", "$${"))
    return f'"{"".join(escaped)}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
