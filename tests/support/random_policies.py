"""Random policies over small alphabets, and what a censor makes of a text that is cut in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import AnyStr

from hypothesis import strategies as st

from gateway.censor.stream import Censor
from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import DISGUISES, Action, Channel, Direction, Fold, Mode, Overflow, Policy, Rule
from tests.support.compiled import compiled
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
    "ab \n->",
    "a_b_ ",
    "a_中2 ",
    "aạá\u0301\u0323",
    "aаæе\u2019'",
    "ab\u0085\u2003-\u2010\x1f",
    "am[;\x1b]\x07",
]
FOLDS = [fold for fold in Fold if fold not in DISGUISES]  # what a lens is made of
# A policy, a text, and how many characters that a lens makes vanish may be held.
Case = tuple[Policy, str, int]
BOUNDS = st.sampled_from([MAX_UNSEEN, MAX_UNSEEN, 0, 1, 2])


def censor_for(policy: Policy, max_unseen: int = MAX_UNSEEN) -> Censor:
    program = compiled(policy).program(Direction.OUTPUT, Channel.CONTENT)
    return Censor(program and replace(program, max_unseen=max_unseen))


def run(policy: Policy, pieces: Iterable[str], max_unseen: int = MAX_UNSEEN) -> tuple[str, Censor]:
    censor = censor_for(policy, max_unseen)
    out = "".join([censor.feed(piece) for piece in pieces])
    return out + censor.finish(), censor


def report(censor: Censor) -> list[tuple[str, int, int, Action]]:
    return sorted(tuple(match) for match in censor.matches)


ACTIONS = st.sampled_from([Action.REDACT, Action.REDACT, Action.REDACT, Action.FLAG, Action.BLOCK])
MODES = st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE])
TAILS, HOLDS = st.sampled_from([None, None, 0, 1, 2]), st.sampled_from([1024, 1024, 1, 2, 3, 4])
OVERFLOWS, FOLDINGS = st.sampled_from(list(Overflow)), st.sets(st.sampled_from(FOLDS)).map(frozenset)


@cache
def word_lists(alphabet: str) -> st.SearchStrategy[list[str]]:
    # So short that all spellings of a word are looked for.
    longest = 3 if "각" in alphabet else 4
    # Of many marks alone there are more orders than are looked for.
    word = st.text(alphabet, min_size=1, max_size=longest).filter(lambda it: it[:3].strip("\u0301\u0323"))
    return st.lists(word, min_size=1, max_size=3)


@cache
@st.composite
def policies(draw: st.DrawFn, alphabet: str) -> Policy:
    rules = []
    for number in range(draw(st.integers(1, 4))):
        fold, words, masked = draw(FOLDINGS), draw(word_lists(alphabet)), draw(st.booleans())
        rule = Rule(
            id=f"r{number}",
            words=tuple(words),
            fold=fold,
            action=draw(ACTIONS),
            replacement=f"<{number}>",
            mask="*" if masked else None,
            whole_word=draw(st.booleans()),
            guard_tail=draw(TAILS),
            secret=draw(st.booleans()),
        )
        try:
            compiled(Policy(name="p", rules=(rule,)))
        except ValueError:
            continue  # a word of nothing but invisible characters or marks
        rules.append(rule)
    return Policy(name="p", rules=tuple(rules), mode=draw(MODES), max_hold=draw(HOLDS), on_overflow=draw(OVERFLOWS))


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=4))
    return [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]


def blocks(policy: Policy) -> bool:
    return policy.on_overflow is Overflow.BLOCK or any(rule.action is Action.BLOCK for rule in policy.rules)


def cut(data: AnyStr, cuts: list[int]) -> list[AnyStr]:
    edges = [0, *sorted(at for at in cuts if at < len(data)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def assert_equal_to_the_oracle(case: Case, cuts: list[int]) -> None:
    """Output, report and verdict, whole, character by character and cut."""
    policy, text, unseen = case
    expected, matches, blocked = Oracle(policy, unseen).whole(text)
    edges = [0, *sorted(at for at in cuts if at <= len(text)), len(text)]
    for chunks in ([text], list(text), [text[a:b] for a, b in pairwise(edges)]):
        out, censor = run(policy, chunks, unseen)
        assert out == expected
        assert report(censor) == sorted(matches)
        assert (censor.blocked is not None) == blocked
        assert censor.scanned == len(out) - censor.inserted + censor.replaced + censor.withheld


def assert_nothing_more_is_held(case: Case) -> None:
    """After every character, all has been released that no rule could want."""
    policy, text, unseen = case
    oracle, censor, out = Oracle(policy, unseen), censor_for(policy, unseen), ""
    for read in range(1, len(text) + 1):
        out += censor.feed(text[read - 1])
        assert out == oracle.released(text[:read])


def assert_the_same_in_two(case: Case) -> None:
    policy, text, unseen = case
    expected, _ = run(policy, [text], unseen)
    for at in range(len(text) + 1):
        out, _ = run(policy, [text[:at], text[at:]], unseen)
        assert out == expected
