"""Labels that clients may append: the same verdicts as one censor over all of them, in time that is linear."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata.nfa import NfaSimulation
from gateway.censor.compile import Program, compile_policy
from gateway.censor.joins import MAX_LABEL, MAX_STEPS, LabelAutomaton
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Channel, Direction, Overflow, Policy, Rule
from tests.support.examples import examples


def program(*rules: Rule, **given: object) -> Program:
    compiled = compile_policy(Policy(name="p", rules=rules, **given)).program(Direction.OUTPUT, Channel.OTHER)  # type: ignore[arg-type]
    assert compiled is not None
    return compiled


def shown(joins: LabelAutomaton, labels: list[str]) -> list[str]:
    sequence, kept = joins.start, []
    for label in labels:
        reached = joins.follow(sequence, label)
        if reached is not None:
            sequence = reached
            kept.append(label)
    return kept


def naively_shown(compiled: Program, labels: list[str]) -> list[str]:
    """All that was shown so far and the new label, from the beginning, each time."""
    kept: list[str] = []
    for label in labels:
        censor = Censor(compiled)
        for each in (*kept, label):
            censor.feed_exempt(each)
        censor.finish()
        if not (censor.changed or censor.blocked):
            kept.append(label)
    return kept


PROGRAMS = [
    program(Rule(id="r", words=("abba", "bab"))),
    program(Rule(id="r", words=("abba",), whole_word=True), Rule(id="f", words=("a",), action=Action.FLAG)),
    program(Rule(id="r", words=("aabbaabb",), secret=True)),
    program(Rule(id="r", words=("abab",), action=Action.BLOCK), Rule(id="p", pattern=r"\bba+b\b")),
    program(Rule(id="p", pattern="b[ab]{2,9}c"), max_hold=8, on_overflow=Overflow.REDACT),
    program(Rule(id="p", pattern="ab*c"), Rule(id="w", words=("b" * 12,)), max_hold=5, on_overflow=Overflow.BLOCK),
    program(Rule(id="p", pattern="a[ab]*c"), Rule(id="e", detector="email"), max_hold=16),
    program(Rule(id="d", detector="email"), Rule(id="t", detector="us_ssn")),
]  # fmt: skip
PIECES = ["a", "b", "ab", "ba", "bb", "abb", " ", "c", "a\u200bb", "@b.", "co", "123-", "45-6789", "b" * 9]
LABELS = st.lists(st.sampled_from(PIECES), max_size=24)


@settings(max_examples=examples(600), deadline=None)
@given(st.sampled_from(PROGRAMS), LABELS, st.integers(1, 3))
def test_d12_labels_are_judged_as_one_censor_over_all_of_them_would(
    compiled: Program, labels: list[str], times: int
) -> None:
    assert shown(LabelAutomaton(compiled), labels * times) == naively_shown(compiled, labels * times)


@pytest.mark.parametrize("filler", [0, 5, 1014, 1015, 1016, 1021, 5000])
def test_d12_a_label_of_any_length_is_checked_against_itself(filler: int) -> None:
    joins = LabelAutomaton(program(Rule(id="r", words=("12MONKEYS",))))
    label = "KEYS" + "x" * filler + "12MON"
    assert shown(joins, [label] * 3) == [label]
    assert shown(joins, ["x" + label[:-1]] * 3) == ["x" + label[:-1]] * 3


@pytest.mark.parametrize(
    "rule", [Rule(id="r", words=("abcd",)), Rule(id="r", pattern="abcd"), Rule(id="r", pattern=r"b?abcd\b")]
)
@pytest.mark.parametrize("labels", [["ab", "cd"], ["a", "bcd"], ["abc", "d"], ["a", "b", "c", "d"], ["xabcd ab", "cd"]])
def test_d12_a_match_across_labels_counts_wherever_they_meet(rule: Rule, labels: list[str]) -> None:
    assert shown(LabelAutomaton(program(rule)), labels) == labels[:-1]


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many characters are given to a censor, and how many steps its patterns take in the exact path."""
    counts = {"characters": 0, "steps": 0}
    feed, step = Censor.feed_exempt, NfaSimulation.step

    def feeding(censor: Censor, text: str) -> str:
        counts["characters"] += len(text)
        return feed(censor, text)

    def stepping(starts: NfaSimulation, char: str, offset: int, earliest: int) -> object:
        counts["steps"] += 1
        return step(starts, char, offset, earliest)

    monkeypatch.setattr(Censor, "feed_exempt", feeding)
    monkeypatch.setattr(NfaSimulation, "step", stepping)
    return counts


HOSTILE = {
    "varying": [f"v{number}" for number in range(3000)],
    "one that grows": list("ab" * 2000),
    "an address without an end": ["a"] * 900 + ["@b.c", "om", "a", "om", "b"] * 500,
    "turned away again and again": ["a@" + "b" * 900 + ".co"[:2]] + ["om", "com", "de"] * 800,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_d6_each_label_is_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = HOSTILE[name]
    size = sum(map(len, labels))
    joins = LabelAutomaton(
        program(Rule(id="w", words=("12MONKEYS",)), Rule(id="e", detector="email"), Rule(id="u", detector="url"))
    )
    counts = counted(monkeypatch)
    shown(joins, labels)
    assert 0 < counts["characters"] <= size
    # The end of a label is an end, for which a few characters are taken again.
    assert counts["steps"] <= 80 * len(labels) + 8 * size


@pytest.mark.parametrize("cycle", [["name"], ["https", "2024", "[REDACTED]"], [f"v{number}" for number in range(100)]])
def test_d6_labels_that_repeat_are_looked_up(cycle: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    joins = LabelAutomaton(
        program(Rule(id="w", words=("12MONKEYS",)), *(Rule(id=d, detector=d) for d in ("email", "us_ssn")))
    )
    shown(joins, cycle * 70)
    counts = counted(monkeypatch)
    assert shown(joins, cycle * 100) == cycle * 100
    assert counts == {"characters": 0, "steps": 0}


def test_d6_what_is_kept_of_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    joins = LabelAutomaton(program(Rule(id="w", words=("12MONKEYS",))))
    labels = [f"{number}-12MON" for number in range(MAX_STEPS + 50)]
    shown(joins, labels)
    counts = counted(monkeypatch)
    shown(joins, labels[:MAX_STEPS])
    assert counts["characters"] == 0
    shown(joins, labels[MAX_STEPS:])
    assert counts["characters"] == sum(map(len, labels[MAX_STEPS:]))
    for length, read in ((MAX_LABEL, 0), (MAX_LABEL + 1, MAX_LABEL + 1)):
        joins = LabelAutomaton(program(Rule(id="w", words=("12MONKEYS",))))
        joins.follow(joins.start, string.ascii_lowercase[0] * length)
        counts["characters"] = 0
        joins.follow(joins.start, "a" * length)
        assert counts["characters"] == read
