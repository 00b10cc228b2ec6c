"""Patterns in a stream against the oracle: random patterns beside random words, random texts, every way of cutting."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.automata.regex import RegexError
from gateway.censor.lens import Lens
from gateway.censor.window import MAX_UNSEEN
from gateway.policy.model import Action, Fold, Mode, Overflow, Policy, Rule
from tests.support.compiled import compiled
from tests.support.examples import examples
from tests.support.oracle import Oracle
from tests.support.random_policies import (
    BOUNDS,
    FOLDS,
    Case,
    assert_equal_to_the_oracle,
    assert_nothing_more_is_held,
    assert_the_same_in_two,
    censor_for,
    report,
    run,
)

pytestmark = pytest.mark.usefixtures("steps")

ALPHABETS = [
    *("ab", "ab ", "aAb_ ", "sſ\u212aß", "aﬁi", "a\u200bb", "ab\u200b\u0301", "각ᄀ\u1161\u11a8", "a1\uff11 "),
    *("a\n", "ab\n "),
]


def atoms(alphabet: str, lens: Lens) -> st.SearchStrategy[str]:
    """Literals are folded like words, which `re` does not know: those here fold to themselves. Classes are not."""
    literals = st.sampled_from([re.escape(char) for char in alphabet if lens.fold_word(char) == char])
    letters = st.sampled_from([re.escape(char) for char in alphabet])
    classes = st.lists(letters, min_size=1, max_size=2, unique=True).map(lambda it: f"[{''.join(it)}]")
    negated = letters.map(lambda it: f"[^{it}]")
    return st.one_of(literals, literals, literals, classes, negated, st.sampled_from([".", r"\w", r"\d", r"\s", r"\W"]))


def patterns(alphabet: str, lens: Lens) -> st.SearchStrategy[str]:
    """Patterns whose matches can be completed within the oracle's `LONGEST_CONTINUATION`."""

    atom = atoms(alphabet, lens)
    twice = atom.map(lambda it: f"(?:{it}){{2}}")

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        repeated = st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{1,}"]))
        either = st.tuples(inner, inner)
        return st.one_of(repeated.map(lambda it: f"(?:{it[0]}){it[1]}"), either.map(lambda it: f"(?:{it[0]}|{it[1]})"))

    one = st.recursive(st.one_of(atom, atom, twice), larger, max_leaves=2)
    edges = st.sampled_from(["", "", "", "", r"\b", r"\b", r"\B", "^", "$"])
    parts = st.lists(st.tuples(one, edges), min_size=1, max_size=2)
    return st.tuples(st.sampled_from(["", "", "", "(?i)", "(?m)", "(?im)"]), edges, parts).map(
        lambda it: it[0] + it[1] + "".join(a + b for a, b in it[2])
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    alphabet = draw(st.sampled_from(ALPHABETS))
    rules: list[Rule] = []
    for number in range(draw(st.integers(1, 3))):
        common = {
            "id": f"r{number}",
            "fold": frozenset(draw(st.sets(st.sampled_from(FOLDS)))),
            "action": draw(st.sampled_from([Action.REDACT, Action.REDACT, Action.REDACT, Action.FLAG, Action.BLOCK])),
            "replacement": f"<{number}>",
            "mask": draw(st.sampled_from([None, None, "*"])),
            "guard_tail": draw(st.sampled_from([None, None, None, 1, 2])),
        }
        if number and draw(st.booleans()):
            words = tuple(draw(st.lists(st.text(alphabet, min_size=1, max_size=3), min_size=1, max_size=2)))
            rule = Rule(**common, words=words, whole_word=draw(st.booleans()))
        else:
            rule = Rule(**common, pattern=draw(patterns(alphabet, Lens(common["fold"] - {Fold.CASE}))))
        try:
            compiled(Policy(name="p", rules=(rule,)))
        except (ValueError, RegexError):
            continue  # matches the empty string, or a word of nothing but invisible characters
        rules.append(rule)
    assume(rules)
    policy = Policy(
        name="p",
        rules=tuple(rules),
        mode=draw(st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE])),
        max_hold=draw(st.sampled_from([1024, 1024, 1, 2, 3, 4])),
        on_overflow=draw(st.sampled_from(list(Overflow))),
    )
    return policy, draw(st.text(alphabet, max_size=9)), draw(BOUNDS)


_REACHES_ON = Rule(id="r", pattern="a *", fold=frozenset())


