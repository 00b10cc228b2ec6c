"""What a rule compiled to, in one line: lens, size, longest hold, and hold and matches measured on ordinary prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources

from gateway.automata.analysis import longest
from gateway.automata.machine import StateMachine
from gateway.automata.obfuscation import ObfuscatedWords
from gateway.automata.pattern_states import UNDECIDED
from gateway.automata.patterns import Pattern
from gateway.censor.compile import Program, compile_rules, fold_word
from gateway.censor.lens import Lens
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Mode, Policy, Rule, Strength
from gateway.policy.presets import explained

# A cut that resembles a tokenizer's: words with the blank before them, at most eight characters, and single signs.
_TOKEN = re.compile(r"\s?\w{1,8}|\s?[^\w\s]|\s")


@cache
def prose() -> tuple[str, ...]:
    """The bundled prose, in pieces as a model would send it."""
    text = resources.files("gateway.censor").joinpath("prose.txt").read_text(encoding="utf-8")
    return tuple(_TOKEN.findall(text))


def explain(policy: Policy) -> Iterator[str]:
    """One line for each rule, which is compiled for it. Raises ValueError as `compile_policy` does."""
    for rule in policy.rules:
        program = compile_rules(policy, rule)
        silent = rule.action is Action.FLAG or policy.mode is Mode.OBSERVE
        on_prose = "" if rule.protect is not None else _on_prose(program, silent=silent)
        hold = "holds nothing" if silent else _longest_hold(rule, program)
        strength = "" if rule.strength is Strength.PLAIN else f", {explained(rule.strength)}"
        yield f"rule {rule.id}: {rule.action}, {_size(rule, program)}, {hold}{on_prose}{strength}"


def _size(rule: Rule, program: Program) -> str:
    lens = Lens(rule.fold)
    if rule.words:
        lengths = [len(word) for word in {fold_word(word, rule.fold) for word in rule.words}]
        words = "1 word" if len(lengths) == 1 else f"{len(lengths)} words"
        shortest, longest_word = min(lengths), max(lengths)
        size = f"{shortest} to {longest_word}" if shortest < longest_word else f"{shortest}"
        return f"lens {lens}, {words} of {size} characters"
    if rule.protect is not None:
        return f"lens {lens}, runs of {rule.min_words} words of the request's {rule.protect.replace('_', ' ')}"
    what = "pattern" if rule.detector is None else f"detector {rule.detector}"
    (machine,) = program.patterns
    met = _states_met(machine, "".join(prose()))
    return f"lens {lens}, {what} of {len(list(machine.positions()))} states ({met} determinised on prose)"


def _states_met(machine: StateMachine, text: Iterable[str]) -> int:
    """How many states the determinised automaton has after reading `text`; it begins again behind a match."""
    state = machine.start()
    met = {(frozenset(state.entries), state.left)}
    for char in text:
        state = state[char]
        if state is UNDECIDED:
            state = machine.start()
        met.add((frozenset(state.entries), state.left))
    return len(met)


def _longest_hold(rule: Rule, program: Program) -> str:
    if any(isinstance(machine, ObfuscatedWords) for machine in program.patterns):
        most: int | None = None  # of letters that may be repeated, and of what lies between them
    elif rule.words:
        most = max(machine.reach for machine in program.machines) - 1
    elif rule.protect is not None:
        most = None
    else:
        lengths = [
            longest(pattern.positions)
            for machine in program.patterns
            for pattern in machine.patterns
            if isinstance(pattern, Pattern)
        ]
        most = max((length - 1 for length in lengths if length), default=0) if None not in lengths else None
    if most is None:
        return f"longest hold unbounded, at most max_hold ({program.max_hold}) characters"
    return f"longest hold {min(most, program.max_hold)} characters"


def _on_prose(program: Program, *, silent: bool) -> str:
    """How much the rule holds of ordinary prose, and how often it matches there."""
    censor = Censor(program)
    held: list[int] = []
    for piece in prose():
        censor.feed(piece)
        held.append(censor.held)
        if censor.ended:
            return ", typical hold unknown: it blocks the bundled prose"
    censor.finish()
    matches = f"{len(censor.matches) or 'no'} {'match' if len(censor.matches) == 1 else 'matches'}"
    found = f", {matches} in {_words_of_prose():,} words of prose"
    if silent:
        return found
    waiting = sum(1 for count in held if count) / len(held)
    return (
        f", typical hold {sum(held) / len(held):.2f} "
        f"({waiting:.1%} of pieces of prose end with something held, at most {max(held)} characters){found}"
    )


@cache
def _words_of_prose() -> int:
    return len("".join(prose()).split())
