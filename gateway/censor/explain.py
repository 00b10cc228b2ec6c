"""What a rule compiled to, in words: lens, size, longest hold, and how long it makes ordinary prose wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

from gateway.censor.compile import CompiledPolicy, compile_policy
from gateway.censor.lens import Lens
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Channel, Direction, Mode, Policy, Rule

# A cut that resembles a tokenizer's: words with the blank before them, at most eight characters, and single signs.
_TOKEN = re.compile(r"\s?\w{1,8}|\s?[^\w\s]|\s")


def prose() -> list[str]:
    """The bundled prose, in pieces as a model would send it."""
    text = resources.files("gateway.censor").joinpath("prose.txt").read_text(encoding="utf-8")
    return _TOKEN.findall(text)


def explain(policy: Policy) -> Iterator[str]:
    """One line for each rule."""
    pieces = prose()
    for rule in policy.rules:
        single = Policy(name=policy.name, rules=(rule,), mode=policy.mode, max_hold=policy.max_hold)
        compiled = compile_policy(single)
        yield f"rule {rule.id}: {rule.action}, {_size(rule)}, {_hold(rule, compiled, pieces)}"


def _size(rule: Rule) -> str:
    lens = Lens(rule.fold)
    words = {lens.fold_word(word) for word in rule.words}
    lengths = [len(word) for word in words]
    return f"lens {lens}, {len(words)} words of {min(lengths)} to {max(lengths)} characters"


def _hold(rule: Rule, compiled: CompiledPolicy, pieces: list[str]) -> str:
    if rule.action is Action.FLAG or compiled.policy.mode is Mode.OBSERVE:
        return "holds nothing"
    direction = next(iter(sorted(rule.apply_to)))
    channel = next(iter(sorted(rule.channels)))
    censor = Censor(compiled.program(Direction(direction), Channel(channel)))
    held: list[int] = []
    for piece in pieces:
        censor.feed(piece)
        held.append(censor.held)
        if censor.ended:
            return "longest hold unknown: it blocks the bundled prose"
    lens = Lens(rule.fold)
    longest = max(len(lens.fold_word(word)) for word in rule.words) - (0 if rule.whole_word else 1)
    waiting = sum(1 for count in held if count) / len(held)
    mean = sum(held) / len(held)
    return (
        f"longest hold {min(longest, compiled.policy.max_hold)} characters, typical hold {mean:.2f} "
        f"({waiting:.1%} of pieces of prose end with something held, at most {max(held)} characters)"
    )
