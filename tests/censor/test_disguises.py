"""Words in disguise against patterns that list every way to write them: random texts, every way of cutting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata import obfuscation
from gateway.automata.encodings import DRAWN, LEET
from gateway.policy.model import EDITS_FROM, Action, Fold, Policy, Rule
from tests.support.examples import examples
from tests.support.oracle import Oracle
from tests.support.random_policies import censor_for, report, run

GAP = r"[\W_]"
EDGE_BEFORE, EDGE_BEHIND = r"(?<!\w)", r"(?!\w)"


@pytest.fixture(autouse=True)
def short_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that texts of a few characters reach."""
    monkeypatch.setattr(obfuscation, "SHORT", 3)
    monkeypatch.setattr(obfuscation, "MAX_GAP", 2)
    for edits in EDITS_FROM:
        monkeypatch.setitem(EDITS_FROM, edits, edits + 2)


def repeated(word: str) -> Iterator[str]:
    yield "".join(f"{match[0][0]}{{{len(match[0])},}}" for match in re.finditer(r"(.)\1*", word))


def leet(word: str) -> Iterator[str]:
    """At least one letter is written as it is."""
    looks = {
        letter: "|".join(re.escape(sign) for sign, letters in [*LEET.items(), *DRAWN.items()] if letter in letters)
        for letter in word
    }
    for plain in range(len(word)):
        yield "".join(letter if at == plain else f"(?:{looks[letter]}|{letter})" for at, letter in enumerate(word))


def spaced(word: str) -> Iterator[str]:
    yield word
    gaps = ["", f"{GAP}{{1,2}}"]
    for chosen in product(gaps, repeat=len(word) - 1):
        if any(chosen) and (all(chosen) or len(word) >= 3):
            inner = "".join(letter + gap for letter, gap in zip(word, chosen, strict=False))
            yield f"{EDGE_BEFORE}{inner}{word[-1]}{EDGE_BEHIND}"


def edited(word: str, edits: int = 1) -> Iterator[str]:
    """The words that a match of the rule with `edits` may be: it begins and ends with letters of the word's own, of
    which the first and the last may be missing."""
    yield re.escape(word)
    if edits and len(word) >= EDITS_FROM[1]:
        for at in range(len(word)):
            yield re.escape(word[:at]) + re.escape(word[at + 1 :])
            if at > 0:
                yield re.escape(word[:at]) + "(?s:.)" + re.escape(word[at:])
            if 0 < at < len(word) - 1:
                yield re.escape(word[:at]) + "(?s:.)" + re.escape(word[at + 1 :])
            if 0 < at < len(word) - 2:
                yield re.escape(word[:at] + word[at + 1] + word[at] + word[at + 2 :])


# What a rule says, and every way to write a word of it.
KINDS: dict[str, tuple[dict[str, Any], Callable[[str], Iterator[str]], str]] = {
    "repeats": ({"fold": {Fold.REPEATS}}, repeated, "ab"),
    "leet": ({"fold": {Fold.LEET}}, leet, "as5$l1"),
    "spacing": ({"fold": {Fold.SPACING}}, spaced, "ab. -_"),
    "edits": ({"edits": 1, "fold": frozenset()}, edited, "abc"),
}


def as_pattern(word: str, ways: Callable[[str], Iterator[str]]) -> str:
    # The oracle takes every `$` for an edge.
    return "|".join(dict.fromkeys(ways(word))).replace("\\$", r"\x24")


class DisguisedOracle(Oracle):
    """Of a rule of one word, whose pattern it is given; `alphabet` is what texts go on with."""

    def __init__(self, policy: Policy, pattern: str, alphabet: str) -> None:
        (rule,) = policy.rules
        patterned = Rule(
            id=rule.id, pattern=pattern, action=rule.action, replacement=rule.replacement, fold=frozenset()
        )
        super().__init__(Policy(name="p", rules=(patterned,), max_hold=policy.max_hold, on_overflow=policy.on_overflow))
        self._alphabet = alphabet

    def may_go_on(self, pattern: str, folded: str, begin: int, alphabet: str) -> bool:
        return super().may_go_on(pattern, folded, begin, "".join(sorted(set(self._alphabet) | {" "})))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Policy, DisguisedOracle, str]:
    keys, ways, alphabet = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    letters = "".join(char for char in alphabet if char.isalpha())
    word = draw(st.text(letters, min_size=1, max_size=4))
    action = draw(st.sampled_from([Action.REDACT, Action.REDACT, Action.BLOCK]))
    rule = Rule(id="r", words=(word,), replacement="<r>", action=action, **keys)
    policy = Policy(name="p", rules=(rule,))
    oracle = DisguisedOracle(policy, as_pattern(word, ways), alphabet)
    return policy, oracle, draw(st.text(alphabet, max_size=7))


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.lists(st.integers(0, 9), max_size=3))
def test_output_and_verdict_equal_the_oracle_for_every_cut(
    case: tuple[Policy, DisguisedOracle, str], cuts: list[int]
) -> None:
    policy, oracle, text = case
    expected, matches, blocked = oracle.whole(text)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    for chunks in ([text], list(text), [text[a:b] for a, b in pairwise(edges)]):
        out, censor = run(policy, chunks)
        assert out == expected
        assert {line[0] for line in report(censor)} == {line[0] for line in matches}
        assert (censor.blocked is not None) == blocked
        assert censor.scanned == len(out) - censor.inserted + censor.replaced + censor.withheld


@settings(max_examples=examples(20), deadline=None)
@given(cases())
def test_nothing_is_held_that_no_disguise_could_want(case: tuple[Policy, DisguisedOracle, str]) -> None:
    policy, oracle, text = case
    censor, out = censor_for(policy), ""
    for read in range(1, len(text) + 1):
        out += censor.feed(text[read - 1])
        assert out == oracle.released(text[:read]), text[:read]
