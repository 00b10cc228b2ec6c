"""Rules → matchers: one automaton for each lens, words and patterns apart, shared by all texts under the same rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TypeAlias

from gateway.automata.edges import is_word_char
from gateway.automata.literals import LINE_MARKS, LiteralKind, LiteralMachine
from gateway.automata.machine import StateMachine
from gateway.automata.obfuscation import Obfuscation
from gateway.automata.patterns import Pattern, PatternMachine, refuse_costly
from gateway.automata.phrases import WordMachine
from gateway.automata.positions import Positions, positions
from gateway.automata.regex import parse
from gateway.automata.word_trie import WordSet
from gateway.censor.carry import CarriedCursor, CarriedWords
from gateway.censor.common_words import are_few_common, is_common
from gateway.censor.detectors import DETECTORS, Detector, Format
from gateway.censor.disguised import disguises_of, folded_words, obfuscated, word_set
from gateway.censor.lens import Lens, lens_of
from gateway.censor.protect import Conversation, ProtectedPrompt
from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import (
    DISGUISES,
    Action,
    Channel,
    Direction,
    Fold,
    Mode,
    Overflow,
    Policy,
    Rule,
)

Words: TypeAlias = dict[str, tuple[LiteralKind, ...]]  # as a `LiteralMachine` takes them

PIECE = 1024
PIECE_WITH_PATTERNS = 64
_NOT_IN_LABELS = re.compile("[^A-Z0-9]")


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """What the censor does with a match of a rule. `order` is its place in the policy.
    `secret`: what is held for it is not released for want of room."""

    id: str
    order: int
    action: Action
    replacement: str
    mask: str | None
    message: str | None
    drops_marks: bool
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that one kind of text is scanned with. `rules[i]` belongs to the words and patterns tagged `i`.

    `quick`: no word is so long that `max_hold` could matter while every character folds to exactly one. `piece`: a text
    is scanned in pieces of so many characters. Holding and replacing copy what is held; and with patterns, a piece in
    which something is found, or a beginning could grow too old, is scanned character by character, all of it.
    `cost`: of a character of hostile text, in 2 microseconds, where that is much (`StateMachine.cost`).
    `max_unseen`: so many characters that a rule's lens makes vanish may be held besides. `prompts` and `carries` are
    the rules that depend on what came before the text; `carried` the words that it began. `passed`: short labels in
    which nothing was found; `passing` fills it.
    """

    rules: tuple[CompiledRule, ...]
    machines: tuple[WordMachine, ...]
    patterns: tuple[StateMachine, ...]
    max_hold: int
    on_overflow: Overflow
    quick: bool
    piece: int
    cost: int = 0
    max_unseen: int = MAX_UNSEEN
    prompts: tuple[ProtectedPrompt, ...] = ()
    carries: tuple[CarriedWords, ...] = ()
    carried: tuple[CarriedCursor, ...] = ()
    passed: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def protecting(self, conversation: Conversation) -> Program:
        """The program with automata of the system prompt. Raises `PromptTooLong`."""
        found = [prompt.machine(text) for prompt in self.prompts for text in conversation.system]
        machines = (*self.machines, *(machine for machine in found if machine is not None))
        quick = all(machine.reach < self.max_hold for machine in machines)
        return self if len(machines) == len(self.machines) else replace(self, machines=machines, quick=quick)

    def carrying(self, conversation: Conversation) -> Program:
        """The program for a text after earlier answers."""
        cursors = [words.cursor(conversation.answers) for words in self.carries] if conversation.answers else []
        carried = tuple(cursor for cursor in cursors if cursor is not None)
        return replace(self, carried=carried) if carried else self


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy, ready to run. A direction and channel without rules has no program: nothing there is scanned.
    `stops` is `compile_stops`. What every request asks of the programs is computed once: `reads_conversation` is
    whether a rule for answers depends on the request, `costly` the directions whose texts are scanned for more than
    words, `costs` the largest `Program.cost` of a direction, `steers` whether the model's decoding is influenced,
    `enforces` whether anything is changed, `labels` the program for the labels of answers."""

    policy: Policy
    programs: dict[tuple[Direction, Channel], Program]
    stops: Program | None = None
    reads_conversation: bool = field(init=False, compare=False)
    costly: frozenset[Direction] = field(init=False, compare=False)
    costs: dict[Direction, int] = field(init=False, compare=False)
    steers: bool = field(init=False, compare=False)
    enforces: bool = field(init=False, compare=False)
    labels: Program | None = field(init=False, compare=False)
    _scanned: frozenset[Direction] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        costly = {way for (way, _), program in self.programs.items() if program.patterns or program.prompts}
        if self.policy.constrain is not None:
            costly.add(Direction.OUTPUT)
        programs = self.programs.values()
        costs = {
            way: max((p.cost for (of, _), p in self.programs.items() if of is way), default=0) for way in Direction
        }
        for name, value in (
            ("reads_conversation", any(program.prompts or program.carries for program in programs)),
            ("costly", frozenset(costly)),
            ("costs", costs),
            ("steers", self.stops is not None or bool(self.policy.masked)),
            ("enforces", self.policy.mode is Mode.ENFORCE),
            ("labels", self.program(Direction.OUTPUT, Channel.OTHER)),
            ("_scanned", frozenset(way for way, _ in self.programs)),
        ):
            object.__setattr__(self, name, value)

    def program(self, direction: Direction, channel: Channel) -> Program | None:
        return self.programs.get((direction, channel))

    def scans(self, direction: Direction) -> bool:
        return direction in self._scanned

    def for_answer(self, conversation: Conversation) -> CompiledPolicy:
        """The policy for the answer to a request with such a conversation. Raises `PromptTooLong`."""
        opened: dict[int, Program] = {}
        programs = dict(self.programs)
        for (direction, channel), program in self.programs.items():
            if direction is Direction.OUTPUT:
                if id(program) not in opened:
                    opened[id(program)] = program.protecting(conversation)
                programs[direction, channel] = opened[id(program)]
        content = Direction.OUTPUT, Channel.CONTENT
        if content in programs:
            programs[content] = programs[content].carrying(conversation)
        stops = None if self.stops is None else self.stops.protecting(conversation)
        return replace(self, programs=programs, stops=stops)


def fold_word(word: str, folds: frozenset[Fold]) -> str:
    """How a rule with these folds sees `word`."""
    return lens_of(folds).fold_word(word)


def compile_policy(policy: Policy) -> CompiledPolicy:
    """Raises ValueError when a word is empty through its rule's lens, or a pattern is none that can be run (the loader
    refuses both with file and key)."""
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
    return CompiledPolicy(policy, programs, compile_stops(policy))


def compile_rules(policy: Policy, *rules: Rule) -> Program:
    """What a policy would be of these rules alone, whatever they apply to. Raises as `compile_policy` does."""
    return _compile(policy, list(rules))


def compile_stops(policy: Policy) -> Program | None:
    """What ends or rolls back the `content` of an answer: the blocking rules, and those that roll back, as such. None
    if there is nothing to roll back. Raises as `compile_policy` does."""
    stopping = [
        rule
        for rule in policy.rules
        if rule.action in (Action.BLOCK, Action.ROLLBACK)
        and Direction.OUTPUT in rule.apply_to
        and Channel.CONTENT in rule.channels
    ]
    if policy.mode is not Mode.ENFORCE or all(rule.action is Action.BLOCK for rule in stopping):
        return None
    return _compile(policy, stopping, stops=True)


def _compile(policy: Policy, rules: list[Rule], *, stops: bool = False) -> Program:
    """`stops`: rules that roll back do so, and do not act as `exhausted`."""
    compiled: list[CompiledRule] = []
    literals: dict[frozenset[Fold], Words] = {}
    patterns: dict[frozenset[Fold], list[Pattern]] = {}
    disguised: dict[tuple[frozenset[Fold], Obfuscation, bool], list[WordSet]] = {}
    carries: dict[frozenset[Fold], Words] = {}
    prompts: list[ProtectedPrompt] = []
    for order, rule in enumerate(rules):
        lens = lens_of(rule.fold - DISGUISES)
        action = Action.FLAG if policy.mode is Mode.OBSERVE else rule.action if stops else rule.acts_as
        replacement = f"<{label(rule)}>" if action is Action.PSEUDONYMIZE else rule.replacement
        secret = rule.secret and not stops
        compiled.append(
            CompiledRule(rule.id, order, action, replacement, rule.mask, rule.message, lens.drops_marks, secret)
        )
        holds = action is not Action.FLAG
        if rule.words:
            for disguises, edits in disguises_of(rule):
                key = rule.fold - DISGUISES, disguises, bool(edits)
                spared = partial(_is_spared, rule)
                words_of = word_set(rule, order, holds, disguises, edits, partial(_guard, rule), spared)
                disguised.setdefault(key, []).append(words_of)
            if not rule.fold & DISGUISES:
                _add_words(literals.setdefault(rule.fold, {}), rule, order, lens, holds)
            if rule.carry and not stops:
                _add_words(carries.setdefault(rule.fold - DISGUISES, {}), rule, order, lens, holds)
        elif rule.protect is not None:
            prompts.append(ProtectedPrompt(rule, order, holds, policy.max_hold))
        else:
            patterns.setdefault(pattern_folds(rule), []).extend(_patterns(rule, order, holds))
    machines = tuple(machine for folds, group in literals.items() for machine in _machines(group, folds))
    automata = (
        *(PatternMachine(group, Lens(folds).fold) for folds, group in patterns.items()),
        *(obfuscated(folds, disguises, group) for (folds, disguises, _), group in disguised.items()),
    )
    return Program(
        rules=tuple(compiled),
        machines=machines,
        patterns=automata,
        max_hold=policy.max_hold,
        on_overflow=Overflow.RELEASE if stops else policy.on_overflow,
        quick=all(machine.reach < policy.max_hold for machine in machines),
        piece=max(1, min(PIECE_WITH_PATTERNS, policy.max_hold // 4)) if automata else PIECE,
        cost=sum(machine.cost for machine in automata),
        prompts=tuple(prompts),
        carries=tuple(
            CarriedWords(machine, Lens(folds), policy.max_hold)
            for folds, group in carries.items()
            for machine in _machines(group, folds)
        ),
    )


def _add_words(words: Words, rule: Rule, order: int, lens: Lens, holds: bool) -> None:
    nothing: frozenset[int] = frozenset()
    shared: dict[LiteralKind, tuple[LiteralKind, ...]] = {}
    for text, seen in folded_words(rule, lens).items():
        left = rule.whole_word and is_word_char(text[0])
        right = rule.whole_word and is_word_char(text[-1])
        for spelling in lens.spellings(text):
            spared = _spared(rule, spelling) if rule.secret else nothing
            of_word = "" if seen == spelling else seen
            kind = LiteralKind(order, left, right, holds, _guard(rule, len(spelling)), spared, of_word)
            words[spelling] = words.get(spelling, ()) + shared.setdefault(kind, (kind,))


def _machines(words: Words, folds: frozenset[Fold]) -> Iterable[LiteralMachine]:
    """One machine, and where a blank takes the marks that begin lines, one more for words that have such a mark there
    themselves."""
    fold = Lens(folds).fold
    if Fold.SPACE not in folds or not any(" " in text for text in words):
        yield LiteralMachine(words, fold)
        return
    marked = {text: kinds for text, kinds in words.items() if _is_marked(text)}
    if len(marked) < len(words):
        others = {text: kinds for text, kinds in words.items() if text not in marked} if marked else words
        yield LiteralMachine(others, fold, spaces=True)
    if marked:
        yield LiteralMachine(marked, fold, spaces=True, line_marks=frozenset())


def _is_marked(text: str) -> bool:
    """Does a mark that begins lines stand at the beginning, or behind a blank?"""
    return text[0] in LINE_MARKS or any(char in LINE_MARKS for before, char in pairwise(text) if before == " ")


@lru_cache(256)
def detector_positions(form: Format, folds: frozenset[Fold]) -> Positions:
    """The automaton of a form as a rule with these folds sees it. Raises RegexError, and ValueError for a context that
    no automaton can be made of."""
    lens, ignore_case = Lens(folds - {Fold.CASE, Fold.SPACE}), Fold.CASE in folds
    body, before, after = (
        parse(unicodedata.normalize("NFC", part), ignore_case=ignore_case, fold=lens.letter_forms)
        for part in (form.body, form.before, form.after)
    )
    return positions(body, before, after)


def pattern_positions(pattern: str, folds: frozenset[Fold]) -> Positions:
    """The automaton of a rule's pattern. Raises RegexError, also for one on which text could spend too much time.

    The detectors' own are measured instead (`loadtest.pattern_bench`): what bounds a pattern's work overrates an
    alternation of many beginnings that no text can be in the middle of at once.
    """
    return refuse_costly(detector_positions(Format(pattern), folds))


def pattern_folds(rule: Rule) -> frozenset[Fold]:
    """What is folded in the text for a pattern or detector: `case` is in the pattern itself, as its (?i), and so is
    white space, as its \\s+."""
    return _folds(rule) - {Fold.CASE, Fold.SPACE}


def _folds(rule: Rule) -> frozenset[Fold]:
    exact = rule.detector is not None and _detector(rule.id, rule.detector).exact
    return frozenset() if exact else rule.fold


def _patterns(rule: Rule, order: int, holds: bool) -> Iterable[Pattern]:
    automata: list[tuple[Positions, Callable[[str], bool] | None]]
    if rule.detector is not None:
        detector = _detector(rule.id, rule.detector)
        automata = [
            (detector_positions(form, _folds(rule)), form.validate or detector.validate) for form in detector.formats
        ]
    else:
        assert rule.pattern is not None
        automata = [(pattern_positions(rule.pattern, rule.fold), None)]
    for automaton, accepts in automata:
        yield Pattern(automaton, tag=order, holds=holds, guard=rule.guard_tail or 0, accepts=accepts)


def label(rule: Rule) -> str:
    """The name of a rule's values in placeholders, such as EMAIL."""
    return (
        _detector(rule.id, rule.detector).label
        if rule.detector is not None
        else _NOT_IN_LABELS.sub("_", rule.id.upper())
    )


def _detector(rule: str, name: str) -> Detector:
    if name not in DETECTORS:
        raise ValueError(f"rule {rule!r}: detector: {name!r} is not one of {', '.join(DETECTORS)}")
    return DETECTORS[name]


def _guard(rule: Rule, length: int) -> int:
    if rule.guard_tail is not None:
        return rule.guard_tail
    # 60 % rounded up, in whole numbers: "at least that many" of 9 characters are 6.
    return -(-length * 3 // 5) if rule.secret else 0


def _is_spared(rule: Rule, beginning: str) -> bool:
    """A secret's beginning that is a common word may end a text; a number of characters that was given holds."""
    if not rule.secret or rule.guard_tail is not None:
        return False
    return is_common(beginning) or (Fold.SPACING in rule.fold and are_few_common(beginning))


def _spared(rule: Rule, word: str) -> frozenset[int]:
    """The lengths of beginnings of a secret that are not guarded."""
    lengths = range(_guard(rule, len(word)), len(word))
    return frozenset(length for length in lengths if _is_spared(rule, word[:length]))
