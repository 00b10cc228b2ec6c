"""Words that continue from answer to answer, against the naive oracle on the answers as one text."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.censor.compile import Program, compile_policy
from gateway.censor.protect import Conversation
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Channel, Direction, Fold, Policy, Rule
from tests.support.examples import examples
from tests.support.oracle import Hit, Oracle

ALPHABET = "abß \u200b"
WORDS = st.text("abs ", min_size=1, max_size=5).filter(str.strip)
RULES = st.builds(
    Rule,
    id=st.just("r"),
    words=st.lists(WORDS, min_size=1, max_size=3).map(tuple),
    carry=st.booleans(),
    whole_word=st.booleans(),
    secret=st.booleans(),
    action=st.sampled_from((Action.REDACT, Action.REDACT, Action.FLAG)),
    replacement=st.just("[R]"),
    fold=st.sampled_from((frozenset({Fold.CASE, Fold.INVISIBLE}), frozenset())),
)
POLICIES = st.lists(RULES, min_size=1, max_size=2).map(
    lambda rules: Policy(name="p", rules=tuple(replace(rule, id=f"r{at}") for at, rule in enumerate(rules)))
)
ANSWERS = st.lists(st.text(ALPHABET, max_size=7), min_size=2, max_size=3)


def program_for(policy: Policy, before: str) -> Program:
    program = compile_policy(policy).for_answer(Conversation(answers=before)).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    return program


def run(program: Program, chunks: list[str]) -> tuple[str, Censor]:
    censor = Censor(program)
    return "".join(map(censor.feed, chunks)) + censor.finish(), censor


def hits_of(policy: Policy, before: str, text: str, ended: bool) -> tuple[list[Hit], int]:
    """The matches in the last answer, each cut to what is in it, and where what must be held begins."""
    oracle, length = Oracle(policy), len(before)
    own, live = oracle.candidates(text, ended)
    carried, carried_live = oracle.candidates(before + text, ended)
    crossing = [
        replace(hit, start=0, end=hit.end - length, certain=hit.certain - length)
        for hit in carried
        if hit.rule.carry and hit.start < length < hit.end
    ]
    starts = [start for start, *_ in live]
    starts += [0 for start, order, *_ in carried_live if policy.rules[order].carry and start < length]
    return own + crossing, min(starts, default=len(text))


@settings(max_examples=examples(800), deadline=None)
@given(POLICIES, ANSWERS, st.lists(st.integers(0, 7), max_size=2))
@example(Policy(name="p", rules=(Rule(id="r", words=("abß",), carry=True),)), ["a", "b", "s"], [])
def test_output_and_report_equal_the_oracle_for_every_cut(policy: Policy, answers: list[str], cuts: list[int]) -> None:
    before, text = "".join(answers[:-1]), answers[-1]
    hits, _ = hits_of(policy, before, text, ended=True)
    redacts = [hit for hit in hits if hit.action is Action.REDACT]
    edges = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    program = program_for(policy, before)
    for chunks in ([text], list(text), [text[start:end] for start, end in pairwise(edges)]):
        out, censor = run(program, chunks)
        assert out == Oracle(policy).render(text, redacts, len(text))
        assert {(rule, start, end) for rule, start, end, _ in censor.matches} == {
            (hit.rule.id, hit.start, hit.end) for hit in hits
        }
        assert censor.scanned == len(out) - censor.inserted + censor.replaced


@settings(max_examples=examples(800), deadline=None)
@given(POLICIES, ANSWERS)
def test_nothing_is_held_that_no_rule_could_want(policy: Policy, answers: list[str]) -> None:
    before, text = "".join(answers[:-1]), answers[-1]
    censor, out = Censor(program_for(policy, before)), ""
    for read in range(1, len(text) + 1):
        out += censor.feed(text[read - 1])
        hits, live = hits_of(policy, before, text[:read], ended=False)
        redacts = [hit for hit in hits if hit.action is Action.REDACT and hit.certain <= read]
        assert out == Oracle(policy).render(text[:read], redacts, live)


PASSWORD = Rule(id="password", words=("12MONKEYS",), carry=True, secret=True, replacement="[R]")


@pytest.mark.parametrize(
    ("before", "text", "out"),
    [
        ("It begins 12MON", "KEYS, that is all.", "[R], that is all."),
        ("It begins 12MON", "KE", "[R]"),  # what the secret guards at the end
        ("It begins 12MON", "KEY that", "KEY that"),
        ("It begins 12MON.", "KEYS", "KEYS"),
        ("12\u200b" + "\u200b" * 3000 + "MON", "KEYS", "[R]"),
        ("12", "12MONKEYS", "[R]"),
        ("12MON", "\x1b[31mKEYS, 12MON\x1b[1mKEYS and on", "[R], [R] and on"),
        ("12MON", "\x1b[31m or 12MONKEYS and on", "\x1b[31m or [R] and on"),
    ],
)
def test_a_word_over_two_answers(before: str, text: str, out: str) -> None:
    program = program_for(Policy(name="p", rules=(PASSWORD,)), before)
    assert run(program, [text])[0] == run(program, list(text))[0] == out


def test_a_whole_word_begins_at_the_beginning_of_an_answer_whatever_came_before() -> None:
    rule = replace(PASSWORD, whole_word=True, secret=False)
    assert run(program_for(Policy(name="p", rules=(rule,)), "hello"), ["12monkeys"])[0] == "[R]"


def test_answers_that_end_with_no_beginning_cost_nothing() -> None:
    compiled = compile_policy(Policy(name="p", rules=(PASSWORD,)))
    plain = compiled.program(Direction.OUTPUT, Channel.CONTENT)
    assert compiled.for_answer(Conversation(answers="It is done.")).program(Direction.OUTPUT, Channel.CONTENT) is plain
    censor = Censor(compiled.for_answer(Conversation(answers="12")).program(Direction.OUTPUT, Channel.CONTENT))
    censor.feed("x")
    assert len(censor._scanner.literals) == 1


@pytest.mark.parametrize(
    ("before", "text", "rest"),
    [
        ("The Project ", " Heron.", "."),
        ("The Project", "\n> Heron.", "."),
        ("The Project\n", "- Heron.", "."),
        ("The Project \n", "Heron.", "."),
        ("The Project" + " " * 99, "Heron.", "."),
        ("The Project", "-Heron.", "."),
    ],
)
def test_a_blank_takes_a_run_of_white_space_from_one_answer_to_the_next(before: str, text: str, rest: str) -> None:
    policy = Policy(name="p", rules=(Rule(id="r", words=("Project Heron",), carry=True, replacement="[R]"),))
    for chunks in ([text], list(text)):
        assert run(program_for(policy, before), chunks)[0] == f"[R]{rest}"
