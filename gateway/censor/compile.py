"""Rules → matchers: one automaton for each lens, shared by all texts that the same rules apply to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.automata.literals import Literal, LiteralMachine, is_word_char
from gateway.censor.lens import Lens, is_cjk
from gateway.policy.model import Action, Channel, Direction, Fold, Mode, Overflow, Policy, Rule


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """What the censor needs to know of a rule when one of its words is found. `order` is its place in the policy."""

    id: str
    order: int
    action: Action
    replacement: str
    mask: str | None
    message: str | None
    drops_marks: bool


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that one kind of text is scanned with. `rules[i]` belongs to the literals tagged `i`.

    `quick`: no word is so long that `max_hold` could matter while every character folds to exactly one.
    """

    rules: tuple[CompiledRule, ...]
    machines: tuple[LiteralMachine, ...]
    lenses: tuple[Lens, ...]
    max_hold: int
    on_overflow: Overflow
    quick: bool


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy, ready to run. A direction and channel without rules has no program: nothing there is looked at."""

    policy: Policy
    programs: dict[tuple[Direction, Channel], Program]

    def program(self, direction: Direction, channel: Channel) -> Program | None:
        return self.programs.get((direction, channel))

    def scans(self, direction: Direction) -> bool:
        return any(key[0] is direction for key in self.programs)


def fold_word(word: str, folds: frozenset[Fold]) -> str:
    """How a rule with these folds sees `word`."""
    return Lens(folds).fold_word(word)


def compile_policy(policy: Policy) -> CompiledPolicy:
    """Raises ValueError when a word is empty through its rule's lens (the loader refuses that with file and key)."""
    by_rules: dict[tuple[int, ...], Program] = {}
    programs: dict[tuple[Direction, Channel], Program] = {}
    for direction in Direction:
        for channel in Channel:
            chosen = tuple(
                order
                for order, rule in enumerate(policy.rules)
                if direction in rule.apply_to and channel in rule.channels
            )
            if not chosen:
                continue
            if chosen not in by_rules:
                by_rules[chosen] = _compile(policy, [policy.rules[order] for order in chosen])
            programs[direction, channel] = by_rules[chosen]
    return CompiledPolicy(policy, programs)


def _compile(policy: Policy, rules: list[Rule]) -> Program:
    compiled: list[CompiledRule] = []
    literals: dict[frozenset[Fold], list[Literal]] = {}
    for order, rule in enumerate(rules):
        lens = Lens(rule.fold)
        action = Action.FLAG if policy.mode is Mode.OBSERVE else rule.action
        compiled.append(
            CompiledRule(rule.id, order, action, rule.replacement, rule.mask, rule.message, lens.drops_marks)
        )
        literals.setdefault(rule.fold, []).extend(_literals(rule, order, lens, holds=action is not Action.FLAG))
    lenses = {folds: Lens(folds) for folds in literals}
    machines = tuple(LiteralMachine(group, lenses[folds].fold) for folds, group in literals.items())
    return Program(
        rules=tuple(compiled),
        machines=machines,
        lenses=tuple(lenses.values()),
        max_hold=policy.max_hold,
        on_overflow=policy.on_overflow,
        # A whole word needs one character more, to see its right edge.
        quick=all(machine.longest < policy.max_hold for machine in machines),
    )


def _literals(rule: Rule, order: int, lens: Lens, holds: bool) -> Iterable[Literal]:
    for text in dict.fromkeys(map(lens.fold_word, rule.words)):
        if not text:
            raise ValueError(f"rule {rule.id!r}: a word is empty when seen through the lens {lens}")
        yield Literal(
            text,
            tag=order,
            left=rule.whole_word and _needs_edge(text[0]),
            right=rule.whole_word and _needs_edge(text[-1]),
            holds=holds,
            guard=_guard(rule, len(text)),
        )


def _needs_edge(char: str) -> bool:
    return is_word_char(char) and not is_cjk(char)


def _guard(rule: Rule, length: int) -> int:
    if rule.guard_tail is not None:
        return rule.guard_tail
    # 60 % rounded up, in whole numbers: "at least that many" of 9 characters are 6.
    return -(-length * 3 // 5) if rule.secret else 0