@settings(max_examples=examples(150), deadline=None)
@example((Policy(name="p", rules=(_REACHES_ON,), max_hold=1, on_overflow=Overflow.REDACT), "a ", MAX_UNSEEN), [])
@example((Policy(name="p", rules=(_REACHES_ON,), max_hold=1, on_overflow=Overflow.BLOCK), "a ", MAX_UNSEEN), [])
@given(cases(), st.lists(st.integers(0, 9), max_size=3))
def test_output_report_and_verdict_equal_the_oracle_for_every_cut(case: Case, cuts: list[int]) -> None:
    assert_equal_to_the_oracle(case, cuts)


@settings(max_examples=examples(40), deadline=None)
@given(cases())
@example((Policy(name="p", rules=(Rule(id="r", pattern="(?:\\\n){2}"),)), "\n", MAX_UNSEEN))
def test_nothing_is_held_that_no_pattern_could_want(case: Case) -> None:
    assert_nothing_more_is_held(case)


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_every_two_way_split_gives_the_same(case: Case) -> None:
    assert_the_same_in_two(case)


LINES = [
    ("(?m)^a", "a\nba\na", "<r>\nba\n<r>"),
    ("(?m)a$", "ab\na\nba", "ab\n<r>\nb<r>"),
    ("(?m)^a$", "a\naa\na", "<r>\naa\n<r>"),
    (r"(?m)\Aa", "a\na", "<r>\na"),
    (r"(?m)a\Z", "a\na", "a\n<r>"),
    ("(?m:^)a", "b\na", "b\n<r>"),
    ("^a$", "a\na", "a\na"),
    ("(?m)^(?-m:^)a", "a\na", "<r>\na"),
    (r"(?m)^.*b.*$", "a\nabc\nb\nc", "a\n<r>\n<r>\nc"),
    (r"(?m)a$\n^b", "a\nb a\nab", "<r> a\nab"),
    (r"(?m)\b\w+$", "one two\nthree", "one <r>\n<r>"),
    (r"(?m)^token: \w+$", "token: x1\n token: y\ntoken: z!", "<r>\n token: y\ntoken: z!"),
    (r"(?m)a\r?$", "a\r\nb", "<r>\nb"),
    (r"(?m)a$", "a\r\u2028a", "a\r\u2028<r>"),
    (r"(?x) a \  b  # a blank", "a b ab", "<r> ab"),
    (r"[[:upper:]]{2}[[:digit:]]+", "AB12 Ab1", "<r> Ab1"),
]


@pytest.mark.parametrize(("pattern", "text", "out"), LINES)
def test_e12_lines_blanks_and_classes_under_every_cut(pattern: str, text: str, out: str) -> None:
    policy = Policy(name="p", rules=(Rule(id="r", pattern=pattern, replacement="<r>"),))
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert run(policy, [text[:first], text[first:second], text[second:]])[0] == out, (first, second)
    assert run(policy, list(text))[0] == out


def test_e12_lines_beside_patterns_that_know_none_and_with_a_short_window() -> None:
    """A line break that is a kind of its own changes nothing for the others, nor where beginnings grow too old."""
    lines = Rule(id="lines", pattern="(?m)^a[^x]*$", replacement="<l>")
    plain = Rule(id="plain", pattern=r"\Bb\W+c\b", replacement="<p>")
    text = "ab\n c\naaaa\nab \nc"
    for max_hold in (2, 3, 1024):
        policy = Policy(name="p", rules=(lines, plain), max_hold=max_hold)
        expected, matches, _ = Oracle(policy).whole(text)
        for chunks in ([text], list(text), [text[:5], text[5:9], text[9:]]):
            out, censor = run(policy, chunks)
            assert (out, report(censor)) == (expected, sorted(matches))


@pytest.mark.parametrize(
    ("pattern", "text", "released"),
    [
        (r"a\b|a\B", "xa y", ["x", "<r>", " ", "y"]),
        ("b|b$", "abc", ["a", "<r>", "c"]),
        (r"a|\S\B", "a b", ["<r>", " ", ""]),
        (r"(?:a|.{2})\b.?", "a ", ["", "<r>"]),
        (r"(?m)a$|a[^\n]", "xa\ny", ["x", "", "<r>\n", "y"]),
        (r"(?m)a$|a(?:\b|\B)", "xa\ny", ["x", "<r>", "\n", "y"]),
        (r"(?m)^a", "xa\na", ["x", "a", "\n", "<r>"]),
        (r"(?m)^$\n", "a\n\n", ["a", "\n", "<r>"]),
    ],
)
def test_nothing_waits_for_a_character_that_cannot_matter(pattern: str, text: str, released: list[str]) -> None:
    """Several alternatives may be certain together where none is alone."""
    censor = censor_for(Policy(name="p", rules=(Rule(id="r", pattern=pattern, replacement="<r>"),)))
    assert [censor.feed(char) for char in text] == released
