"""The censor against the oracle: random rules, random texts, every way of cutting them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.censor.stream import Censor
from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import Action, Channel, Direction, Fold, Mode, Overflow, Policy, Rule
from tests.support.examples import examples
from tests.support.oracle import Oracle

ALPHABETS = [
    "ab",
    "ab ",
    "aAb_ .",
    "aé\u0301b",
    "a\u200bb",
    "ab\u200b\u0301",
    "sßfiﬁ",
    "각가ᄀ\u1161\u11a8",
    "a1\uff11 _",
    "中文a ",
    "カガパﾊｶﾞﾟ",
]


# A policy, a text, and how many characters that a lens makes vanish may be held.
Case = tuple[Policy, str, int]
BOUNDS = st.sampled_from([MAX_UNSEEN, MAX_UNSEEN, 0, 1, 2])


def censor_for(policy: Policy, max_unseen: int = MAX_UNSEEN) -> Censor:
    program = compile_policy(policy).program(Direction.OUTPUT, Channel.CONTENT)
    return Censor(program and replace(program, max_unseen=max_unseen))


def run(policy: Policy, pieces: Iterable[str], max_unseen: int = MAX_UNSEEN) -> tuple[str, Censor]:
    censor = censor_for(policy, max_unseen)
    out = "".join([censor.feed(piece) for piece in pieces])
    return out + censor.finish(), censor


def report(censor: Censor) -> list[tuple[str, int, int, Action]]:
    return sorted(tuple(match) for match in censor.matches)


@st.composite
def policies(draw: st.DrawFn, alphabet: str) -> Policy:
    rules = []
    for number in range(draw(st.integers(1, 4))):
        fold = draw(st.sets(st.sampled_from(list(Fold))))
        words = draw(st.lists(st.text(alphabet, min_size=1, max_size=4), min_size=1, max_size=3))
        masked = draw(st.booleans())
        rule = Rule(
            id=f"r{number}",
            words=tuple(words),
            fold=frozenset(fold),
            action=draw(st.sampled_from([Action.REDACT, Action.REDACT, Action.REDACT, Action.FLAG, Action.BLOCK])),
            replacement=f"<{number}>",
            mask="*" if masked else None,
            whole_word=draw(st.booleans()),
            guard_tail=draw(st.sampled_from([None, None, 0, 1, 2])),
            secret=draw(st.booleans()),
        )
        try:
            compile_policy(Policy(name="p", rules=(rule,)))
        except ValueError:
            continue  # a word of nothing but invisible characters or marks
        rules.append(rule)
    return Policy(
        name="p",
        rules=tuple(rules),
        mode=draw(st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE])),
        max_hold=draw(st.sampled_from([1024, 1024, 1, 2, 3, 4])),
        on_overflow=draw(st.sampled_from(list(Overflow))),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    alphabet = draw(st.sampled_from(ALPHABETS))
    return draw(policies(alphabet)), draw(st.text(alphabet, max_size=14)), draw(BOUNDS)


INSIDE_AN_EXPANSION = (
    Policy(
        name="p",
        rules=(Rule(id="r", words=("iß",), fold=frozenset({Fold.CASE})),),
        max_hold=1,
        on_overflow=Overflow.REDACT,
    ),
    "ﬁs",
    MAX_UNSEEN,
)

INSIDE_A_SYLLABLE = (
    Policy(
        name="p",
        rules=(Rule(id="r", words=("ᆨ가",), fold=frozenset({Fold.ACCENTS})),),
        max_hold=1,
        on_overflow=Overflow.REDACT,
    ),
    "각ᄀ",
    MAX_UNSEEN,
)


@settings(max_examples=examples(1500), deadline=None)
@given(cases(), st.lists(st.integers(0, 14), max_size=4))
@example(INSIDE_AN_EXPANSION, [])
@example(INSIDE_A_SYLLABLE, [])
def test_output_report_and_verdict_equal_the_oracle_for_every_cut(case: Case, cuts: list[int]) -> None:
    policy, text, unseen = case
    expected, matches, blocked = Oracle(policy, unseen).whole(text)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    for chunks in ([text], list(text), pieces):
        out, censor = run(policy, chunks, unseen)
        assert out == expected
        assert report(censor) == sorted(matches)
        assert (censor.blocked is not None) == blocked
        assert censor.scanned == len(out) - censor.inserted + censor.replaced + censor.withheld


@settings(max_examples=examples(1500), deadline=None)
@given(cases())
def test_nothing_is_held_that_no_rule_could_want(case: Case) -> None:
    policy, text, unseen = case
    oracle, censor, out = Oracle(policy, unseen), censor_for(policy, unseen), ""
    if not policy.rules:
        return
    for read in range(1, len(text) + 1):
        out += censor.feed(text[read - 1])
        assert out == oracle.released(text[:read])


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_every_two_way_split_gives_the_same(case: Case) -> None:
    policy, text, unseen = case
    expected, _ = run(policy, [text], unseen)
    for cut in range(len(text) + 1):
        out, _ = run(policy, [text[:cut], text[cut:]], unseen)
        assert out == expected
